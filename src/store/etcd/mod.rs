//! etcd, 3.4 or newer: counts as keys with leases, changed by transactions that compare revisions.
//!
//! `key.rs` has the keys. All changes of a shard write its head, on the condition that nobody else has written it since
//! they began to read: so they are in one order, and each is numbered, though etcd knows no increment. A change that
//! came too late reads again in the same exchange, and is tried once more.
//!
//! Nothing is deleted: values end with their leases, which values of about the same life share. An etcd that has lost
//! its data has no head, and thus no epoch.
//!
//! etcd does not tell the time, so decisions are by the clock of the node that makes them.

mod decide;
mod failure;
mod http;
mod key;
mod lease;
mod link;
pub mod options;
mod push;
mod shard;
#[cfg(test)]
mod tests;
mod watch;
mod wire;

use std::collections::HashMap;

use self::failure::EtcdFault;
use self::key::ShardKeys;
use self::link::{EtcdLink, EtcdSession};
pub(crate) use self::options::{EtcdDirectives, EtcdOptions};
use self::push::{MAX_DIFFS, Push};
use self::shard::FoundHead;
use self::watch::Listener;
use super::contract::batch::PageStep;
use super::contract::error::StoreError;
use super::contract::options::StoreOptions;
use super::contract::strategy::{
    Added, Batch, Changes, Count, Epoch, LivingNodes, PushNews, Pushed, Shard, Strategy,
    Subscription,
};
use super::keyed::change::PAGE;
use super::keyed::name;
use super::keyed::value::total;
use super::settings::kind::Registered;
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;

/// A client of etcd, with one member or several.
#[derive(Debug)]
pub struct Etcd {
    link: EtcdLink,
    prefix: Box<str>,
    /// Most changes that the next exchange reads; fewer while that takes too long.
    page: usize,
    /// The living nodes, from the last answer.
    living: Option<LivingNodes>,
    /// See [`Strategy::overdrawn`].
    overdrawn: Vec<Count>,
    /// The epochs that shards had at the last decision.
    epochs: HashMap<Shard, Epoch>,
    listener: Listener,
}

impl Etcd {
    fn over(link: EtcdLink, prefix: &str) -> Etcd {
        Etcd {
            link,
            prefix: prefix.into(),
            page: PAGE,
            living: None,
            overdrawn: Vec::new(),
            epochs: HashMap::new(),
            listener: Listener::default(),
        }
    }
}

impl Registered for Etcd {
    type Directives = EtcdDirectives;
}

impl Strategy for Etcd {
    type Options = EtcdOptions;
    /// Continues after a key.
    type Step = PageStep<Vec<u8>>;
    type Changes = Changes;
    type Counts = Added;

    fn new(options: &StoreOptions, own: &EtcdOptions) -> Etcd {
        Etcd::over(EtcdLink::new(options), &own.prefix)
    }

    fn connects(&self) -> u64 {
        self.link.connects()
    }

    fn server(&self) -> Option<String> {
        self.link.described()
    }

    fn max_diffs(&self) -> usize {
        MAX_DIFFS
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
        let keys = ShardKeys::of(&self.prefix, shard, batch.epoch);
        let page = self.page;
        self.page = (page / 2).max(1);
        let exchange = async |session: &mut EtcdSession| {
            Push { session, keys: &keys, batch, limit, page }.run().await
        };
        let (pushed, living, overdrawn) = self.link.exchange(exchange).await?;
        self.page = PAGE;
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
        let keys = ShardKeys::of(&self.prefix, shard, proposed);
        let exchange = async |session: &mut EtcdSession| {
            loop {
                let found = FoundHead::read(session, keys.head()).await?;
                if let Some(head) = found.head.filter(|head| Some(head.epoch) != instead_of) {
                    return Ok(head.epoch);
                }
                if found.open(session, &keys, proposed).await? {
                    return Ok(proposed);
                }
            }
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
        let keys = ShardKeys::of(&self.prefix, shard, epoch);
        let prefix = keys.of_epoch(name::window(size, window));
        let read = wire::page(&prefix, &[&*prefix, &*step.after].concat(), step.counters);
        let exchange = async |session: &mut EtcdSession| session.read(vec![read.clone()]).await;
        let answer = self.link.exchange(exchange).await?.reads().pop().unwrap_or_default();
        let key_of = |name: &[u8]| name.strip_prefix(&*prefix).unwrap_or_default().to_vec();
        let last = answer.kvs.last().filter(|_| answer.more).map(|it| key_of(&it.key));
        // A value that somebody else wrote ends the epoch at the next push.
        let counts = answer.kvs.iter().filter_map(|it| {
            let total = Hits::from_thousandths(total(Some(&it.value))?);
            Some(Count { key: key_of(&it.key), size, window, total })
        });
        let counts: Vec<_> = counts.collect();
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
        let prefix = &self.prefix;
        let exchange = async |session: &mut EtcdSession| {
            let found = FoundHead::read(session, &key::head(prefix, shard)).await?;
            let Some(head) = found.head else {
                return Ok(Hits::ZERO);
            };
            let keys = ShardKeys::of(prefix, shard, head.epoch);
            let read = wire::get(keys.counter((size, window, key)));
            let answer = session.read(vec![read]).await?.reads().pop().unwrap_or_default();
            let total = total(answer.value());
            total.map(Hits::from_thousandths).ok_or_else(|| EtcdFault::misunderstood("a total"))
        };
        self.link.exchange(exchange).await
    }

    fn channel(&self) -> Option<Etcd> {
        Some(Etcd::over(self.link.another(), &self.prefix))
    }

    async fn recv(&mut self, subscriptions: &[Subscription]) -> Result<Vec<PushNews>, StoreError> {
        self.listener.recv(&mut self.link, &self.prefix, subscriptions).await
    }
}
