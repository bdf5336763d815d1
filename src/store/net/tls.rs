//! TLS of connections to a datastore of any kind.

use core::fmt;
#[cfg(feature = "cassandra")]
use core::net::IpAddr;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
pub(crate) use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::store::contract::options::{PemFile, TlsIdentity, TlsOptions};

/// A TLS client, with the trusted authorities and its own certificate.
#[derive(Clone)]
pub struct TlsClient {
    connector: TlsConnector,
    /// The name that the certificate must have; `None` for the host's.
    name: Option<Box<str>>,
    /// Verifies certificates in the same way as `connector`.
    #[cfg(feature = "cassandra")]
    verifier: Arc<dyn ServerCertVerifier>,
}

/// An error of the TLS options or of the system, with which no connection can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    message: Box<str>,
    directive: &'static str,
}

impl TlsClient {
    /// Creates a client from `options`, whose files must have been read.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file has no certificate or key, if the key does not belong to the
    /// certificate, or if no file is given and the system has no trusted roots.
    pub fn new(options: &TlsOptions) -> Result<TlsClient, TlsError> {
        // Not installed for the whole process, which belongs to nginx.
        let provider = Arc::new(ring::default_provider());
        let roots = match &options.trusted_certificate {
            Some(file) => Some(roots_of(file)?),
            None => options.verify.then(roots_of_the_system).transpose()?,
        };
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::of("tls", format_args!("tls: {error}")))?;
        let verifier: Arc<dyn ServerCertVerifier> = match roots {
            Some(roots) if options.verify => {
                let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
                let failed = |error| TlsError::of("tls", format_args!("tls: {error}"));
                verifier.build().map_err(failed)?
            }
            _ => Arc::new(AcceptAnyCertificate(provider)),
        };
        let config = config.dangerous().with_custom_certificate_verifier(verifier.clone());
        let config = match &options.identity {
            Some(identity) => {
                let TlsIdentity { certificate, key } = identity;
                let parts = (certificates(certificate, "tls_certificate")?, key_of(key)?);
                config.with_client_auth_cert(parts.0, parts.1).map_err(|error| {
                    let message = format_args!(
                        "tls_certificate \"{}\" cannot be used with tls_certificate_key \
                             \"{}\" ({error})",
                        certificate.path.display(),
                        key.path.display()
                    );
                    TlsError::of("tls_certificate", message)
                })?
            }
            None => config.with_no_client_auth(),
        };
        Ok(TlsClient {
            connector: Arc::new(config).into(),
            name: options.name.clone(),
            #[cfg(feature = "cassandra")]
            verifier,
        })
    }

    /// Wraps a connection to `host` in TLS.
    ///
    /// # Errors
    ///
    /// The certificate is rejected on either side, or the server does not speak TLS. A server that
    /// requires a client certificate may reject the client only with its first answer.
    pub async fn wrap<S>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = server_name(self.name.as_deref().unwrap_or(host))?;
        self.connector.connect(name, stream).await
    }

    /// Returns the configuration for a driver that connects to nodes by their IP addresses. The
    /// node at `address` may have the name `host`; if a name was set, all nodes may have it.
    ///
    /// # Errors
    ///
    /// The name is invalid.
    #[cfg(feature = "cassandra")]
    pub fn for_nodes(&self, host: &str, address: IpAddr) -> io::Result<Arc<ClientConfig>> {
        let mut config = ClientConfig::clone(self.connector.config());
        let named = Nodes {
            verifier: self.verifier.clone(),
            name: self.name.as_deref().map(server_name).transpose()?,
            known: (ServerName::from(address), server_name(host)?),
        };
        config.dangerous().set_certificate_verifier(Arc::new(named));
        Ok(Arc::new(config))
    }
}

/// Parses a name of a certificate.
fn server_name(name: &str) -> io::Result<ServerName<'static>> {
    // A DNS name with a final dot is absolute; certificates have none.
    let name = name.strip_suffix('.').unwrap_or(name);
    ServerName::try_from(name.to_owned())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

fn roots_of(file: &PemFile) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, "tls_trusted_certificate")? {
        roots.add(certificate).map_err(|error| {
            let message = format_args!(
                "tls_trusted_certificate \"{}\" holds a certificate that cannot be used ({error})",
                file.path.display()
            );
            TlsError::of("tls_trusted_certificate", message)
        })?;
    }
    Ok(roots)
}

/// Returns the system's trusted roots. Ignores malformed ones.
fn roots_of_the_system() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if !roots.is_empty() {
        return Ok(roots);
    }
    let cause = found.errors.first().map(|error| format!(" ({error})"));
    let message = format_args!(
        "tls: the system trusts no certificate{}: expected \"tls_trusted_certificate file;\"",
        cause.unwrap_or_default()
    );
    Err(TlsError::of("tls", message))
}

fn certificates(
    file: &PemFile,
    directive: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |cause: &dyn fmt::Display| {
        let message = format_args!(
            "{directive} \"{}\" holds no certificate in PEM format{cause}",
            file.path.display()
        );
        TlsError::of(directive, message)
    };
    let certificates = CertificateDer::pem_slice_iter(&file.content)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable(&format_args!(" ({error})")))?;
    match certificates.as_slice() {
        [] => Err(unreadable(&"")),
        [..] => Ok(certificates),
    }
}

/// Returns the first key in a file. The cause of an error is left out, since it only says that
/// there is no key.
fn key_of(file: &PemFile) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&file.content).map_err(|_| {
        let message = format_args!(
            "tls_certificate_key \"{}\" holds no private key in PEM format, without a passphrase",
            file.path.display()
        );
        TlsError::of("tls_certificate_key", message)
    })
}

/// Accepts every certificate, but checks that the server has its key.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Verifies nodes' certificates, whose names the driver does not know.
#[cfg(feature = "cassandra")]
#[derive(Debug)]
struct Nodes {
    verifier: Arc<dyn ServerCertVerifier>,
    /// Name that all nodes may have.
    name: Option<ServerName<'static>>,
    /// An IP address, and the name of the server there.
    known: (ServerName<'static>, ServerName<'static>),
}

#[cfg(feature = "cassandra")]
impl ServerCertVerifier for Nodes {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        address: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let name = match (&self.name, &self.known) {
            (Some(name), _) => name,
            (None, (known, name)) if known == address => name,
            _ => address,
        };
        self.verifier.verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

impl TlsError {
    fn of(directive: &'static str, message: fmt::Arguments<'_>) -> TlsError {
        TlsError { message: message.to_string().into(), directive }
    }

    /// Returns the directive that the error belongs to.
    pub fn directive(&self) -> &'static str {
        self.directive
    }
}

/// Shows nothing of the keys.
impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = f.debug_struct("TlsClient");
        parts.field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for TlsError {}
