//! Decisions that are specific to Redis.

use super::*;
use crate::policy::algorithm::{Algorithm, LevelKind, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use core::num::NonZeroU64;

use crate::policy::reserve::{Grants, Witness};
use crate::store::contract::decision::{AskedCounter, Decided, Decider as _, Question};
use crate::store::contract::strategy::{Batch, Diff, Epoch, MAX_TOTAL, Strategy as _};
use crate::testing::conformance::{Asking, HOUR, Node, hits, new_epoch, question};
use smallvec::smallvec;

pub(super) fn asks(question: Question) -> Question {
    let mut question = question;
    question.counters[0].cost = Hits::ZERO;
    question
}

/// Returns a question about one hit, under a limit of `hits` in an hour.
pub(super) fn in_an_hour(key: &str, hits: i64) -> Question {
    let mut question = question(key, Algorithm::Sliding, hits);
    question.counters[0].size = HOUR;
    question
}

pub(super) fn one() -> Question {
    in_an_hour("a", 1000)
}

/// Returns the count after each decision, in whole hits.
pub(super) fn counted(decided: &Decided) -> Vec<i64> {
    let readings = decided.answers.iter().flat_map(|it| &it.readings);
    readings.map(|reading| reading.windows().current.whole()).collect()
}

pub(super) async fn refusal(node: &mut Asking<Redis>, question: Question) -> Failure {
    let error = node.try_to_ask(&[question]).await.unwrap_err();
    assert!(!error.may_have_applied(), "{error}");
    error.failure
}

/// Returns a decider, and its shard's epoch.
async fn asking(server: &Server) -> (Asking<Redis>, Epoch) {
    let mut node = Asking::new(connect(server.tcp()));
    let epoch = open(&mut node).await;
    (node, epoch)
}

pub(super) async fn open(node: &mut Asking<Redis>) -> Epoch {
    let shard = shard("api");
    let opened = node.store.open_epoch(&shard, None, new_epoch());
    opened.await.unwrap()
}

#[test]
fn without_memory_nothing_is_charged() {
    let server = Server::start(&[]);
    let limit = |bytes: &str| {
        let _: String = server.ask(&["CONFIG", "SET", "maxmemory", bytes]).unwrap();
    };
    block_on(async {
        let mut node = Asking::new(connect(server.tcp()));
        limit("1");
        // First there is no epoch, and then there is one.
        for keys in [0, 2] {
            let failure = refusal(&mut node, one()).await;
            assert_eq!(failure, Failure::Refused(Refusal::OutOfMemory));
            assert_eq!(server.ask::<i64>(&["DBSIZE"]).unwrap(), keys);
            limit("0");
            open(&mut node).await;
            limit("1");
        }
        // Asking needs no epoch.
        assert_eq!(counted(&node.ask(&[asks(one())]).await), [0]);
        let mut other = join(server.tcp()).await;
        assert!(other.fetch().await.is_empty());
        limit("0");
        assert_eq!(counted(&node.ask(&[one()]).await), [1]);
        assert_eq!(totals(&other.fetch().await), pairs(&[("a", 1)]));
    });
}

#[test]
fn a_replica_decides_nothing() {
    let primary = Server::start(&[]);
    let replica = Server::start(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    let (options, redis) = options(&[replica.tcp(), primary.tcp()]);
    block_on(async {
        let mut node = join(primary.tcp()).await;
        node.push(vec![hits("a", 1)]).await;
        replicated(&replica, 1).await;
        let elsewhere = Question {
            counters: smallvec![AskedCounter { shard: shard("web"), ..one().counters[0].clone() }],
            ..one()
        };
        for (question, count) in [(one(), 1), (asks(one()), 1), (elsewhere, 1)] {
            let mut node = Asking::new(connect(replica.tcp()));
            let failure = refusal(&mut node, question.clone()).await;
            assert_eq!(failure, Failure::Refused(Refusal::ReadOnly));
            // The next server is asked at once.
            node.store = Redis::new(&options, &redis);
            assert_eq!(counted(&node.ask(&[question]).await), [count]);
        }
    });
}

#[test]
fn without_replicas_that_there_must_be_nothing_is_charged() {
    let server = Server::start(&[]);
    let must_have = |replicas: &str| {
        let option = ["CONFIG", "SET", "min-replicas-to-write", replicas];
        let _: String = server.ask(&option).unwrap();
    };
    block_on(async {
        let (mut node, _) = asking(&server).await;
        must_have("1");
        let failure = refusal(&mut node, one()).await;
        assert_eq!(failure, Failure::Refused(Refusal::Other("NOREPLICAS".into())));
        must_have("0");
        assert_eq!(counted(&node.ask(&[one()]).await), [1]);
    });
}

#[test]
fn a_decision_that_fails_midway_ends_the_epoch() {
    let server = Server::start(&[]);
    let carol = |rules: &[&str]| {
        let user = ["ACL", "SETUSER", "carol", "reset", "on", ">hunter2", "~*"];
        let _: String = server.ask(&[&user[..], &["+@all"], rules].concat()).unwrap();
    };
    block_on(async {
        let (mut node, epoch) = asking(&server).await;
        node.ask(&[one()]).await;
        let mut carols = Asking::new(with_credentials(&server, "carol", "hunter2"));
        for (rules, ends) in [(&["-xadd"], false), (&["-hset"], true)] {
            carol(rules);
            let error = carols.try_to_ask(&[one()]).await.unwrap_err();
            assert!(error.may_have_applied() || !ends, "{error}");
            assert!(!error.is_transient(), "{error}");
            assert!(!error.to_string().contains("carol"), "{error}");
            let opened = open(&mut node).await;
            assert_eq!(opened != epoch, ends);
            let count = if ends { 1 } else { 2 };
            assert_eq!(counted(&node.ask(&[one()]).await), [count]);
        }
    });
}

#[test]
fn a_decision_whose_answer_was_lost_is_not_repeated() {
    let server = Server::start(&[]);
    let proxy = Proxy::start(&server.tcp());
    block_on(async {
        let (mut node, _) = asking(&server).await;
        let mut cut = Asking::new(connect(proxy.address.clone()));
        assert_eq!(counted(&cut.ask(&[one()]).await), [1]);
        proxy.cut_next_answer();
        let error = cut.try_to_ask(&[one()]).await.unwrap_err();
        assert!(matches!(error.failure, Failure::Disconnected(_)), "{error}");
        assert!(error.may_have_applied() && error.is_transient());
        // It was charged once.
        assert_eq!(counted(&node.ask(&[one()]).await), [3]);
        assert_eq!(counted(&cut.ask(&[one()]).await), [4]);
    });
}

#[test]
fn a_server_that_forgot_the_script_decides_once() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, _) = asking(&server).await;
        for count in 1..=3 {
            let _: String = server.ask(&["SCRIPT", "FLUSH"]).unwrap();
            assert_eq!(counted(&node.ask(&[one()]).await), [count]);
        }
    });
}

