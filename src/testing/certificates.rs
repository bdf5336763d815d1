//! Certificates for tests.

use core::sync::atomic::{AtomicU64, Ordering};
use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};

use crate::store::contract::options::{PemFile, TlsIdentity, TlsOptions};

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM format.
pub(crate) struct Certificate {
    pub(crate) pem: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, format!("authority {number}"));
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for this host; without a host if the name has a space.
    pub(crate) fn issue(&self, host: &str) -> Certificate {
        self.sign(params(host))
    }

    /// Issues a certificate that expired in 1999.
    pub(super) fn issue_expired(&self, host: &str) -> Certificate {
        let mut params = params(host);
        params.not_before = date_time_ymd(1999, 1, 1);
        params.not_after = date_time_ymd(1999, 12, 31);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Certificate {
        let key = KeyPair::generate().unwrap();
        Certificate {
            pem: params.signed_by(&key, &self.0).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Certificate {
    /// Writes the files that a server with this certificate reads, and the authority of its clients.
    pub(super) fn write(&self, authority: &Authority, dir: &Path) {
        for (name, content) in [
            ("roots.pem", &authority.pem()),
            ("certificate.pem", &self.pem),
            ("key.pem", &self.key),
        ] {
            fs::write(dir.join(name), content).unwrap();
        }
    }

    pub(crate) fn identity(&self) -> TlsIdentity {
        TlsIdentity {
            certificate: pem_file("certificate.pem", &self.pem),
            key: pem_file("key.pem", &self.key),
        }
    }
}

fn params(host: &str) -> CertificateParams {
    let hosts = if host.contains(' ') { vec![] } else { vec![host.into()] };
    CertificateParams::new(hosts).unwrap()
}

/// Returns the options that trust only this authority.
pub(crate) fn trusting(authority: &Authority) -> TlsOptions {
    TlsOptions {
        trusted_certificate: Some(pem_file("roots.pem", &authority.pem())),
        ..trusting_the_system()
    }
}

pub(crate) fn trusting_the_system() -> TlsOptions {
    TlsOptions { verify: true, name: None, trusted_certificate: None, identity: None }
}

pub(crate) fn pem_file(path: &str, content: &str) -> PemFile {
    PemFile { path: path.into(), content: content.as_bytes().into() }
}
