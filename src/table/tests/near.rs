//! Counters that are due early, and the worker that is woken.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use crate::policy::algorithm::Algorithm;
use crate::policy::hits::{Hits, hits};
use crate::policy::window::{Clock as _, UnixMillis};

use crate::table::zone::lease::HELD;
use crate::table::zone::near_cell::NearWord;
use crate::table::*;
use crate::testing::table::{Fixture, SharedTable, die_everywhere};

const T: u64 = 1_700_000_000_000 / SIZE * SIZE;
const SIZE: u64 = 60_000;
const NUMBER: u64 = T / SIZE;

/// One of several living nodes, with a share of a limit that it may keep.
struct Near {
    fixture: Fixture,
    state: SyncState<'static>,
    share: EarlyShare,
}

impl Near {
    fn new(len: usize, nodes: u64, share: EarlyShare) -> Near {
        let fixture = Fixture::of(SharedTable::new(len), b"api", SIZE, T);
        let table = &fixture.shared.table;
        let states = table.sync_states(fixture.counter.namespace(), 1);
        let state = states.unwrap().remove(0);
        if nodes > 0 {
            state.record_living(nodes, None);
        }
        let counter = fixture.counter.synced(true).pushed_early(share);
        Near { fixture: Fixture { counter, ..fixture }, state, share }
    }

    fn table(&self) -> &CounterTable<'static> {
        &self.fixture.shared.table
    }

    /// Requests a hit under a limit. Returns whether it was counted.
    fn hit(&self, key: &[u8], limit: i64, algorithm: Algorithm) -> bool {
        let Fixture { counter, clock, .. } = &self.fixture;
        let admission = Admission::Within(hits(limit), algorithm);
        let key = self.table().key(key);
        let counted = self.table().add(counter, key, clock, Hits::ONE, admission);
        counted.admitted
    }

    /// Returns the number of hits under a limit until the key is due; `None` if `most` do not
    /// suffice.
    fn until_due(&self, limit: i64, algorithm: Algorithm, most: usize) -> Option<usize> {
        let mut counts = 1..=most;
        counts.find(|_| self.hit(b"k", limit, algorithm) && self.has_due())
    }

    fn has_due(&self) -> bool {
        self.table().has_due(self.fixture.counter.namespace())
    }

    /// Returns whether a cell has a due counter, even if that is gone.
    fn has_any_cell(&self) -> bool {
        let cells = self.table().parts.near.iter();
        cells.map(|cell| NearWord(cell.counter.load(Ordering::Acquire))).any(NearWord::is_due)
    }

    fn take_due(&self) -> Vec<(usize, u64)> {
        let Fixture { counter, clock, .. } = &self.fixture;
        let table = self.table();
        table.take_due(counter.namespace(), self.share, clock.now())
    }

    /// Records that the store has all hits of this node's for a key.
    fn push(&self, key: &[u8]) {
        let (table, counter) = (self.table(), self.counter(key));
        let Fixture { counter: of, clock, .. } = &self.fixture;
        let pushed = table.pushed_of(counter, NUMBER);
        let unsent = table.unsent(of, table.key(key), NUMBER, clock);
        table.advance_pushed(counter, NUMBER, (pushed, pushed.plus(unsent)), HELD).unwrap();
    }

    fn counter(&self, key: &[u8]) -> CounterRef {
        let Fixture { counter, clock, .. } = &self.fixture;
        let key = self.table().key(key);
        self.table().make_room_for(counter, key, clock).unwrap()
    }

    fn set_remote(&self, key: &[u8], window: u64, remote: i64) {
        let now = self.fixture.clock.now();
        let counter = self.counter(key);
        self.table().set_remote(counter, window, hits(remote), now, HELD).unwrap();
    }
}

fn percent(share: u32) -> EarlyShare {
    EarlyShare::of_milli_percent(share * 1000)
}

