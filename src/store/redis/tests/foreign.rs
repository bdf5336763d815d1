//! Keys that somebody else has overwritten: each works as if it had been deleted, and does not
//! affect others.

use super::decisions::{asks, counted, in_a_bucket, open};
use super::*;
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::store::contract::decision::Question;
use crate::store::contract::strategy::{Epoch, MAX_TOTAL};
use crate::testing::conformance::{Asking, HOUR, question};

/// Values that are not counts.
const NO_COUNTS: [&str; 19] = [
    "abc", "1.5", "0x10", "1e9", "1e30", "nan", "inf", "-inf", "", " ", " 5", "5 ", "5 6", "5,6",
    "-", "--5", "5-", "5\n", "\0",
];
/// Larger than any count.
const DIGITS: &str = "99999999999999999999";

/// Other types of a key: the command that writes it.
pub(super) const TYPES: [&[&str]; 5] = [
    &["SET", "key", "value"],
    &["RPUSH", "key", "value"],
    &["SADD", "key", "value"],
    &["ZADD", "key", "1", "value"],
    &["HSET", "key", "field", "value"],
];

/// Gives the key this type.
pub(super) fn overwrite(server: &Server, key: &str, command: &[&str]) {
    let _: i64 = server.ask(&["DEL", key]).unwrap();
    let mut command = command.to_vec();
    command[1] = key;
    let _: redis::Value = server.ask(&command).unwrap();
}

fn set(server: &Server, counts: &str, key: &str, text: &str) {
    let _: i64 = server.ask(&["HSET", counts, key, text]).unwrap();
}

fn get(server: &Server, counts: &str, key: &str) -> String {
    server.ask(&["HGET", counts, key]).unwrap()
}

fn counts_of(epoch: Epoch, name: &str) -> String {
    format!("{SHARD}:{epoch}:{name}")
}

/// Returns a question about one hit, which is charged whatever the limit says.
fn one_more(key: &str, algorithm: Algorithm) -> Question {
    Question { counts_rejected: true, ..question(key, algorithm, 10) }
}

/// Returns the hashes of the window in which questions are charged, and of the previous one.
async fn windows(node: &mut Asking<Redis>, epoch: Epoch) -> [String; 2] {
    let size = question("a", Algorithm::Fixed, 1).counters[0].size;
    let now = node.ask(&[]).await.now;
    let number = size.at(now).number;
    [number, number - 1].map(|number| counts_of(epoch, &format!("{}:{number}", size.millis())))
}

#[test]
fn a_value_that_is_no_count_is_left_out_until_it_is_changed() {
    let server = Server::start(&[]);
    block_on(async {
        for text in NO_COUNTS {
            let mut node = join(server.tcp()).await;
            let mut other = join(server.tcp()).await;
            other.fetch().await;
            node.push(vec![hits("a", 1), hits("b", 2)]).await;
            let counts = counts_of(node.epoch, "60000:7");
            set(&server, &counts, "a", text);
            let seen = other.push(vec![hits("c", 3)]).await;
            assert_eq!(totals(&seen), pairs(&[("b", 2)]), "{text}");
            let all = other.read_all(&[(MINUTE, 7)]).await;
            assert_eq!(totals(&all), pairs(&[("b", 2), ("c", 3)]), "{text}");
            let total = other.store.get_window(&other.shard, b"a", MINUTE, 7);
            assert_eq!(total.await.unwrap(), Hits::ZERO, "{text}");

            // In the same epoch.
            node.push(vec![hits("a", 4), hits("b", 1)]).await;
            assert_eq!(get(&server, &counts, "a"), "4000", "{text}");
            let seen = totals(&other.fetch().await);
            assert_eq!(seen, pairs(&[("a", 4), ("b", 3)]), "{text}");
            let _: String = server.ask(&["FLUSHALL"]).unwrap();
        }
    });
}

