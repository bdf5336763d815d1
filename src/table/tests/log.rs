//! Tests moving windows against a list of all hits.

use proptest::prelude::*;

use crate::policy::algorithm::{Algorithm, MovingCount, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::table::words::atomic::Ordering::Relaxed;
use crate::table::words::fail;
use crate::table::*;
use crate::testing::table::{
    Process, SharedTable, TestClock, die_everywhere, in_process, points_of,
};

const T: u64 = 1_700_000_000_000;
const SIZE: u64 = 1000;

struct Fixture {
    pub(super) shared: SharedTable,
    pub(super) counter: Counter,
    pub(super) clock: TestClock,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::with(1 << 18, SIZE)
    }

    fn with(len: usize, size: u64) -> Fixture {
        let shared = SharedTable::new(len);
        Fixture {
            counter: shared.table.counter_in(b"default", StoredKind::Log, size),
            shared,
            clock: TestClock::at(T),
        }
    }

    fn key<'k>(&self, key: &'k [u8]) -> Key<'k> {
        self.shared.table.key(key)
    }

    fn at(&self, at: u64) -> &TestClock {
        self.clock.set(at);
        &self.clock
    }

    fn add(&self, key: &[u8], at: u64, cost: i64, admission: Admission) -> Counted<'_> {
        let (key, cost) = (self.key(key), Hits::from_thousandths(cost));
        let table = &self.shared.table;
        table.add(&self.counter, key, self.at(at), cost, admission)
    }

    fn request(&self, key: &[u8], at: u64, limit: i64) -> Counted<'_> {
        self.add(key, at, 1000, within(limit * 1000))
    }

    fn read(&self, key: &[u8], at: u64, limit: i64, cost: i64) -> MovingCount {
        let [limit, cost] = [limit, cost].map(Hits::from_thousandths);
        let (table, key) = (&self.shared.table, self.key(key));
        let asked = AskedHit { limit, cost };
        let reading = table.read_for(&self.counter, key, asked, self.at(at));
        reading.into()
    }

    fn hits(&self, key: &[u8], at: u64) -> i64 {
        self.read(key, at, 0, 0).hits.whole()
    }

    /// Returns the number of slots that contain or contained entries of logs.
    fn blocks(&self) -> usize {
        let slots = self.shared.table.parts.buckets.iter().flatten();
        slots.filter(|slot| slot.meta().owner_and_number().is_some()).count()
    }

    /// Returns the number of slots with entries of a live counter.
    fn live_blocks(&self) -> usize {
        let table = &self.shared.table;
        let slots = table.parts.buckets.iter().flatten();
        slots
            .filter(|slot| {
                let meta = slot.meta();
                meta.owner_and_number().is_some() && table.owner_of(slot, meta).is_some()
            })
            .count()
    }
}

fn within(limit: i64) -> Admission {
    Admission::Within(Hits::from_thousandths(limit), Algorithm::Moving)
}

fn moving(counted: &Counted<'_>) -> MovingCount {
    counted.reading.into()
}

#[test]
fn a_hit_counts_as_long_as_it_is_not_older_than_the_window() {
    let fixture = Fixture::new();
    for (at, admitted, hits, wait) in [
        (T, true, 1, 0),
        (T + 300, true, 2, 0),
        (T + 600, true, 3, 401),
        (T + 600, false, 3, 401),
        (T + 1000, false, 3, 1),
        (T + 1001, true, 3, 300),
        (T + 1301, true, 3, 300),
        (T + 1302, false, 3, 299),
        (T + 9000, true, 1, 0),
    ] {
        let counted = fixture.request(b"a", at, 3);
        let count = moving(&counted);
        assert_eq!(
            (counted.admitted, count.hits.whole(), count.wait),
            (admitted, hits, wait),
            "{}",
            at - T
        );
    }
    assert_eq!(fixture.read(b"a", T + 9300, 0, 0).oldest, UnixMillis(T + 9000));
    assert_eq!((fixture.hits(b"a", T + 10_000), fixture.hits(b"a", T + 10_001)), (1, 0));
    assert_eq!(fixture.hits(b"b", T), 0);
}

