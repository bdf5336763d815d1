//! The directives of a `ratelimit_store` block that every kind of datastore has.

use core::iter;
use core::num::NonZeroU32;
use core::time::Duration;
use std::io;
use std::path::{Path, PathBuf};

use super::syntax::{
    DATABASE, EXCHANGES, FILE, PASSWORD, PASSWORD_FILE, SERVER, TIMEOUT, TLS_NAME, USERNAME,
    exclusive, needs,
};
use crate::policy::options::{
    Directive, DirectiveName, Directives as _, FLAG, OptionError, directives,
};
use crate::store::contract::options::{
    Credentials, PemFile, Secret, StoreOptions, TlsIdentity, TlsOptions,
};
use crate::store::contract::server::{ServerAddress, ServerName, server_of_url};

directives! {
    /// The directives that were read so far, without `server`.
    struct CommonWords {
        username: Secret = USERNAME,
        password: Secret = PASSWORD,
        password_file: PathBuf = PASSWORD_FILE,
        /// A number or a name: the chosen kind checks it.
        database: Box<str> = DATABASE,
        connect_timeout: Duration = TIMEOUT,
        timeout: Duration = TIMEOUT,
        exchanges: NonZeroU32 = EXCHANGES,
        tls: bool = FLAG,
        tls_verify: bool = FLAG,
        tls_name: Box<str> = TLS_NAME,
        tls_trusted_certificate: PathBuf = FILE,
        tls_certificate: PathBuf = FILE,
        tls_certificate_key: PathBuf = FILE,
    }
}

/// The directives that were read so far.
#[derive(Debug, Default)]
pub struct CommonDirectives {
    servers: Vec<ServerName>,
    read: CommonWords,
    /// The content of `password_file`.
    password_of_file: Option<Secret>,
}

const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(250);

impl CommonDirectives {
    /// Returns the names of the directives, in the order of messages.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        iter::once("server").chain(CommonWords::NAMES.iter().copied())
    }

    /// Reads a directive; returns `false` if it is none of these. `read_file` reads the file of a password.
    pub(crate) fn set(
        &mut self,
        directive: &Directive<'_>,
        read_file: impl Fn(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<bool, OptionError> {
        if directive.is("server") {
            let server = directive.word(&SERVER).map_err(|error| without_url(directive, error))?;
            return self.add_server(server).map(|()| true);
        }
        let is_common = self.read.set(directive)?;
        if let (true, Some(path)) = (directive.is("password_file"), &self.read.password_file) {
            self.password_of_file = Some(read_password(directive, path, read_file)?);
        }
        Ok(is_common)
    }

    /// The word of `database`, if it was given.
    pub(crate) fn database(&self) -> Option<&str> {
        self.read.database.as_deref()
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
    #[cfg(any(feature = "cassandra", feature = "etcd", feature = "memcached"))]
    pub(crate) fn check_password(&self) -> Result<(), OptionError> {
        let has_password = self.read.password.is_some() || self.password_of_file.is_some();
        match self.read.username {
            Some(_) if !has_password => Err(needs("username", "password word")),
            _ => Ok(()),
        }
    }

    /// Checks that no two of the given options exclude each other. An error that no further directive
    /// can correct is returned at once, so that the message has its line.
    pub(crate) fn check(&self) -> Result<(), OptionError> {
        if self.read.password.is_some() && self.read.password_file.is_some() {
            return Err(exclusive("password", "\"password_file\"", "one of them"));
        }
        self.check_no_path("tls on", self.read.tls == Some(true))
    }

    /// Completes the options after all directives were read. `usual_port` is the default port of the
    /// servers, and `usual_exchanges` the default of `exchanges`.
    pub(crate) fn finish(
        self,
        usual_port: u16,
        usual_exchanges: NonZeroU32,
    ) -> Result<StoreOptions, OptionError> {
        match (&self.read.tls_certificate, &self.read.tls_certificate_key) {
            (Some(_), None) => return Err(needs("tls_certificate", "tls_certificate_key file")),
            (None, Some(_)) => return Err(needs("tls_certificate_key", "tls_certificate file")),
            (Some(_), Some(_)) | (None, None) => {}
        }
        self.check_tls()?;
        let servers = self.servers(usual_port)?;
        let read = self.read;
        let files = read.tls_certificate.zip(read.tls_certificate_key);
        Ok(StoreOptions {
            servers,
            tls: (read.tls == Some(true)).then(|| TlsOptions {
                verify: read.tls_verify.unwrap_or(true),
                name: read.tls_name,
                trusted_certificate: read.tls_trusted_certificate.map(PemFile::unread),
                identity: files.map(|(certificate, key)| TlsIdentity {
                    certificate: PemFile::unread(certificate),
                    key: PemFile::unread(key),
                }),
            }),
            credentials: Credentials {
                username: read.username,
                password: read.password.or(self.password_of_file),
            },
            connect_timeout: read.connect_timeout.unwrap_or(DEFAULT_CONNECT_TIMEOUT),
            timeout: read.timeout.unwrap_or(DEFAULT_TIMEOUT),
            exchanges: read.exchanges.unwrap_or(usual_exchanges),
        })
    }

    fn add_server(&mut self, server: ServerName) -> Result<(), OptionError> {
        if self.servers.contains(&server) {
            let message = format!("server \"{server}\" is duplicate: expected it once");
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
                let message = format!("server \"{server}\" is duplicate: expected it once");
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
        if self.read.tls == Some(true) {
            return match cfg!(feature = "tls") {
                true => Ok(()),
                false => Err(OptionError::new("\"tls on\" is not in this build").of("tls")),
            };
        }
        match self.read.given().find(|name| name.starts_with("tls_")) {
            None => Ok(()),
            Some(name) => {
                let message = format!("\"{name}\" has no effect without TLS: add \"tls on;\"");
                Err(OptionError::new(message).of(name))
            }
        }
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

/// The password in the file at `path`, which `directive` names, without the newline at its end.
fn read_password(
    directive: &Directive<'_>,
    path: &Path,
    read_file: impl Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Secret, OptionError> {
    let content = read_file(path).map_err(|error| {
        let place = match is_surely_a_path(path, &error) {
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