#[test]
fn a_counter_is_due_when_its_unpushed_hits_reach_a_part_of_the_rest() {
    // u >= (L - u) / 2N, or the share, or one.
    for (limit, nodes, share, expected) in [
        (1000, 1, 2, 334),
        (1000, 2, 2, 200),
        (1000, 10, 2, 48),
        (1000, 10, 50, 50),
        (10, 10, 2, 1),
        (2, 1, 2, 1),
        (3, 1, 2, 1),
        (9, 1, 2, 3),
    ] {
        let near = Near::new(1 << 20, nodes, percent(share));
        let due = near.until_due(limit, Algorithm::Fixed, 1000);
        assert_eq!(due, Some(expected), "{limit} on {nodes}, {share} %");
    }
}

#[test]
fn counts_of_other_nodes_make_a_counter_due_earlier() {
    let near = Near::new(1 << 20, 10, percent(2));
    near.hit(b"k", 1000, Algorithm::Fixed);
    near.set_remote(b"k", NUMBER, 500);
    // 20 u >= 1000 - 500 - u.
    assert_eq!(near.until_due(1000, Algorithm::Fixed, 100), Some(23));
    // The store has the hits: from there on, 20 u >= 476 - u.
    near.take_due();
    near.push(b"k");
    assert_eq!(near.until_due(1000, Algorithm::Fixed, 100), Some(23));
    near.take_due();
    near.push(b"k");
    near.set_remote(b"k", NUMBER, 900);
    // 20 u >= 53 - u.
    assert_eq!(near.until_due(1000, Algorithm::Fixed, 100), Some(3));
    near.take_due();
    near.push(b"k");
    near.set_remote(b"k", NUMBER, 920);
    // Two percent for ten nodes: two hits.
    assert_eq!(near.until_due(1000, Algorithm::Fixed, 100), Some(2));
}

#[test]
fn a_sliding_window_has_less_left() {
    let near = Near::new(1 << 20, 10, percent(2));
    near.hit(b"k", 1000, Algorithm::Sliding);
    near.set_remote(b"k", NUMBER - 1, 1000);
    near.fixture.clock.set(T + SIZE / 2);
    // 20 u >= 1000 - 500 - u.
    assert_eq!(near.until_due(1000, Algorithm::Sliding, 100), Some(23));
    let near = Near::new(1 << 20, 10, percent(2));
    near.hit(b"k", 1000, Algorithm::Fixed);
    near.set_remote(b"k", NUMBER - 1, 1000);
    assert_eq!(near.until_due(1000, Algorithm::Fixed, 100), Some(47));
}

#[test]
fn nothing_is_due_before_nodes_are_known_or_if_it_is_off() {
    for (nodes, share) in [(0, percent(2)), (10, EarlyShare::OFF)] {
        let near = Near::new(1 << 20, nodes, share);
        assert_eq!(near.until_due(100, Algorithm::Fixed, 200), None);
        assert_eq!(near.take_due(), []);
    }
}

#[test]
fn a_limit_is_known_of_a_counter_that_came_near_it() {
    for (share, algorithm) in
        [(percent(2), Algorithm::Sliding), (EarlyShare::OFF, Algorithm::Fixed)]
    {
        let near = Near::new(1 << 20, 1, share);
        near.hit(b"k", 100, algorithm);
        assert_eq!(near.table().limit_of(near.counter(b"k")), None);
        near.until_due(100, algorithm, 40);
        let known = Some((hits(100), algorithm));
        assert_eq!(near.table().limit_of(near.counter(b"k")), known);
        near.take_due();
        assert_eq!(near.table().limit_of(near.counter(b"k")), known);
    }
}

#[test]
fn another_limit_of_the_same_request_makes_it_due() {
    let near = Near::new(1 << 20, 1, percent(2));
    for _ in 0..10 {
        near.hit(b"k", 1000, Algorithm::Fixed);
    }
    assert!(!near.has_due());
    let reading = near.fixture.read(b"k").into();
    let Fixture { counter, clock, .. } = &near.fixture;
    let (table, limit) = (near.table(), (hits(30), Algorithm::Fixed));
    table.look_at_further_limit(counter, table.key(b"k"), limit, &reading, clock);
    assert!(near.has_due());
}

