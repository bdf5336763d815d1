//! Logs of moving windows, against a list of times and hits; and buckets at rates that questions tell.

use futures_util::future::join_all;

use super::*;
use crate::policy::algorithm::{Algorithm, LevelKind, MovingCount, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::conformance::{Asking, ListOfHits, question, size};
use crate::store::decision::{AskedLimit, Question};

fn thousandths(hits: i64) -> Hits {
    Hits::from_thousandths(hits)
}

/// A question about one key, in thousandths.
fn moving(key: &str, size: WindowSize, limit: i64, cost: i64) -> Question {
    let mut question = question(key, Algorithm::Moving, 1);
    question.counters[0].size = size;
    question.counters[0].cost = thousandths(cost);
    question.limits[0].hits = thousandths(limit);
    question.limits[0].cost = thousandths(cost.max(0));
    question
}

/// Numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        values[(self.0 >> 33) as usize % values.len()]
    }
}

#[test]
fn logs_are_lists_of_hits() {
    let schema = Schema::new();
    let mut node = Asking::new(schema.connect());
    let mut numbers = Numbers(11);
    let sizes = [size(20), size(300), size(60_000)];
    let mut lists: Vec<ListOfHits> = sizes.iter().map(|_| ListOfHits::default()).collect();
    let (mut admitted, mut refused, mut waits, mut blocks) = (0, 0, 0, 0);
    block_on(async {
        for round in 0..600 {
            let count = numbers.one_of(&[1, 1, 2, 5]);
            // Some exchanges charge nothing at all, and lock nothing.
            let only_asks = numbers.one_of(&[false, false, false, true]);
            let asked: Vec<(usize, i64, i64)> = (0..count)
                .map(|_| {
                    let cost = numbers.one_of(&[1000, 1000, 1000, 700, 1, 2500, 0, -300, -5000]);
                    let limit = numbers.one_of(&[1_000, 5_000, 40_000, 150_000, 250_000]);
                    let cost = if only_asks { 0 } else { cost };
                    (numbers.one_of(&[0, 1, 2, 2, 2]), limit, cost)
                })
                .collect();
            let questions: Vec<_> = asked
                .iter()
                .map(|(index, limit, cost)| moving("a", sizes[*index], *limit, *cost))
                .collect();
            let decided = node.ask(&questions).await;
            let now = decided.now.0;
            for ((index, limit, cost), answer) in asked.iter().zip(&decided.answers) {
                let (size, list) = (sizes[*index], &mut lists[*index]);
                list.leave(size, now);
                let charge = (*cost).max(0);
                let most = limit - charge.max(1);
                let is_admitted = list.sum() <= most;
                assert_eq!(
                    answer.admitted[..],
                    [is_admitted],
                    "{round}: {limit} {cost}"
                );
                if is_admitted {
                    list.charge(now, *cost);
                }
                admitted += u32::from(is_admitted);
                refused += u32::from(!is_admitted);
                let read = MovingCount::from(answer.readings[0]);
                assert_eq!(read.hits, thousandths(list.sum()), "{round}");
                let oldest = list.oldest(now);
                assert_eq!((read.oldest.0, read.age), (oldest, now - oldest), "{round}");
                let wait = list.wait(size, now, most);
                assert_eq!(read.wait, wait.unwrap_or(0), "{round}: {limit} {cost}");
                waits += u32::from(wait.is_some());
            }
            let of_long = "SELECT count(*) FROM {}.rl_counters_logs WHERE size = 60000";
            if round % 50 == 0 {
                blocks = blocks.max(schema.ask(of_long)[0][0].parse().unwrap());
            }
        }
    });
    assert!(admitted > 200 && refused > 50 && waits > 50);
    assert!(blocks > 1, "{blocks}");
}

