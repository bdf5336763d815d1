//! memcached, 1.6.14 or newer: counts as items, changed by transactions of compare-and-set.
//!
//! memcached changes one item at a time. So a transaction changes only the head of a shard: `head.rs`. Items have the
//! number of the transaction that wrote them, by which a write that comes late changes nothing.
//!
//! | item | value |
//! |---|---|
//! | `rl/api/0/head` | the epoch, the nodes, and the last transaction |
//! | `rl/api/0/<epoch>/c/<size>/<window>/<key>` | a total, in thousandths |
//! | `rl/api/0/<epoch>/l/<kind>/<measure>/<key>` | a level |
//! | `rl/api/0/<epoch>/d/<number>` | a change: the node, and the counters with their totals |
//! | `rl/api/0/<epoch>/i/<size>/<window>/<page>` | keys of a window: `index.rs` |
//!
//! memcached may evict items: a node that finds less than it has pushed, or too few items, ends the epoch, and all nodes
//! push what they have. memcached does not tell the time in milliseconds, so decisions are by the clock of the node that
//! makes them.

mod decide;
mod head;
mod index;
mod link;
pub mod options;
mod push;
mod shard;
#[cfg(test)]
mod tests;
mod wire;

use self::index::IndexPage;
use self::link::MemcachedLink;
use self::options::SHARDS;
pub(crate) use self::options::{MemcachedDirectives, MemcachedOptions};
use self::shard::{DoneTransactions, ShardSession};
use self::wire::MetaConnection;
use super::contract::error::{Failure, StoreError};
use super::contract::options::StoreOptions;
use super::contract::strategy::{
    Added, Batch, CLOCK_MARGIN, Changes, Count, Epoch, LivingNodes, Pushed, Shard, Strategy,
};
use super::keyed::name;
use super::keyed::value::{now, total};
use super::settings::kind::Registered;
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;

/// A client of memcached.
#[derive(Debug)]
pub struct Memcached {
    link: MemcachedLink,
    prefix: Box<str>,
    done: DoneTransactions,
    /// The living nodes, from the last answer.
    living: Option<LivingNodes>,
    /// See [`Strategy::overdrawn`].
    overdrawn: Vec<Count>,
}

/// A place in the indexes of windows.
#[derive(Clone, Copy, Debug, Default)]
pub struct IndexStep {
    /// Index of the window.
    window: usize,
    /// Number of the page.
    page: u64,
    /// Number of the window's last page, when its first one was read.
    end: Option<u64>,
}

impl IndexStep {
    /// Returns the beginning of the next window.
    fn to_window(self, windows: usize) -> Option<IndexStep> {
        let window = self.window.saturating_add(1);
        (window < windows).then_some(IndexStep { window, page: 0, end: None })
    }
}

impl Registered for Memcached {
    type Directives = MemcachedDirectives;
}

impl Memcached {
    /// Runs `work` on a shard.
    async fn exchange<T>(
        &mut self,
        shard: &Shard,
        work: impl AsyncFnOnce(&mut ShardSession<'_>) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let (prefix, done) = (&self.prefix, &mut self.done);
        let exchange = async |connection: &mut MetaConnection| {
            work(&mut ShardSession::new(connection, done, prefix, shard)).await
        };
        self.link.exchange(exchange).await
    }
}

impl Strategy for Memcached {
    type Options = MemcachedOptions;
    type Step = IndexStep;
    type Changes = Changes;
    type Counts = Added;

    fn new(options: &StoreOptions, own: &MemcachedOptions) -> Memcached {
        let (link, prefix) = (MemcachedLink::new(options), own.prefix.clone());
        Memcached {
            link,
            prefix,
            done: DoneTransactions::new(),
            living: None,
            overdrawn: Vec::new(),
        }
    }

    fn connects(&self) -> u64 {
        self.link.connects()
    }

    fn server(&self) -> Option<String> {
        self.link.described()
    }

    fn shards(&self) -> u16 {
        SHARDS
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
        let push = async |session: &mut ShardSession<'_>| push::push(session, batch, limit).await;
        let (pushed, living, overdrawn) = self.exchange(shard, push).await?;
        self.living = living.or(self.living);
        self.overdrawn = overdrawn;
        Ok(pushed)
    }

    async fn open_epoch(
        &mut self,
        shard: &Shard,
        instead_of: Option<Epoch>,
        proposed: Epoch,
    ) -> Result<Epoch, StoreError> {
        let open = async |session: &mut ShardSession<'_>| {
            loop {
                let found = session.head().await?;
                match &found.head {
                    Some(head) if Some(head.epoch) != instead_of => return Ok(head.epoch),
                    _ => {}
                }
                if session.open(&found, proposed).await? {
                    return Ok(proposed);
                }
            }
        };
        self.exchange(shard, open).await
    }

    async fn get_counters(
        &mut self,
        shard: &Shard,
        epoch: Epoch,
        windows: &[(WindowSize, u64)],
        step: IndexStep,
    ) -> Result<(Vec<Count>, Option<IndexStep>), StoreError> {
        let Some(&(size, window)) = windows.get(step.window) else {
            return Ok((Vec::new(), None));
        };
        let get = async |session: &mut ShardSession<'_>| {
            let found = session.head().await?;
            let Some(head) = found.of_epoch(epoch) else {
                return Ok((Vec::new(), None));
            };
            let Some(row) = head.windows.get(&(size.bits(), window)) else {
                return Ok((Vec::new(), step.to_window(windows.len())));
            };
            let end = step.end.unwrap_or(row.page);
            let name = index::page_name(size, window, step.page);
            let page = session.read(head, &[name]).await?;
            let page = page.first().and_then(|it| IndexPage::parse(it.value.as_deref()?));
            let keys = page.unwrap_or_default().0;
            let names: Vec<_> = keys.iter().map(|key| name::counter((size, window, key))).collect();
            let items = session.read(head, &names).await?;
            // As long as that, all items are kept, of which no page is empty.
            let matters = row.until > now().0.saturating_add(CLOCK_MARGIN.as_millis() as u64);
            if matters && (items.is_empty() || items.iter().any(|it| it.value.is_none())) {
                session.end(&found).await?;
                return Ok((Vec::new(), None));
            }
            let counts = keys.into_iter().zip(items).filter_map(|(key, item)| {
                // A value that somebody else wrote ends the epoch at the next push.
                let total = Hits::from_thousandths(total(Some(item.value.as_deref()?))?);
                Some(Count { key, size, window, total })
            });
            let next = match step.page < end {
                true => {
                    Some(IndexStep { page: step.page.saturating_add(1), end: Some(end), ..step })
                }
                false => step.to_window(windows.len()),
            };
            Ok((counts.collect(), next))
        };
        self.exchange(shard, get).await
    }

    async fn get_window(
        &mut self,
        shard: &Shard,
        key: &[u8],
        size: WindowSize,
        window: u64,
    ) -> Result<Hits, StoreError> {
        let get = async |session: &mut ShardSession<'_>| {
            let found = session.head().await?;
            let Some(head) = &found.head else {
                return Ok(Hits::ZERO);
            };
            let items = session.read(head, &[name::counter((size, window, key))]).await?;
            let total = total(items.first().and_then(|it| it.value.as_deref()));
            let total = total.ok_or_else(|| Failure::Misunderstood("a total".into()))?;
            Ok(Hits::from_thousandths(total))
        };
        self.exchange(shard, get).await
    }
}
