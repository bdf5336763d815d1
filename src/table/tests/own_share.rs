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
        Alone::at(None, nodes, own, others)
    }

    /// Creates the node at a place among all.
    fn at(place: Option<u64>, nodes: u64, own: i64, others: Option<i64>) -> Alone {
        let fixture = Fixture::of(SharedTable::new(1 << 18), b"api", SIZE, T - SIZE);
        let namespace = fixture.counter.namespace();
        let states = fixture.shared.table.sync_states(namespace, 1);
        let state = states.unwrap().remove(0);
        state.record_living(nodes, place);
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
        (0..2000).take_while(|_| add().admitted).count()
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

/// Lets each of many nodes admit as much as it can of a limit with less than a hit for each. `own` are the hits that
/// each has pushed in the previous window. Returns the admitted hits of all nodes in each window.
fn admitted_by_all(
    nodes: u64,
    limit: i64,
    algorithm: Algorithm,
    own: impl Fn(u64) -> i64,
) -> Vec<usize> {
    let all: i64 = (0..nodes).map(&own).sum();
    let windows = 2 * nodes.div_ceil(limit.cast_unsigned());
    let mut sums = vec![0; windows.try_into().unwrap()];
    for place in 0..nodes {
        let own = own(place);
        let alone = Alone::at(Some(place), nodes, own, (all > 0).then_some(all - own));
        let mut of_one = 0;
        for (sum, window) in sums.iter_mut().zip(0..) {
            alone.fixture.clock.set(T + window * SIZE);
            let admitted = alone.admitted(limit, algorithm);
            (*sum, of_one) = (*sum + admitted, of_one + admitted);
        }
        assert!(of_one > 0, "node {place} of {nodes} refuses all of {limit}");
    }
    sums
}

#[test]
fn many_nodes_admit_a_small_limit_once_and_none_refuses_everything() {
    for (nodes, limit) in [(50, 1), (50, 20), (50, 49), (100, 3), (100, 50), (300, 50)] {
        let sums = admitted_by_all(nodes, limit, Algorithm::Fixed, |_| 0);
        assert!(sums.iter().all(|it| *it == limit as usize), "{nodes} {limit}: {sums:?}");
        let sums = admitted_by_all(nodes, limit, Algorithm::Sliding, |_| 0);
        let both = sums.windows(2).map(|it| it[0] + it[1]);
        assert!(both.clone().all(|it| it <= limit as usize), "{nodes} {limit}: {sums:?}");
    }
}

#[test]
fn many_nodes_of_which_some_have_known_hits_admit_a_small_limit_twice_at_most() {
    // The last one has all hits; some share them; each has one, which is less than a hit of the limit.
    let own: [fn(u64) -> i64; 3] =
        [|place| i64::from(place == 49) * 20, |it| (it % 5) as i64, |_| 1];
    for own in own {
        let sums = admitted_by_all(50, 20, Algorithm::Fixed, own);
        assert!(sums.iter().all(|it| (15..=40).contains(it)), "{sums:?}");
    }
}

#[test]
fn all_of_a_limit_is_available_when_the_store_is_back() {
    let alone = Alone::new(10, 0, None);
    assert_eq!(alone.admitted(1000, Algorithm::Fixed), 100);
    alone.state.set_alone(false);
    assert_eq!(alone.state.nodes(), 10);
    assert_eq!(alone.admitted(1000, Algorithm::Fixed), 900);
}
