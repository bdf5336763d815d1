//! Tests of trust with TLS, between servers and clients.

use super::*;
use crate::store::contract::options::TlsOptions;
use crate::testing::certificates::{trusting, trusting_the_system};

/// Returns the result of an attempt to use a server.
fn attempt<F: Served>(server: &F, tls: TlsOptions) -> Result<(), StoreError> {
    let options = StoreOptions { tls: Some(tls), ..options(&[server.address()]) };
    block_on(open(&mut server.store(&options)))
}

/// Checks that a server cannot be reached, and that the error names `cause`.
pub(crate) fn fails<F: Served>(server: &F, tls: TlsOptions, cause: &str) {
    let error = attempt(server, tls).unwrap_err();
    assert!(matches!(error.failure, Failure::Unreachable(_)), "{error}");
    assert!(error.to_string().contains(cause), "{error}");
    assert!(error.is_transient() && !error.may_have_applied());
}

pub(crate) fn a_server_that_is_trusted_is_used<F: Served>() {
    let authority = Authority::new();
    let server = F::start_with_tls(&authority, &authority.issue("127.0.0.1"), false);
    let options = StoreOptions { tls: Some(trusting(&authority)), ..options(&[server.address()]) };
    block_on(async {
        let mut node = Node::join(server.store(&options), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        assert_eq!(node.read_all(&[(MINUTE, 7)]).await.len(), 1);
        // One connection, as without TLS.
        assert_eq!(node.store.connects(), 1);
    });
}

pub(crate) fn an_untrusted_server_is_not_used<F: Served>() {
    let [authority, other] = [Authority::new(), Authority::new()];
    let server = F::start_with_tls(&authority, &authority.issue("127.0.0.1"), false);
    fails(&server, trusting(&other), "UnknownIssuer");
    fails(&server, trusting_the_system(), "UnknownIssuer");
    let anybody = TlsOptions { verify: false, ..trusting_the_system() };
    assert_eq!(attempt(&server, anybody), Ok(()));
}

pub(crate) fn the_certificate_has_the_name_of_the_server_or_the_one_that_is_set<F: Served>() {
    let authority = Authority::new();
    let server = F::start_with_tls(&authority, &authority.issue("store.example"), false);
    let of_host = "not valid for name \"127.0.0.1\"";
    fails(&server, trusting(&authority), of_host);
    let named = |name: &str| TlsOptions { name: Some(name.into()), ..trusting(&authority) };
    fails(&server, named("other.example"), "not valid for name");
    for name in ["store.example", "store.example."] {
        assert_eq!(attempt(&server, named(name)), Ok(()));
    }
}

pub(crate) fn an_expired_certificate_is_not_trusted<F: Served>() {
    let authority = Authority::new();
    let expired = authority.issue_expired("127.0.0.1");
    let server = F::start_with_tls(&authority, &expired, false);
    fails(&server, trusting(&authority), "expired");
}

pub(crate) fn a_server_may_want_a_certificate_of_us<F: Served>() {
    let [authority, other] = [Authority::new(), Authority::new()];
    let server = F::start_with_tls(&authority, &authority.issue("127.0.0.1"), true);
    let error = attempt(&server, trusting(&authority)).unwrap_err();
    assert!(F::is_of_missing_certificate(&error), "{error}");
    let with_certificate_of = |issuer: &Authority| TlsOptions {
        identity: Some(issuer.issue("a client").identity()),
        ..trusting(&authority)
    };
    fails(&server, with_certificate_of(&other), F::UNTRUSTED);
    assert_eq!(attempt(&server, with_certificate_of(&authority)), Ok(()));
}
