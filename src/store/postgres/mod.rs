//! PostgreSQL, 13 or newer: counts in a table, what changed in a log of batches, by statements.
//!
//! There are six tables, which `schema.sql` describes. If they are lost, all are lost together.
//! Then there is no epoch, and the nodes restore the counts that they know. A row of counters
//! belongs to an epoch, so a new epoch begins without counts; the rows of the old one are purged.
//!
//! A push is two statements that are sent together: `push.sql` applies the batch if it is the next
//! one, and `ask.sql` then finds out by the node's number whether it was applied, and reads the
//! changes. A decision is a transaction: see `decide.rs`.
//!
//! Changes are numbered at the end of a batch, under a lock that is held until the commit, so they
//! become visible in the order of their numbers. Transaction ids do not: a reader would have to go
//! back to the oldest transaction that was open at its last read. A long transaction of somebody
//! else, even in another database, delays that for hours, and each read would return all changes
//! since.

mod channel;
mod connection;
mod decide;
mod failure;
mod levels;
mod log_block;
mod logs;
pub mod options;
mod pooler;
mod push;
mod read;
mod row;
mod schema;
#[cfg(test)]
mod tests;
mod tls;
mod told;

use core::num::NonZeroU32;

use futures_util::future::{join, join3};

use self::connection::{Connection, Fault, Link, Prepared};
use self::options::{PostgresDirectives, PostgresOptions};
use self::push::{Addition, Columns, ask, end_epoch, living, push, pushed};
use self::row::{epoch, name, signed};
use super::contract::batch::PageStep;
use super::contract::error::StoreError;
use super::contract::options::StoreOptions;
use super::contract::strategy::{
    Added, Batch, Changes, Count, Epoch, LivingNodes, PushNews, Pushed, Shard, Strategy,
    Subscription,
};
use super::settings::kind::Registered;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};

/// A client of Postgres: one server, or several of which only one accepts writes.
#[derive(Debug)]
pub struct Postgres {
    link: Link,
    /// Rows of each kind that are purged at a time; fewer while that takes too long.
    purged: i64,
    /// The living nodes, from the last answer.
    living: Option<LivingNodes>,
    /// See [`Strategy::overdrawn`].
    overdrawn: Vec<Count>,
    /// Exchanges and notifications in a second that all nodes together may cause.
    exchanges: NonZeroU32,
    /// The time that the server told with the last decision.
    now: UnixMillis,
}

/// Most rows of each kind that are purged at a time, in some tens of milliseconds.
const MAX_PURGED: i64 = 1000;
/// Batches of an epoch that are kept for nodes to catch up.
const KEPT_CHANGES: i64 = 10_000;

impl Registered for Postgres {
    type Directives = PostgresDirectives;
}

impl Strategy for Postgres {
    type Options = PostgresOptions;
    /// Continues after the hash of a key.
    type Step = PageStep<Vec<u8>>;
    type Changes = Changes;
    type Counts = Added;