#[test]
fn all_counters_of_a_question_are_charged_or_none_whatever_their_algorithms() {
    let schema = Schema::new();
    let mut node = Asking::new(schema.connect());
    let bucket = StoredKind::Level(LevelKind::Bucket(thousandths(1)));
    let longest = question("a", Algorithm::Fixed, 1).counters[0].size;
    let mut all = moving("a", longest, 3_000, 1000);
    for (algorithm, kind, limit) in [
        (Algorithm::Bucket, bucket, 4_000),
        (Algorithm::Elastic, Algorithm::Elastic.kind(), 5_000),
        (Algorithm::Fixed, StoredKind::Windows, 6_000),
    ] {
        let mut counter = all.counters[0].clone();
        counter.kind = kind;
        all.counters.push(counter);
        all.limits.push(AskedLimit {
            counter: all.counters.len() - 1,
            algorithm,
            hits: thousandths(limit),
            cost: Hits::ONE,
        });
    }
    let algorithms: Vec<_> = all.limits.iter().map(|it| it.algorithm).collect();
    let rates = |answer: &crate::store::decision::Answer| -> Vec<i64> {
        let limits = algorithms.iter().zip(&answer.readings);
        let rates = limits.map(|(algorithm, reading)| algorithm.rate(longest, reading));
        rates.map(Hits::whole).collect()
    };
    block_on(async {
        for number in 1..=5 {
            let decided = node.ask(core::slice::from_ref(&all)).await;
            let answer = &decided.answers[0];
            assert_eq!(rates(answer), [number.min(3); 4]);
            assert_eq!(answer.admitted[..], [number <= 3, true, true, true]);
        }
        // One that is refused by another limit charges no log.
        all.limits[3].hits = Hits::ONE;
        all.limits[0].hits = thousandths(9_000);
        let decided = node.ask(core::slice::from_ref(&all)).await;
        assert_eq!(rates(&decided.answers[0]), [3; 4]);
        all.counts_rejected = true;
        let decided = node.ask(core::slice::from_ref(&all)).await;
        assert_eq!(rates(&decided.answers[0]), [4; 4]);
    });
}

#[test]
fn of_many_that_ask_at_once_no_window_has_one_too_many() {
    const LIMIT: i64 = 20;
    let schema = Schema::new();
    let window = size(300);
    let question = moving("a", window, LIMIT * 1000, 1000);
    let times = block_on(async {
        let ask = async || {
            let mut node = Asking::new(schema.connect());
            let mut times = Vec::new();
            let mut began = None;
            loop {
                let decided = node.ask(&vec![question.clone(); 3]).await;
                for answer in &decided.answers {
                    times.extend(answer.admitted[0].then_some(decided.now.0));
                }
                if decided.now.0 > *began.get_or_insert(decided.now.0) + 1500 {
                    return times;
                }
            }
        };
        join_all((0..10).map(|_| ask())).await.concat()
    });
    let mut times = times;
    times.sort_unstable();
    let most = times.len() - LIMIT as usize;
    assert!(times.len() > 2 * LIMIT as usize, "{times:?}");
    for first in 0..most {
        let next = times[first + LIMIT as usize];
        assert!(next > times[first] + window.millis(), "{times:?}");
    }
}

#[test]
fn a_bucket_leaks_at_the_rate_of_each_question() {
    let schema = Schema::new();
    let mut node = Asking::new(schema.connect());
    let hour = size(3_600_000);
    let at_rate = |rate: i64, cost: i64| {
        let mut question = question("a", Algorithm::Bucket, 10);
        question.counters[0].kind = StoredKind::Level(LevelKind::Bucket(thousandths(rate * 1000)));
        question.counters[0].size = hour;
        question.counters[0].cost = thousandths(cost);
        question.limits[0].cost = thousandths(cost);
        question
    };
    block_on(async {
        for number in 1..=11 {
            let decided = node.ask(&[at_rate(1, 1000)]).await;
            assert_eq!(decided.answers[0].admitted[..], [number <= 10]);
        }
        // It is full, and a thousand leak in a millisecond.
        let fast = at_rate(3_600_000_000, 0);
        node.ask(core::slice::from_ref(&fast)).await;
        let mut left = Hits::ONE;
        while left > Hits::ZERO {
            let decided = node.ask(core::slice::from_ref(&fast)).await;
            left = Algorithm::Bucket.rate(hour, &decided.answers[0].readings[0]);
        }
        // To ask leaves it as it was.
        let decided = node.ask(&[at_rate(1, 0)]).await;
        assert_eq!(decided.answers[0].admitted[..], [false]);
        let rows = schema.ask("SELECT kind, thousandths FROM {}.rl_counters_levels");
        assert_eq!(rows, [["3", "10000"]]);
        // Kept until it is empty, and a minute.
        let life = schema.ask(
            "SELECT expires_at > now() + interval '10 hours' AND
                expires_at < now() + interval '10 hours 2 minutes' FROM {}.rl_counters_levels",
        );
        assert_eq!(life, [["t"]]);
    });
}