#[test]
fn a_due_counter_is_taken_once_where_it_is_found() {
    let near = Near::new(1 << 20, 10, percent(2));
    for key in 0..100_u8 {
        near.hit(&[key], 10, Algorithm::Fixed);
        near.hit(&[key, 1], 1000, Algorithm::Fixed);
    }
    let mut keys = Vec::new();
    for place in near.take_due() {
        let part = near.fixture.counter.namespace().into();
        let now = near.fixture.clock.now();
        let table = near.table();
        table.take_changes_at(place, part, now, HELD, |change| keys.push(change.key)).unwrap();
    }
    keys.sort();
    assert_eq!(keys, (0..100_u8).map(|key| vec![key]).collect::<Vec<_>>());
    assert_eq!(near.take_due(), []);
    near.hit(b"\0", 10, Algorithm::Fixed);
    assert_eq!(near.take_due().len(), 1);
}

#[test]
fn hits_counted_during_a_push_are_no_longer_due() {
    let near = Near::new(1 << 20, 10, percent(2));
    assert_eq!(near.until_due(1000, Algorithm::Fixed, 100), Some(48));
    assert_eq!(near.take_due().len(), 1);
    near.hit(b"k", 1000, Algorithm::Fixed);
    assert!(near.has_due());
    near.push(b"k");
    near.hit(b"k", 1000, Algorithm::Fixed);
    assert_eq!((near.take_due(), near.has_due()), (vec![], false));
}

#[test]
fn a_counter_that_is_gone_takes_no_place() {
    let near = Near::new(7 * 4096, 10, percent(2));
    let cells = near.table().parts.near.len();
    for key in 0..2000_u32 {
        near.hit(&key.to_ne_bytes(), 10, Algorithm::Fixed);
    }
    assert!(near.take_due().len() <= cells);
    assert!(!near.has_due());
    assert!(near.state.begin_early(0), "more than there are cells for");
    near.hit(b"k", 10, Algorithm::Fixed);
    assert!(near.has_due() && !near.state.begin_early(0));
}

#[test]
fn the_worker_that_synced_last_is_woken_once_and_another_if_it_does_not_come() {
    let near = Near::new(1 << 20, 10, percent(2));
    let woken = Arc::new(Mutex::new(Vec::new()));
    let log = woken.clone();
    near.table().wake_by(7, move |worker| log.lock().unwrap().push(worker));
    let hit_at = |key: &[u8], at| {
        near.fixture.clock.set(T + at);
        near.hit(key, 10, Algorithm::Fixed);
        core::mem::take(&mut *woken.lock().unwrap())
    };
    // No worker has synced.
    assert_eq!((hit_at(b"a", 0), near.state.is_rung()), (vec![7], true));
    assert!(hit_at(b"b", 50).is_empty());
    near.state.begin_early(3);
    assert!(!near.state.is_rung());
    near.take_due();
    assert_eq!(hit_at(b"a", 51), [3]);
    assert!(hit_at(b"a", 60).is_empty());
    // The woken worker does not react.
    assert_eq!(hit_at(b"a", 102), [7]);
    assert!(hit_at(b"b", 103).is_empty());
    near.state.begin_early(3);
    near.take_due();
    near.state.record_worker(4);
    assert_eq!(hit_at(b"a", 104), [4]);
    // The woken worker waits, and says so.
    near.fixture.clock.set(T + 150);
    near.state.postpone_early(UnixMillis(T + 150));
    assert!(hit_at(b"a", 200).is_empty());
    assert_eq!(hit_at(b"a", 201), [7]);
    near.state.begin_early(4);
    near.take_due();
    // Nothing is rung.
    near.state.postpone_early(UnixMillis(T + 202));
    assert!(!near.state.is_rung());
    assert_eq!(hit_at(b"a", 203), [4]);
    // The clock was set back.
    near.fixture.clock.set(T - 10_000);
    near.hit(b"a", 10, Algorithm::Fixed);
    assert_eq!(*woken.lock().unwrap(), [7]);
}

