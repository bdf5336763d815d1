//! Logins, and the words about them in errors.

use super::*;
use crate::policy::algorithm::Algorithm;
use crate::store::contract::decision::Decider;
use crate::testing::conformance::{new_epoch, question};

/// The commands that a user needs, as in docs/redis.md.
pub(super) const COMMANDS: &[&str] = &[
    "+ping",
    "+select",
    "+evalsha",
    "+script|load",
    "+set",
    "+mget",
    "+getrange",
    "+setrange",
    "+strlen",
    "+hget",
    "+hset",
    "+hmget",
    "+hincrby",
    "+hdel",
    "+object|encoding",
    "+hscan",
    "+pttl",
    "+pexpire",
    "+del",
    "+unlink",
    "+xadd",
    "+xdel",
    "+xrange",
    "+xlen",
    "+xread",
    "+xtrim",
    "+time",
];

#[test]
fn passwords_are_given_and_not_shown() {
    let server = Server::start(&["--requirepass", "hunter2"]);
    block_on(async {
        open(&mut with_credentials(&server, "", "hunter2")).await.unwrap();
        open(&mut with_credentials(&server, "default", "hunter2")).await.unwrap();
        for (username, password) in
            [("", "wrong-one"), ("alice", "hunter2"), ("default", "wrong-one"), ("", "")]
        {
            denies(with_credentials(&server, username, password), username, password).await;
        }
    });
}

#[test]
fn a_password_that_the_server_does_not_want_is_an_error() {
    let server = Server::start(&[]);
    block_on(async {
        // Without a user, any password is accepted.
        let error = open(&mut with_credentials(&server, "", "hunter2")).await.unwrap_err();
        assert!(!error.may_have_applied(), "{error}");
        assert!(!error.to_string().contains("hunter2"));
    });
}

#[test]
fn a_user_with_only_the_needed_rights_suffices() {
    let server = Server::start(&[]);
    let alice = ["ACL", "SETUSER", "alice", "on", ">hunter2", "~rl:*"];
    let _: String = server.ask(&[&alice[..], COMMANDS].concat()).unwrap();
    let _: String =
        server.ask(&["ACL", "SETUSER", "bob", "on", ">hunter2", "~*", "+ping"]).unwrap();
    block_on(async {
        let store = with_credentials(&server, "alice", "hunter2");
        let mut alice = Node::join(store, shard("api")).await;
        let mut other = join(server.tcp()).await;
        other.push(vec![hits("a", 1)]).await;
        let seen = alice.push(vec![hits("a", 1)]).await;
        assert_eq!(totals(&seen), pairs(&[("a", 2)]));
        assert_eq!(alice.read_all(&[(MINUTE, 7)]).await.len(), 1);
        let mut listener = Listener::of(&alice);
        tell(&mut alice, vec![hits("a", 1)]).await;
        assert_eq!(totals(&listener.recv(1).await[0].counts), pairs(&[("a", 3)]));
        for namespace in ["api", "new"] {
            let algorithms =
                [Algorithm::Sliding, Algorithm::Elastic, Algorithm::Bucket, Algorithm::Moving];
            let questions = algorithms.map(|algorithm| {
                let mut question = question("a", algorithm, 2);
                question.counters[0].shard = shard(namespace);
                question
            });
            for _ in 0..2 {
                let decided = alice.store.decide(alice.id, new_epoch(), &questions);
                let answers = decided.await.unwrap().answers;
                assert!(answers.iter().all(|it| it.admitted[..] == [true]));
            }
        }

        let error = open(&mut with_credentials(&server, "bob", "hunter2")).await.unwrap_err();
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
fn a_batch_that_fails_midway_ends_the_epoch() {
    let server = Server::start(&[]);
    let _: String =
        server.ask(&["ACL", "SETUSER", "carol", "on", ">hunter2", "~*", "+@all", "-xadd"]).unwrap();
    block_on(async {
        let mut node = join(server.tcp()).await;
        node.push(vec![hits("a", 1)]).await;
        node.store = with_credentials(&server, "carol", "hunter2");
        let error = failure(&mut node, 2).await;
        assert!(error.may_have_applied(), "{error}");
        assert!(!error.to_string().contains("carol"), "{error}");
        // Half of it is not taken for the whole, and no hit is counted twice.
        node.store = connect(server.tcp());
        assert_eq!(node.send(2, vec![hits("a", 1)]).await, Pushed::NoEpoch);
    });
}
