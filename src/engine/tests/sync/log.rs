//! A store with a log of changes, which adds diffs to totals.

use core::time::Duration;
use std::collections::{BTreeMap, HashMap};

use super::memory::{Kept, Memory, Name};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::error::StoreError;
use crate::store::contract::options::StoreOptions;
use crate::store::contract::strategy::{
    Added, Batch, BatchId, Changes, Count, Epoch, LivingNodes, NodeId, Position, PushNews, Pushed,
    Shard, Strategy,
};

/// A shard of a store in memory.
#[derive(Clone, Default)]
pub(super) struct Store {
    pub(super) epoch: Option<Epoch>,
    pub(super) sequence: u64,
    /// Changes before this one were dropped.
    pub(super) trimmed: u64,
    pub(super) last: HashMap<NodeId, BatchId>,
    pub(super) counts: BTreeMap<Name, i64>,
    changes: Vec<(u64, NodeId, Name)>,
    /// The living nodes, and the ends of their lives.
    alive: BTreeMap<NodeId, u64>,
    /// News for listening nodes.
    pub(super) news: Vec<PushNews>,
    pub(super) now: u64,
    /// Number of purge calls, and of those that leave counts.
    pub(super) purges: usize,
    pub(super) left: usize,
}

impl Strategy for Memory<Store> {
    fn server(&self) -> Option<String> {
        None
    }

    type Options = ();
    type Step = usize;
    type Changes = Changes;
    type Counts = Added;

    fn new(_: &StoreOptions, (): &()) -> Self {
        unreachable!("made by the tests")
    }

    /// Supported with several shards.
    fn share(&self) -> Option<Self> {
        (self.shards.len() > 1).then(|| self.clone())
    }

    fn connects(&self) -> u64 {
        0
    }

    fn max_diffs(&self) -> usize {
        100
    }

    fn shards(&self) -> u16 {
        self.shards.len().try_into().unwrap()
    }

    async fn push_diffs(
        &mut self,
        shard: &Shard,
        batch: &Batch,
        limit: usize,
    ) -> Result<Pushed, StoreError> {
        assert!(batch.diffs.len() <= self.max_diffs());
        let (mut living, mut overdrawn) = (None, Vec::new());
        let pushed = self.exchange(shard, |store| {
            let Some(epoch) = store.epoch else {
                return Pushed::NoEpoch;
            };
            if epoch != batch.epoch {
                return Pushed::OtherEpoch(epoch);
            }
            let last = store.last.get(&batch.node).copied().unwrap_or(BatchId::NONE);
            if batch.id.is_some() && last == batch.previous {
                store.last.insert(batch.node, batch.last());
                for diff in &batch.diffs {
                    let name = (diff.size, diff.window, diff.key.clone());
                    *store.counts.entry(name.clone()).or_default() += diff.diff.thousandths();
                    store.sequence += 1;
                    let count = store.count(&name);
                    overdrawn.extend(Some(count).filter(|it| it.total < Hits::ZERO));
                    store.changes.push((store.sequence, batch.node, name));
                }
                if batch.is_news {
                    store.tell(shard, batch);
                }
            } else if last != batch.last() {
                return batch.misfit(last);
            }
            living = batch.lives_for.map(|life| store.record_life(batch.node, life));
            let now = UnixMillis(store.now);
            let changes = store.changes_since(batch.node, batch.position, limit);
            Pushed::Applied { changes, now }
        });
        let pushed = pushed.await;
        self.living = living.or(self.living);
        self.overdrawn = overdrawn;
        pushed
    }

    fn overdrawn(&self) -> &[Count] {
        &self.overdrawn
    }

    fn living(&self) -> Option<LivingNodes> {
        self.living
    }