#[test]
fn charges_are_kept_for_two_windows_and_a_margin() {
    let server = Server::start(&[]);
    let day = 24 * 3_600_000;
    block_on(async {
        let (mut node, epoch) = asking(&server).await;
        let stream = format!("{SHARD}:{epoch}:s");
        let left = |key: &str| server.ask::<i64>(&["PTTL", key]).unwrap();
        for millis in [100, 3_600_000, 10 * day] {
            let size = WindowSize::from_millis(millis).unwrap();
            let mut question = one();
            question.counters[0].size = size;
            let now = node.ask(&[question]).await.now;
            let at = size.at(now);
            let counts = format!("{SHARD}:{epoch}:{millis}:{}", at.number);
            let expected = i64::try_from(2 * millis - at.elapsed + 60_000).unwrap();
            assert!((expected - 20_000..=expected + 1).contains(&left(&counts)));
            let longer = expected.max(3_500_000);
            assert!(left(SHARD) > longer && left(&stream) > longer);

            // The hash is a table from the start, with only the count in it.
            let encoding: String = server.ask(&["OBJECT", "ENCODING", &counts]).unwrap();
            assert_eq!(encoding, "hashtable");
            let keys: Vec<String> = server.ask(&["HKEYS", &counts]).unwrap();
            assert_eq!(keys, ["a"]);
        }
        // A shard lives as long as nodes ask, even if nothing is charged.
        for question in [asks(one()), in_an_hour("a", 0)] {
            for key in [SHARD, &stream] {
                let _: i64 = server.ask(&["PEXPIRE", key, "60000"]).unwrap();
            }
            node.ask(&[question]).await;
            assert!(left(SHARD) > 3_500_000 && left(&stream) > 3_500_000);
        }
        let keys: Vec<String> = server.ask(&["KEYS", "*"]).unwrap();
        assert!(keys.iter().all(|key| key.starts_with(SHARD)), "{keys:?}");
    });
}

/// Returns a question about a hit in a bucket of ten hits that leaks `rate` thousandths in an hour.
pub(super) fn in_a_bucket(key: &str, rate: i64) -> Question {
    let mut question = question(key, Algorithm::Bucket, 10);
    let rate = Hits::from_thousandths(rate);
    question.counters[0].kind = StoredKind::Level(LevelKind::Bucket(rate));
    question.counters[0].size = HOUR;
    question
}

