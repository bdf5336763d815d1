//! The stored form of moving windows and buckets.

use super::*;
use crate::policy::algorithm::{Algorithm, LevelKind, MovingCount, StoredKind};
use crate::policy::hits::Hits;
use crate::testing::conformance::{Asking, moving, question, size};

#[test]
fn a_log_is_in_blocks() {
    let schema = Schema::new();
    let mut node = Asking::new(schema.connect());
    let hit = moving("a", size(60_000), 1_000_000, 1000);
    let blocks = || schema.ask("SELECT count(*) FROM {}.rl_counters_logs");
    block_on(async {
        node.ask(core::slice::from_ref(&hit)).await;
        while blocks() != [["3"]] {
            for _ in 0..10 {
                node.ask(core::slice::from_ref(&hit)).await;
            }
        }
    });
}

#[test]
fn a_bucket_is_kept_until_it_is_empty_and_a_minute() {
    let schema = Schema::new();
    let mut node = Asking::new(schema.connect());
    let mut full = question("a", Algorithm::Bucket, 10);
    full.counters[0].kind = StoredKind::Level(LevelKind::Bucket(Hits::ONE));
    full.counters[0].size = size(3_600_000);
    full.counters[0].cost = Hits::from_thousandths(10_000);
    block_on(node.ask(&[full]));
    let rows = schema.ask("SELECT kind, size, thousandths FROM {}.rl_counters_levels");
    let per_second = (1.0_f64 / 3600.0).to_bits().to_string();
    assert_eq!(rows, [["4", &*per_second, "10000"]]);
    let life = schema.ask(
        "SELECT expires_at > now() + interval '10 hours' AND
            expires_at < now() + interval '10 hours 2 minutes' FROM {}.rl_counters_levels",
    );
    assert_eq!(life, [["t"]]);
}

#[test]
fn entries_that_left_all_windows_are_removed() {
    let schema = Schema::new();
    let mut node = Asking::new(schema.connect());
    let count = |what: &str| {
        let rows = schema.ask(&format!("SELECT count(*) FROM {{}}.rl_counters_logs {what}"));
        rows[0][0].parse::<i64>().unwrap()
    };
    let hit = |key| moving(key, size(1), 100_000_000, 1000);
    let purge = async |node: &mut Asking<Postgres>| {
        let now = crate::policy::window::UnixMillis(0);
        while node.store.purge(&shard("api"), now).await.unwrap() {}
    };
    block_on(async {
        // Several times the entries of a block, each in another millisecond.
        for _ in 0..300 {
            node.ask(&[hit("a")]).await;
        }
        // Older entries than the longest window are purged, except for the last ones.
        assert!((1..=3).contains(&count("")), "{}", count(""));
        node.ask(&[moving("b", size(3_600_000), 5_000, 1000)]).await;
        schema.ask(
            "UPDATE {}.rl_counters_logs SET expires_at = now() - interval '1 s' WHERE key = 'a'",
        );
        purge(&mut node).await;
        assert_eq!((count("WHERE key = 'a'"), count("")), (0, 1));
        // It starts again.
        let decided = node.ask(&[hit("a")]).await;
        let read = MovingCount::from(decided.answers[0].readings[0]);
        assert_eq!((read.hits, read.age), (Hits::ONE, 0));
        schema.ask("UPDATE {}.rl_counters_epochs SET ended_at = now() - interval '2 hours'");
        purge(&mut node).await;
        purge(&mut node).await;
        assert_eq!(count(""), 0);
        assert_eq!(schema.ask("SELECT count(*) FROM {}.rl_counters_epochs"), [["0"]]);
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
        // The next hit removes the earlier entries.
        node.ask(core::slice::from_ref(&hit)).await;
        let logs = schema.ask("SELECT DISTINCT log FROM {}.rl_counters_logs");
        assert_eq!(logs, [["1"]]);
    });
}