#[test]
fn what_has_left_all_windows_is_removed() {
    let schema = Schema::new();
    let mut node = Asking::new(schema.connect());
    let count = |what: &str| {
        let rows = schema.ask(&format!(
            "SELECT count(*) FROM {{}}.rl_counters_logs {what}"
        ));
        rows[0][0].parse::<i64>().unwrap()
    };
    let hit = |key| moving(key, size(1), 100_000_000, 1000);
    let purge = async |node: &mut Asking<Postgres>| {
        let now = crate::policy::window::UnixMillis(0);
        while node.store.purge(&shard("api"), now).await.unwrap() {}
    };
    block_on(async {
        // Several times a block's entries, each of another millisecond.
        for _ in 0..300 {
            node.ask(&[hit("a")]).await;
        }
        // As long ago as windows are, nothing is left but the last ones.
        assert!((1..=3).contains(&count("")), "{}", count(""));
        node.ask(&[moving("b", size(3_600_000), 5_000, 1000)]).await;
        schema.ask(
            "UPDATE {}.rl_counters_logs SET expires_at = now() - interval '1 s' WHERE key = 'a'",
        );
        purge(&mut node).await;
        assert_eq!((count("WHERE key = 'a'"), count("")), (0, 1));
        // It begins anew.
        let decided = node.ask(&[hit("a")]).await;
        let read = MovingCount::from(decided.answers[0].readings[0]);
        assert_eq!((read.hits, read.age), (Hits::ONE, 0));
        schema.ask("UPDATE {}.rl_counters_epochs SET ended_at = now() - interval '2 hours'");
        purge(&mut node).await;
        purge(&mut node).await;
        assert_eq!(count(""), 0);
        assert_eq!(
            schema.ask("SELECT count(*) FROM {}.rl_counters_epochs"),
            [["0"]]
        );
    });
}

#[test]
fn nothing_is_added_to_a_block_that_may_be_purged() {
    let schema = Schema::new();
    let mut node = Asking::new(schema.connect());
    let hit = moving("a", size(1000), 5_000, 1000);
    let blocks = || {
        let rows = schema.ask("SELECT cardinality(times) FROM {}.rl_counters_logs ORDER BY at");
        rows.concat()
    };
    block_on(async {
        node.ask(&[]).await;
        for (ago, expected) in [(0, &["1"][..]), (20_000, &["2"]), (50_000, &["2", "1"])] {
            schema.ask(&format!(
                "UPDATE {{}}.rl_counters_logs SET at = at - {ago},
                    times = (SELECT array_agg(t - {ago} ORDER BY t) FROM unnest(times) AS t)"
            ));
            let decided = node.ask(core::slice::from_ref(&hit)).await;
            let read = MovingCount::from(decided.answers[0].readings[0]);
            assert!(ago == 0 || read.hits == Hits::ONE);
            assert_eq!(blocks(), expected);
        }
    });
}

#[test]
fn a_clock_that_was_set_back_begins_a_log_anew() {
    let schema = Schema::new();
    let mut node = Asking::new(schema.connect());
    let hit = moving("a", size(3_600_000), 2_000, 1000);
    let shift = |millis: i64| {
        schema.ask(&format!(
            "UPDATE {{}}.rl_counters_logs SET at = at + {millis}, times = ARRAY[at + {millis}]"
        ));
    };
    block_on(async {
        node.ask(&[]).await;
        for (ahead, hits) in [(0, 1), (500, 2), (60_000, 1)] {
            shift(ahead);
            let decided = node.ask(core::slice::from_ref(&hit)).await;
            let read = MovingCount::from(decided.answers[0].readings[0]);
            assert_eq!(read.hits.whole(), hits);
        }
        // What was before is removed with the next hit.
        node.ask(core::slice::from_ref(&hit)).await;
        let logs = schema.ask("SELECT DISTINCT log FROM {}.rl_counters_logs");
        assert_eq!(logs, [["1"]]);
    });
}
