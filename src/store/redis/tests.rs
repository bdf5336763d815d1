//! The suite for Redis, and what only Redis does.

use core::time::Duration;

use super::proxy::{self, Proxy};
use super::testing::{Server, connect, options, tcp};
use super::{Redis, Step};
use crate::store::conformance::{
    MINUTE, Node, behind, block_on, hits, pairs, shard, since, totals,
};
use crate::store::error::{Failure, Refusal, StoreError};
use crate::store::options::{Credentials, Secret, TlsOptions, Topology};
use crate::store::server::ServerAddress;
use crate::store::strategy::{Batch, Diff, Pushed, Strategy};

mod over_tcp {
    use crate::store::conformance::conformance_tests;
    conformance_tests!(super::super::testing::Tcp);
}

mod over_a_unix_socket {
    use crate::store::conformance::conformance_tests;
    conformance_tests!(super::super::testing::Unix);
}

const SHARD: &str = "{rl:api:0}";

async fn join(server: ServerAddress) -> Node<Redis> {
    Node::join(connect(server), shard("api")).await
}

/// A strategy that waits for only so long.
fn impatient(servers: &[ServerAddress]) -> Redis {
    let (mut options, redis) = options(servers);
    options.connect_timeout = Duration::from_millis(300);
    options.timeout = Duration::from_millis(300);
    Redis::new(&options, &redis)
}

fn secret(text: &str) -> Option<Secret> {
    Secret::parse(text.as_bytes())
}

fn with_credentials(server: &Server, username: &str, password: &str) -> Redis {
    let (mut options, redis) = options(&[server.tcp()]);
    options.credentials = Credentials {
        username: secret(username),
        password: secret(password),
    };
    Redis::new(&options, &redis)
}

/// What goes wrong with the node's batch of this number.
async fn failure(node: &mut Node<Redis>, number: u64) -> StoreError {
    let batch = node.batch(number, vec![hits("a", 1)]);
    let pushed = node.store.push_diffs(&node.shard, &batch, 500);
    pushed.await.expect_err("pushed")
}

async fn open(store: &mut Redis) -> Result<(), StoreError> {
    let epoch = crate::store::conformance::new_epoch();
    store.open_epoch(&shard("api"), None, epoch).await.map(drop)
}

#[test]
fn a_killed_server_cannot_be_reached() {
    let mut server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        server.kill();
        // At first, it may not be known yet that the connection is closed.
        for _ in 0..2 {
            let error = failure(&mut node, 1).await;
            assert!(error.is_transient(), "{error}");
        }
        let error = failure(&mut node, 1).await;
        assert!(!error.may_have_applied(), "{error}");
        let message = error.to_string();
        let address = format!("{} cannot be reached (", server.tcp());
        assert!(message.starts_with(&address), "{message}");
    });
}

#[test]
fn a_server_that_restarts_with_its_data_goes_on() {
    let mut server = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        node.push(vec![hits("a", 1)]).await;
        server.kill();
        server.start_again();
        // Lets the connection notice.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(node.push(vec![hits("a", 2)]).await.is_empty());
        let all = node.read_all(&[(MINUTE, 7)]).await;
        assert_eq!(totals(&all), pairs(&[("a", 3)]));
    });
}

#[test]
fn a_server_that_restarts_without_its_data_has_no_epoch() {
    let mut server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        node.push(vec![hits("a", 1)]).await;
        server.kill();
        server.start_again();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(node.send(2, vec![hits("a", 2)]).await, Pushed::NoEpoch);
    });
}

#[test]
fn a_server_that_hangs_may_have_applied_the_batch_and_applies_it_once() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = Node::join(impatient(&[server.tcp()]), shard("api")).await;
        server.signal("STOP");
        let error = failure(&mut node, 1).await;
        assert_eq!(error.failure, Failure::TimedOut(Duration::from_millis(300)));
        assert!(error.may_have_applied() && error.is_transient());
        // Now there is no connection, and none can be made.
        let error = failure(&mut node, 1).await;
        assert!(!error.may_have_applied() && error.is_transient(), "{error}");
        server.signal("CONT");
        // The answer is that to this request, not the late one to the other.
        node.store = connect(server.tcp());
        node.push(vec![hits("a", 1)]).await;
        let total = node.store.get_window(&node.shard, b"a", MINUTE, 7).await;
        assert_eq!(total.unwrap().whole(), 1);
    });
}