    fn new(options: &StoreOptions, own: &PostgresOptions) -> Postgres {
        Postgres {
            link: Link::new(options, own),
            purged: MAX_PURGED,
            living: None,
            overdrawn: Vec::new(),
            exchanges: options.exchanges,
            now: UnixMillis::default(),
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

    async fn push_diffs(
        &mut self,
        shard: &Shard,
        batch: &Batch,
        limit: usize,
    ) -> Result<Pushed, StoreError> {
        let sealed = batch.id.map(|id| (id, Columns::of(batch.diffs.iter().map(Addition::from))));
        let silence = batch.is_news.then(|| push::silence(self.living, self.exchanges));
        let exchange = async |connection: &Connection| {
            // All statements are sent together.
            let living = living(connection, batch);
            let Some((id, diffs)) = sealed else {
                let (rows, nodes) = join(ask(connection, shard, batch, limit), living).await;
                return Ok::<_, Fault>((pushed(batch, &rows??)?, nodes??, Vec::new()));
            };
            let push = |silence| push(connection, shard, batch, (id, silence), &diffs);
            let ask = || ask(connection, shard, batch, limit);
            let (mut applied, mut asked, nodes) = join3(push(silence), ask(), living).await;
            if batch.is_news && matches!(&applied, Ok(Err(error)) if failure::is_of_telling(error))
            {
                // Nothing was applied. The batch must not fail because of its notification.
                (applied, asked) = join(push(None), ask()).await;
            }
            let overdrawn = applied??;
            let pushed = pushed(batch, &asked?.map_err(Fault::AfterPush)?)?;
            Ok((pushed, nodes?.map_err(Fault::AfterPush)?, overdrawn))
        };
        let exchange = async |connection: &Connection| match exchange(connection).await {
            Err(fault) if fault.is_of_data() => {
                end_epoch(connection, shard, Some(batch.epoch.0.get().cast_signed())).await?;
                Ok((Pushed::NoEpoch, None, Vec::new()))
            }
            result => result,
        };
        let (pushed, living, overdrawn) = self.link.exchange(exchange).await?;
        self.overdrawn = overdrawn;
        self.living = living.or(self.living);
        Ok(pushed)
    }

    async fn open_epoch(
        &mut self,
        shard: &Shard,
        instead_of: Option<Epoch>,
        proposed: Epoch,
    ) -> Result<Epoch, StoreError> {
        let (namespace, number) = name(shard);
        let exchange = async |connection: &Connection| {
            let client = &connection.client;
            // Whether to replace another epoch, or an invalid one.
            let old = instead_of.map_or(0, |old| old.0.get().cast_signed());
            end_epoch(connection, shard, Some(old)).await?;
            let begin = connection.statement(Prepared::BeginEpoch)?;
            let new = proposed.0.get().cast_signed();
            client.execute(begin, &[&namespace, &number, &new]).await?;
            let present = connection.statement(Prepared::Epoch)?;
            let row = client.query_opt(present, &[&namespace, &number]).await?;
            let epoch = row.map(|row| epoch(&row)).transpose()?.flatten();
            epoch.ok_or(Fault::Misunderstood("epoch.sql"))
        };
        self.link.exchange(exchange).await
    }

    async fn get_counters(
        &mut self,
        shard: &Shard,
        epoch: Epoch,
        windows: &[(WindowSize, u64)],
        step: PageStep<Vec<u8>>,
    ) -> Result<(Vec<Count>, Option<PageStep<Vec<u8>>>), StoreError> {
        let Some(&(size, window)) = windows.get(step.section) else {
            return Ok((Vec::new(), None));
        };
        let (namespace, number) = name(shard);
        let limit = signed(step.counters);
        let exchange = async |connection: &Connection| {
            let page = connection.statement(Prepared::Page)?;
            let rows = connection
                .client
                .query(
                    page,
                    &[
                        &namespace,
                        &number,
                        &epoch.0.get().cast_signed(),
                        &size.bits().cast_signed(),
                        &window.cast_signed(),
                        &step.after,
                        &limit,
                    ],
                )
                .await?;
            let mut counts = Vec::with_capacity(rows.len());
            for row in &rows {
                counts.push(Count {
                    key: row.try_get(0)?,
                    size,
                    window,
                    total: Hits::from_thousandths(row.try_get(1)?),
                });
            }
            let last = rows.last().map(|row| row.try_get(2)).transpose()?;
            Ok((counts, last))
        };
        let (counts, last) = self.link.exchange(exchange).await?;
        let last = last.filter(|_| counts.len() >= step.counters);
        let next = step.next(&counts, last, windows.len());
        Ok((counts, next))
    }

    async fn get_window(
        &mut self,
        shard: &Shard,
        key: &[u8],
        size: WindowSize,
        window: u64,
    ) -> Result<Hits, StoreError> {
        let (namespace, number) = name(shard);
        let exchange = async |connection: &Connection| {
            let total = connection.statement(Prepared::Total)?;
            let size = size.bits().cast_signed();
            let window = window.cast_signed();
            let row = connection
                .client
                .query_opt(total, &[&namespace, &number, &size, &window, &key])
                .await?;
            match row {
                Some(row) => Ok(Hits::from_thousandths(row.try_get(0)?)),
                None => Ok(Hits::ZERO),
            }
        };
        self.link.exchange(exchange).await
    }

    fn channel(&self) -> Option<Postgres> {
        Some(self.listener())
    }

    async fn recv(&mut self, subscriptions: &[Subscription]) -> Result<Vec<PushNews>, StoreError> {
        self.listen(subscriptions).await
    }

    /// Uses the server's clock, and purges for all namespaces.
    async fn purge(&mut self, _: &Shard, _: UnixMillis) -> Result<bool, StoreError> {
        let limit = self.purged;
        self.purged = (limit / 2).max(1);
        let exchange = async |connection: &Connection| {
            let purge = connection.statement(Prepared::Purge)?;
            let row = connection.client.query_one(purge, &[&limit, &KEPT_CHANGES]).await?;
            let mut has_more = false;
            for column in 0..row.len() {
                has_more |= row.try_get::<_, i64>(column)? >= limit;
            }
            Ok(has_more)
        };
        let has_more = self.link.exchange(exchange).await?;
        self.purged = MAX_PURGED;
        Ok(has_more)
    }
}