#[test]
fn a_count_that_is_too_large_saturates_when_it_is_changed() {
    let server = Server::start(&[]);
    let most = Hits::MAX.whole();
    block_on(async {
        for (text, diff, expected) in [
            ("9223372036854775807", 1, MAX_TOTAL),
            ("9223372036854775807", -1, MAX_TOTAL),
            ("-9223372036854775808", -1, -MAX_TOTAL),
            (DIGITS, 1, MAX_TOTAL),
            (DIGITS, -1, MAX_TOTAL - 1000),
            (&format!("-{DIGITS}"), 1, 1000 - MAX_TOTAL),
            (&"9".repeat(400), 1, MAX_TOTAL),
        ] {
            let mut node = join(server.tcp()).await;
            let mut other = join(server.tcp()).await;
            node.push(vec![hits("a", 1), hits("b", 2)]).await;
            let counts = counts_of(node.epoch, "60000:7");
            set(&server, &counts, "a", text);
            let told = if text.starts_with('-') { -most } else { most };
            let seen = totals(&other.fetch().await);
            assert_eq!(seen, pairs(&[("a", told), ("b", 2)]), "{text}");
            node.push(vec![hits("a", diff)]).await;
            assert_eq!(get(&server, &counts, "a"), expected.to_string(), "{text}");
            assert_eq!(totals(&other.fetch().await), pairs(&[("a", told)]), "{text}");
            let _: String = server.ask(&["FLUSHALL"]).unwrap();
        }
    });
}

#[test]
fn a_count_may_be_written_in_any_way() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        let counts = counts_of(node.epoch, "60000:7");
        for (text, expected) in [("7", 1007), ("-7", 993), ("007", 1007), ("-0", 1000)] {
            set(&server, &counts, "a", text);
            node.push(vec![hits("a", 1)]).await;
            assert_eq!(get(&server, &counts, "a"), expected.to_string(), "{text}");
        }
    });
}

#[test]
fn a_value_that_is_no_count_is_zero_to_a_decision() {
    let server = Server::start(&[]);
    let whole = |text: &str, value| (text.to_owned(), value);
    let mut cases: Vec<(String, i64)> = NO_COUNTS.map(|text| whole(text, 0)).into();
    cases.extend([
        whole(DIGITS, MAX_TOTAL),
        whole(&format!("-{DIGITS}"), -MAX_TOTAL),
        whole("9223372036854775807", MAX_TOTAL),
        whole("-5000", -5000),
        whole("0", 0),
        whole("10000", 10_000),
    ]);
    block_on(async {
        let mut node = Asking::new(connect(server.tcp()));
        let epoch = open(&mut node).await;
        let [current, previous] = windows(&mut node, epoch).await;
        for (text, value) in cases {
            for algorithm in [Algorithm::Fixed, Algorithm::Sliding] {
                // One of two counters on the script's fast path, and on its general path.
                let mut two = one_more("a", algorithm);
                two.counters.extend(one_more("b", algorithm).counters);
                for question in [one_more("a", algorithm), two] {
                    let _: i64 = server.ask(&["DEL", &current, &previous]).unwrap();
                    set(&server, &current, "a", &text);
                    let decided = node.ask(&[question, one_more("c", algorithm)]).await;
                    let [of_a, of_c] = &*decided.answers else {
                        panic!("{decided:?}");
                    };
                    // A negative count is no additional room.
                    let after = value.max(0) + 1000;
                    assert_eq!(of_a.admitted[0], after <= 10_000, "{text}");
                    let counted = of_a.readings[0].windows().current;
                    assert_eq!(counted, Hits::from_thousandths(after), "{text}");
                    assert_eq!(of_c.admitted[..], [true], "{text}");
                    let total: i64 = get(&server, &current, "a").parse().unwrap();
                    assert_eq!(Hits::from_thousandths(total), counted, "{text}");
                    assert_eq!(get(&server, &current, "c"), "1000", "{text}");
                }
            }
            // In the previous window.
            let _: i64 = server.ask(&["DEL", &current]).unwrap();
            set(&server, &previous, "a", &text);
            let question = asks(question("a", Algorithm::Sliding, 1_000_000));
            let decided = node.ask(&[question]).await;
            let before = decided.answers[0].readings[0].windows().previous;
            assert_eq!(before, Hits::from_thousandths(value), "{text}");
            assert_eq!(decided.answers[0].admitted[..], [value <= 10_000], "{text}");
        }
        assert_eq!(open(&mut node).await, epoch);
    });
}

/// Returns the key of a bucket that leaks one hit in an hour.
fn bucket_of(epoch: Epoch, key: &str) -> String {
    counts_of(epoch, &format!("r0.00027777777777777778:{key}"))
}