#[test]
fn a_bucket_is_kept_until_it_is_empty_and_a_minute() {
    let server = Server::start(&[]);
    let hour = 3_600_000;
    block_on(async {
        let (mut node, epoch) = asking(&server).await;
        let bucket = |rate: &str| format!("{SHARD}:{epoch}:r{rate}:a");
        let left = |key: &str| server.ask::<i64>(&["PTTL", key]).unwrap();
        for (rate, name, most) in [
            (1000, "0.00027777777777777778", hour + 60_000),
            (2000, "0.00055555555555555556", hour / 2 + 60_000),
            (7_200_000, "2", 60_500),
            // Never empty.
            (0, "0", 100 * 366 * 24 * hour),
        ] {
            node.ask(&[in_a_bucket("a", rate)]).await;
            let left_of_bucket = left(&bucket(name));
            assert!((most - 20_000..=most).contains(&left_of_bucket), "{rate}");
            let stream = format!("{SHARD}:{epoch}:s");
            assert!(left(SHARD) > left_of_bucket && left(&stream) > left_of_bucket);
        }
        // A refused question writes nothing.
        let full = in_a_bucket("a", 0);
        while node.ask(core::slice::from_ref(&full)).await.answers[0].admitted[0] {}
        let _: i64 = server.ask(&["PERSIST", &bucket("0")]).unwrap();
        node.ask(&[full]).await;
        assert_eq!(left(&bucket("0")), -1);
    });
}

#[test]
fn decisions_do_not_fill_the_stream() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, epoch) = asking(&server).await;
        // 40 MB.
        for round in 0..1250 {
            let keys = (0..8).map(|key| format!("{:04000}", round % 10 * 8 + key));
            let questions: Vec<_> = keys.map(|key| in_an_hour(&key, 2000)).collect();
            node.ask(&questions).await;
        }
        let stream = format!("{SHARD}:{epoch}:s");
        let usage = ["MEMORY", "USAGE", &stream, "SAMPLES", "0"];
        let used: i64 = server.ask(&usage).unwrap();
        assert!((10_000_000..25_000_000).contains(&used), "{used}");
        let mut other = join(server.tcp()).await;
        node.ask(&[one()]).await;
        assert_eq!(totals(&other.fetch().await), pairs(&[("a", 1)]));
    });
}

#[test]
fn counts_are_exact_up_to_the_most_that_a_total_is() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, epoch) = asking(&server).await;
        let now = node.ask(&[one()]).await.now;
        let counts = format!("{SHARD}:{epoch}:3600000:{}", HOUR.at(now).number);
        let set = |count: i64| {
            let set = ["HSET", &counts, "a", &count.to_string()];
            let _: i64 = server.ask(&set).unwrap();
        };
        for (count, cost, expected) in [
            (MAX_TOTAL - 3, 2, MAX_TOTAL - 1),
            (MAX_TOTAL - 1, 1, MAX_TOTAL),
            (MAX_TOTAL - 1, 2, MAX_TOTAL),
            // A negative count is no additional room.
            (-MAX_TOTAL, 1, 1),
        ] {
            set(count);
            let mut question = one();
            question.counts_rejected = true;
            question.counters[0].cost = Hits::from_thousandths(cost);
            node.ask(&[question, in_an_hour("b", 1000)]).await;
            let total: i64 = server.ask(&["HGET", &counts, "a"]).unwrap();
            assert_eq!(total, expected);
        }
        let total: i64 = server.ask(&["HGET", &counts, "b"]).unwrap();
        assert_eq!(total, 4000);
    });
}

#[test]
fn counts_are_in_a_table_again_some_time_after_a_restart() {
    let mut server = Server::start(&["--save", "3600 1"]);
    block_on(async {
        let (mut node, epoch) = asking(&server).await;
        let now = node.ask(&[one()]).await.now;
        let counts = format!("{SHARD}:{epoch}:3600000:{}", HOUR.at(now).number);
        let encoding = |server: &Server| -> String {
            let encoding = ["OBJECT", "ENCODING", &counts];
            server.ask(&encoding).unwrap()
        };
        assert_eq!(encoding(&server), "hashtable");
        let _: String = server.ask(&["SAVE"]).unwrap();
        server.kill();
        server.start_again();
        assert_ne!(encoding(&server), "hashtable");
        let mut node = Asking::new(connect(server.tcp()));
        assert_eq!(counted(&node.ask(&[one()]).await), [2]);
        assert_ne!(encoding(&server), "hashtable");
        // A change of 64 kB, most of which is in another hash.
        let large = question(&"b".repeat(65535), Algorithm::Fixed, 1);
        node.ask(&[one(), large]).await;
        assert_eq!(encoding(&server), "hashtable");
        let keys: Vec<String> = server.ask(&["HKEYS", &counts]).unwrap();
        assert_eq!(keys, ["a"]);
        assert_eq!(counted(&node.ask(&[one()]).await), [4]);
    });
}

