//! Users, and the words about them in errors.

use super::*;
use crate::store::contract::options::StoreOptions;
use crate::store::contract::options::{Credentials, Secret};
use crate::store::memcached::link::MemcachedLink;
use crate::store::memcached::options::MemcachedOptions;
use crate::store::memcached::wire::{Expected, MetaReply, Requests};
use crate::testing::certificates::{Authority, trusting};
use crate::testing::memcached::{PREFIX, with_users};
use crate::testing::server_tests::{Served as _, options};

fn as_user(server: &Server, username: &str, password: &str) -> Memcached {
    let secret = |text: &str| Secret::parse(text.as_bytes());
    let mut options = options(&[server.tcp()]);
    options.credentials = Credentials { username: secret(username), password: secret(password) };
    Memcached::new(&options, &MemcachedOptions { prefix: PREFIX.into() })
}

#[test]
fn a_user_with_a_password_is_let_in() {
    let server = with_users("nginx:hunter2\n");
    block_on(async {
        let mut node = Node::join(as_user(&server, "nginx", "hunter2"), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        assert_eq!(node.store.connects(), 1);
    });
}

#[test]
fn who_has_no_right_is_denied_and_passwords_are_not_shown() {
    let server = with_users("nginx:hunter2\n");
    block_on(async {
        for (username, password) in [("", ""), ("nginx", "wrong-one"), ("nobody", "hunter2")] {
            denies(as_user(&server, username, password), username, password).await;
        }
    });
    // The login would be an item with the password.
    let open_server = Server::start(&[]);
    let error = block_on(open(&mut as_user(&open_server, "nginx", "hunter2"))).unwrap_err();
    let expected = "denies access (authentication is not enabled)";
    assert!(error.to_string().ends_with(expected), "{error}");
    assert!(open_server.names().is_empty());
}

#[test]
fn many_commands_at_once_are_answered_over_tls() {
    let authority = Authority::new();
    let server = Server::start_with_tls(&authority, &authority.issue("127.0.0.1"), false);
    let options = StoreOptions { tls: Some(trusting(&authority)), ..options(&[server.address()]) };
    let mut link = MemcachedLink::new(&options);
    let mut requests = Requests::default();
    for number in 0..40 {
        let value = [b'x'; 1000];
        requests.set(format!("rl/{number}").as_bytes(), &value, 0, Expected::Missing);
    }
    let replies = block_on(link.exchange(async |it| it.exchange(&requests).await));
    assert_eq!(replies, Ok(vec![MetaReply::Done; 40]));
}
