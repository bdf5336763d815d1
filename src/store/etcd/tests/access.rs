//! Users and their rights, and the words about them in errors.

use std::io::{Read as _, Write as _};

use super::*;
use crate::store::contract::options::Secret;
use crate::testing::dir::new_dir_in_memory;

/// The commands of docs/etcd.md that create a user with the rights that suffice, as root.
const USER: [&[&str]; 4] = [
    &["user", "add", "nginx:hunter2"],
    &["role", "add", "ratelimit"],
    &["role", "grant-permission", "ratelimit", "readwrite", "--prefix=true", "rl/"],
    &["user", "grant-role", "nginx", "ratelimit"],
];

/// Starts a server with users.
fn locked() -> Server {
    lock(Server::start(&[]))
}

/// Creates the users, and makes the server demand that a client is one of them.
fn lock(server: Server) -> Server {
    for command in USER {
        server.ctl(command);
    }
    server.ctl(&["user", "add", "root:toor"]);
    server.ctl(&["user", "grant-role", "root", "root"]);
    server.ctl(&["auth", "enable"]);
    server
}

fn as_user(server: &Server, username: &str, password: &str) -> Etcd {
    let secret = |text: &str| Secret::parse(text.as_bytes());
    let (mut options, own) = options(&[server.tcp()], PREFIX);
    options.credentials = Credentials { username: secret(username), password: secret(password) };
    Etcd::new(&options, &own)
}

#[test]
fn a_user_with_the_right_to_the_prefix_suffices() {
    let server = locked();
    block_on(async {
        let mut one = Node::join(as_user(&server, "nginx", "hunter2"), shard("api")).await;
        let mut two = Node::join(as_user(&server, "nginx", "hunter2"), shard("api")).await;
        one.push(vec![hits("a", 1)]).await;
        assert_eq!(totals(&two.push(vec![hits("a", 1)]).await), pairs(&[("a", 2)]));
        let mut channel = crate::testing::conformance::Listener::of(&two);
        let news = async {
            let batch = Batch { is_news: true, ..one.batch(2, vec![hits("a", 1)]) };
            one.send_batch(&batch).await
        };
        let (heard, _) = futures_util::future::join(channel.recv(1), news).await;
        assert_eq!(totals(&heard[0].counts), pairs(&[("a", 3)]));
    });
}

#[test]
fn who_has_no_right_is_denied_and_passwords_are_not_shown() {
    let server = locked();
    server.ctl(&["--user=root:toor", "user", "add", "mallory:guessed"]);
    block_on(async {
        for (username, password) in
            [("", ""), ("nginx", "wrong-one"), ("nobody", "hunter2"), ("mallory", "guessed")]
        {
            denies(as_user(&server, username, password), username, password).await;
        }
    });
    let open_server = Server::start(&[]);
    let error = block_on(open(&mut as_user(&open_server, "nginx", "hunter2"))).unwrap_err();
    let expected = "denies access (authentication is not enabled)";
    assert!(error.to_string().ends_with(expected), "{error}");
}

#[test]
fn rights_that_are_taken_away_are_missed_and_come_back() {
    let server = locked();
    block_on(async {
        let mut node = Node::join(as_user(&server, "nginx", "hunter2"), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        server.ctl(&["--user=root:toor", "user", "revoke-role", "nginx", "ratelimit"]);
        let error = failure(&mut node, 2).await;
        assert!(matches!(error.failure, Failure::Denied(_)), "{error}");
        server.ctl(&["--user=root:toor", "user", "grant-role", "nginx", "ratelimit"]);
        node.push(vec![hits("a", 1)]).await;
        let all = node.read_all(&[(MINUTE, 7)]).await;
        assert_eq!(totals(&all), pairs(&[("a", 2)]));
    });
}

#[test]
fn a_token_that_has_ended_is_replaced() {
    let mut server = locked();
    block_on(async {
        let mut node = Node::join(as_user(&server, "nginx", "hunter2"), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        // A change of users ends all tokens of a member, and so does its restart.
        server.ctl(&["--user=root:toor", "user", "add", "another:one"]);
        node.push(vec![hits("a", 1)]).await;
        server.kill();
        server.start_again();
        tokio::time::sleep(core::time::Duration::from_millis(50)).await;
        node.push(vec![hits("a", 1)]).await;
        let all = node.read_all(&[(MINUTE, 7)]).await;
        assert_eq!(totals(&all), pairs(&[("a", 3)]));
    });
}

#[test]
fn a_signed_token_is_replaced_after_a_change_of_users() {
    // It contains the revision of the users.
    let dir = new_dir_in_memory("etcd");
    let key = dir.join("key");
    std::fs::write(&key, "of a signature").unwrap();
    let kind = format!("jwt,sign-method=HS256,priv-key={}", key.display());
    let server = lock(Server::start_in(dir, &["--auth-token", &kind]));
    block_on(async {
        let mut node = Node::join(as_user(&server, "nginx", "hunter2"), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        server.ctl(&["--user=root:toor", "user", "add", "another:one"]);
        node.push(vec![hits("a", 1)]).await;
        let all = node.read_all(&[(MINUTE, 7)]).await;
        assert_eq!(totals(&all), pairs(&[("a", 2)]));
    });
}

#[test]
fn a_new_connection_goes_on_with_the_token() {
    let server = locked();
    block_on(async {
        let mut node = Node::join(as_user(&server, "nginx", "hunter2"), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        let (connects, logins) = (node.store.connects(), logins(&server));
        server.signal("STOP");
        let _ = failure(&mut node, 2).await;
        server.signal("CONT");
        node.push(vec![hits("a", 1)]).await;
        assert!(node.store.connects() > connects);
        assert_eq!(self::logins(&server), logins);
    });
}

/// Returns how many passwords a server has checked.
fn logins(server: &Server) -> u64 {
    let mut stream = std::net::TcpStream::connect(server.tcp().to_string()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    let name = "grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"Authenticate\"";
    let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}
