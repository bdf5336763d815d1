//! A store with absolute counts and without atomic steps: a batch is written in parts, between
//! which anything may happen.

use std::collections::{BTreeMap, HashMap};

use super::memory::{Kept, Memory, Name};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::error::StoreError;
use crate::store::contract::options::StoreOptions;
use crate::store::contract::strategy::{
    Absolute, Batch, BatchId, Count, Diff, Epoch, NodeId, Occupancy, Pushed, Shard, Snapshots,
    Strategy,
};

/// A shard of the store.
#[derive(Clone, Default)]
pub(super) struct Rows {
    pub(super) epoch: Option<Epoch>,
    last: HashMap<NodeId, BatchId>,
    rows: BTreeMap<(Name, NodeId, Occupancy), (BatchId, i64)>,
    now: u64,
    /// Number of times that all counters were read from the first page on.
    pub(super) readings: usize,
    /// Number of batches that were recorded, with repetitions.
    pub(super) batches: usize,
}

impl Kept for Rows {
    fn empty(now: u64) -> Rows {
        Rows { now, ..Rows::default() }
    }

    fn trim(&mut self) {}

    fn count(&self, name: &Name) -> Count {
        let (size, window, key) = name.clone();
        let of_name = self.rows.iter().filter(|((of, ..), _)| of == name);
        Count {
            key,
            size,
            window,
            total: Hits::from_thousandths(of_name.map(|(_, (_, local))| local).sum()),
        }
    }
}

impl Rows {
    /// Returns the answer that refuses a batch; `None` if it may be written.
    fn refusal(&self, batch: &Batch) -> Option<Pushed<Snapshots>> {
        let Some(epoch) = self.epoch else {
            return Some(Pushed::NoEpoch);
        };
        if epoch != batch.epoch {
            return Some(Pushed::OtherEpoch(epoch));
        }
        let last = self.last.get(&batch.node).copied().unwrap_or(BatchId::NONE);
        let fits = last == batch.last() || last == batch.previous;
        (!fits).then(|| batch.misfit(last))
    }

    /// Writes some of a batch's rows, if the batch belongs to the current epoch.
    fn write(&mut self, batch: &Batch, id: BatchId, diffs: &[Diff]) {
        for diff in diffs.iter().filter(|_| self.epoch == Some(batch.epoch)) {
            let name = (diff.size, diff.window, diff.key.clone());
            let row = self.rows.entry((name, batch.node, diff.occupancy));
            let row = row.or_insert((id, 0));
            if row.0 <= id {
                *row = (id, diff.local.thousandths());
            }
        }
    }

    fn note(&mut self, batch: &Batch, id: BatchId) {
        if self.epoch == Some(batch.epoch) {
            let last = self.last.entry(batch.node).or_insert(id);
            *last = id.max(*last);
            self.batches += 1;
        }
    }
}

impl Strategy for Memory<Rows> {
    type Options = ();
    type Step = usize;
    type Changes = Snapshots;
    type Counts = Absolute;

    fn new(_: &StoreOptions, (): &()) -> Self {
        unreachable!("made by the tests")
    }

    fn connects(&self) -> u64 {
        0
    }

    fn server(&self) -> Option<String> {
        None
    }

    fn shards(&self) -> u16 {
        self.shards.len().try_into().unwrap()
    }

    async fn push_diffs(
        &mut self,
        shard: &Shard,
        batch: &Batch,
        _: usize,
    ) -> Result<Pushed<Snapshots>, StoreError> {
        let refusal = self.exchange(shard, |rows| rows.refusal(batch)).await?;
        if let Some(refusal) = refusal {
            return Ok(refusal);
        }
        if let Some(id) = batch.id {
            let (some, others) = batch.diffs.split_at(batch.diffs.len() / 2);
            for diffs in [some, others] {
                self.exchange(shard, |rows| rows.write(batch, id, diffs)).await?;
            }
            self.exchange(shard, |rows| rows.note(batch, id)).await?;
        }
        let now = self.shards[usize::from(shard.number)].borrow().now;
        Ok(Pushed::Applied { changes: Snapshots, now: UnixMillis(now) })
    }

    async fn open_epoch(
        &mut self,
        shard: &Shard,
        instead_of: Option<Epoch>,
        proposed: Epoch,
    ) -> Result<Epoch, StoreError> {
        self.exchange(shard, |rows| {
            if rows.epoch.is_none() || rows.epoch == instead_of {
                *rows = Rows { epoch: Some(proposed), ..Rows::empty(rows.now) };
            }
            rows.epoch.unwrap()
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
        self.exchange(shard, |rows| {
            rows.readings += usize::from(step == 0);
            let mut names: Vec<_> = rows.rows.keys().map(|(name, ..)| name.clone()).collect();
            names.dedup();
            names.retain(|(size, window, _)| windows.contains(&(*size, *window)));
            names.retain(|_| rows.epoch == Some(epoch));
            let page = names.iter().skip(step).take(3);
            let page: Vec<_> = page.map(|name| rows.count(name)).collect();
            let next = step + page.len();
            (page, (next < names.len()).then_some(next))
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
        self.exchange(shard, |rows| rows.count(&name).total).await
    }
}