#[test]
fn hits_are_refunded_to_the_time_that_they_were_counted_at() {
    let fixture = Fixture::new();
    let (table, counter) = (&fixture.shared.table, &fixture.counter);
    for newer in [0, 1, 3, 40] {
        let key = [newer as u8];
        fixture.request(&key, T, 1000);
        let receipt = fixture.request(&key, T + 10, 1000).receipt.unwrap();
        for n in 0..newer {
            fixture.request(&key, T + 20 + n, 1000);
        }

        assert!(table.refund(counter, &receipt));
        let newer = newer as i64;
        assert_eq!(fixture.hits(&key, T + 100), 1 + newer);
        assert_eq!(fixture.hits(&key, T + 1001), newer, "what was first leaves first");
        assert_eq!(fixture.hits(&key, T + 1020 + newer as u64), 0);
    }
    // The hit has left the window.
    let receipt = fixture.request(b"a", T, 1000).receipt.unwrap();
    for at in [T + 500, T + 1500, T + 1600] {
        fixture.request(b"a", at, 1000);
    }
    assert!(!table.refund(counter, &receipt));
    assert_eq!(fixture.hits(b"a", T + 1600), 2);
}

#[test]
fn a_clock_that_is_set_back_blocks_nobody_for_longer_than_a_window() {
    let fixture = Fixture::new();
    (0..8).for_each(|n| assert!(fixture.request(b"a", T + 3_600_000 + n * 10, 8).admitted));
    assert!(!fixture.request(b"a", T + 3_600_080, 8).admitted);
    // Hits in the future are dropped, even when their time comes.
    (0..8).for_each(|n| assert!(fixture.request(b"a", T + n, 8).admitted));
    assert!(!fixture.request(b"a", T + SIZE, 8).admitted);
    assert!(fixture.request(b"a", T + SIZE + 1, 8).admitted);
    assert_eq!(fixture.hits(b"a", T + 3_600_080), 0);
}

#[test]
fn a_hit_with_an_old_time_reads_the_clock_again() {
    let fixture = Fixture::new();
    assert!(fixture.request(b"a", T + 5000, 1).admitted);
    fixture.clock.seen.set(T);
    let (table, key) = (&fixture.shared.table, fixture.key(b"a"));
    let (counter, admission) = (&fixture.counter, within(1000));
    let counted = table.add(counter, key, &fixture.clock, Hits::ONE, admission);
    assert!(!counted.admitted);
}

#[test]
fn rejected_hits_count_where_they_are_to() {
    let fixture = Fixture::new();
    let limit = Hits::from_thousandths(2000);
    for n in 0..1000 {
        let counted = fixture.add(b"a", T + n, 1000, Admission::Regardless(limit));
        assert_eq!(moving(&counted).hits.whole(), n as i64 + 1);
    }
    // The memory depends on the limit: hits without room count at the time of the last one.
    assert!(fixture.live_blocks() <= 2, "{}", fixture.live_blocks());
    let count = fixture.read(b"a", T + 999, 2000, 1000);
    assert!((1..=SIZE + 1).contains(&count.wait));
    assert_eq!(fixture.hits(b"a", T + 2000), 0);
    // No sum overflows.
    (0..10).for_each(|_| {
        fixture.add(b"b", T, Hits::MAX.thousandths(), Admission::Unconditional);
    });
    assert!(!fixture.request(b"b", T + SIZE, 100_000).admitted);
    assert!(fixture.request(b"b", T + SIZE + 1, 100_000).admitted);
}

