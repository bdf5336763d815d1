//! Admissions of a node without its store.

use crate::policy::algorithm::Algorithm;
use crate::policy::hits::{Hits, hits};
use crate::policy::window::Clock as _;
use crate::table::zone::lease::HELD;
use crate::table::*;
use crate::testing::table::{Fixture, SharedTable};

const T: u64 = 1_700_000_000_000 / SIZE * SIZE;
const SIZE: u64 = 60_000;
const NUMBER: u64 = T / SIZE;

/// One of several nodes, which has pushed `own` hits of a key in the previous window; `others` are
/// the other nodes' hits. The store is down.
struct Alone {
    fixture: Fixture,
    state: SyncState<'static>,
}

impl Alone {
    fn new(nodes: u64, own: i64, others: Option<i64>) -> Alone {
        let fixture = Fixture::of(SharedTable::new(1 << 20), b"api", SIZE, T - SIZE);
        let namespace = fixture.counter.namespace();
        let states = fixture.shared.table.sync_states(namespace, 1);
        let state = states.unwrap().remove(0);
        state.record_nodes(nodes);
        let counter = fixture.counter.synced(true);
        let fixture = Fixture { counter, ..fixture };
        let alone = Alone { fixture, state };
        if own > 0 {
            alone.fixture.add(b"k", own);
            alone.push(NUMBER - 1, own);
        }
        if let Some(others) = others {
            let now = alone.fixture.clock.now();
            let table = &alone.fixture.shared.table;
            table.set_remote(alone.counter(), NUMBER - 1, hits(others), now, HELD).unwrap();
        }
        alone.fixture.clock.set(T);
        alone.state.set_alone(true);
        alone
    }

    fn counter(&self) -> CounterRef {
        let Fixture { shared, counter, clock } = &self.fixture;
        let key = shared.table.key(b"k");
        shared.table.make_room_for(counter, key, clock).unwrap()
    }

    fn push(&self, window: u64, own: i64) {
        let (table, counter) = (&self.fixture.shared.table, self.counter());
        table.advance_pushed(counter, window, (Hits::ZERO, hits(own)), HELD).unwrap();
    }

    /// Returns how many of 2000 hits a limit admits.
    fn admitted(&self, limit: i64, algorithm: Algorithm) -> usize {
        let Fixture { shared, counter, clock } = &self.fixture;
        let admission = Admission::Within(hits(limit), algorithm);
        let key = shared.table.key(b"k");
        let add = || shared.table.add(counter, key, clock, Hits::ONE, admission);
        (0..2000).filter(|_| add().admitted).count()
    }
}

#[test]
fn a_node_admits_its_share_of_a_limit() {
    for (nodes, own, others, expected) in [
        // The share of the last hits, or one node's.
        (10, 500, Some(500), 500),
        (10, 900, Some(100), 900),
        (10, 10, Some(990), 100),
        (10, 0, Some(1000), 100),
        (3, 1, Some(999), 333),
        // No hits of others.
        (10, 50, None, 1000),
        // No counts are known.
        (10, 0, None, 100),
        (1, 0, None, 1000),
        // Less than a hit.
        (2000, 0, None, 0),
    ] {
        let alone = Alone::new(nodes, own, others);
        let admitted = alone.admitted(1000, Algorithm::Fixed);
        assert_eq!(admitted, expected, "{nodes}: {own} and {others:?}");
    }
}

#[test]
fn the_share_stays_in_later_windows_until_the_key_was_not_counted_for_two() {
    let alone = Alone::new(10, 400, Some(600));
    for window in 0..5 {
        alone.fixture.clock.set(T + window * SIZE);
        assert_eq!(alone.admitted(1000, Algorithm::Fixed), 400, "{window}");
    }
    alone.fixture.clock.set(T + 8 * SIZE);
    assert_eq!(alone.admitted(1000, Algorithm::Fixed), 100);
}

#[test]
fn the_known_count_of_all_nodes_is_still_a_bound() {
    let alone = Alone::new(2, 400, Some(600));
    let now = alone.fixture.clock.now();
    let table = &alone.fixture.shared.table;
    table.set_remote(alone.counter(), NUMBER, hits(900), now, HELD).unwrap();
    assert_eq!(alone.admitted(1000, Algorithm::Fixed), 100);
}

#[test]
fn a_sliding_window_has_its_share_too() {
    let alone = Alone::new(10, 400, Some(600));
    // 800 of 2000, and 400 in the previous window.
    assert_eq!(alone.admitted(2000, Algorithm::Sliding), 400);
    alone.fixture.clock.set(T + SIZE / 2);
    assert_eq!(alone.admitted(2000, Algorithm::Sliding), 200);
}

#[test]
fn all_of_a_limit_is_available_when_the_store_is_back() {
    let alone = Alone::new(10, 0, None);
    assert_eq!(alone.admitted(1000, Algorithm::Fixed), 100);
    alone.state.set_alone(false);
    assert_eq!(alone.state.nodes(), 10);
    assert_eq!(alone.admitted(1000, Algorithm::Fixed), 900);
}
