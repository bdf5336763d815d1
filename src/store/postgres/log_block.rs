//! The log of a counter in the server, and the rows to write after decisions.
//!
//! Its entries are in blocks, each of which is a row. A new entry is added to the last block, in
//! place, until that is full. An entry is a time and the sum of all hits up to it, so the hits in a
//! window are the difference of two sums.

use tokio_postgres::{Error, Row};

use crate::policy::algorithm::MovingCount;
use crate::policy::hits::Hits;
use crate::policy::window::{CLOCK_SKEW, UnixMillis, WindowSize};
use crate::store::contract::strategy::CLOCK_MARGIN;
use crate::store::decide::stored::StoredCount;
use crate::store::decide::stored_log::StoredLog;

/// Most entries of a block. A row then has about 1100 bytes without its key.
const MOST_IN_BLOCK: i32 = 64;
/// Entries in addition to those of a limit.
const EXTRA_ENTRIES: u64 = 2;
/// Time in milliseconds after the last hit has left from which nothing is added to a block, since
/// it may be purged at the same time. Half of the time for which it is kept.
const ADDABLE: i64 = 30_000;
const _: () = assert!(ADDABLE as u128 * 2 <= CLOCK_MARGIN.as_millis());

/// The log of a counter, as read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FoundLog {
    /// Number of the log among those of the key.
    pub(super) log: i64,
    /// The last block; `None` if nothing can be added to one.
    block: Option<LastBlock>,
    /// Time of the last entry.
    last: i64,
    /// Sum of all hits.
    sum: i64,
    /// Number of entries.
    entries: i64,
    /// Number of entries that have left the window, and their sum.
    gone: i64,
    base: i64,
    /// All blocks before this one have left the window.
    gone_block: Option<i64>,
    /// Time of the oldest hit in the window.
    oldest: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LastBlock {
    at: i64,
    /// Number of its entries.
    length: i32,
}

/// An entry to add to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewEntry {
    /// The block, and the number of entries in it before; `None` for a new block.
    pub(super) block: Option<(i64, i32)>,
    pub(super) at: i64,
    pub(super) sum: i64,
    /// For a new block, the number of entries in all blocks before, and their sum.
    pub(super) number: i64,
    pub(super) base: i64,
    pub(super) gone_block: Option<i64>,
}

/// The rows to write for a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogChange {
    /// The sum to which the newest hits are removed.
    pub(super) lowered: Option<i64>,
    pub(super) added: Option<NewEntry>,
}

impl FoundLog {
    /// Parses a row of `read_logs.sql`, for windows of this size at `now`.
    pub(super) fn of(row: &Row, size: WindowSize, now: UnixMillis) -> Result<FoundLog, Error> {
        let Some(log) = row.try_get("log")? else {
            return Ok(FoundLog::default());
        };
        let (last, now) = (row.try_get::<_, i64>("last")?, now.0.cast_signed());
        if last > now.saturating_add_unsigned(CLOCK_SKEW) {
            // The clock was set back.
            return Ok(FoundLog { log: i64::saturating_add(log, 1), ..FoundLog::default() });
        }
        let sum = row.try_get("sum")?;
        let last_block = LastBlock { at: row.try_get("block")?, length: row.try_get("length")? };
        let left_at = last.saturating_add(size.millis().cast_signed());
        let is_kept = now < left_at.saturating_add(ADDABLE);
        Ok(FoundLog {
            log,
            block: is_kept.then_some(last_block),
            last,
            sum,
            entries: row.try_get("entries")?,
            gone: row.try_get::<_, Option<_>>("gone")?.unwrap_or_default(),
            base: row.try_get::<_, Option<_>>("base")?.unwrap_or(sum),
            gone_block: row.try_get("gone_block")?,
            oldest: row.try_get::<_, Option<_>>("oldest")?.unwrap_or(last),
        })
    }

    /// Returns the hits in the window, in thousandths.
    pub(super) fn hits(&self) -> i64 {
        self.sum.saturating_sub(self.base)
    }

    pub(super) fn count(&self) -> StoredCount {
        StoredCount::log(self.hits(), self.oldest)
    }

    /// Returns the rows to write after questions at `now` have changed the log to `log`. `most` is
    /// the largest limit.
    pub(super) fn change_to(&self, log: &StoredLog, now: UnixMillis, most: Hits) -> LogChange {
        let [kept, added] = [log.kept(), log.added()].map(|it| it.thousandths());
        let sum = self.base.saturating_add(kept);
        let is_lowered = sum < self.sum;
        LogChange {
            lowered: is_lowered.then_some(sum),
            added: (added > 0).then(|| self.entry(sum, added, is_lowered, now, most)),
        }
    }

    fn entry(
        &self,
        base: i64,
        added: i64,
        is_lowered: bool,
        now: UnixMillis,
        most: Hits,
    ) -> NewEntry {
        // Not before the last hit.
        let at = now.0.cast_signed().max(self.last);
        let hits = base.saturating_add(added).saturating_sub(self.base);
        let most = MovingCount::most_entries(most, Hits::from_thousandths(hits));
        let most = most.saturating_add(EXTRA_ENTRIES).cast_signed();
        let is_full = self.entries.saturating_sub(self.gone) >= most;
        let new = NewEntry {
            block: None,
            at,
            sum: base.saturating_add(added),
            number: self.entries,
            base,
            gone_block: self.gone_block,
        };
        match self.block {
            // The content of the last block is unknown after a removal, so a new block begins with
            // a later time.
            _ if is_lowered => NewEntry { at: at.max(self.last.saturating_add(1)), ..new },
            // Replaces the last entry, whose hits get this time.
            Some(LastBlock { at: block, length }) if at == self.last || is_full => {
                NewEntry { block: Some((block, length.saturating_sub(1))), ..new }
            }
            Some(LastBlock { at: block, length }) if length < MOST_IN_BLOCK => {
                NewEntry { block: Some((block, length)), ..new }
            }
            _ => new,
        }
    }
}
