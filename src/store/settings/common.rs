//! The directives of a `ratelimit_store` block that every kind of datastore has.

use core::time::Duration;
use std::io;
use std::path::{Path, PathBuf};

use super::syntax::{
    DATABASE, FILE, PASSWORD, PASSWORD_FILE, SERVER, TIMEOUT, TLS_NAME, USERNAME, check_needs,
    exclusive,
};
use crate::policy::options::{Directive, DirectiveName, FLAG, OptionError};
use crate::store::contract::options::{
    Credentials, PemFile, Secret, StoreOptions, TlsIdentity, TlsOptions,
};
use crate::store::contract::server::{ServerAddress, ServerName, server_of_url};

/// The directives so far.
#[derive(Debug, Default)]
pub struct CommonDirectives {
    servers: Vec<ServerName>,
    username: Option<Secret>,
    password: Option<Secret>,
    /// Content of the file.
    password_file: Option<Secret>,
    /// It is the kind that knows what it may be: a number or a name.
    database: Option<Box<str>>,
    connect_timeout: Option<Duration>,
    timeout: Option<Duration>,
    tls: Option<bool>,
    tls_verify: Option<bool>,
    tls_name: Option<Box<str>>,
    tls_trusted_certificate: Option<PathBuf>,
    tls_certificate: Option<PathBuf>,
    tls_certificate_key: Option<PathBuf>,
}

const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(250);

impl CommonDirectives {
    pub(crate) const NAMES: [&str; 13] = [
        "server",
        "username",
        "password",
        "password_file",
        "database",
        "connect_timeout",
        "timeout",
        "tls",
        "tls_verify",
        "tls_name",
        "tls_trusted_certificate",
        "tls_certificate",
        "tls_certificate_key",
    ];

    /// Reads a directive, if it is one of these; `read_file` reads the file of a password.
    pub(crate) fn set(
        &mut self,
        name: &[u8],
        directive: &Directive<'_>,
        read_file: impl Fn(&Path) -> io::Result<Vec<u8>>,
    ) -> Option<Result<(), OptionError>> {
        Some(match name {
            b"server" => directive
                .word(&SERVER)
                .map_err(|error| without_url(directive, error))
                .and_then(|server| self.add_server(server)),
            b"username" => directive.set(&mut self.username, &USERNAME),
            b"password" => directive.set(&mut self.password, &PASSWORD),
            b"password_file" => {
                directive.set_with(&mut self.password_file, || read_password(directive, read_file))
            }
            b"database" => directive.set(&mut self.database, &DATABASE),
            b"connect_timeout" => directive.set(&mut self.connect_timeout, &TIMEOUT),
            b"timeout" => directive.set(&mut self.timeout, &TIMEOUT),
            b"tls" => directive.set(&mut self.tls, &FLAG),
            b"tls_verify" => directive.set(&mut self.tls_verify, &FLAG),
            b"tls_name" => directive.set(&mut self.tls_name, &TLS_NAME),
            b"tls_trusted_certificate" => directive.set(&mut self.tls_trusted_certificate, &FILE),
            b"tls_certificate" => directive.set(&mut self.tls_certificate, &FILE),
            b"tls_certificate_key" => directive.set(&mut self.tls_certificate_key, &FILE),
            _ => return None,
        })
    }