#[test]
fn a_late_answer_is_not_taken_for_another_one() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        node.push(vec![hits("a", 5)]).await;
        server.signal("STOP");
        let total = node.store.get_window(&node.shard, b"a", MINUTE, 7);
        // The one who asked has gone.
        let short = Duration::from_millis(50);
        assert!(tokio::time::timeout(short, total).await.is_err());
        server.signal("CONT");
        let total = node.store.get_window(&node.shard, b"b", MINUTE, 7);
        assert_eq!(total.await.unwrap().whole(), 0);
    });
}

#[test]
fn a_server_that_forgot_the_scripts_is_given_them_again() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        for number in 1..=3 {
            let _: String = server.ask(&["SCRIPT", "FLUSH"]).unwrap();
            node.push(vec![hits("a", 1)]).await;
            let _: String = server.ask(&["SCRIPT", "FLUSH"]).unwrap();
            let total = node.store.get_window(&node.shard, b"a", MINUTE, 7);
            assert_eq!(total.await.unwrap().whole(), number);
        }
    });
}

#[test]
fn a_batch_whose_answer_was_lost_is_applied_once() {
    let server = Server::start(&[]);
    let proxy = Proxy::start(server.port);
    block_on(async {
        let mut node = join(proxy.address.clone()).await;
        let mut other = join(server.tcp()).await;
        for number in 1..=5 {
            proxy.cut_next_answer();
            let error = failure(&mut node, number).await;
            assert!(matches!(error.failure, Failure::Disconnected(_)), "{error}");
            assert!(error.may_have_applied() && error.is_transient());
            // It was.
            let total = i64::try_from(number).unwrap();
            assert_eq!(totals(&other.fetch().await), pairs(&[("a", total)]));
            node.push(vec![hits("a", 1)]).await;
            assert!(other.fetch().await.is_empty());
        }
    });
}

#[test]
fn passwords_are_given_and_not_shown() {
    let server = Server::start(&["--requirepass", "hunter2"]);
    block_on(async {
        open(&mut with_credentials(&server, "", "hunter2"))
            .await
            .unwrap();
        open(&mut with_credentials(&server, "default", "hunter2"))
            .await
            .unwrap();
        for (username, password) in [
            ("", "wrong-one"),
            ("alice", "hunter2"),
            ("default", "wrong-one"),
            ("", ""),
        ] {
            let mut store = with_credentials(&server, username, password);
            let error = open(&mut store).await.unwrap_err();
            assert!(matches!(error.failure, Failure::Denied(_)), "{error}");
            assert!(!error.is_transient() && !error.may_have_applied());
            for text in [format!("{error} {error:?}"), format!("{store:?}")] {
                for secret in [username, password] {
                    assert!(secret.is_empty() || !text.contains(secret), "{text}");
                }
            }
        }
    });
}

#[test]
fn a_password_that_the_server_does_not_want_is_an_error() {
    let server = Server::start(&[]);
    block_on(async {
        // Any is right for a user without one.
        let error = open(&mut with_credentials(&server, "", "hunter2"))
            .await
            .unwrap_err();
        assert!(!error.may_have_applied(), "{error}");
        assert!(!error.to_string().contains("hunter2"));
    });
}

#[test]
fn a_user_may_be_limited_to_what_is_needed() {
    let server = Server::start(&[]);
    let _: String = server
        .ask(&[
            "ACL", "SETUSER", "alice", "on", ">hunter2", "~{rl:*", "+ping", "+evalsha", "+script",
            "+hget", "+hset", "+hmget", "+hincrby", "+hdel", "+hscan", "+pttl", "+pexpire", "+del",
            "+unlink", "+xadd", "+xrange", "+xlen", "+xtrim", "+time",
        ])
        .unwrap();
    let _: String = server
        .ask(&["ACL", "SETUSER", "bob", "on", ">hunter2", "~*", "+ping"])
        .unwrap();
    block_on(async {
        let store = with_credentials(&server, "alice", "hunter2");
        let mut alice = Node::join(store, shard("api")).await;
        let mut other = join(server.tcp()).await;
        other.push(vec![hits("a", 1)]).await;
        let seen = alice.push(vec![hits("a", 1)]).await;
        assert_eq!(totals(&seen), pairs(&[("a", 2)]));
        assert_eq!(alice.read_all(&[(MINUTE, 7)]).await.len(), 1);

        let error = open(&mut with_credentials(&server, "bob", "hunter2"))
            .await
            .unwrap_err();
        assert!(matches!(error.failure, Failure::Denied(_)), "{error}");
        assert!(!error.to_string().contains("bob"), "{error}");
    });
}

