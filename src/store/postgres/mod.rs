//! PostgreSQL, 13 or newer: counts in a table, what changed in a log of batches, by statements.
//!
//! Six tables, which `schema.sql` describes. All are lost together, if at all: then there is no
//! epoch, and the nodes restore what they know. A row of counters belongs to an epoch, so that a new
//! epoch begins without counts; what is left of the old one is purged.
//!
//! A push is two statements that are sent at once: `push.sql` applies the batch if it is the next
//! one, and `ask.sql` then judges by the node's number what became of it, and reads what changed.
//! A decision is a transaction, which `decide.rs` tells of.
//!
//! Changes have numbers that are given at the end of a batch, under a lock that is held until it is
//! committed: they become visible in their order. Transaction ids do not: a reader would have to go
//! back to the oldest that was open at its last look, which a long transaction of somebody else,
//! even in another database, holds back for hours, and would be told everything since, each time.

mod channel;
mod connection;
mod decide;
mod failure;
mod levels;
mod locks;
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

use futures_util::future::{join, join3};

use self::connection::{Connection, Fault, Link, Prepared};
use self::options::{PostgresDirectives, PostgresOptions};
use self::push::{Addition, Columns, ask, end_epoch, living, push, pushed};
use self::row::{epoch, name, signed};
use super::contract::error::StoreError;
use super::contract::options::StoreOptions;
use super::contract::page::PageStep;
use super::contract::strategy::{
    Added, Batch, Changes, Count, Epoch, PushNews, Pushed, Shard, Strategy, Subscription,
};
use super::settings::kind::Registered;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};

/// A Postgres of one server, or of several of which only one can be written to.
#[derive(Debug)]
pub struct Postgres {
    link: Link,
    /// Number of rows of a kind that are purged at once: fewer, while that takes too long.
    purged: i64,
    /// Number of living nodes.
    nodes: Option<u64>,
}

/// Greatest number of rows of a kind that are purged at once, in some tens of milliseconds.
const MAX_PURGED: i64 = 1000;
/// Number of batches of an epoch that are kept for the nodes to catch up with.
const KEPT_CHANGES: i64 = 10_000;

impl Registered for Postgres {
    type Directives = PostgresDirectives;
}

impl Strategy for Postgres {
    type Options = PostgresOptions;
    /// After the hash of a key.
    type Step = PageStep<Vec<u8>>;
    type Changes = Changes;
    type Counts = Added;

    fn new(options: &StoreOptions, own: &PostgresOptions) -> Postgres {
        Postgres { link: Link::new(options, own), purged: MAX_PURGED, nodes: None }
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

    fn nodes(&self) -> Option<u64> {
        self.nodes
    }

    async fn push_diffs(
        &mut self,
        shard: &Shard,
        batch: &Batch,
        limit: usize,
    ) -> Result<Pushed, StoreError> {
        let sealed = batch.id.map(|id| (id, Columns::of(batch.diffs.iter().map(Addition::from))));
        let exchange = async |connection: &Connection| {
            // The statements are on their way together.
            let living = living(connection, batch);
            let Some((id, diffs)) = sealed else {
                let (rows, nodes) = join(ask(connection, shard, batch, limit), living).await;
                return Ok::<_, Fault>((pushed(batch, &rows??)?, nodes??));
            };
            let push = |is_news| push(connection, shard, batch, (id, is_news), &diffs);
            let ask = || ask(connection, shard, batch, limit);
            let (mut applied, mut asked, nodes) = join3(push(batch.is_news), ask(), living).await;
            if batch.is_news && matches!(&applied, Ok(Err(error)) if failure::is_of_telling(error))
            {
                // Nothing of it was done. Hits do not depend on who hears of them.
                (applied, asked) = join(push(false), ask()).await;
            }
            applied??;
            let pushed = pushed(batch, &asked?.map_err(Fault::AfterPush)?)?;
            Ok((pushed, nodes?.map_err(Fault::AfterPush)?))
        };
        let exchange = async |connection: &Connection| match exchange(connection).await {
            Err(fault) if fault.is_of_data() => {
                end_epoch(connection, shard, Some(batch.epoch.0.get().cast_signed())).await?;
                Ok((Pushed::NoEpoch, None))
            }
            result => result,
        };
        let (pushed, nodes) = self.link.exchange(exchange).await?;
        self.nodes = nodes.or(self.nodes);
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
            // Whether another one is to be replaced, or one that is none.
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
                        &size.millis().cast_signed(),
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
            let size = size.millis().cast_signed();
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

    /// Goes by the server's clock, and purges for all namespaces.
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