#[test]
fn a_value_that_is_no_bucket_is_replaced() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = Asking::new(connect(server.tcp()));
        let epoch = open(&mut node).await;
        let bucket = bucket_of(epoch, "a");
        let texts = NO_COUNTS.into_iter().chain([
            "5000",
            "5000 6000 7000",
            "-5000 1",
            DIGITS,
            "99999999999999999999 1",
        ]);
        let texts = texts.map(|text| vec!["SET", "key", text]);
        for command in texts.chain(TYPES.map(<[_]>::to_vec)) {
            overwrite(&server, &bucket, &command);
            let asked = [in_a_bucket("a", 1000), in_a_bucket("b", 1000)];
            let decided = node.ask(&asked).await;
            assert_eq!(decided.answers[0].admitted[..], [true], "{command:?}");
            let hits = Algorithm::Bucket.rate(HOUR, &decided.answers[0].readings[0]);
            assert_eq!(hits, Hits::ONE, "{command:?}");
            let now: String = server.ask(&["GET", &bucket]).unwrap();
            assert_eq!(now, format!("1000 {}", decided.now.0));
            let _: i64 = server.ask(&["DEL", &bucket_of(epoch, "b")]).unwrap();
        }
        // A bucket whose clock was set back leaks from now on.
        let _: String = server.ask(&["SET", &bucket, "5000 99999999999999"]).unwrap();
        let decided = node.ask(&[in_a_bucket("a", 1000)]).await;
        let text: String = server.ask(&["GET", &bucket]).unwrap();
        assert_eq!(text, format!("6000 {}", decided.now.0));
        assert_eq!(open(&mut node).await, epoch);
    });
}

/// Checks that an error is about a wrong type; it occurs once.
pub(super) fn is_of_wrong_type(error: &StoreError) {
    assert!(
        matches!(&error.failure, Failure::Failed(words) if words.contains("WRONGTYPE")),
        "{error}"
    );
}

#[test]
fn a_decision_deletes_a_key_of_another_type_and_fails_once() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = Asking::new(connect(server.tcp()));
        for what in ["shard", "stream", "current", "previous"] {
            for command in TYPES {
                if what != "stream" && command[0] == "HSET" {
                    continue;
                }
                let mut other = join(server.tcp()).await;
                let mut elsewhere = Node::join(connect(server.tcp()), shard("web")).await;
                elsewhere.push(vec![hits("a", 1)]).await;
                let epoch = open(&mut node).await;
                other.push(vec![hits("b", 2)]).await;
                let [current, previous] = windows(&mut node, epoch).await;
                node.ask(&[one_more("a", Algorithm::Sliding)]).await;
                let stream = counts_of(epoch, "s");
                let key = match what {
                    "shard" => SHARD,
                    "stream" => &stream,
                    "current" => &current,
                    _ => &previous,
                };
                let case = format!("{what} {}", command[0]);
                overwrite(&server, key, command);
                let asked = [one_more("a", Algorithm::Sliding)];
                let error = node.try_to_ask(&asked).await.expect_err(&case);
                is_of_wrong_type(&error);
                // The new count is the stored one.
                let expected = if matches!(what, "shard" | "current") { 1 } else { 2 };
                assert_eq!(counted(&node.ask(&asked).await), [expected], "{case}");
                assert_eq!(open(&mut node).await == epoch, what != "shard", "{case}");
                if what != "shard" {
                    let all = other.read_all(&[(MINUTE, 7)]).await;
                    assert_eq!(totals(&all), pairs(&[("b", 2)]), "{case}");
                }
                elsewhere.push(vec![hits("a", 1)]).await;
                let all = elsewhere.read_all(&[(MINUTE, 7)]).await;
                assert_eq!(totals(&all), pairs(&[("a", 2)]), "{case}");
                let _: String = server.ask(&["FLUSHALL"]).unwrap();
            }
        }
    });
}