#[test]
fn a_database_other_than_0_is_selected() {
    let server = Server::start(&[]);
    let (options, mut redis) = options(&[server.tcp()]);
    redis.database = 3;
    block_on(async {
        let mut node = Node::join(Redis::new(&options, &redis), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        let size = |database: &str| {
            let script = "redis.call('SELECT', ARGV[1]) return redis.call('DBSIZE')";
            server.ask::<i64>(&["EVAL", script, "0", database]).unwrap()
        };
        assert_eq!((size("0"), size("3")), (0, 3));

        redis.database = 999;
        let error = open(&mut Redis::new(&options, &redis)).await.unwrap_err();
        assert!(!error.may_have_applied(), "{error}");
    });
}

#[test]
fn after_a_replica_the_next_server_is_used() {
    let primary = Server::start(&[]);
    let replica = Server::start(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    let (options, redis) = options(&[replica.tcp(), primary.tcp()]);
    block_on(async {
        let mut other = join(primary.tcp()).await;
        other.push(vec![hits("a", 1)]).await;
        replicated(&replica, "b:", 1).await;
        let mut node = Node {
            store: Redis::new(&options, &redis),
            ..join(primary.tcp()).await
        };
        for asks_only in [false, true] {
            node.store = Redis::new(&options, &redis);
            let diffs = if asks_only {
                vec![]
            } else {
                vec![hits("a", 1)]
            };
            let batch = node.batch(u64::from(!asks_only), diffs);
            let pushed = node.store.push_diffs(&node.shard, &batch, 500).await;
            let error = pushed.unwrap_err();
            assert_eq!(
                error.failure,
                Failure::Refused(Refusal::ReadOnly),
                "{error}"
            );
            assert_eq!(error.server, replica.tcp());
            assert!(error.is_transient() && !error.may_have_applied());
            node.number = 0;
            node.push(vec![hits("a", 1)]).await;
            let _: String = primary.ask(&["FLUSHALL"]).unwrap();
            let epoch = node.epoch;
            let opened = node.store.open_epoch(&node.shard, None, epoch).await;
            assert_eq!(opened, Ok(epoch));
            node.position = Some(behind(&node.send(0, vec![]).await));
        }
    });
}

/// Waits until the replica has so many fields in the shard's hash that begin with `prefix`.
async fn replicated(replica: &Server, prefix: &str, count: usize) {
    let arrived = async {
        loop {
            let fields: Vec<String> = replica.ask(&["HKEYS", SHARD]).unwrap_or_default();
            if fields
                .iter()
                .filter(|field| field.starts_with(prefix))
                .count()
                >= count
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let deadline = Duration::from_secs(30);
    tokio::time::timeout(deadline, arrived)
        .await
        .expect("replicated");
}

#[test]
fn after_a_failover_lost_writes_are_noticed() {
    let mut old = Server::start(&[]);
    let new = Server::start(&["--replicaof", "127.0.0.1", &old.port.to_string()]);
    block_on(async {
        let mut writer = join(old.tcp()).await;
        let mut reader = join(old.tcp()).await;
        let mut third = join(old.tcp()).await;
        writer.push(vec![hits("a", 1)]).await;
        third.push(vec![hits("b", 1)]).await;
        replicated(&new, "b:", 2).await;
        let _: String = new.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
        // These will be lost.
        writer.push(vec![hits("a", 1)]).await;
        assert_eq!(reader.fetch().await.len(), 2);
        old.kill();

        for node in [&mut writer, &mut reader, &mut third] {
            node.store = connect(new.tcp());
        }
        // Exactly as many bytes take the place of the lost ones.
        third.push(vec![hits("b", 1)]).await;
        let ([at, _], [lost, _]) = (third.position.unwrap().0, reader.position.unwrap().0);
        assert_eq!(at, lost);
        // The reader has seen something else there, and will not miss what came instead.
        behind(&reader.send(0, vec![]).await);
        // The writer's second batch is gone: what follows it cannot be applied.
        assert_eq!(writer.send(3, vec![hits("a", 1)]).await, Pushed::Lost);
        assert_eq!(writer.send(2, vec![]).await, Pushed::Lost);
    });
}

#[test]
fn a_server_that_hangs_at_the_beginning_is_passed_over() {
    let [hanging, server] = [Server::start(&[]), Server::start(&[])];
    hanging.signal("STOP");
    block_on(async {
        let mut store = impatient(&[hanging.tcp(), server.tcp()]);
        open(&mut store).await.unwrap();
        // And stays so.
        hanging.signal("CONT");
        open(&mut store).await.unwrap();
        assert_eq!(hanging.ask::<i64>(&["DBSIZE"]).unwrap(), 0);
    });
}

#[test]
fn a_server_that_cannot_be_reached_is_passed_over() {
    let server = Server::start(&[]);
    let missing = ServerAddress::Unix("/nonexistent/socket".into());
    let (options, redis) = options(&[missing.clone(), server.tcp()]);
    block_on(async {
        open(&mut Redis::new(&options, &redis)).await.unwrap();
        let error = open(&mut connect(missing)).await.unwrap_err();
        let message = error.to_string();
        assert_eq!(
            message,
            "unix:/nonexistent/socket cannot be reached (No such file or directory (os error 2))"
        );
    });
}

#[test]
fn what_servers_refuse_is_told_apart() {
    let other = |code: &str| Refusal::Other(code.into());
    for (line, refusal) in [
        (
            "-LOADING Redis is loading the dataset in memory",
            Refusal::Loading,
        ),
        ("-MASTERDOWN Link with MASTER is down", Refusal::PrimaryDown),
        (
            "-READONLY You can't write against a read only replica.",
            Refusal::ReadOnly,
        ),
        (
            "-OOM command not allowed when used memory",
            Refusal::OutOfMemory,
        ),
        ("-MOVED 3999 127.0.0.1:6381", Refusal::Moved),
        ("-BUSY Redis is busy running a script.", other("BUSY")),
        (
            "-NOREPLICAS Not enough good replicas to write.",
            other("NOREPLICAS"),
        ),
        ("-NOSCRIPT No matching script.", other("NOSCRIPT")),
    ] {
        let mut store = impatient(&[proxy::with_one_answer(line)]);
        let error = block_on(open(&mut store)).unwrap_err();
        assert_eq!(error.failure, Failure::Refused(refusal), "{line}");
        assert!(error.is_transient() && !error.may_have_applied());
    }
    for (line, may_have_applied) in [
        ("-NOAUTH Authentication required.", false),
        ("-NOPERM this user has no permissions", false),
        ("-ERR unknown command 'EVALSHA'", true),
        ("-WRONGTYPE Operation against a key", true),
        ("+OK", true),
        (":1", true),
        ("nonsense", true),
    ] {
        let mut store = impatient(&[proxy::with_one_answer(line)]);
        let error = block_on(open(&mut store)).unwrap_err();
        assert_eq!(
            error.may_have_applied(),
            may_have_applied,
            "{line}: {error}"
        );
        assert!(!error.is_transient(), "{line}: {error}");
    }
}

#[test]
fn without_its_primary_a_replica_is_left() {
    let server = Server::start(&[]);
    let replica = proxy::with_one_answer("-MASTERDOWN Link with MASTER is down");
    let mut store = impatient(&[replica, server.tcp()]);
    block_on(async {
        assert!(open(&mut store).await.is_err());
        assert_eq!(open(&mut store).await, Ok(()));
    });
}

#[test]
fn without_memory_nothing_of_a_batch_is_applied() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        let _: String = server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        let error = failure(&mut node, 1).await;
        assert_eq!(error.failure, Failure::Refused(Refusal::OutOfMemory));
        assert!(node.fetch().await.is_empty());
        let _: String = server.ask(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
        node.push(vec![hits("a", 1)]).await;
        let total = node.store.get_window(&node.shard, b"a", MINUTE, 7);
        assert_eq!(total.await.unwrap().whole(), 1);
    });
}

#[test]
fn the_stream_of_changes_is_bounded() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        let mut late = join(server.tcp()).await;
        let mut last = join(server.tcp()).await;
        // 40 MB: many small batches, then large ones.
        for round in 0..2000 {
            node.push(vec![hits(&format!("{round}"), 1)]).await;
        }
        let large = |round: usize| {
            let keys = (0..8).map(|key| format!("{:04000}", round % 10 * 8 + key));
            keys.map(|key| hits(&key, 1)).collect()
        };
        for round in 0..1250 {
            if round == 1240 {
                last.position = node.position;
            }
            node.push(large(round)).await;
        }
        let stream = format!("{SHARD}:{}:s", node.epoch);
        let used: i64 = server
            .ask(&["MEMORY", "USAGE", &stream, "SAMPLES", "0"])
            .unwrap();
        assert!((10_000_000..25_000_000).contains(&used), "{used}");
        // The small ones came first and are gone.
        let length: i64 = server.ask(&["XLEN", &stream]).unwrap();
        assert!(length < 1000, "{length}");
        behind(&late.send(0, vec![]).await);
        late.position = None;
        let mut seen = 0;
        loop {
            let (counts, position, has_more) = since(last.send(0, vec![]).await);
            seen += counts.len();
            last.position = Some(position);
            if !has_more {
                break;
            }
        }
        assert_eq!(seen, 80);
    });
}

