//! The bell: a worker that has counted what is due rings it, and wakes the worker that pushes.
//!
//! A word of the namespace says since when it is rung, so that it is rung once, and which worker synced last:
//! that has a connection, so it is the one that is woken. If it does not come, since it was killed or
//! stands still, the next worker to find a counter due wakes its own thread.

use crate::policy::window::UnixMillis;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use crate::table::words::atomic::fence;
use crate::table::words::bell::Bell;
use crate::table::words::fail::fail_point;
use crate::table::words::meta::NamespaceIndex;
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::sync_state::SyncState;

/// For how many milliseconds a worker that was woken may be on its way.
const PATIENCE: u64 = 50;

/// A namespace's word: one more than the number of the worker that synced last; since when the bell is rung, in
/// Unix milliseconds, 0 if it is not; and whether more counters are due than there are cells for.
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

    /// All that was there to be told of is looked at now, by this worker.
    fn begun_by(worker: u16) -> EarlyWord {
        EarlyWord(u64::from(worker).wrapping_add(1) & Self::WORKER)
    }
}

impl CounterTable<'_> {
    /// Has `wake` called when counters are to be pushed before their time, with the number of the worker whose
    /// thread is to do it; `own` is that of this process. For as long as there is the table, the first call
    /// counts.
    pub fn wake_by(&self, own: u16, wake: impl Fn(u16) + Send + Sync + 'static) {
        let wake = Box::new(wake);
        let _ = self.bell.set(Bell { own, wake });
    }

    /// Rings for a namespace, of which something is due, unless it is rung, and not in vain.
    pub(super) fn ring(&self, namespace: NamespaceIndex, now: UnixMillis) {
        let Some(entry) = self.entry(namespace) else {
            return;
        };
        // What is new is written. Pairs with that in `begin_early`: either this sees that the bell is not
        // rung any more, or what is new is seen there.
        fence(SeqCst);
        let mut word = EarlyWord(entry.early.load(Acquire));
        let to = loop {
            let to = match word.rung_at() {
                None => word.worker(),
                // Or the clock was set back.
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
                // Another worker has rung, or has only noted that it has synced, or that there is a crowd.
                Err(other) => word = EarlyWord(other),
            }
        };
        fail_point!("early.rung");
        if let Some(bell) = self.bell.get() {
            (bell.wake)(to.unwrap_or(bell.own));
        }
    }

    /// Notes that more counters of a namespace are due than there are cells for.
    pub(super) fn record_crowd(&self, namespace: NamespaceIndex) {
        if let Some(entry) = self.entry(namespace) {
            entry.early.fetch_or(EarlyWord::CROWD, AcqRel);
            fail_point!("early.crowded");
        }
    }
}

impl SyncState<'_> {
    /// Whether the bell is rung.
    pub fn is_rung(&self) -> bool {
        EarlyWord(self.entry.early.load(Acquire)).rung_at().is_some()
    }

    /// Notes that this worker begins to push what is due: to be called before that is looked for. Returns
    /// whether that is more than there are cells for: then it is all that changed.
    pub fn begin_early(&self, worker: u16) -> bool {
        let begun = EarlyWord::begun_by(worker);
        let before = self.entry.early.swap(begun.0, AcqRel);
        fail_point!("early.begun");
        // Pairs with that in `ring`.
        fence(SeqCst);
        before & EarlyWord::CROWD != 0
    }

    /// The worker that synced last.
    pub fn last_worker(&self) -> Option<u16> {
        EarlyWord(self.entry.early.load(Acquire)).worker()
    }

    /// Notes that this worker has synced.
    pub fn record_worker(&self, worker: u16) {
        let by = EarlyWord::begun_by(worker).0;
        let noted = |word| Some(word & !EarlyWord::WORKER | by);
        // Cannot fail.
        let _ = self.entry.early.fetch_update(AcqRel, Acquire, noted);
    }

    /// Notes that [`SyncState::begin_early`] has returned what was not done.
    pub fn leave_crowd(&self) {
        self.entry.early.fetch_or(EarlyWord::CROWD, AcqRel);
    }
}