#[test]
fn the_primary_that_sentinels_know_decides() {
    let primary = Server::start(&[]);
    let sentinel = Server::start_sentinel(&[]);
    sentinel.watch(&primary);
    let (options, redis) = options(&[sentinel.tcp()]);
    let redis = RedisOptions {
        topology: Topology::Sentinel { master: "main".into(), credentials: Credentials::default() },
        ..redis
    };
    let mut node = Asking::new(Redis::new(&options, &redis));
    assert_eq!(counted(&block_on(node.ask(&[one()]))), [1]);
    assert_eq!(primary.ask::<i64>(&["EXISTS", SHARD]).unwrap(), 1);
}

/// Returns a decider with charges for reserves, with the epoch and the witness of the store.
async fn granted(server: &Server) -> (Asking<Redis>, Epoch, Witness) {
    let (mut node, epoch) = asking(server).await;
    let shard = shard("api");
    node.store.follow(&shard, None);
    node.ask(&[one()]).await;
    let told = node.store.take_history(&shard).unwrap();
    assert!(told.is_whole);
    (node, epoch, told.witness)
}

#[test]
fn a_store_reports_whether_it_has_the_charges_of_reserves() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, epoch, first) = granted(&server).await;
        let shard = shard("api");
        let mut after = async |witness: Option<Witness>| {
            node.store.follow(&shard, witness);
            node.ask(&[one()]).await;
            node.store.take_history(&shard)
        };
        let next = after(Some(first)).await.unwrap();
        assert!(next.is_whole && next.witness != first);
        // A refused question changes nothing.
        let stream = format!("{SHARD}:{epoch}:s");
        let entries: Vec<(String, Vec<Vec<u8>>)> =
            server.ask(&["XREVRANGE", &stream, "+", "-", "COUNT", "1"]).unwrap();
        let _: i64 = server.ask(&["XDEL", &stream, &entries[0].0]).unwrap();
        assert!(!after(Some(next.witness)).await.unwrap().is_whole);
        assert!(after(Some(first)).await.unwrap().is_whole);
        // The same number of bytes in another history.
        let Witness(word) = first;
        let other = NonZeroU64::new(word.get() ^ 1).map(Witness);
        assert!(!after(other).await.unwrap().is_whole);
        // The store may drop exchanges of long ago.
        let _: i64 = server.ask(&["XTRIM", &stream, "MAXLEN", "1"]).unwrap();
        assert!(after(Some(first)).await.unwrap().is_whole);
        assert_eq!(node.store.take_history(&shard), None);
        node.ask(&[one()]).await;
        assert_eq!(node.store.take_history(&shard), None);
    });
}

#[test]
fn hits_that_a_store_has_lost_are_not_given_back() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut asked, _, witness) = granted(&server).await;
        let Witness(word) = witness;
        let lost = Witness(NonZeroU64::new(word.get() ^ 1).unwrap());
        let mut node = Node::join(connect(server.tcp()), shard("api")).await;
        let window = HOUR.at(asked.ask(&[]).await.now).number;
        let of = |count| Diff { size: HOUR, window, ..hits("a", count) };
        node.push(vec![of(9)]).await;
        let steps = [
            (Grants::UpTo(lost), -3, true, 10),
            (Grants::Lost, -3, true, 10),
            // Hits that were admitted without the store are counted all the same.
            (Grants::UpTo(lost), 2, true, 12),
            (Grants::UpTo(witness), -3, false, 9),
            (Grants::None, -5, false, 4),
            // After a reset, two nodes may give back the same hits.
            (Grants::UpTo(witness), -5, false, 0),
        ];
        for (number, (grants, diff, is_lost, total)) in (2..).zip(steps) {
            let batch = Batch { grants: Some(grants), ..node.batch(number, vec![of(diff)]) };
            // Once, however often it is sent.
            for _ in 0..2 {
                node.send_batch(&batch).await;
                assert_eq!(node.store.has_lost_grants(), is_lost, "{grants:?}");
                let counted = counted(&asked.ask(&[asks(one())]).await);
                assert_eq!(counted, [total], "{grants:?}");
            }
        }
    });
}