#[test]
fn the_shard_outlives_its_counts() {
    let server = Server::start(&[]);
    let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
    block_on(async {
        let mut node = join(server.tcp()).await;
        let counts = format!("{SHARD}:{}:60000:7", node.epoch);
        let stream = format!("{SHARD}:{}:s", node.epoch);
        let left = |key: &str| server.ask::<i64>(&["PTTL", key]).unwrap();
        assert!(left(SHARD) > 3_500_000 && left(&stream) > 3_500_000);
        // Expiries grow and never shrink.
        for (expires_in, expected) in [(1, 1), (10, 10), (2, 10)] {
            let diff = Diff {
                expires_in: days(expires_in),
                ..hits("a", 1)
            };
            node.push(vec![diff]).await;
            let expected = i64::try_from(days(expected).as_millis()).unwrap();
            assert!((expected - 30_000..=expected).contains(&left(&counts)));
            assert!(left(SHARD) > expected && left(&stream) > expected);
        }
        // A shard lives for as long as somebody asks.
        for key in [SHARD, &stream] {
            let _: i64 = server.ask(&["PEXPIRE", key, "60000"]).unwrap();
        }
        node.fetch().await;
        assert!(left(SHARD) > 3_500_000 && left(&stream) > 3_500_000);

        let keys: Vec<String> = server.ask(&["KEYS", "*"]).unwrap();
        assert!(keys.iter().all(|key| key.starts_with(SHARD)), "{keys:?}");
    });
}