#[test]
fn a_worker_that_dies_while_it_reports_a_due_counter_does_no_harm() {
    let points = ["near.limited", "near.placed", "early.rung"];
    let scenario = |near: &Near| {
        near.hit(b"k", 10, Algorithm::Fixed);
    };
    let prepare = || Near::new(1 << 20, 10, percent(2));
    die_everywhere(prepare, scenario, &points, |near, point| {
        near.fixture.clock.set(T + 100);
        near.hit(b"k", 10, Algorithm::Fixed);
        assert!(near.has_due() && near.state.is_rung(), "{point}");
        assert_eq!(near.take_due().len(), 1, "{point}");
    });
    let scenario = |near: &Near| {
        near.state.begin_early(1);
        near.take_due();
    };
    let prepare = || {
        let near = Near::new(1 << 20, 10, percent(2));
        near.hit(b"k", 10, Algorithm::Fixed);
        near
    };
    let points = ["early.begun", "near.taken"];
    die_everywhere(prepare, scenario, &points, |near, point| {
        near.fixture.clock.set(T + 100);
        near.hit(b"k", 10, Algorithm::Fixed);
        near.hit(b"l", 10, Algorithm::Fixed);
        assert_eq!(near.take_due().len(), 2, "{point}");
    });
}

#[test]
fn a_worker_that_dies_while_it_frees_a_cell_leaves_it_free() {
    let prepare = || {
        let near = Near::new(7 * 4096, 10, percent(2));
        near.hit(b"k", 10, Algorithm::Fixed);
        // None of these is due; they evict that one.
        for key in 0..2000_u32 {
            near.hit(&key.to_ne_bytes(), 1_000_000, Algorithm::Fixed);
        }
        assert!(near.has_any_cell());
        near
    };
    let scenario = |near: &Near| drop(near.take_due());
    die_everywhere(prepare, scenario, &["near.freed"], |near, point| {
        assert!(!near.has_any_cell(), "{point}");
        assert_eq!(near.take_due(), [], "{point}");
        near.hit(b"k", 10, Algorithm::Fixed);
        assert_eq!(near.take_due().len(), 1, "{point}");
    });
}

#[test]
fn hits_above_a_limit_include_the_last_ones_of_the_store() {
    let near = Near::new(1 << 20, 1, percent(2));
    let excess = |window, diff, at| {
        let counter = near.counter(b"k");
        let excess = near.table().excess(counter, window, hits(diff), UnixMillis(at));
        excess.whole()
    };
    // A limit is not known yet.
    near.hit(b"k", 1000, Algorithm::Sliding);
    near.set_remote(b"k", NUMBER, 2000);
    assert_eq!(excess(NUMBER, 1, T), 0);
    near.set_remote(b"k", NUMBER, 0);
    for _ in 0..99 {
        near.hit(b"k", 100, Algorithm::Sliding);
    }
    near.push(b"k");
    // 100 hits here, and others' hits.
    for (others, diff, expected) in [(0, 100, 0), (30, 100, 30), (30, 10, 10), (500, 100, 100)] {
        near.set_remote(b"k", NUMBER, others);
        assert_eq!(excess(NUMBER, diff, T), expected, "{others} {diff}");
    }
    // Half of the previous window counts, until the window ends.
    near.set_remote(b"k", NUMBER, 0);
    near.set_remote(b"k", NUMBER - 1, 60);
    assert_eq!(excess(NUMBER, 100, T + SIZE / 2), 30);
    assert_eq!(excess(NUMBER, 100, T + SIZE), 0);
}

#[test]
fn many_nodes_push_each_hit_of_a_small_limit_and_keep_little_of_any() {
    for nodes in [50, 100, 300, u32::from(u16::MAX) >> 2] {
        for share in [1, 2000, 50_000].map(EarlyShare::of_milli_percent) {
            for limit in 1..=50 {
                for rest in 0..=limit {
                    let kept = share.kept(nodes, hits(limit), hits(rest));
                    assert_eq!(kept, Some(Hits::ONE), "{nodes} {limit} {rest}");
                }
            }
            // All nodes together keep half of the rest, their share, or a hit each, rounded up.
            for (limit, rest) in [(1000, 1000), (100_000, 7), (1_000_000_000, 1_000_000_000)] {
                let kept = share.kept(nodes, hits(limit), hits(rest)).unwrap();
                let all = kept.thousandths() * i64::from(nodes);
                let half = hits(rest).thousandths() / 2;
                let most = half.max(share.of(hits(limit)).thousandths()) + i64::from(nodes);
                assert!(all <= most.max(1000 * i64::from(nodes)), "{nodes} {limit} {rest}");
            }
        }
    }
}