#[test]
fn memory_grows_with_use_and_is_freed_with_the_key() {
    let fixture = Fixture::with(1 << 20, 100_000);
    fixture.request(b"a", T, 1000);
    assert_eq!(fixture.blocks(), 0);
    for n in 1..600 {
        fixture.request(b"a", T + n, 1000);
    }

    // Six of 101 blocks have back links.
    assert_eq!(fixture.live_blocks(), 101);
    // The memory of a log that is used for long does not grow.
    (0..3000).for_each(|n| assert!(fixture.request(b"a", T + 1000 + 1000 * n, 1000).admitted));
    assert!(fixture.blocks() < 120, "{}", fixture.blocks());
    let occupant = fixture.shared.table.find(fixture.counter.identity(fixture.key(b"a")));
    let occupant = occupant.unwrap();
    let free = crate::table::words::meta::Meta::free(occupant.meta.generation().next());
    assert!(occupant.slot.replace_meta(occupant.meta, free).is_ok());
    assert_eq!(fixture.live_blocks(), 0);
}

#[test]
fn costs_below_one_leave_one_by_one() {
    let fixture = Fixture::with(1 << 18, 4000);
    let mut times: Vec<u64> = Vec::new();
    for n in 0..400 {
        let at = T + n * 110;
        times.retain(|time| time + 4000 >= at);
        let is_admitted = times.len() < 10;
        assert_eq!(fixture.add(b"a", at, 100, within(1000)).admitted, is_admitted, "{n}");
        if is_admitted {
            times.push(at);
        }
    }
    // As many as a limit of ten may have.
    for n in 0..10_000 {
        assert!(fixture.add(b"b", T + n / 4, 1, within(10_000)).admitted);
    }
    let read = |at| fixture.read(b"b", at, 10_000, 1).hits.thousandths();
    assert_eq!((read(T + 4000), read(T + 4001), read(T + 5000)), (10_000, 9_996, 6000));
}

/// Returns the number of entries that were read.
fn counting_looks<T>(of: impl FnOnce() -> T) -> (T, u64) {
    let looks = || crate::table::slots::log_chain::LOOKS.with(core::cell::Cell::get);
    let before = looks();
    let result = of();
    (result, looks() - before)
}

#[test]
fn no_request_walks_a_long_log() {
    const MOST_LOOKS: u64 = 300;
    let (size, limit) = (3_600_000, 100_000);
    let fixture = Fixture::with(4 << 20, size);
    // Most at once, and some later.
    let many = 90_000;
    for n in 0..many {
        let (counted, looks) = counting_looks(|| fixture.request(b"a", T + n, limit));
        assert!(counted.admitted && looks < MOST_LOOKS, "{n} {looks}");
    }
    for n in 0..10_000 {
        assert!(fixture.request(b"a", T + size / 2 + n, limit).admitted);
    }
    let full = T + size - 1;
    for cost in [1, 1000, 50_000_000, 89_999_999, 95_000_000] {
        let ask = || fixture.add(b"a", full, cost, within(limit * 1000));
        let (counted, looks) = counting_looks(ask);
        assert!(!counted.admitted && looks < MOST_LOOKS, "{cost} {looks}");
        let nth = (cost as u64).div_ceil(1000) - 1;
        let at = match nth < many {
            true => T + nth,
            false => T + size / 2 + (nth - many),
        };
        assert_eq!(moving(&counted).wait, at + size + 1 - full, "{cost}");
    }
    // Few, or nearly all, have left.
    for gone in [1, 7, 100, 38_000, 64_000, 89_999, 90_000] {
        let at = T + size + gone;
        let left = (many - gone) as i64 + 10_000;
        for _ in 0..2 {
            let (read, looks) = counting_looks(|| fixture.read(b"a", at, 0, 0).hits.whole());
            assert!(looks < MOST_LOOKS, "{gone} {looks}");
            assert_eq!(read, left);
            let refused = || fixture.add(b"a", at, 100_000_000, within(limit * 1000));
            let (counted, looks) = counting_looks(refused);
            assert!(!counted.admitted && looks < MOST_LOOKS, "{gone} {looks}");
            assert_eq!(moving(&counted).hits.whole(), left);
        }
    }
    let (counted, looks) = counting_looks(|| fixture.request(b"a", T + size + 90_000, limit));
    assert!(counted.admitted && looks < MOST_LOOKS, "{looks}");
    assert_eq!(moving(&counted).hits.whole(), 10_001);
}

