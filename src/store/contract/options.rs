//! The settings that all kinds of datastores have, from the directives of a `ratelimit_store`
//! block.

use core::fmt;
use core::num::NonZeroU32;
use core::time::Duration;
use std::path::PathBuf;
use std::sync::Arc;

use super::server::ServerAddress;
use crate::policy::options::text;

/// The servers of a datastore, and options of the connections to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The servers, at least one, in the order of attempts: the datastore's servers, the seed nodes
    /// of a Redis Cluster, or sentinels.
    pub servers: Vec<ServerAddress>,
    /// The credentials.
    pub credentials: Credentials,
    /// Timeout of a connection attempt: 1 ms to 1 day.
    pub connect_timeout: Duration,
    /// Timeout of an exchange: 1 ms to 1 day.
    pub timeout: Duration,
    /// Most exchanges that all nodes together make with one server in a second, apart from those that
    /// each period needs and those for decisions: 1 to 1,000,000.
    pub exchanges: NonZeroU32,
    /// `None` if connections are not encrypted.
    pub tls: Option<TlsOptions>,
}

/// A user's name and password, which are never shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user; `None` for the datastore's default.
    pub username: Option<Secret>,
    /// The password.
    pub password: Option<Secret>,
}

/// A non-empty text that no log and no message shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Credentials {
    /// Returns whether `words` contain a credential, so that they must not be shown.
    pub fn are_in(&self, words: &str) -> bool {
        let mut secrets = [&self.username, &self.password].into_iter().flatten();
        secrets.any(|secret| words.contains(secret.expose()))
    }
}

impl Secret {
    /// Parses a secret; `None` if `word` is empty, or not UTF-8.
    pub fn parse(word: &[u8]) -> Option<Secret> {
        text(word).map(Secret)
    }

    /// Returns the text, which may only be sent to the datastore.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Shows only that there is a secret.
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
    /// The name that the certificate must have, as a host name or an IP address; `None` for the
    /// host of the connection.
    pub name: Option<Box<str>>,
    /// A file with the trusted certificates; `None` for the system's.
    pub trusted_certificate: Option<PemFile>,
    /// The client's certificate and key.
    pub identity: Option<TlsIdentity>,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The file with the certificate and its chain.
    pub certificate: PemFile,
    /// The file with the private key.
    pub key: PemFile,
}

/// A file with certificates or a key. It is read with the configuration, since workers may lack the
/// right to read it.
#[derive(Clone, PartialEq, Eq)]
pub struct PemFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Content of the file; empty before it is read.
    pub content: Arc<[u8]>,
}

impl PemFile {
    /// Creates a file that is not read yet.
    pub fn unread(path: PathBuf) -> PemFile {
        PemFile { path, content: Arc::default() }
    }
}

/// Shows the path, and nothing of the content.
impl fmt::Debug for PemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PemFile({})", self.path.display())
    }
}

impl StoreOptions {
    /// Returns the files to read, with their directives. The paths are as written; the caller
    /// resolves them and stores the content.
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
