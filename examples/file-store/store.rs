//! The store: what [`Strategy`] asks of one that keeps absolute counts, and tells no changes.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ngx_http_rate_limiting_module::library::store::{
    Absolute, Batch, BatchId, Count, Diff, Epoch, Failure, Hits, NODE_LIFE, Pushed, ServerAddress,
    Shard, Snapshots, StoreError, StoreOptions, Strategy, UnixMillis, WindowSize,
};

use crate::file::{Contents, Counter, Known, Locked, Row};

/// Counts in files of a directory, one for each shard.
#[derive(Debug)]
pub(crate) struct FileStore {
    directory: PathBuf,
    timeout: Duration,
}

/// Directory of the files.
#[derive(Clone, Debug)]
pub(crate) struct FileOptions {
    pub(crate) directory: PathBuf,
}

/// A reading of all counters: what the file held when it began, and how much of that was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    counts: Option<Arc<[Count]>>,
    told: usize,
}

impl Strategy for FileStore {
    type Options = FileOptions;
    type Step = Reading;
    type Changes = Snapshots;
    type Counts = Absolute;

    fn new(options: &StoreOptions, own: &FileOptions) -> FileStore {
        FileStore { directory: own.directory.clone(), timeout: options.timeout }
    }

    /// There is nothing to connect to.
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
        shard: &Shard,
        batch: &Batch,
        _limit: usize,
    ) -> Result<Pushed<Snapshots>, StoreError> {
        self.change(shard, |contents, now| push(contents, batch, now)).await
    }

    async fn open_epoch(
        &mut self,
        shard: &Shard,
        instead_of: Option<Epoch>,
        proposed: Epoch,
    ) -> Result<Epoch, StoreError> {
        self.change(shard, |contents, _| match epoch(contents) {
            Some(present) if instead_of != Some(present) => present,
            _ => {
                *contents = Contents { epoch: Some(proposed.0.get()), ..Contents::default() };
                proposed
            }
        })
        .await
    }

    async fn get_counters(
        &mut self,
        shard: &Shard,
        epoch: Epoch,
        windows: &[(WindowSize, u64)],
        Reading { counts, told }: Reading,
    ) -> Result<(Vec<Count>, Option<Reading>), StoreError> {
        let counts = match counts {
            Some(counts) => counts,
            None => counts_of(&self.read(shard)?, epoch, windows).into(),
        };
        let rest = counts.get(told..).unwrap_or_default();
        let page: Vec<_> = rest.iter().take(Batch::MAX_DIFFS).cloned().collect();
        let told = told.saturating_add(page.len());
        let has_more = told < counts.len();
        let next = has_more.then_some(Reading { counts: Some(counts), told });
        Ok((page, next))
    }

    async fn get_window(
        &mut self,
        shard: &Shard,
        key: &[u8],
        size: WindowSize,
        window: u64,
    ) -> Result<Hits, StoreError> {
        let counter = Counter { size: size.bits(), window, key: key.to_vec() };
        let contents = self.read(shard)?;
        let from = (counter.clone(), [0; 2], 0);
        let rows = contents.rows.range(from..);
        let rows = rows.take_while(|((of, ..), _)| *of == counter);
        let sum = rows.fold(0, |sum, (_, row)| plus(sum, row.count));
        Ok(Hits::from_thousandths(sum))
    }

    async fn purge(&mut self, shard: &Shard, _: UnixMillis) -> Result<bool, StoreError> {
        self.change(shard, |contents, now| contents.purge(now)).await?;
        Ok(false)
    }
}

impl FileStore {
    fn path(&self, shard: &Shard) -> PathBuf {
        let Shard { namespace, number } = shard;
        self.directory.join(format!("{namespace}.{number}.json"))
    }

    fn read(&self, shard: &Shard) -> Result<Contents, StoreError> {
        let contents = Contents::read(&self.path(shard));
        contents.map_err(|error| self.failed(shard, &error))
    }

