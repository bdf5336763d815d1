//! The settings that every kind of datastore has, as the directives of a `ratelimit_store` block say
//! them.

use core::fmt;
use core::time::Duration;
use std::path::PathBuf;
use std::sync::Arc;

use super::server::ServerAddress;
use crate::policy::options::text;

/// The address of a datastore, and options of the connections to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The servers, at least one, in the order in which they are tried: the datastore's own; the
    /// seed nodes of a Redis Cluster; the sentinels.
    pub servers: Vec<ServerAddress>,
    /// The credentials.
    pub credentials: Credentials,
    /// Longest time of one attempt to connect: 1 ms to 1 day.
    pub connect_timeout: Duration,
    /// Longest time of one exchange: 1 ms to 1 day.
    pub timeout: Duration,
    /// `None`: connections are not encrypted.
    pub tls: Option<TlsOptions>,
}

/// A user's name and password. Neither is ever shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user; `None`: the datastore's default.
    pub username: Option<Secret>,
    /// The password.
    pub password: Option<Secret>,
}

/// A text of at least one character that no log and no message shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Credentials {
    /// Whether `words` have one of them in them, so that they must not be told.
    pub fn are_in(&self, words: &str) -> bool {
        let mut secrets = [&self.username, &self.password].into_iter().flatten();
        secrets.any(|secret| words.contains(secret.expose()))
    }
}

impl Secret {
    /// Reads a secret in UTF-8; `None` if `word` is none, or empty.
    pub fn parse(word: &[u8]) -> Option<Secret> {
        text(word).map(Secret)
    }

    /// The text, to be sent to the datastore and nowhere else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Tells that there is one, and nothing of it.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(...)")
    }
}

/// Options of TLS: encryption, and the trusted authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// Whether the server's certificate is verified.
    pub verify: bool,
    /// The name that the certificate must have: a host's name or an IP address; `None`: the host
    /// that was connected to.
    pub name: Option<Box<str>>,
    /// A file with the certificates that are trusted; `None`: the system's.
    pub trusted_certificate: Option<PemFile>,
    /// Certificate and key of this side.
    pub identity: Option<TlsIdentity>,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The file with the certificate, and what links it to a root.
    pub certificate: PemFile,
    /// The file with the private key.
    pub key: PemFile,
}

/// A file of certificates or with a key, which is read with the configuration: the workers that
/// connect may not read it.
#[derive(Clone, PartialEq, Eq)]
pub struct PemFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Content of the file; empty before it was read.
    pub content: Arc<[u8]>,
}

impl PemFile {
    /// A file that is still to be read.
    pub fn unread(path: PathBuf) -> PemFile {
        PemFile { path, content: Arc::default() }
    }
}

/// Tells where it is, and nothing of what it holds.
impl fmt::Debug for PemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PemFile({})", self.path.display())
    }
}

impl StoreOptions {
    /// The files that are to be read, each with its directive. The paths are as written: the
    /// caller resolves them and reads the files, both in place.
    pub fn files_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut PemFile)> {
        let tls = self.tls.as_mut().map(|tls| {
            let (certificate, key) = match &mut tls.identity {
                Some(identity) => (Some(&mut identity.certificate), Some(&mut identity.key)),
                None => (None, None),
            };
            [
                ("tls_trusted_certificate", tls.trusted_certificate.as_mut()),
                ("tls_certificate", certificate),
                ("tls_certificate_key", key),
            ]
        });
        let files = tls.into_iter().flatten();
        files.filter_map(|(directive, file)| Some((directive, file?)))
    }
}