#[test]
fn pages_begin_again_after_a_new_connection() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        for first in (0..3000).step_by(500) {
            let keys = first..first + 500;
            node.push(keys.map(|key| hits(&key.to_string(), 1)).collect())
                .await;
        }
        let windows = [(MINUTE, 7)];
        let mut keys = std::collections::BTreeSet::new();
        let mut next = Some(Step::default());
        let mut pages = 0;
        while let Some(step) = next {
            pages += 1;
            if pages == 4 {
                let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                keys.clear();
            }
            let page = node
                .store
                .get_counters(&node.shard, node.epoch, &windows, step);
            let (counts, step) = page.await.unwrap();
            keys.extend(counts.into_iter().map(|count| count.key));
            next = step;
        }
        assert_eq!(keys.len(), 3000);
    });
}

#[test]
fn what_is_not_supported_is_said() {
    let (plain, redis) = options(&[tcp(1)]);
    let mut with_tls = plain.clone();
    with_tls.tls = Some(TlsOptions {
        verify: true,
        name: None,
        trusted_certificate: None,
        identity: None,
    });
    let mut cluster = redis.clone();
    cluster.topology = Topology::Cluster;
    for (options, redis) in [(with_tls, redis), (plain, cluster)] {
        let error = block_on(open(&mut Redis::new(&options, &redis))).unwrap_err();
        assert!(matches!(error.failure, Failure::Unsupported(_)), "{error}");
        assert!(!error.is_transient() && !error.may_have_applied());
    }
}

#[test]
fn a_batch_of_the_largest_size_is_taken() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        let mut other = join(server.tcp()).await;
        // More than Lua can pass to one call.
        let key = |key: usize| format!("{key:064}");
        let diffs: Vec<_> = (0..10 * Batch::MAX_DIFFS)
            .map(|number| hits(&key(number), 1))
            .collect();
        node.push(diffs).await;
        assert_eq!(other.fetch().await.len(), 10 * Batch::MAX_DIFFS);
    });
}
