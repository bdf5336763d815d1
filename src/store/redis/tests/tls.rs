//! Servers with TLS: whom we trust, and who trusts us.

use super::*;
use crate::store::options::TlsOptions;
use crate::store::redis::testing::with_tls;
use crate::store::tls_testing::{Authority, trusting, trusting_the_system};

/// What comes of an attempt to use a server.
fn attempt(server: &Server, options: TlsOptions) -> Result<(), StoreError> {
    block_on(open(&mut with_tls(server, options)))
}

/// Expects that a server cannot be reached, and that `cause` is named.
fn fails(server: &Server, options: TlsOptions, cause: &str) {
    let error = attempt(server, options).unwrap_err();
    assert!(matches!(error.failure, Failure::Unreachable(_)), "{error}");
    assert!(error.to_string().contains(cause), "{error}");
    assert!(error.is_transient() && !error.may_have_applied());
}

#[test]
fn a_server_that_is_trusted_is_used() {
    let authority = Authority::new();
    let server = Server::start_with_tls(&authority, &authority.issue("127.0.0.1"), "no");
    block_on(async {
        let store = with_tls(&server, trusting(&authority));
        let mut node = Node::join(store, shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        assert_eq!(node.read_all(&[(MINUTE, 7)]).await.len(), 1);
    });
}

#[test]
fn whoever_is_not_trusted_is_not_used() {
    let [authority, other] = [Authority::new(), Authority::new()];
    let server = Server::start_with_tls(&authority, &authority.issue("127.0.0.1"), "no");
    fails(&server, trusting(&other), "UnknownIssuer");
    fails(&server, trusting_the_system(), "UnknownIssuer");
    let anybody = TlsOptions {
        verify: false,
        ..trusting_the_system()
    };
    assert_eq!(attempt(&server, anybody), Ok(()));
}

#[test]
fn the_certificate_has_the_name_of_the_server_or_the_one_that_is_set() {
    let authority = Authority::new();
    let server = Server::start_with_tls(&authority, &authority.issue("redis.example"), "no");
    fails(
        &server,
        trusting(&authority),
        "not valid for name \"127.0.0.1\"",
    );
    let named = |name: &str| TlsOptions {
        name: Some(name.into()),
        ..trusting(&authority)
    };
    fails(&server, named("other.example"), "not valid for name");
    for name in ["redis.example", "redis.example."] {
        assert_eq!(attempt(&server, named(name)), Ok(()));
    }
}

#[test]
fn an_expired_certificate_is_not_trusted() {
    let authority = Authority::new();
    let server = Server::start_with_tls(&authority, &authority.issue_expired("127.0.0.1"), "no");
    fails(&server, trusting(&authority), "expired");
}

#[test]
fn a_server_may_want_a_certificate_of_us() {
    let [authority, other] = [Authority::new(), Authority::new()];
    let server = Server::start_with_tls(&authority, &authority.issue("127.0.0.1"), "yes");
    fails(&server, trusting(&authority), "CertificateRequired");
    let with_certificate_of = |issuer: &Authority| TlsOptions {
        identity: Some(issuer.issue("a client").identity()),
        ..trusting(&authority)
    };
    fails(&server, with_certificate_of(&other), "UnknownCA");
    assert_eq!(attempt(&server, with_certificate_of(&authority)), Ok(()));
}

#[test]
fn a_server_without_tls_is_not_used_with_it_nor_the_other_way_round() {
    let authority = Authority::new();
    let plain = Server::start(&[]);
    let (mut options, redis) = options(&[plain.tcp()]);
    options.tls = Some(trusting(&authority));
    options.connect_timeout = Duration::from_secs(1);
    let error = block_on(open(&mut Redis::new(&options, &redis))).unwrap_err();
    let cause = "no connection with TLS within 1000 ms";
    assert_eq!(error.failure, Failure::Unreachable(cause.into()));
    let server = Server::start_with_tls(&authority, &authority.issue("127.0.0.1"), "no");
    let error = block_on(open(&mut connect(server.tcp()))).unwrap_err();
    assert!(matches!(error.failure, Failure::Unreachable(_)), "{error}");
}