#[test]
fn hits_do_not_count_again_when_times_come_round() {
    const ROUND: u64 = 1 << 35;
    let longest = WindowSize::MAX_MILLIS;
    for size in [SIZE, longest] {
        for rounds in 1..=7 {
            for off in [0, 1, 500] {
                let fixture = Fixture::with(1 << 18, size);
                for n in 0..20 {
                    fixture.request(b"a", T + n, 20);
                }
                let at = T + rounds * ROUND + off;
                assert_eq!(fixture.hits(b"a", at), 0, "{size} {rounds} {off}");
                let counted = fixture.request(b"a", at, 20);
                assert!(counted.admitted);
                assert_eq!(moving(&counted).hits, Hits::ONE);
            }
        }
    }
    // The newest counts, and the oldest is older than times reach back.
    let fixture = Fixture::with(1 << 18, longest);
    let newer = T + longest - 1000;
    for at in [T, T + 1000, newer, newer + 1000] {
        assert!(fixture.request(b"a", at, 4).admitted);
    }
    for at in [T + ROUND, T + ROUND + 500, newer + longest] {
        assert_eq!(fixture.hits(b"a", at), 2);
    }
    assert!(fixture.request(b"a", newer + longest, 3).admitted);
    assert!(!fixture.request(b"a", newer + longest, 3).admitted);
}

#[test]
fn a_refund_leaves_much_older_hits() {
    let longest = WindowSize::MAX_MILLIS;
    let fixture = Fixture::with(1 << 18, longest);
    for n in 0..20 {
        fixture.request(b"a", T + n, 100);
    }
    let at = T + longest / 4 * 3;
    let receipt = fixture.request(b"a", at, 100).receipt.unwrap();
    for n in 0..20 {
        fixture.request(b"a", at + 10 + n, 100);
    }
    assert!(fixture.shared.table.refund(&fixture.counter, &receipt));
    assert_eq!(fixture.hits(b"a", at + 50), 40);
    // The earlier keys have theirs.
    assert_eq!(fixture.hits(b"a", T + longest + 10), 30);
    assert_eq!(fixture.hits(b"a", T + longest + 20), 20);
}

#[test]
fn dying_before_a_block_with_a_back_link_is_recorded() {
    die_everywhere(
        || {
            let fixture = Fixture::with(1 << 18, 60_000);
            (0..85).for_each(|n| assert!(fixture.request(b"a", T + n, 1000).admitted));
            fixture
        },
        |fixture| {
            (85..110).for_each(|n| assert!(fixture.request(b"a", T + n, 1000).admitted));
        },
        &["log.unindexed"],
        |fixture, point| {
            let before = fixture.hits(b"a", T + 110);
            assert!((85..=110).contains(&before), "{point}");
            for n in 0..800 {
                assert!(fixture.request(b"a", T + 110 + n, 2000).admitted, "{point}");
            }
            assert_eq!(fixture.hits(b"a", T + 1000), before + 800, "{point}");
            let (hits, looks) = counting_looks(|| fixture.hits(b"a", T + 60_809));
            assert_eq!(hits, 101, "{point}");
            assert!(looks < 300, "{point} {looks}");
        },
    );
}

#[test]
fn a_hundred_thousand_hits() {
    let fixture = Fixture::with(4 << 20, 3_600_000);
    let limit = 100_000;
    for n in 0..limit as u64 {
        assert!(fixture.request(b"a", T + n * 7, limit).admitted, "{n}");
    }
    let end = T + 700_000;
    let rejected = fixture.request(b"a", end, limit);
    assert!(!rejected.admitted);
    assert_eq!(moving(&rejected).wait, 3_600_001 - 700_000);
    assert_eq!(moving(&rejected).age, 700_000);
    // The hits leave one by one.
    for n in 0..1000 {
        let at = T + 3_600_001 + n * 7;
        assert!(!fixture.request(b"a", at - 1, limit).admitted);
        assert!(fixture.request(b"a", at, limit).admitted);
        assert!(!fixture.request(b"a", at, limit).admitted);
    }
    // And all of them at once.
    let counted = fixture.request(b"a", T + 99_999_999, limit);
    assert_eq!(moving(&counted).hits.whole(), 1);
}

