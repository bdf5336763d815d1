//! Apache Cassandra: absolute counts in rows that expire, and a log of changes for each node.
//!
//! Five tables, which `schema.cql` describes. Nothing is incremented or deleted: a node writes rows
//! of its own with its counts, readers sum them up, and rows expire. So a statement can be executed
//! again, or late, without harm. All rows belong to an epoch. If that is lost or replaced, the
//! remaining rows are not read any more.
//!
//! A node itself finds out whether a batch was applied, before it writes anything, since no other
//! node writes its rows. Only the epoch is agreed on by all nodes, with a lightweight transaction.

mod charges;
mod counters;
mod decide;
mod epoch;
mod failure;
mod log;
mod name;
pub mod options;
pub(crate) mod position;
mod push;
mod schema;
mod session;
mod share;
#[cfg(test)]
mod tests;

use self::name::Partition;
pub(crate) use self::options::{CassandraDirectives, CassandraOptions};
use self::position::Recent;
use self::push::BatchAnswer;
use self::session::{Connected, RingLink};
use super::contract::batch::PageStep;
use super::contract::error::StoreError;
use super::contract::options::StoreOptions;
use super::contract::strategy::{
    Absolute, Batch, Changes, Count, Epoch, LivingNodes, Pushed, Shard, Strategy,
};
use super::settings::kind::Registered;
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use charges::certainty::FullCounters;
use charges::charger::Chargers;

/// A client of Cassandra, with one node or several.
#[derive(Debug)]
pub struct Cassandra {
    link: RingLink,
    recent: Recent,
    /// The chargers of its decisions.
    charged: Chargers,
    /// The counters that refuse its decisions.
    full: FullCounters,
    /// The living nodes, from the last answer.
    living: Option<LivingNodes>,
    /// See [`Strategy::overdrawn`].
    overdrawn: Vec<Count>,
    /// See [`Strategy::has_lost_grants`].
    has_lost_grants: bool,
}

impl Cassandra {
    /// Records the result of an exchange that may have read other nodes' changes. If it failed for
    /// lack of time, the next one reads less.
    fn reading<T>(&mut self, exchanged: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(StoreError { failure, .. }) = &exchanged
            && !failure::is_late(failure)
        {
            self.recent.share.failed();
        }
        exchanged
    }
}

impl Registered for Cassandra {
    type Directives = CassandraDirectives;
}

impl Strategy for Cassandra {
    type Options = CassandraOptions;
    /// Continues after the name of a counter.
    type Step = PageStep<Vec<u8>>;
    type Changes = Changes;
    type Counts = Absolute;

    fn new(options: &StoreOptions, own: &CassandraOptions) -> Cassandra {
        Cassandra {
            link: RingLink::new(options, own),
            recent: Recent::default(),
            charged: Chargers::default(),
            full: FullCounters::default(),
            living: None,
            overdrawn: Vec::new(),
            has_lost_grants: false,
        }
    }

    fn connects(&self) -> u64 {
        self.link.connects()
    }

    fn server(&self) -> Option<String> {
        self.link.described()
    }

    fn shards(&self) -> u16 {
        1
    }

    fn living(&self) -> Option<LivingNodes> {
        self.living
    }

    fn overdrawn(&self) -> &[Count] {
        &self.overdrawn
    }

    fn has_lost_grants(&self) -> bool {
        self.has_lost_grants
    }

    async fn push_diffs(
        &mut self,
        shard: &Shard,
        batch: &Batch,
        limit: usize,
    ) -> Result<Pushed, StoreError> {
        let recent = &mut self.recent;
        let exchange =
            async |connected: &Connected| push::push(connected, recent, shard, batch, limit).await;
        let exchanged = self.link.exchange(exchange).await;
        let BatchAnswer { pushed, living, has_lost_grants } = self.reading(exchanged)?;
        self.living = living.or(self.living);
        self.has_lost_grants = has_lost_grants;
        self.overdrawn = match &pushed {
            // The totals of the answer are those after the batch, or after others at the same time.
            Pushed::Applied { changes: Changes::Since { counts, .. }, .. } => {
                counts.iter().filter(|count| count.total < Hits::ZERO).cloned().collect()
            }
            _ => Vec::new(),
        };
        Ok(pushed)
    }

    async fn open_epoch(
        &mut self,
        shard: &Shard,
        instead_of: Option<Epoch>,
        proposed: Epoch,
    ) -> Result<Epoch, StoreError> {
        let exchange =
            async |connected: &Connected| epoch::open(connected, shard, instead_of, proposed).await;
        self.link.exchange(exchange).await
    }

    async fn get_counters(
        &mut self,
        _: &Shard,
        epoch: Epoch,
        windows: &[(WindowSize, u64)],
        step: PageStep<Vec<u8>>,
    ) -> Result<(Vec<Count>, Option<PageStep<Vec<u8>>>), StoreError> {
        let partitions = windows.iter().flat_map(|window| Partition::all_of(*window));
        let Some(partition) = partitions.clone().nth(step.section) else {
            return Ok((Vec::new(), None));
        };
        let share = &mut self.recent.share;
        share.begin();
        share.read();
        let most = share.of(step.counters);
        let exchange = async |connected: &Connected| {
            counters::page(connected, epoch, partition, &step.after, most).await
        };
        let exchanged = self.link.exchange(exchange).await;
        let (counts, last) = self.reading(exchanged)?;
        self.recent.share.done();
        let next = step.next(&counts, last, partitions.count());
        Ok((counts, next))
    }

    async fn get_window(
        &mut self,
        shard: &Shard,
        key: &[u8],
        size: WindowSize,
        window: u64,
    ) -> Result<Hits, StoreError> {
        let exchange = async |connected: &Connected| {
            let Some((epoch, _)) = epoch::present(connected, shard).await? else {
                return Ok(Hits::ZERO);
            };
            let partition = Partition::of(key, size, window);
            counters::total(connected, epoch, partition, key).await
        };
        self.link.exchange(exchange).await
    }
}
