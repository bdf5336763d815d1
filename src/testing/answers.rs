//! A store for tests of syncs, whose answers a function gives.

use core::marker::PhantomData;

use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::error::StoreError;
use crate::store::contract::options::StoreOptions;
use crate::store::contract::strategy::*;

/// The answer to a batch, by the number of calls.
pub(crate) type Answer<C> = fn(&Batch, usize) -> Pushed<C>;
/// The next step of reading all counters, by the last one.
pub(crate) type Page = fn(usize) -> Option<usize>;

/// A store without counts, whose answers to batches a function gives.
pub(crate) struct AnswerStore<C, K> {
    /// Number of calls so far.
    pub(crate) calls: usize,
    answer: Answer<C>,
    page: Page,
    counts: PhantomData<K>,
}

impl<C: ChangesKind, K: CountsKind> AnswerStore<C, K> {
    pub(crate) fn answering(answer: Answer<C>, page: Page) -> Self {
        AnswerStore { calls: 0, answer, page, counts: PhantomData }
    }
}

impl<C: ChangesKind, K: CountsKind> Strategy for AnswerStore<C, K> {
    type Options = ();
    type Step = usize;
    type Changes = C;
    type Counts = K;

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
        1
    }

    async fn push_diffs(
        &mut self,
        _: &Shard,
        batch: &Batch,
        _: usize,
    ) -> Result<Pushed<C>, StoreError> {
        self.calls += 1;
        Ok((self.answer)(batch, self.calls))
    }

    async fn open_epoch(
        &mut self,
        _: &Shard,
        _: Option<Epoch>,
        proposed: Epoch,
    ) -> Result<Epoch, StoreError> {
        self.calls += 1;
        Ok(proposed)
    }

    async fn get_counters(
        &mut self,
        _: &Shard,
        _: Epoch,
        _: &[(WindowSize, u64)],
        step: usize,
    ) -> Result<(Vec<Count>, Option<usize>), StoreError> {
        self.calls += 1;
        Ok((Vec::new(), (self.page)(step)))
    }

    async fn get_window(
        &mut self,
        _: &Shard,
        _: &[u8],
        _: WindowSize,
        _: u64,
    ) -> Result<Hits, StoreError> {
        Ok(Hits::ZERO)
    }

    async fn purge(&mut self, _: &Shard, _: UnixMillis) -> Result<bool, StoreError> {
        Ok(true)
    }
}
