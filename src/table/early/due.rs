//! The bell of a namespace: a worker that finds a counter due rings it, which wakes the worker that
//! pushes.
//!
//! A word of the namespace contains the time since which the bell is rung, so that it is rung once,
//! and the worker that synced last. That worker has a connection to the store, so it is woken. If
//! it does not react, because it was killed or stopped, the next worker that finds a counter due
//! wakes its own thread. While it waits, it records that again and again.

use core::time::Duration;

use crate::policy::window::UnixMillis;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use crate::table::words::atomic::fence;
use crate::table::words::fail::fail_point;
use crate::table::words::meta::NamespaceIndex;
use crate::table::zone::counter_table::{Bell, CounterTable};
use crate::table::zone::sync_state::SyncState;

/// Longest time that a woken worker may take, in milliseconds.
const PATIENCE: u64 = 50;

/// Interval in which a woken worker that waits records that.
pub const POSTPONED_FOR: Duration = Duration::from_millis(PATIENCE / 2);

/// The word of a namespace: the number of the worker that synced last, plus one; the time since
/// which the bell is rung, in Unix milliseconds, or 0; and whether more counters are due than there
/// are cells.
#[derive(Clone, Copy)]
struct EarlyWord(u64);

impl EarlyWord {
    const WORKER_BITS: u32 = 16;
    const WORKER: u64 = (1 << Self::WORKER_BITS) - 1;
    const CROWD: u64 = 1 << 63;
    const TIME: u64 = !Self::CROWD & !Self::WORKER;

    fn worker(self) -> Option<u16> {
        ((self.0 & Self::WORKER) as u16).checked_sub(1)
    }

    fn rung_at(self) -> Option<u64> {
        let millis = (self.0 & Self::TIME) >> Self::WORKER_BITS;
        (millis != 0).then_some(millis)
    }

    fn rung(self, at: UnixMillis) -> EarlyWord {
        let at = at.0.max(1) << Self::WORKER_BITS & Self::TIME;
        EarlyWord(self.0 & !Self::TIME | at)
    }

    /// Returns the word after `worker` has begun to push, with the bell not rung.
    fn begun_by(worker: u16) -> EarlyWord {
        EarlyWord(u64::from(worker).wrapping_add(1) & Self::WORKER)
    }
}

impl CounterTable<'_> {
    /// Sets the function that wakes a worker's thread, by the worker's number, for early pushes.
    /// `own` is this process's number. Only the first call for a table has an effect.
    pub fn wake_by(&self, own: u16, wake: impl Fn(u16) + Send + Sync + 'static) {
        let wake = Box::new(wake);
        let _ = self.bell.set(Bell { own, wake });
    }

    /// Rings the bell of a namespace with a due counter, unless it is rung and the woken worker may
    /// still react.
    pub(super) fn ring(&self, namespace: NamespaceIndex, now: UnixMillis) {
        let Some(entry) = self.entry(namespace) else {
            return;
        };
        // The change was written before. Pairs with the fence in `begin_early`: either this process
        // sees that the bell is not rung any more, or the other one sees the change.
        fence(SeqCst);
        let mut word = EarlyWord(entry.early.load(Acquire));
        let to = loop {
            let to = match word.rung_at() {
                None => word.worker(),
                // A time in the future means that the clock was set back.
                Some(at)
                    if now.0 > at.saturating_add(PATIENCE)
                        || at > now.0.saturating_add(PATIENCE) =>
                {
                    None
                }
                Some(_) => return,
            };
            let rung = word.rung(now);
            let swapped = entry.early.compare_exchange(word.0, rung.0, AcqRel, Acquire);
            match swapped {
                Ok(_) => break to,
                // Another process has rung the bell, or changed another part of the word.
                Err(other) => word = EarlyWord(other),
            }
        };
        fail_point!("early.rung");
        if let Some(bell) = self.bell.get() {
            (bell.wake)(to.unwrap_or(bell.own));
        }
    }

    /// Records that more counters of a namespace are due than there are cells.
    pub(super) fn record_crowd(&self, namespace: NamespaceIndex) {
        if let Some(entry) = self.entry(namespace) {
            entry.early.fetch_or(EarlyWord::CROWD, AcqRel);
            fail_point!("early.crowded");
        }
    }
}

impl SyncState<'_> {
    /// Returns whether the bell is rung.
    pub fn is_rung(&self) -> bool {
        EarlyWord(self.entry.early.load(Acquire)).rung_at().is_some()
    }

    /// Records at `now` that this worker has heard the bell, and will push later.
    pub fn postpone_early(&self, now: UnixMillis) {
        let postponed = |word| EarlyWord(word).rung_at().map(|_| EarlyWord(word).rung(now).0);
        // Fails if the bell is not rung any more.
        let _ = self.entry.early.fetch_update(AcqRel, Acquire, postponed);
        fail_point!("early.postponed");
    }

    /// Resets the bell, because this worker begins to push. To be called before the due counters
    /// are read. Returns whether more counters were due than there are cells, so that all changes
    /// must be pushed.
    pub fn begin_early(&self, worker: u16) -> bool {
        let begun = EarlyWord::begun_by(worker);
        let before = self.entry.early.swap(begun.0, AcqRel);
        fail_point!("early.begun");
        // Pairs with the fence in `ring`.
        fence(SeqCst);
        before & EarlyWord::CROWD != 0
    }

    /// Returns the worker that synced last; `None` before the first sync.
    pub fn last_worker(&self) -> Option<u16> {
        EarlyWord(self.entry.early.load(Acquire)).worker()
    }

    /// Records that this worker has synced.
    pub fn record_worker(&self, worker: u16) {
        let by = EarlyWord::begun_by(worker).0;
        let noted = |word| Some(word & !EarlyWord::WORKER | by);
        // The closure always returns a value, so this cannot fail.
        let _ = self.entry.early.fetch_update(AcqRel, Acquire, noted);
        fail_point!("early.worker");
    }

    /// Restores the mark that [`SyncState::begin_early`] returned, since not all changes were
    /// pushed.
    pub fn leave_crowd(&self) {
        self.entry.early.fetch_or(EarlyWord::CROWD, AcqRel);
        fail_point!("early.left");
    }
}
