//! Logs of moving windows: long ones, old ones, and data of others in their place.

use super::decisions::open;
use super::foreign::{TYPES, is_of_wrong_type, overwrite};
use super::*;
use crate::policy::algorithm::MovingCount;
use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::testing::conformance::{Asking, ListOfHits, moving, size};

/// Returns a decider, and the key of a log.
async fn asking(server: &Server, size: u64) -> (Asking<Redis>, String) {
    let mut node = Asking::new(connect(server.tcp()));
    let epoch = open(&mut node).await;
    (node, format!("{SHARD}:{epoch}:m{size}:a"))
}

fn entry(at: u64, sum: i64) -> Vec<u8> {
    let [_, _, time @ ..] = at.to_be_bytes();
    [&time[..], &(sum as u32).to_be_bytes()].concat()
}

fn length(server: &Server, log: &str) -> i64 {
    server.ask(&["STRLEN", log]).unwrap()
}

#[test]
fn long_logs_are_lists_of_hits() {
    const WINDOW: u64 = 4000;
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, log) = asking(&server, WINDOW).await;
        // The number of entries, about how many have left, and their distribution in time.
        for (count, gone, skewness) in [
            (100_u64, 0, 1),
            (201, 0, 1),
            (257, 40, 1),
            (1000, 400, 3),
            (5000, 0, 1),
            (5001, 2600, 2),
            (5002, 2400, 1),
            (5003, 4950, 1),
        ] {
            let now = node.ask(&[]).await.now.0;
            // Each hit at its own fraction of the time, from the oldest on.
            let span = WINDOW * count / (count - gone);
            let times = (0..count).map(|number| {
                let share = (number as f64 / count as f64).powi(skewness);
                now - span + (share * span as f64) as u64
            });
            let (mut list, mut entries) = (ListOfHits::default(), Vec::new());
            // The sum wraps around.
            let mut sum = i64::from(u32::MAX) - 30_000;
            // The recorded place of the last entry that has left: before it, after it, anywhere.
            let base = entry([0, gone, count, 1 << 47][count as usize % 4], sum);
            for (number, at) in times.enumerate() {
                let hits = 1 + number as i64 % 7 * 150;
                sum += hits;
                list.charge(at, hits);
                entries.extend(entry(at, sum));
            }
            server.set(&log, &[base, entries].concat());
            for round in 0..60 {
                let cost = [1000, 1, -300, 0, 2500, -1, 1000, -90_000][round % 8];
                let most = [1, 20, 200, 100_000][round % 4];
                let mut question = moving("a", size(WINDOW), 0, cost);
                // Near the present count, or far from it.
                let limit = list.sum() - most + cost.max(0) * (round as i64 % 2);
                question.limits[0].hits = Hits::from_thousandths(limit);
                question.counts_rejected = round % 3 != 0;
                let decided = node.ask(core::slice::from_ref(&question)).await;
                let now = decided.now.0;
                list.leave(size(WINDOW), now);
                let most = limit - cost.max(1);
                let is_admitted = list.sum() <= most;
                let what = format!("{count} {gone} {round}: {limit} {cost}");
                assert_eq!(decided.answers[0].admitted[..], [is_admitted], "{what}");
                if is_admitted || question.counts_rejected {
                    list.charge(now, cost);
                }
                let (oldest, wait) = (list.oldest(now), list.wait(size(WINDOW), now, most));
                let expected = MovingCount {
                    hits: Hits::from_thousandths(list.sum()),
                    oldest: UnixMillis(oldest),
                    age: now - oldest,
                    wait: wait.unwrap_or(0),
                };
                assert_eq!(decided.answers[0].readings[0], expected.into(), "{what}");
            }
        }
    });
}

#[test]
fn entries_that_left_the_window_are_removed_when_they_are_many() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, log) = asking(&server, 60_000).await;
        let now = node.ask(&[]).await.now.0;
        for (gone, live, length_after) in
            [(64, 10, 75), (65, 10, 12), (500, 501, 1002), (502, 500, 502)]
        {
            let old = (0..gone).map(|number| entry(now - 70_000 + number, 7000));
            let new = (0..live)
                .map(|number| entry(now - 9_000 + number, 8000 + number.cast_signed() * 1000));
            let entries: Vec<Vec<u8>> = old.chain(new).collect();
            server.set(&log, &entries.concat());
            let hit = moving("a", size(60_000), 9_000_000, 1000);
            let decided = node.ask(&[hit]).await;
            let read = MovingCount::from(decided.answers[0].readings[0]);
            assert_eq!(read.oldest.0, now - 9_000);
            assert_eq!(read.hits.whole().cast_unsigned(), live + 1);
            assert_eq!(length(&server, &log), length_after * 10, "{gone} {live}");
            let first: Vec<u8> = server.ask(&["GETRANGE", &log, "0", "9"]).unwrap();
            let is_removed = length_after == live.cast_signed() + 2;
            assert_eq!(first == entry(0, 7000), is_removed);
        }
    });
}

