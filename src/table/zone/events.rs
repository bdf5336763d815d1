//! The table of events. Each entry defines a place in shared memory, and a field of the sums.

use crate::policy::window::UnixMillis;
use crate::table::words::atomic::EventCounter;
use crate::table::words::atomic::Ordering::Relaxed;

/// A field of sums.
pub(super) trait EventSum {
    /// The words of shared memory with its counts.
    type Words: EventWords;

    /// Adds the counts in `words`, or takes their value.
    fn read(&mut self, words: &Self::Words);
}

/// Words of events in shared memory.
pub(crate) trait EventWords {
    /// Sets all words to zero.
    fn clear(&self);
}

/// Defines a struct of sums, and the lines of shared memory with their counts. Each event is a
/// field of both, with the type of its sum.
macro_rules! events {
    (
        $(#[$sums_doc:meta])*
        $Sums:ident {$(
            $(#[$line_attribute:meta])*
            $Line:ident { $( $(#[$event_doc:meta])* $event:ident: $Sum:ty, )* }
        )*}
    ) => {
        $(#[$sums_doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $Sums {
            $($( $(#[$event_doc])* pub $event: $Sum, )*)*
        }
        $(
            $(#[$line_attribute])*
            #[derive(Debug, Default)]
            pub(crate) struct $Line {
                $( pub(super) $event: <$Sum as EventSum>::Words, )*
            }

            impl $Line {
                /// Reads `lines`, event by event, and adds them to `sums`.
                pub(super) fn read(lines: &[$Line], mut sums: $Sums) -> $Sums {
                    $( lines.iter().for_each(|line| sums.$event.read(&line.$event)); )*
                    sums
                }
            }

            impl EventWords for $Line {
                fn clear(&self) {
                    $( self.$event.clear(); )*
                }
            }
        )*
    };
}

events! {
    /// Events of a namespace, since the zone was made.
    NamespaceStats {
        /// Events of one namespace, as one worker counts them.
        #[repr(C, align(64))]
        NamespaceLine {
            /// Requests by [`Outcome`](crate::table::Outcome), but for errors.
            outcomes: [u64; 3],
            /// Thousandths of hits that were finally charged. The sum never decreases.
            hits: u64,
            /// Keys that lost their slot. They are read before the keys that got one, so that there are never more.
            removed: u64,
            /// Keys that got a slot.
            inserted: u64,
            /// Thousandths of hits that the store did not get: their windows had ended, or there were too many to keep.
            dropped: u64,
        }
        /// Events of one namespace that all workers count in one line: rare ones, and those that take far longer than
        /// waiting for another worker's write.
        #[repr(C)]
        SharedLine {
            /// Requests decided by `on_error`: by `local`, `allow`, `deny`.
            fallbacks: [u64; 3],
            /// Values that were invalid at run time, by [`Invalid`](crate::table::Invalid).
            invalid: [u64; 4],
            /// Requests rejected by policies without a counter of their own.
            rejected_unnamed: u64,
            /// Requests delayed by a rate.
            delayed: u64,
            /// Requests rejected by a ban.
            banned: u64,
            /// Thousandths of hits that were admitted above a limit, as the store's totals show.
            excess: u64,
            /// Requests by the time that they waited for a store or were delayed by a rate, in buckets up to each of
            /// [`NamespaceStats::WAIT_BOUNDS`], and one above.
            waits: [u64; NamespaceStats::WAIT_BOUNDS.len() + 1],
            /// Total waiting time, in microseconds.
            wait_sum: u64,
        }
    }
}

events! {
    /// Events of a zone, since it was made.
    ZoneStats {
        /// Events of one zone, as one worker counts them.
        #[repr(C, align(64))]
        ZoneLine {
            /// Evicted keys whose windows had ended.
            evicted_ended: u64,
            /// Evicted keys with live windows and no unsent hits.
            evicted_sent: u64,
            /// Evicted keys with live windows and unsent hits.
            evicted_unsent: u64,
            /// Callbacks by the time for which they blocked a worker's event loop, in buckets up to each of
            /// [`ZoneStats::HOLD_BOUNDS`], and one above.
            holds: [u64; ZoneStats::HOLD_BOUNDS.len() + 1],
            /// Total time for which callbacks blocked event loops, in nanoseconds.
            hold_sum: u64,
        }
    }
}

events! {
    /// Results of the syncs of a namespace, since the zone was made.
    SyncStats {
        /// Results of the syncs of one namespace. All workers write one line, since few sync at a time.
        #[repr(C, align(64))]
        SyncLine {
            /// Cycles that succeeded.
            succeeded: u64,
            /// Cycles that failed.
            failed: u64,
            /// Counters (by window) whose diffs were pushed.
            pushed: u64,
            /// Counters (by window) whose totals were fetched.
            fetched: u64,
            /// End of the last cycle that succeeded; `None`: none did.
            last_success: Option<UnixMillis>,
            /// End of the last cycle that failed; `None`: none did.
            last_failure: Option<UnixMillis>,
            /// Duration of the last cycle, in milliseconds.
            duration: u64,
            /// Milliseconds by which the store's clock was last seen ahead of this node's.
            clock_offset: i64,
            /// Cycles by duration, in buckets up to each of [`SyncStats::BOUNDS`], and one above.
            durations: [u64; SyncStats::BOUNDS.len() + 1],
            /// Total duration of all cycles, in milliseconds.
            duration_sum: u64,
            /// Process that syncs, or did so last; `None`: none did.
            holder: Option<u32>,
            /// Connections made to the store.
            connects: u64,
            /// Exchanges with the store by duration, in buckets up to each of [`SyncStats::EXCHANGE_BOUNDS`], and one
            /// above.
            exchanges: [u64; SyncStats::EXCHANGE_BOUNDS.len() + 1],
            /// Total duration of all exchanges, in microseconds.
            exchange_sum: u64,
        }
    }
}

#[cfg(not(loom))]
const _: () = assert!(
    size_of::<NamespaceLine>() == 64
        && size_of::<ZoneLine>() == 2 * 64
        && size_of::<SyncLine>() == 4 * 64
);

impl NamespaceStats {
    /// The bounds of [`NamespaceStats::waits`], in microseconds.
    pub const WAIT_BOUNDS: [u64; 10] =
        [500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 1_000_000, 10_000_000];

    /// Returns the number of requests decided by `on_error`.
    pub fn error(&self) -> u64 {
        self.fallbacks.iter().copied().fold(0, u64::wrapping_add)
    }

    /// Returns the number of keys with a slot: an estimate while workers count.
    pub fn keys(&self) -> u64 {
        self.inserted.saturating_sub(self.removed)
    }
}

impl ZoneStats {
    /// The bounds of [`ZoneStats::holds`], in nanoseconds.
    pub const HOLD_BOUNDS: [u64; 10] =
        [1000, 5000, 10_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 10_000_000];
}

impl SyncStats {
    /// The bounds of [`SyncStats::durations`], in milliseconds.
    pub const BOUNDS: [u64; 6] = [1, 5, 25, 100, 500, 2500];

    /// The bounds of [`SyncStats::exchanges`], in microseconds.
    pub const EXCHANGE_BOUNDS: [u64; 12] =
        [250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000];

    /// Whether the last cycle succeeded; `None` if there was none.
    pub fn is_up(&self) -> Option<bool> {
        self.last().map(|last| self.last_success == Some(last))
    }

    /// Returns the time at which the last cycle ended; `None` if there was none.
    pub fn last(&self) -> Option<UnixMillis> {
        self.last_success.max(self.last_failure)
    }
}

impl EventSum for u64 {
    type Words = EventCounter;

    fn read(&mut self, words: &EventCounter) {
        *self = self.wrapping_add(words.load(Relaxed));
    }
}

impl<const N: usize> EventSum for [u64; N] {
    type Words = [EventCounter; N];

    fn read(&mut self, words: &[EventCounter; N]) {
        self.iter_mut().zip(words).for_each(|(sum, word)| sum.read(word));
    }
}

impl EventSum for i64 {
    type Words = EventCounter;

    fn read(&mut self, words: &EventCounter) {
        *self = words.load(Relaxed) as i64;
    }
}

impl EventSum for Option<u32> {
    type Words = EventCounter;

    fn read(&mut self, words: &EventCounter) {
        *self = u32::try_from(words.load(Relaxed)).ok().filter(|&it| it != 0);
    }
}

impl EventSum for Option<UnixMillis> {
    type Words = EventCounter;

    fn read(&mut self, words: &EventCounter) {
        *self = Some(UnixMillis(words.load(Relaxed))).filter(|it| it.0 != 0);
    }
}

impl EventWords for EventCounter {
    fn clear(&self) {
        self.store(0, Relaxed);
    }
}

impl<const N: usize> EventWords for [EventCounter; N] {
    fn clear(&self) {
        self.iter().for_each(EventWords::clear);
    }
}