#[test]
fn a_full_table_is_stricter_and_never_laxer() {
    let fixture = Fixture::with(7 * 4096, SIZE);
    let mut model = Model::default();
    let (mut admitted, mut at) = (0, T);
    for n in 0..20_000_u64 {
        at += n % 3;
        let other = n.to_le_bytes();
        fixture.request(&other, at, 10);
        if n % 2 == 0 {
            let was = model.hits(at) < 30_000;
            let counted = fixture.request(b"a", at, 30);
            if counted.admitted && was {
                admitted += 1;
            }
            model.note(at, 1000, counted.admitted);
        }
    }
    assert!(admitted > 0);
    // The table stays usable, however often the log is evicted.
    (0..100_u64).for_each(|n| {
        assert_eq!(moving(&fixture.request(&[n as u8], at + 5000, 10)).hits, Hits::ONE);
    });
}

#[test]
fn a_log_in_a_table_of_logs_merges_hits_without_room() {
    let fixture = Fixture::with(7 * 4096, 1_000_000);
    let mut times = Vec::new();
    for n in 0..20_000_u64 {
        if fixture.request(b"a", T + n, 10_000).admitted {
            times.push(T + n);
        }
    }
    assert_eq!(times.len(), 10_000);
    // The hits leave later than they should, never earlier.
    assert!(!fixture.request(b"a", T + 1_000_000, 10_000).admitted);
    assert!(fixture.hits(b"a", T + 1_005_000) >= 4_999);
    assert_eq!(fixture.hits(b"a", T + 1_010_001), 0);
}

#[test]
fn dying_while_counting_loses_at_most_the_hit() {
    let points = [
        "log.advanced",
        "log.appended",
        "log.claimed",
        "log.closed",
        "log.counted",
        "log.linked",
        "log.published",
        "log.replaced",
        "log.spared",
        "log.taken",
        "log.written",
    ];
    // 20 hits, 10 ms apart, of which the first have left.
    let last = T + 1120;
    die_everywhere(
        || {
            let fixture = Fixture::new();
            for n in 0..20 {
                fixture.request(b"a", T + n * 10, 100);
            }

            fixture
        },
        |fixture| {
            for at in [1080, 1100, 1120, 1130, 1140, 1150, 1160, 1170, 1180] {
                fixture.request(b"a", T + at, 100);
            }
        },
        &points,
        |fixture, point| {
            let hits = |at| fixture.hits(b"a", at);
            let left = 20 - (last - T - 1000) as i64 / 10;
            assert!(hits(last) >= left, "{point}");
            let before = hits(T + 1200);
            assert!((0..=9).contains(&before), "{point} {before}");
            for n in 0..30 {
                let counted = fixture.request(b"a", T + 1200 + n, 100);
                assert_eq!(moving(&counted).hits.whole(), before + 1 + n as i64, "{point}");
            }
            assert_eq!(hits(T + 2200), 30, "{point}");
            assert_eq!((hits(T + 2229), hits(T + 2230)), (1, 0), "{point}");
        },
    );
}

#[test]
fn dying_while_refunding_leaves_the_hit_or_not() {
    die_everywhere(
        || {
            let fixture = Fixture::new();
            for n in 0..3 {
                fixture.request(b"a", T + n * 10, 100);
            }

            fixture
        },
        |fixture| {
            let receipt = fixture.request(b"a", T + 30, 100).receipt.unwrap();
            for n in 4..20 {
                fixture.request(b"a", T + n * 10, 100);
            }

            fixture.shared.table.refund(&fixture.counter, &receipt);
        },
        &["log.refunded", "log.lowered"],
        |fixture, point| {
            let hits = |at| fixture.hits(b"a", at);
            let before = hits(T + 500);
            assert!((3..=20).contains(&before), "{point}");
            assert_eq!(hits(T + 1011), before - 2, "{point}");
            for n in 0..10 {
                fixture.request(b"a", T + 600 + n, 100);
            }
            assert_eq!(hits(T + 610), before + 10, "{point}");
            assert_eq!(hits(T + 1600), 10, "{point}");
        },
    );
}

