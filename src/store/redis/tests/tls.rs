//! Servers with TLS: certificates of servers and of clients.

use super::*;
use crate::testing::certificates::{Authority, trusting};

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