#[test]
fn above_its_limit_a_log_has_no_more_entries_than_that_has_hits() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, log) = asking(&server, 600_000).await;
        let now = node.ask(&[]).await.now.0;
        let entries = (1..=302).map(|number| entry(now - 9_000 + number, number as i64));
        let entries: Vec<_> = [entry(0, 0)].into_iter().chain(entries).collect();
        server.set(&log, &entries.concat());
        let mut hit = moving("a", size(600_000), 200, 1);
        hit.counts_rejected = true;
        let decided = node.ask(core::slice::from_ref(&hit)).await;
        let read = MovingCount::from(decided.answers[0].readings[0]);
        assert_eq!(read.hits.thousandths(), 303);
        // The last entry has these hits, at a later time.
        assert_eq!(length(&server, &log), 3030);
        let last: Vec<u8> = server.ask(&["GETRANGE", &log, "-10", "-1"]).unwrap();
        assert_eq!(last, entry(decided.now.0, 303));
        // A charge without a limit can be of any size.
        let mut charge = hit;
        charge.limits.clear();
        while length(&server, &log) != 3040 {
            node.ask(core::slice::from_ref(&charge)).await;
        }
    });
}

#[test]
fn a_log_is_kept_until_all_has_left_and_a_minute() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, log) = asking(&server, 3_600_000).await;
        let left = |key: &str| server.ask::<i64>(&["PTTL", key]).unwrap();
        let hit = |cost| moving("a", size(3_600_000), 5_000, cost);
        for _ in 0..2 {
            let now = node.ask(&[hit(1000)]).await.now.0;
            assert!((3_640_000..=3_660_000).contains(&left(&log)));
            assert!(left(SHARD) > left(&log));
            // Simulates that half a minute has passed.
            server.set(&log, &[entry(0, 0), entry(now - 31_000, 1000)].concat());
        }
        // A log whose hits were all refunded is removed.
        node.ask(&[hit(-9_000)]).await;
        assert_eq!(left(&log), -2);
    });
}

#[test]
fn a_clock_that_was_set_back_begins_a_log_anew() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, log) = asking(&server, 3_600_000).await;
        let hit = moving("a", size(3_600_000), 9_000, 1000);
        for (ahead, hits) in [(500, 2), (60_000, 1)] {
            let now = node.ask(&[]).await.now.0;
            server.set(&log, &[entry(0, 0), entry(now + ahead, 1000)].concat());
            let decided = node.ask(core::slice::from_ref(&hit)).await;
            let read = MovingCount::from(decided.answers[0].readings[0]);
            assert_eq!((read.hits.whole(), read.age), (hits, 0));
            assert_eq!(length(&server, &log), 20);
        }
    });
}

#[test]
fn a_value_that_is_no_log_is_replaced() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, log) = asking(&server, 3_600_000).await;
        let asked =
            [moving("a", size(3_600_000), 9_000, 1000), moving("b", size(3_600_000), 9_000, 1000)];
        for text in ["", "5", "garbage", "0123456789", "01234567890123456789"] {
            server.set(&log, text.as_bytes());
            let decided = node.ask(&asked).await;
            let read = MovingCount::from(decided.answers[0].readings[0]);
            assert_eq!(read.hits, Hits::ONE, "{text}");
            assert_eq!(length(&server, &log), 20);
        }
        for (number, command) in TYPES.iter().filter(|it| it[0] != "SET").enumerate() {
            overwrite(&server, &log, command);
            let failed = node.try_to_ask(&asked).await.unwrap_err();
            is_of_wrong_type(&failed);
            let decided = node.ask(&asked).await;
            let hits = decided.answers.iter().map(|it| it.readings[0]);
            let hits: Vec<_> = hits.map(|it| MovingCount::from(it).hits.whole()).collect();
            assert_eq!(hits, [1, number as i64 + 6]);
        }
    });
}