    /// The word of `database`, if it was given.
    pub(crate) fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// Whether no server is a path, which an option of this name cannot do with, if it `is_given`.
    pub(crate) fn check_no_path(&self, name: &str, is_given: bool) -> Result<(), OptionError> {
        let mut paths = self.servers.iter().filter_map(|server| match server {
            ServerName::Unix(path) => Some(path),
            ServerName::Tcp { .. } => None,
        });
        match paths.next() {
            Some(path) if is_given => {
                let server = format!("server \"unix:{}\"", path.display());
                Err(exclusive(name, &server, "host[:port] or [v6][:port]"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a user that was given has a password.
    #[cfg(feature = "cassandra")]
    pub(crate) fn check_password(&self) -> Result<(), OptionError> {
        let has_password = self.password.is_some() || self.password_file.is_some();
        let has_username = self.username.is_some();
        check_needs(&[("username", has_username, "password word", has_password)])
    }

    /// Whether no two of the options that were given exclude each other.
    ///
    /// What no further directive can mend is said at once, so that the message has its line.
    pub(crate) fn check(&self) -> Result<(), OptionError> {
        if self.password.is_some() && self.password_file.is_some() {
            return Err(exclusive("password", "\"password_file\"", "one of them"));
        }
        self.check_no_path("tls on", self.tls == Some(true))
    }

    /// All directives were read. Servers listen on `usual_port` unless they say otherwise.
    pub(crate) fn finish(mut self, usual_port: u16) -> Result<StoreOptions, OptionError> {
        let has_certificate = self.tls_certificate.is_some();
        let has_key = self.tls_certificate_key.is_some();
        check_needs(&[
            ("tls_certificate", has_certificate, "tls_certificate_key file", has_key),
            ("tls_certificate_key", has_key, "tls_certificate file", has_certificate),
        ])?;
        self.check_tls()?;
        Ok(StoreOptions {
            servers: self.servers(usual_port)?,
            tls: self.take_tls(),
            credentials: Credentials {
                username: self.username,
                password: self.password.or(self.password_file),
            },
            connect_timeout: self.connect_timeout.unwrap_or(DEFAULT_CONNECT_TIMEOUT),
            timeout: self.timeout.unwrap_or(DEFAULT_TIMEOUT),
        })
    }

    fn add_server(&mut self, server: ServerName) -> Result<(), OptionError> {
        if self.servers.contains(&server) {
            let message = format!("server \"{server}\" is duplicate");
            return Err(OptionError::new(message));
        }
        self.servers.push(server);
        Ok(())
    }

    /// The servers, at least one: where none is given, the usual one.
    fn servers(&self, usual_port: u16) -> Result<Vec<ServerAddress>, OptionError> {
        let mut servers = Vec::new();
        for (index, server) in self.servers.iter().enumerate() {
            let server = server.at(usual_port);
            if servers.contains(&server) {
                let message = format!("server \"{server}\" is duplicate");
                let name = "server";
                return Err(OptionError::new(message).of(DirectiveName { name, index }));
            }
            servers.push(server);
        }
        if servers.is_empty() {
            let (host, port) = ("127.0.0.1".into(), usual_port);
            servers.push(ServerAddress::Tcp { host, port });
        }
        Ok(servers)
    }

    /// Whether options of TLS were given where there is TLS: else a connection would be plain that
    /// looks as if it were not.
    fn check_tls(&self) -> Result<(), OptionError> {
        if self.tls == Some(true) {
            return match cfg!(feature = "tls") {
                true => Ok(()),
                false => Err(OptionError::new("\"tls on\" is not in this build").of("tls")),
            };
        }
        for (name, is_given) in [
            ("tls_verify", self.tls_verify.is_some()),
            ("tls_name", self.tls_name.is_some()),
            ("tls_trusted_certificate", self.tls_trusted_certificate.is_some()),
            ("tls_certificate", self.tls_certificate.is_some()),
            ("tls_certificate_key", self.tls_certificate_key.is_some()),
        ] {
            if is_given {
                let message = format!("\"{name}\" has no effect without TLS: add \"tls on;\"");
                return Err(OptionError::new(message).of(name));
            }
        }
        Ok(())
    }

    fn take_tls(&mut self) -> Option<TlsOptions> {
        let files = self.tls_certificate.take().zip(self.tls_certificate_key.take());
        (self.tls == Some(true)).then(|| TlsOptions {
            verify: self.tls_verify.unwrap_or(true),
            name: self.tls_name.take(),
            trusted_certificate: self.tls_trusted_certificate.take().map(PemFile::unread),
            identity: files.map(|(certificate, key)| TlsIdentity {
                certificate: PemFile::unread(certificate),
                key: PemFile::unread(key),
            }),
        })
    }
}

/// Adds to the error of a `server` that is a URL, what it would be here.
fn without_url(directive: &Directive<'_>, error: OptionError) -> OptionError {
    let Some(meant) = directive.only_word().and_then(server_of_url) else {
        return error;
    };
    let meant = match meant {
        Some(server) => format!(": did you mean \"server {server};\"?"),
        None => ": the parts of a URL are directives of their own".into(),
    };
    OptionError::new(format!("{error}{meant}"))
}

/// The password in the file that `directive` names, without the newline at its end.
fn read_password(
    directive: &Directive<'_>,
    read_file: impl Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Secret, OptionError> {
    let path = directive.word(&PASSWORD_FILE)?;
    let content = read_file(&path).map_err(|error| {
        let place = match is_surely_a_path(&path, &error) {
            true => format!("\"{}\": ", path.display()),
            false => String::new(),
        };
        OptionError::new(format!("password_file cannot be read ({place}{error})"))
    })?;
    let password = match content.as_slice() {
        [password @ .., b'\r', b'\n'] | [password @ .., b'\n'] | password => password,
    };
    let expected = "a file with a password of at least one character, in UTF-8";
    Secret::parse(password).ok_or_else(|| directive.invalid(None, expected))
}

/// Whether a word that names a file which cannot be read so is no password that was meant for another directive: it
/// has a directory or an extension, or there is such a file.
fn is_surely_a_path(path: &Path, error: &io::Error) -> bool {
    let has_directory = path.parent().is_some_and(|parent| parent != Path::new(""));
    has_directory || path.extension().is_some() || error.kind() != io::ErrorKind::NotFound
}