#[test]
fn dying_while_freeing_blocks() {
    die_everywhere(
        || {
            let fixture = Fixture::new();
            for n in 0..60 {
                fixture.request(b"a", T + n * 10, 100);
            }

            fixture
        },
        |fixture| {
            fixture.request(b"a", T + 1400, 100);
        },
        &["log.freeing", "log.spared"],
        |fixture, point| {
            assert!((20..=21).contains(&fixture.hits(b"a", T + 1400)), "{point}");
            (0..80).for_each(|n| {
                assert!(fixture.request(b"a", T + 1500 + n, 100).admitted, "{point}");
            });
            assert_eq!(fixture.hits(b"a", T + 2500), 80, "{point}");
        },
    );
}

/// Several workers, one of which dies from time to time.
#[test]
fn workers_never_admit_one_too_many() {
    const WORKERS: u64 = 4;
    const REQUESTS: u64 = 20_000;
    for limit in [10_000, 57] {
        let fixture = Fixture::with(1 << 20, SIZE);
        let table = &fixture.shared.table;
        let admitted: usize = std::thread::scope(|scope| {
            let worker = |n: u64| {
                let counter = &fixture.counter;
                move || {
                    let clock = TestClock::at(T);
                    let ask = |request: u64| {
                        // All clocks advance, but the window does not end.
                        clock.set(T + (request + n) / 32);
                        let key = table.key(b"a");
                        let admission = within(limit * 1000);
                        let counted = table.add(counter, key, &clock, Hits::ONE, admission);
                        // Some hits are refunded, and requested again.
                        if let Some(receipt) = counted.receipt.filter(|_| request.is_multiple_of(5))
                        {
                            assert!(table.refund(counter, &receipt));
                            return false;
                        }
                        counted.admitted
                    };
                    (0..REQUESTS).filter(|request| ask(*request)).count()
                }
            };
            let workers: Vec<_> = (0..WORKERS).map(|n| scope.spawn(worker(n))).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert_eq!(admitted, limit as usize);
        assert_eq!(fixture.hits(b"a", T + SIZE), limit);
    }
}

#[test]
fn workers_that_race_count_each_hit_once() {
    let fixture = Fixture::with(1 << 20, 50);
    let table = &fixture.shared.table;
    std::thread::scope(|scope| {
        for worker in 0..4_u64 {
            let counter = &fixture.counter;
            scope.spawn(move || {
                let clock = TestClock::at(T);
                for n in 0..30_000_u64 {
                    clock.set(T + n / 7 + worker % 2);
                    let name = [(n % 3) as u8];
                    let key = table.key(&name);
                    let counted = table.add(counter, key, &clock, Hits::ONE, within(100_000_000));
                    assert!(counted.admitted);
                }
            });
        }
    });
    (0..3).for_each(|key| assert_eq!(fixture.hits(&[key], T + 10_000), 0));
}

#[test]
fn a_killed_worker_blocks_no_other() {
    let fixture = Fixture::with(1 << 20, SIZE);
    for round in 0..50_u64 {
        let start = T + round * 40;
        let child = Process::start(|| {
            for n in 0.. {
                fixture.request(b"a", start + n / 100 % 40, 100_000);
            }
        });
        for n in 0..2000 {
            fixture.request(b"a", start + n / 50, 100_000);
        }

        child.signal(libc::SIGKILL);
        assert_eq!(child.wait(), Some(libc::SIGKILL));
        (0..10).for_each(|_| {
            fixture.request(b"a", start + 40, 100_000);
        });
    }
    let end = T + 50 * 40 + 41 + SIZE;
    assert_eq!(fixture.hits(b"a", end), 0);
    assert!((0..10).all(|_| fixture.request(b"a", end, 10).admitted));
    assert!(!fixture.request(b"a", end, 10).admitted);
    assert_eq!(
        in_process(|| {
            fixture.request(b"b", end, 10);
        }),
        None
    );
}

/// A process is stopped before it links a block to the end of a log. Meanwhile the key is reset, and
/// the log's last block becomes the last one of another log.
#[test]
fn a_log_keeps_no_block_that_a_stopped_process_linked() {
    let hit = |fixture: &Fixture, key: &[u8], at| {
        assert!(fixture.request(key, at, 1000).admitted);
    };
    let fixture = Fixture::new();
    let links = |n: &u64| points_of(|| hit(&fixture, b"a", T + n)).contains_key("log.linked");
    // The hit that needs a third block.
    let last = (0..).filter(links).nth(2).unwrap();
    let fixture = Fixture::new();
    let table = &fixture.shared.table;
    (0..last).for_each(|n| hit(&fixture, b"a", T + n));
    let id = fixture.counter.identity(fixture.key(b"a"));
    let end = table.end(table.find(id).unwrap()).ok().flatten().unwrap();
    assert!(end.free.is_none());
    let block = end.at.block;
    let process = Process::start(|| {
        fail::pause_at("log.published", 1);
        fixture.request(b"a", T + last, 1000);
    });
    assert!(process.wait_for_stop());

    let later = T + 10 * SIZE;
    table.reset(&fixture.counter, fixture.key(b"a"), fixture.at(later));
    let is_last_of_another = || {
        let owner = table.owner_of(block, block.meta());
        owner.is_some_and(|it| !it.slot.has_identity(id)) && block.extension.load(Relaxed) == 0
    };
    let mut keys = 0_u64;
    while !is_last_of_another() {
        (0..8).for_each(|n| hit(&fixture, &keys.to_le_bytes(), later + n));
        keys += 1;
        assert!(keys < 10_000, "no log uses the block");
    }
    process.signal(libc::SIGCONT);
    assert_eq!(process.wait(), None);
    assert_ne!(block.extension.load(Relaxed), 0, "it links no block");
    let owner = table.owner_of(block, block.meta()).unwrap();
    let id_of = |key: &[u8; 8]| fixture.counter.identity(fixture.key(key));
    let mut owners = (0..keys).map(u64::to_le_bytes);
    let key = owners.find(|key| owner.slot.has_identity(id_of(key))).unwrap();
    assert_eq!(fixture.hits(&key, later + 7), 8);
    for n in 8..30 {
        hit(&fixture, &key, later + n);
    }
    assert_eq!(fixture.hits(&key, later + 30), 30);
    // Any other block could be claimed by others.
    let next = table.index_of_link(block.extension.load(Relaxed));
    let next = next.and_then(|index| table.slot_at(index)).unwrap();
    let next_owner = table.owner_of(next, next.meta());
    assert!(next_owner.is_some_and(|it| core::ptr::eq(it.slot, owner.slot)));
}

#[test]
fn a_hit_at_the_time_of_one_before_times_came_round_leaves_a_millisecond_later() {
    let fixture = Fixture::new();
    for millis in 0..3 {
        fixture.request(b"a", T + millis, 10);
    }
    // The chain ends with the hit of the second millisecond.
    let again = T + 1 + (1 << 35);
    assert!(fixture.request(b"a", again, 10).admitted);
    assert_eq!(fixture.hits(b"a", again), 1);
    assert_eq!(fixture.hits(b"a", again + SIZE + 1), 1);
    assert_eq!(fixture.hits(b"a", again + SIZE + 2), 0);
}

/// All hits of a key with their times: a moving window by its definition.
#[derive(Clone, Default)]
struct Model(Vec<(u64, i64)>);

impl Model {
    fn live(&self, now: u64) -> impl Iterator<Item = &(u64, i64)> {
        self.0.iter().filter(move |(at, _)| at + SIZE >= now)
    }

    fn hits(&self, now: u64) -> i64 {
        self.live(now).map(|(_, cost)| cost).sum()
    }

    fn has_room(&self, now: u64, limit: i64, cost: i64) -> bool {
        let left = limit - self.hits(now) - cost;
        left > 0 || (left == 0 && cost > 0)
    }

    fn note(&mut self, now: u64, cost: i64, admitted: bool) {
        if admitted {
            self.0.push((now, cost));
        }
    }

    /// Returns the reading at `now` for a request of `cost` more hits.
    fn count(&self, now: u64, limit: i64, cost: i64) -> MovingCount {
        let oldest = self.live(now).map(|(at, _)| *at).min().unwrap_or(now);
        let mut moments = self.live(now).map(|(at, _)| at + SIZE + 1);
        let first = moments.find(|at| self.has_room(*at, limit, cost));
        let wait = match self.has_room(now, limit, cost) {
            true => 0,
            false => first.map_or(0, |at| at - now),
        };
        MovingCount {
            hits: Hits::from_thousandths(self.hits(now)),
            oldest: UnixMillis(oldest),
            age: now - oldest,
            wait,
        }
    }
}

fn cost() -> impl Strategy<Value = i64> {
    prop_oneof![1000..4000_i64, 1..1000_i64, Just(1), Just(100)]
}

/// Jumps after which times of 35 bits, or the ticks of slots' last use, nearly recur. They are odd,
/// so that no hit has the time of an earlier one: such a hit counts one millisecond later.
fn idle() -> impl Strategy<Value = u64> {
    let round = prop::sample::select(vec![1 << 35, 1 << 36, 3 << 35, 1 << 37]);
    (round, 0..SIZE).prop_map(|(round, more)| round - SIZE + 2 * more + 1)
}

proptest! {
    #[test]
    fn the_table_counts_as_the_model_does(
        requests in prop::collection::vec(
            (0..3_u8, 0..1500_u64, cost(), prop::option::of(1000..90_000_i64), 0..8_u8),
            1..400,
        ),
        idle in prop::option::of((0..400_usize, idle())),
        steps in 1..40_u64,
    ) {
        let fixture = Fixture::new();
        let (table, counter) = (&fixture.shared.table, &fixture.counter);
        let mut models = [(); 3].map(|()| Model::default());
        let mut now = T;
        for (index, (key, passed, cost, limit, then)) in requests.into_iter().enumerate() {
            if let Some((_, time)) = idle.filter(|(at, _)| *at == index) {
                now += time;
            }
            // Half of the requests arrive in the same millisecond as the previous one.
            now += 2 * (passed.saturating_sub(750) / steps);
            let model = &mut models[usize::from(key)];
            let most = limit.unwrap_or(100_000_000);
            let admission = match limit {
                Some(limit) => within(limit),
                None => Admission::Unconditional,
            };
            let admitted = limit.is_none() || model.has_room(now, most, cost);
            let counted = fixture.add(&[key], now, cost, admission);
            prop_assert_eq!(counted.admitted, admitted);
            let before = model.clone();
            model.note(now, cost, admitted);
            prop_assert_eq!(moving(&counted), model.count(now, most, cost));
            if let Some(receipt) = counted.receipt.filter(|_| then == 0) {
                prop_assert!(table.refund(counter, &receipt));
                *model = before;
            }
            prop_assert_eq!(fixture.read(&[key], now, 5000, 0).hits, model.count(now, 5000, 0).hits);
        }
    }

    #[test]
    fn in_no_stretch_of_a_window_is_more_admitted_than_the_limit(
        requests in prop::collection::vec((0..120_u64, 1..3000_i64), 1..600),
        limit in 500..20_000_i64,
    ) {
        let fixture = Fixture::new();
        let mut model = Model::default();
        let mut now = T;
        for (passed, cost) in requests {
            now += passed / 4;
            let admitted = fixture.add(b"a", now, cost, within(limit)).admitted;
            model.note(now, cost, admitted);
            prop_assert!(model.hits(now) <= limit);
        }
    }
}
