//! A primary that sentinels know.

use super::*;
use crate::testing::certificates::{Authority, trusting};
use crate::testing::redis::with_tls;

/// Returns the options of a store whose primary is known to these sentinels as `main`.
fn known_by(sentinels: &[ServerAddress]) -> (StoreOptions, RedisOptions) {
    let (options, mut redis) = options(sentinels);
    redis.topology =
        Topology::Sentinel { master: "main".into(), credentials: Credentials::default() };
    (options, redis)
}

pub(super) fn known_by_one(sentinel: &Server) -> Redis {
    let (options, redis) = known_by(&[sentinel.tcp()]);
    Redis::new(&options, &redis)
}

/// Returns the address of a sentinel that names this server as the primary.
fn naming(server: &Server) -> ServerAddress {
    let port = server.port.to_string();
    let length = port.len();
    with_one_answer(format!("*2\r\n$9\r\n127.0.0.1\r\n${length}\r\n{port}"))
}

pub(super) fn start_replica(primary: &Server) -> Server {
    Server::start(&["--replicaof", "127.0.0.1", &primary.port.to_string()])
}

#[test]
fn the_primary_is_asked_of_the_first_sentinel_that_knows() {
    let primary = Server::start(&[]);
    let [sentinel, other] = [(); 2].map(|()| Server::start_sentinel(&[]));
    sentinel.watch(&primary);
    block_on(async {
        let missing = ServerAddress::Unix("/nonexistent/socket".into());
        let (options, redis) = known_by(&[missing, other.tcp(), sentinel.tcp()]);
        let mut node = Node::join(Redis::new(&options, &redis), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        assert_eq!(primary.ask::<i64>(&["EXISTS", SHARD]).unwrap(), 1);
    });
}

#[test]
fn an_error_names_a_primary_that_no_sentinel_knows() {
    let sentinel = Server::start_sentinel(&[]);
    let error = block_on(open(&mut known_by_one(&sentinel))).unwrap_err();
    let address = sentinel.tcp();
    assert_eq!(
        error.to_string(),
        format!("{address} knows no primary (nothing has the name \"main\")")
    );
    assert!(error.is_transient() && !error.may_have_applied());
}

#[test]
fn without_sentinels_there_is_no_primary() {
    let mut sentinel = Server::start_sentinel(&[]);
    sentinel.kill();
    let error = block_on(open(&mut known_by_one(&sentinel))).unwrap_err();
    assert_eq!(error.server, sentinel.tcp());
    assert!(matches!(error.failure, Failure::Unreachable(_)), "{error}");
}

#[test]
fn a_sentinel_that_names_a_replica_is_passed_over() {
    let primary = Server::start(&[]);
    let replica = start_replica(&primary);
    block_on(async {
        let (options, redis) = known_by(&[naming(&replica), naming(&primary)]);
        open(&mut Redis::new(&options, &redis)).await.unwrap();

        let behind = naming(&replica);
        let (options, redis) = known_by(std::slice::from_ref(&behind));
        let error = open(&mut Redis::new(&options, &redis)).await.unwrap_err();
        let cause = format!("{}, which it names, is a replica", replica.tcp());
        assert_eq!(error.failure, Failure::NoPrimary(cause.into()));
        assert_eq!(error.server, behind);
    });
}

#[test]
fn a_primary_that_cannot_be_reached_is_named() {
    let mut primary = Server::start(&[]);
    primary.kill();
    let (options, redis) = known_by(&[naming(&primary)]);
    let error = block_on(open(&mut Redis::new(&options, &redis))).unwrap_err();
    assert_eq!(error.server, primary.tcp());
    assert!(matches!(error.failure, Failure::Unreachable(_)), "{error}");
}

#[test]
fn a_meaningless_answer_of_a_sentinel_is_an_error() {
    for answer in ["+OK", "*1\r\n$1\r\na", "*2\r\n$0\r\n\r\n$1\r\n1", "*2\r\n$1\r\na\r\n$2\r\n-1"] {
        let (options, redis) = known_by(&[with_one_answer(answer)]);
        let error = block_on(open(&mut Redis::new(&options, &redis))).unwrap_err();
        let cause = "it answers something else".into();
        assert_eq!(error.failure, Failure::NoPrimary(cause), "{answer}");
    }
}

#[test]
fn after_a_failover_the_new_primary_is_used_and_nothing_is_pushed_twice() {
    let mut old = Server::start(&[]);
    let new = start_replica(&old);
    let sentinel = Server::start_sentinel(&[]);
    sentinel.watch(&old);
    block_on(async {
        let mut node = Node::join(known_by_one(&sentinel), shard("api")).await;
        let mut other = Node::join(known_by_one(&sentinel), shard("api")).await;
        other.push(vec![hits("a", 1)]).await;
        node.push(vec![hits("a", 1)]).await;
        replicated(&new, 2).await;
        knows_a_replica(&sentinel).await;
        old.kill();
        // During the failover.
        for node in [&mut node, &mut other] {
            since(push_until_applied(node, vec![hits("a", 1)]).await);
        }
        let total = node.store.get_window(&node.shard, b"a", MINUTE, 7).await;
        assert_eq!(total.unwrap().whole(), 4);
        let role: Vec<redis::Value> = new.ask(&["ROLE"]).unwrap();
        assert_eq!(role[0], redis::Value::BulkString(b"master".into()));
    });
}

#[test]
fn a_primary_that_becomes_a_replica_is_left() {
    let old = Server::start(&[]);
    let new = start_replica(&old);
    let sentinel = Server::start_sentinel(&[]);
    sentinel.watch(&old);
    block_on(async {
        let mut node = Node::join(known_by_one(&sentinel), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        replicated(&new, 1).await;
        knows_a_replica(&sentinel).await;
        // A replica from which the sentinel has not heard for long is not suitable.
        until("a failover", || {
            let answer: Result<String, _> = sentinel.ask(&["SENTINEL", "FAILOVER", "main"]);
            answer.is_ok()
        })
        .await;
        until("another primary", || {
            let question = ["SENTINEL", "get-master-addr-by-name", "main"];
            let named: (String, u16) = sentinel.ask(&question).unwrap();
            named.1 == new.port
        })
        .await;
        // The connections to the old one stay open.
        let port = new.port.to_string();
        let _: String = old.ask(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
        since(push_until_applied(&mut node, vec![hits("a", 1)]).await);
        let total = node.store.get_window(&node.shard, b"a", MINUTE, 7).await;
        assert_eq!(total.unwrap().whole(), 2);
    });
}

#[test]
fn sentinels_have_credentials_of_their_own_and_both_users_may_be_limited() {
    let primary = Server::start(&[]);
    let sentinel = Server::start_sentinel(&[]);
    sentinel.watch(&primary);
    let user = |server: &Server, name: &str, password: &str, may: &[&str]| {
        let password = format!(">{password}");
        let user = ["ACL", "SETUSER", name, "on", &password];
        let _: String = server.ask(&[&user[..], may].concat()).unwrap();
    };
    let commands = [access::COMMANDS, &["~rl:*", "+role"]].concat();
    user(&primary, "alice", "hunter2", &commands);
    let commands = ["+ping", "+sentinel|get-master-addr-by-name"];
    user(&sentinel, "watcher", "owl-eyes", &commands);

    let store = |username: &str, password: &str| {
        let (mut options, mut redis) = known_by(&[sentinel.tcp()]);
        options.credentials =
            Credentials { username: secret("alice"), password: secret("hunter2") };
        redis.topology = Topology::Sentinel {
            master: "main".into(),
            credentials: Credentials { username: secret(username), password: secret(password) },
        };
        Redis::new(&options, &redis)
    };
    block_on(async {
        let mut node = Node::join(store("watcher", "owl-eyes"), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;

        let mut wrong = store("watcher", "hunter2");
        let error = open(&mut wrong).await.unwrap_err();
        assert!(matches!(error.failure, Failure::Denied(_)), "{error}");
        assert_eq!(error.server, sentinel.tcp());
        for text in [format!("{error} {error:?}"), format!("{wrong:?}")] {
            for secret in ["alice", "hunter2", "watcher", "owl-eyes"] {
                assert!(!text.contains(secret), "{text}");
            }
        }
    });
}

#[test]
fn sentinels_and_the_primary_are_both_spoken_to_with_tls() {
    let authority = Authority::new();
    let certificate = authority.issue("127.0.0.1");
    let primary = Server::start_with_tls(&authority, &certificate, "no");
    let sentinel = Server::start_sentinel_with_tls(&authority, &certificate);
    sentinel.watch(&primary);
    let (mut options, redis) = known_by(&[sentinel.tcp()]);
    options.tls = Some(trusting(&authority));
    block_on(async {
        let mut node = Node::join(Redis::new(&options, &redis), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        // The primary uses TLS.
        let store = with_tls(&primary, trusting(&authority));
        let mut other = Node::join(store, shard("api")).await;
        assert_eq!(other.read_all(&[(MINUTE, 7)]).await.len(), 1);
    });
}

/// Waits until the sentinel has found a replica that can become the primary.
pub(super) async fn knows_a_replica(sentinel: &Server) {
    until("a replica is known", || {
        let replicas: Vec<redis::Value> = sentinel.ask(&["SENTINEL", "REPLICAS", "main"]).unwrap();
        !replicas.is_empty()
    })
    .await;
}