    async fn open_epoch(
        &mut self,
        shard: &Shard,
        instead_of: Option<Epoch>,
        proposed: Epoch,
    ) -> Result<Epoch, StoreError> {
        self.exchange(shard, |store| {
            if store.epoch.is_none() || store.epoch == instead_of {
                let now = store.now;
                *store = Store { epoch: Some(proposed), ..Store::empty(now) };
            }
            store.epoch.unwrap()
        })
        .await
    }

    async fn get_counters(
        &mut self,
        shard: &Shard,
        epoch: Epoch,
        windows: &[(WindowSize, u64)],
        step: usize,
    ) -> Result<(Vec<Count>, Option<usize>), StoreError> {
        self.exchange(shard, |store| {
            let counts: Vec<Count> = store
                .counts
                .iter()
                .filter(|((size, window, _), _)| windows.contains(&(*size, *window)))
                .filter(|_| store.epoch == Some(epoch))
                .map(|(name, _)| store.count(name))
                .collect();
            let page: Vec<_> = counts.iter().skip(step).take(3).cloned().collect();
            let next = step + page.len();
            (page, (next < counts.len()).then_some(next))
        })
        .await
    }

    async fn get_window(
        &mut self,
        shard: &Shard,
        key: &[u8],
        size: WindowSize,
        window: u64,
    ) -> Result<Hits, StoreError> {
        let name = (size, window, key.to_vec());
        self.exchange(shard, |store| store.count(&name).total).await
    }

    async fn purge(&mut self, shard: &Shard, _: UnixMillis) -> Result<bool, StoreError> {
        let store = &mut *self.shards[usize::from(shard.number)].borrow_mut();
        store.purges += 1;
        let had_more = store.left > 0;
        store.left = store.left.saturating_sub(1);
        Ok(had_more)
    }
}

impl Kept for Store {
    fn empty(now: u64) -> Store {
        Store { now, ..Store::default() }
    }

    fn trim(&mut self) {
        self.trimmed = self.sequence;
    }

    fn count(&self, name: &Name) -> Count {
        let (size, window, key) = name.clone();
        let total = self.counts.get(name).copied().unwrap_or(0);
        Count { key, size, window, total: Hits::from_thousandths(total) }
    }
}

impl Store {
    /// Records the life of a node. Returns the living nodes.
    fn record_life(&mut self, node: NodeId, life: Duration) -> LivingNodes {
        let now = self.now;
        self.alive.insert(node, now + u64::try_from(life.as_millis()).unwrap());
        self.alive.retain(|_, until| *until > now);
        let before = self.alive.keys().filter(|it| it.0 < node.0);
        let [count, place] = [self.alive.len(), before.count()];
        LivingNodes { count: count.try_into().unwrap(), place: Some(place.try_into().unwrap()) }
    }

    fn tell(&mut self, shard: &Shard, batch: &Batch) {
        let counts = batch.diffs.iter();
        let counts = counts.map(|diff| self.count(&(diff.size, diff.window, diff.key.clone())));
        let news = PushNews {
            shard: shard.clone(),
            epoch: batch.epoch,
            node: batch.node,
            position: Position([self.sequence, 0]),
            counts: counts.collect(),
        };
        self.news.push(news);
    }

    fn changes_since(&self, node: NodeId, position: Option<Position>, limit: usize) -> Changes {
        let present = Position([self.sequence, 0]);
        let Some(Position([since, _])) = position else {
            return Changes::Behind { position: present };
        };
        if since < self.trimmed || since > self.sequence {
            return Changes::Behind { position: present };
        }
        let mut seen = Vec::<&Name>::new();
        let mut reached = since;
        for (sequence, by, name) in self.changes.iter().filter(|(sequence, ..)| *sequence > since) {
            if *by != node && !seen.contains(&name) {
                if seen.len() == limit.min(5) {
                    break;
                }
                seen.push(name);
            }
            reached = *sequence;
        }
        Changes::Since {
            counts: seen.into_iter().map(|name| self.count(name)).collect(),
            position: Position([reached, 0]),
            has_more: reached < self.sequence,
        }
    }
}