    /// Changes a shard, at a time in Unix milliseconds. Nobody sees half of it.
    async fn change<T>(
        &self,
        shard: &Shard,
        change: impl FnOnce(&mut Contents, u64) -> T,
    ) -> Result<T, StoreError> {
        let lock = tokio::time::timeout(self.timeout, Locked::open(self.path(shard)));
        let file = lock.await.map_err(|_| {
            // Nobody had it in time, so that nothing was changed.
            self.failed(shard, &io::ErrorKind::WouldBlock.into())
        })?;
        let changed = file.and_then(|file| {
            let mut contents = file.read()?;
            let changed = change(&mut contents, now());
            file.write(&contents)?;
            Ok(changed)
        });
        changed.map_err(|error| self.failed(shard, &error))
    }

    /// Nothing is changed when this happens.
    fn failed(&self, shard: &Shard, error: &io::Error) -> StoreError {
        let cause = error.to_string().into();
        let failure = match error.kind() {
            io::ErrorKind::InvalidData => Failure::Unusable(cause),
            _ => Failure::Unreachable(cause),
        };
        StoreError::new(ServerAddress::Unix(self.path(shard)), failure)
    }
}

/// Applies a batch, as `strategy.rs` says it for absolute counts.
fn push(contents: &mut Contents, batch: &Batch, now: u64) -> Pushed<Snapshots> {
    let Some(present) = epoch(contents) else {
        return Pushed::NoEpoch;
    };
    if present != batch.epoch {
        return Pushed::OtherEpoch(present);
    }
    let node = batch.node.0;
    let last = contents.nodes.get(&node).map_or(BatchId::NONE, |it| BatchId(it.batch));
    if last != batch.last() && last != batch.previous {
        return batch.misfit(last);
    }
    if let Some(id) = batch.id {
        let mut until = now;
        for diff in &batch.diffs {
            let row = row(diff, id, now);
            until = until.max(row.until);
            let rows = &mut contents.rows;
            let written = rows.entry((counter(diff), node, diff.occupancy.0.get()));
            // That of a newer batch stays. None can be, as long as a lock is held; but a store need not
            // have one.
            let written = written.or_insert(Row { batch: 0, ..row });
            if written.batch <= row.batch {
                *written = row;
            }
        }
        let until = until.saturating_add(millis(NODE_LIFE));
        let until = contents.nodes.get(&node).map_or(until, |it| until.max(it.until));
        let batch = id.0;
        contents.nodes.insert(node, Known { batch, until });
    }
    Pushed::Applied { changes: Snapshots, now: UnixMillis(now) }
}

fn epoch(contents: &Contents) -> Option<Epoch> {
    contents.epoch.and_then(NonZeroU64::new).map(Epoch)
}

fn counter(diff: &Diff) -> Counter {
    Counter { size: diff.size.bits(), window: diff.window, key: diff.key.clone() }
}

fn row(diff: &Diff, BatchId(batch): BatchId, now: u64) -> Row {
    Row {
        count: diff.local.thousandths(),
        batch,
        until: now.saturating_add(millis(diff.expires_in)),
    }
}

/// The totals of the counters of these windows, if the shard is in this epoch.
fn counts_of(contents: &Contents, of: Epoch, windows: &[(WindowSize, u64)]) -> Vec<Count> {
    let mut sums: BTreeMap<&Counter, i64> = BTreeMap::new();
    for ((counter, ..), row) in &contents.rows {
        let sum = sums.entry(counter).or_default();
        *sum = plus(*sum, row.count);
    }
    let is_present = epoch(contents) == Some(of);
    let counts = sums.into_iter().filter_map(|(counter, sum)| {
        let size = WindowSize::from_bits(counter.size)?;
        let is_asked = is_present && windows.contains(&(size, counter.window));
        is_asked.then(|| Count {
            key: counter.key.clone(),
            size,
            window: counter.window,
            total: Hits::from_thousandths(sum),
        })
    });
    counts.collect()
}

/// It takes 2^16 rows of the largest counts to overflow, which somebody may send.
fn plus(sum: i64, count: i64) -> i64 {
    sum.saturating_add(count)
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, millis)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
