//! A worker of a synchronous namespace is stopped while it discards reserves and the hits that were
//! given back.

use core::time::Duration;

use super::{Cluster, KEYS, LIFETIME, Pass, T, pause_everywhere, size};
use crate::engine::{Report, SyncError, Syncer};
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::hits;
use crate::policy::reserve::Grants;
use crate::policy::window::UnixMillis;
use crate::table::{Key, Reserve};
use crate::testing::conformance::block_on;
use crate::testing::redis::{Server, connect};

/// Hits that a store charges ahead at a time.
const PART: i64 = 16;

/// A cluster whose first node has reserves. The second node's hits stand for the store's charges.
struct Reserving<'s>(Cluster<'s>);

impl Reserving<'_> {
    /// The first node has spent a part of its reserves, and given back another part, some of which
    /// is pushed.
    fn new(server: &Server) -> Reserving<'_> {
        let cluster = Reserving(Cluster::empty(server));
        // The first epoch voids all reserves.
        cluster.try_sync().unwrap();
        cluster.charge_ahead();
        for reserve in cluster.reserves() {
            let spent = cluster.table().spend(&reserve, hits(1), UnixMillis(T));
            assert_eq!(spent.unwrap().left, hits(PART - 1));
        }
        cluster.give_back(3);
        cluster.try_sync().unwrap();
        cluster.give_back(2);
        cluster
    }

    fn table(&self) -> &crate::table::CounterTable<'static> {
        &self.0.nodes[0].shared.table
    }

    fn keys(&self) -> [Key<'static>; 3] {
        KEYS.map(|key| self.table().key(key))
    }

    fn reserves(&self) -> [Reserve; 3] {
        let (table, namespace) = (self.table(), self.0.nodes[0].namespace);
        let reserves = table.reserves(namespace.index(), b"api", size());
        let limit = hits(1000);
        self.keys().map(|key| table.reserve(&reserves, key, limit, Algorithm::Fixed))
    }

    fn window() -> u64 {
        size().at(UnixMillis(T)).number
    }

    /// The store charges a part of each key for the first node.
    fn charge_ahead(&self) {
        for _ in 0..PART {
            KEYS.iter().for_each(|key| self.0.nodes[1].hit(key));
        }
        self.count(PART);
        self.0.sync(1);
        for reserve in self.reserves() {
            let time = &self.0.nodes[0].time;
            let granted = self.table().grant(&reserve, hits(PART), Self::window(), time);
            assert!(granted);
        }
    }

    /// The first node gives back this number of hits of each key.
    fn give_back(&self, value: i64) {
        let (table, node) = (self.table(), &self.0.nodes[0]);
        let counter = node.namespace.counter(size());
        for key in self.keys() {
            let window = Self::window();
            assert!(table.give_back(&counter, key, window, hits(value), &node.time));
        }
    }

    fn try_sync(&self) -> Result<Option<Report>, SyncError> {
        let node = &self.0.nodes[0];
        let lifetime = Duration::from_millis(LIFETIME);
        let syncer = Syncer::new(node.namespace, &[size()], lifetime).unwrap();
        let syncer = syncer.pushing_only();
        block_on(async {
            let mut store = connect(self.0.server.tcp());
            syncer.sync(&mut store, &node.time).await
        })
    }

    fn sync_if_held(&self) {
        let result = self.try_sync();
        assert!(matches!(result, Ok(_) | Err(SyncError::LeaseLost)), "{result:?}");
    }

    fn count(&self, more: i64) {
        self.0.counted.set(self.0.counted.get() + more);
    }

    /// Syncs, and checks the store's totals, and that reserves contain no more than was charged
    /// since.
    fn converge(&self, left: i64) {
        assert!(self.try_sync().unwrap().is_some());
        self.0.sync(1);
        self.0.check_total(1);
        for reserve in self.reserves() {
            let reserved = self.table().reserved(&reserve, Self::window(), UnixMillis(T));
            assert_eq!(reserved.left(), hits(left));
        }
    }

    /// Another worker of the first node takes over, and gives back as many hits as were given back
    /// when the first one was stopped.
    fn be_busy(&self, given_back: i64) {
        self.0.take_over();
        self.converge(0);
        self.charge_ahead();
        self.give_back(given_back);
        self.count(-given_back);
        self.converge(PART);
    }

    fn check(&self, left: i64) {
        self.0.take_over();
        self.converge(left);
        self.give_back(1);
        self.count(-1);
        self.converge(left);
    }
}

/// Stops the worker at each point of the sync after `lose` was applied to a cluster, while the next
/// holder gives back this number of hits of each key. With the right number, counters have the same
/// hits again as when the worker was stopped.
fn is_stopped<'s>(
    server: &'s Server,
    lose: impl Fn(&Reserving<'s>),
    given_back: i64,
    expected: &[&str],
) {
    let lost = || {
        let cluster = Reserving::new(server);
        lose(&cluster);
        cluster
    };
    for is_busy in [true, false] {
        pause_everywhere(
            lost,
            Reserving::sync_if_held,
            expected,
            |cluster, _: Pass| match is_busy {
                true => cluster.be_busy(given_back),
                false => {
                    cluster.0.take_over();
                    cluster.converge(0);
                }
            },
            |cluster| cluster.check(if is_busy { PART } else { 0 }),
        );
    }
}

#[test]
fn stopped_after_the_store_lost_everything() {
    let server = Server::start(&[]);
    let lose = |cluster: &Reserving<'_>| {
        let _: String = cluster.0.server.ask(&["FLUSHALL"]).unwrap();
    };
    let points = [
        "reserve.voiding",
        "reserve.voided",
        "pushed.forgotten",
        "pushed.withholding",
        "pushed.withheld",
        "sync.repaired",
    ];
    for given_back in [4, 5] {
        is_stopped(&server, lose, given_back, &points);
    }
}

#[test]
fn stopped_after_the_store_lost_its_charges() {
    let server = Server::start(&[]);
    let lose = |cluster: &Reserving<'_>| {
        // The store has the pushed hits.
        cluster.count(-3);
        let state = cluster.0.nodes[0].namespace.sync_state().unwrap();
        assert_eq!(state.grants(), Grants::None);
        state.record_grants(Grants::None, Grants::Lost);
    };
    let points = [
        "reserve.voiding",
        "reserve.voided",
        "pushed.withholding",
        "pushed.withheld",
        "grants.voided",
    ];
    for given_back in [1, 2] {
        is_stopped(&server, lose, given_back, &points);
    }
}