#[test]
fn a_push_deletes_a_key_of_another_type_and_fails_once() {
    let server = Server::start(&[]);
    block_on(async {
        for what in ["shard", "stream", "counts"] {
            for command in TYPES {
                if what != "stream" && command[0] == "HSET" {
                    continue;
                }
                let mut node = join(server.tcp()).await;
                let mut other = join(server.tcp()).await;
                let later = |key, number| Diff { window: 8, ..hits(key, number) };
                node.push(vec![hits("a", 1), later("a", 5)]).await;
                let (stream, counts) =
                    (counts_of(node.epoch, "s"), counts_of(node.epoch, "60000:7"));
                let key = match what {
                    "shard" => SHARD,
                    "stream" => &stream,
                    _ => &counts,
                };
                let case = format!("{what} {}", command[0]);
                overwrite(&server, key, command);
                is_of_wrong_type(&failure(&mut node, 2).await);
                if what == "shard" {
                    let pushed = node.send(2, vec![hits("a", 1)]).await;
                    assert_eq!(pushed, Pushed::NoEpoch, "{case}");
                    let _: String = server.ask(&["FLUSHALL"]).unwrap();
                    continue;
                }
                // Nothing of it was applied, and no other count was lost.
                node.push(vec![hits("a", 1)]).await;
                let expected = if what == "counts" { 1 } else { 2 };
                let all = node.read_all(&[(MINUTE, 7), (MINUTE, 8)]).await;
                assert_eq!(totals(&all), pairs(&[("a", expected), ("a", 5)]), "{case}");
                // So other nodes fetch all counters, or the new ones.
                let pushed = other.send(0, vec![]).await;
                if what == "stream" {
                    behind(&pushed);
                } else {
                    assert_eq!(since(pushed).0.len(), 2, "{case}");
                }
                let _: String = server.ask(&["FLUSHALL"]).unwrap();
            }
        }
    });
}

#[test]
fn reading_deletes_a_key_of_another_type_and_fails_once() {
    let server = Server::start(&[]);
    block_on(async {
        for command in TYPES {
            let mut node = join(server.tcp()).await;
            let mut other = join(server.tcp()).await;
            let (stream, counts) = (counts_of(node.epoch, "s"), counts_of(node.epoch, "60000:7"));
            node.push(vec![hits("a", 1), hits("b", 1)]).await;
            // The changes cannot be returned.
            overwrite(&server, &stream, command);
            let ask = other.batch(0, vec![]);
            let asked = other.store.push_diffs(&other.shard, &ask, 500).await;
            is_of_wrong_type(&asked.unwrap_err());
            other.position = Some(behind(&other.send(0, vec![]).await));
            if command[0] == "HSET" {
                continue;
            }

            // From the first change after that on, a position is known again.
            for is_behind in [true, false] {
                node.push(vec![hits("a", 1)]).await;
                if is_behind {
                    other.position = Some(behind(&other.send(0, vec![]).await));
                }
            }
            overwrite(&server, &counts, command);
            let ask = other.batch(0, vec![]);
            let asked = other.store.push_diffs(&other.shard, &ask, 500).await;
            is_of_wrong_type(&asked.unwrap_err());
            assert!(other.fetch().await.is_empty());

            overwrite(&server, &counts, command);
            let (windows, step) = ([(MINUTE, 7)], PageStep::default());
            let page = other.store.get_counters(&other.shard, other.epoch, &windows, step);
            is_of_wrong_type(&page.await.unwrap_err());
            assert!(other.read_all(&windows).await.is_empty());

            for key in [&counts, SHARD] {
                overwrite(&server, key, command);
                let total = other.store.get_window(&other.shard, b"a", MINUTE, 7);
                is_of_wrong_type(&total.await.unwrap_err());
                let total = other.store.get_window(&other.shard, b"a", MINUTE, 7);
                assert_eq!(total.await.unwrap(), Hits::ZERO);
            }

            overwrite(&server, SHARD, command);
            is_of_wrong_type(&super::open(&mut other.store).await.unwrap_err());
            super::open(&mut other.store).await.unwrap();
            let _: String = server.ask(&["FLUSHALL"]).unwrap();
        }
    });
}

/// A replica is not written to, whatever it contains.
#[test]
fn a_value_of_another_type_is_not_deleted_from_a_replica() {
    let primary = Server::start(&[]);
    let replica = Server::start(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    block_on(async {
        let mut node = join(primary.tcp()).await;
        node.push(vec![hits("a", 1)]).await;
        replicated(&replica, 1).await;
        overwrite(&primary, SHARD, TYPES[0]);
        let is_there = || replica.ask::<String>(&["GET", SHARD]).is_ok();
        until("overwritten", is_there).await;
        node.store = connect(replica.tcp());
        let error = failure(&mut node, 2).await;
        assert_eq!(error.failure, Failure::Refused(Refusal::ReadOnly));
        assert!(is_there());
    });
}
