//! Contents of certificate files. Connections with them are tested with each kind of server.

use crate::store::contract::options::{TlsIdentity, TlsOptions};
use crate::store::net::tls::TlsClient;
use crate::testing::certificates::{Authority, pem_file, trusting, trusting_the_system};

#[test]
fn certificates_and_keys_are_read() {
    let [one, other] = [Authority::new(), Authority::new()];
    let certificate = one.issue("redis.example");
    let several = format!("# Two.\n{}\n{}", one.pem(), other.pem());
    let both_in_one = format!("{}{}", certificate.key, certificate.pem);
    for options in [
        trusting(&one),
        TlsOptions {
            trusted_certificate: Some(pem_file("roots.pem", &several)),
            identity: Some(certificate.identity()),
            ..trusting_the_system()
        },
        TlsOptions {
            identity: Some(TlsIdentity {
                certificate: pem_file("both.pem", &both_in_one),
                key: pem_file("both.pem", &both_in_one),
            }),
            verify: false,
            ..trusting_the_system()
        },
    ] {
        let client = TlsClient::new(&options).unwrap();
        assert!(!format!("{client:?} {options:?}").contains("BEGIN"));
    }
}

#[test]
fn anything_else_is_an_error_that_names_the_file() {
    let authority = Authority::new();
    let [one, other] = [authority.issue("a"), authority.issue("b")];
    let identity = |certificate: &str, key: &str| TlsOptions {
        identity: Some(TlsIdentity {
            certificate: pem_file("/c.pem", certificate),
            key: pem_file("/k.pem", key),
        }),
        ..trusting(&authority)
    };
    let roots = |content: &str| TlsOptions {
        trusted_certificate: Some(pem_file("/r.pem", content)),
        ..trusting_the_system()
    };
    let no_roots = "tls_trusted_certificate \"/r.pem\" holds no certificate in PEM format";
    let no_certificate = "tls_certificate \"/c.pem\" holds no certificate in PEM format";
    let no_key = "tls_certificate_key \"/k.pem\" holds no private key in PEM format";
    let no_pair = "tls_certificate \"/c.pem\" cannot be used with tls_certificate_key \"/k.pem\" (";
    let half = &one.pem[..one.pem.len() / 2];
    for (options, expected) in [
        (roots(""), no_roots),
        (roots("something"), no_roots),
        (roots(&one.key), no_roots),
        (roots(half), no_roots),
        (identity("", &one.key), no_certificate),
        (identity(&one.key, &one.key), no_certificate),
        (identity(&one.pem, ""), no_key),
        (identity(&one.pem, &one.pem), no_key),
        (identity(&one.pem, &other.key), no_pair),
    ] {
        let error = TlsClient::new(&options).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains("BEGIN") && error.len() < 200, "{error}");
    }
    // Even if no certificate is verified.
    let options = TlsOptions { verify: false, ..roots("something") };
    assert!(TlsClient::new(&options).is_err());
}
