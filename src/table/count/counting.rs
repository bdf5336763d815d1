//! Counts, reads and refunds hits: what a request does in the table, from top to bottom.

use core::ptr;

use crate::policy::algorithm::{Algorithm, Reading, StoredKind, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, UnixMillis, WindowPosition, WindowSize};
use crate::table::slots::admission::{Admission, AskedHit, Counted, Receipt};
use crate::table::slots::columns::{PlainColumns, WindowColumns, load};
use crate::table::slots::insertion::Insertion;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::fail::fail_point;
use crate::table::words::slot::Occupant;
use crate::table::words::word::WindowCount;
use crate::table::zone::counter::{Counter, Key};
use crate::table::zone::counter_table::CounterTable;

/// The reason why hits were not counted.
enum Missed {
    /// Another process has just changed the column.
    Changed,
    /// The slot has another occupant.
    Gone,
}

impl<'m> CounterTable<'m> {
    /// Counts `value` hits of `key`, above zero, if `admission` allows it.
    ///
    /// A new key gets a slot. In a full table, that evicts another key: see
    /// [`ZoneStats`](crate::table::ZoneStats).
    pub fn add(
        &self,
        counter: &Counter,
        key: Key<'_>,
        clock: &impl Clock,
        value: Hits,
        admission: Admission,
    ) -> Counted<'m> {
        let at_home = match admission {
            Admission::Within(limit, algorithm) => {
                let within = (limit, algorithm);
                self.add_at_home(counter, &key, clock, value, within, WindowSize::at)
            }
            Admission::Unconditional
            | Admission::Regardless(_)
            | Admission::Latest(_)
            | Admission::Filling(_)
            | Admission::Refused => None,
        };
        match at_home {
            Some(counted) => counted,
            None => self.add_anywhere(counter, key, clock, value, admission),
        }
    }

    /// Counts as [`CounterTable::add`] does, but only in the most frequent case: the counter is in
    /// its home slot, not synced, and in use, and no other process interferes. Otherwise returns
    /// `None` and counts nothing. `position` is [`WindowSize::at`], or another function for sizes
    /// for which it returns the same.
    #[inline(always)]
    pub fn add_at_home(
        &self,
        counter: &Counter,
        key: &Key<'_>,
        clock: &impl Clock,
        value: Hits,
        (limit, algorithm): (Hits, Algorithm),
        position: impl Fn(WindowSize, UnixMillis) -> WindowPosition,
    ) -> Option<Counted<'m>> {
        let id = counter.identity(*key);
        let occupant = self.home(id)?;
        if !occupant.meta.is_local_counter() || !occupant.slot.has_identity(id) || counter.is_synced
        {
            return None;
        }
        let now = clock.now();
        let at = position(counter.size, now);
        let columns = PlainColumns::read(occupant, counter.size, now, at)?;
        let before = columns.reading();
        if !algorithm.admits(counter.size, &before, limit, value) {
            return Some(Counted::refused(before));
        }
        let PlainColumns { current, word, stamp, .. } = columns;
        let new = WindowCount::new(stamp, word.hits().plus_value(value));
        match self.count_in(current, word, new, occupant, value) {
            Ok(receipt) => Some(Counted::admitted(before, receipt)),
            Err(_) => None,
        }
    }

    /// Counts as [`CounterTable::add`] does, in all cases.
    #[inline(always)]
    pub fn add_anywhere(
        &self,
        counter: &Counter,
        key: Key<'_>,
        clock: &impl Clock,
        value: Hits,
        admission: Admission,
    ) -> Counted<'m> {
        let id = counter.identity(key);
        let first = counter.first_hits(value, admission);
        loop {
            let occupant = match self.find_or_insert(counter, id, first, clock) {
                Some(Insertion::Found(occupant)) => occupant,
                // A table without buckets counts nothing.
                None => return Counted::unknown(),
                Some(Insertion::Made(reading, receipt)) => {
                    return Counted { reading, admitted: true, receipt: Some(receipt) };
                }
            };
            if counter.kind != StoredKind::Windows {
                match self.add_elsewhere(occupant, counter, clock, value, admission) {
                    Some(counted) => return counted,
                    None => continue,
                }
            }
            if counter.is_synced && self.is_ready(occupant) {
                self.mark_dirty(occupant.slot);
            } else if counter.is_synced || occupant.meta.is_synced() {
                self.prepare_sync(occupant, counter, key, clock);
            }
            if counter.is_synced
                && self.is_alone(counter)
                && let Some(refused) = self.refuse_alone(occupant, counter, clock, value, admission)
            {
                return refused;
            }
            if let Some(counted) = self.add_at(occupant, counter, clock, value, admission) {
                if counter.is_synced {
                    self.mark_dirty(occupant.slot);
                    self.look_at_limit(occupant, counter, admission, &counted, clock);
                }
                return counted;
            }
            // The slot was given to another key at this moment, so the loop starts again.
        }
    }

    /// Counts in a slot without windows. `None` if it has another occupant by now.
    #[inline(always)]
    fn add_elsewhere(
        &self,
        occupant: Occupant<'m>,
        counter: &Counter,
        clock: &impl Clock,
        value: Hits,
        admission: Admission,
    ) -> Option<Counted<'m>> {
        let size = counter.size;
        match counter.kind {
            StoredKind::Windows => None,
            StoredKind::Level(kind) => {
                self.add_to_level(kind, occupant, size, clock, value, admission)
            }
            StoredKind::Log => self.add_to_log(occupant, size, clock, value, admission),
            StoredKind::Holds => self.hold(occupant, clock, admission),
        }
    }

    /// Returns whether the counter is marked as synced and has its name, as most synced ones are.
    #[inline(always)]
    fn is_ready(&self, occupant: Occupant<'m>) -> bool {
        occupant.meta.is_synced() && occupant.slot.extension.load(Relaxed) != 0
    }

    /// Returns the lowest count that a refund may leave: zero, or less after a reset.
    pub(super) fn least_after(&self, receipt: &Receipt<'m>) -> Hits {
        let slot = self.slot_at(self.index_of(receipt.column));
        let remote = slot.and_then(|slot| {
            let mut columns = slot.local.iter().zip(&slot.remote);
            let (_, remote) = columns.find(|(local, _)| ptr::eq(*local, receipt.column))?;
            Some(load(remote).hits_of(receipt.stamp))
        });
        Hits::ZERO.minus(remote.unwrap_or_default()).min(Hits::ZERO)
    }

    /// Prepares a counter for a change: sets its synced bit as `counter` requires, and gives a synced
    /// one its name and its dirty bit.
    #[cold]
    pub(super) fn prepare_sync(
        &self,
        occupant: Occupant<'m>,
        counter: &Counter,
        key: Key<'_>,
        clock: &impl Clock,
    ) {
        if occupant.meta.is_synced() != counter.is_synced {
            // The bit differs after a change of the configuration. If the exchange fails, another
            // process has set it, or the slot has another occupant.
            let meta = occupant.meta.with_synced(counter.is_synced);
            let old = occupant.meta.bits();
            let _ = occupant.slot.meta.compare_exchange(old, meta.bits(), AcqRel, Relaxed);
        }
        if counter.is_synced {
            if occupant.slot.extension.load(Relaxed) == 0 {
                self.attach_name(occupant, counter.identity(key), key.bytes, clock);
            }
            self.mark_dirty(occupant.slot);
        }
    }

    /// Counts in a slot. `None`, without counting, if it has another occupant by now.
    fn add_at(
        &self,
        occupant: Occupant<'m>,
        counter: &Counter,
        clock: &impl Clock,
        value: Hits,
        admission: Admission,
    ) -> Option<Counted<'m>> {
        let mut now = clock.now();
        loop {
            let mut columns =
                WindowColumns::read(occupant.slot, occupant.meta, counter.size.at(now));
            if !columns.try_settle(occupant, counter.size, now) {
                columns = occupant.settle(counter.size, &mut now, clock)?;
            }
            let before = columns.reading();
            if !admission.admits(counter.size, &before, value) {
                return Some(Counted::refused(before));
            }
            let new = WindowCount::new(columns.stamp, columns.counted.plus_value(value));
            let dropped = self.unsent_before(&columns, occupant);
            match self.count_in(columns.current, columns.word, new, occupant, value) {
                Ok(receipt) => {
                    if dropped != Hits::ZERO {
                        self.count(counter.lines, |line| line.dropped(dropped));
                    }
                    return Some(Counted::admitted(before, receipt));
                }
                Err(Missed::Changed) => {}
                Err(Missed::Gone) => return None,
            }
        }
    }

    /// Counts `value` hits in a column by replacing `old`, which was just read, with `new`.
    #[inline(always)]
    fn count_in(
        &self,
        column: &'m AtomicU64,
        old: WindowCount,
        new: WindowCount,
        occupant: Occupant<'m>,
        value: Hits,
    ) -> Result<Receipt<'m>, Missed> {
        // This instruction counts the hit. It fails if the window was turned, if the slot has
        // another occupant, or if another process has counted since the limit was checked. AcqRel:
        // the next reader of the word sees the slot as this process does.
        let swapped = column.compare_exchange(old.bits(), new.bits(), AcqRel, Acquire);
        if swapped.is_err() {
            return Err(Missed::Changed);
        }
        fail_point!("add.counted");
        // If the slot has another occupant by now, the hit was lost with the old counter.
        if !occupant.is_there() {
            return Err(Missed::Gone);
        }
        Ok(Receipt { column, stamp: new.stamp(), value })
    }

    /// Records a hit of `key` that another limit refused, for algorithms that need that. Returns
    /// the current count.
    pub fn refuse(
        &self,
        counter: &Counter,
        key: Key<'_>,
        asked: AskedHit,
        clock: &impl Clock,
    ) -> Reading {
        if counter.kind.changes_with_refusals() {
            let refused = self.add(counter, key, clock, Hits::ZERO, Admission::Refused);
            return refused.reading;
        }
        self.read_for(counter, key, asked, clock)
    }

    /// Reads the count of `key`; zeros without a counter.
    pub fn read(&self, counter: &Counter, key: Key<'_>, clock: &impl Clock) -> Reading {
        // With the largest limit, there is always room.
        let asked = AskedHit { limit: Hits::MAX, cost: Hits::ZERO };
        self.read_for(counter, key, asked, clock)
    }

    /// Reads the count of `key`, and the time at which there will be room for `asked`.
    pub fn read_for(
        &self,
        counter: &Counter,
        key: Key<'_>,
        asked: AskedHit,
        clock: &impl Clock,
    ) -> Reading {
        match counter.kind {
            StoredKind::Windows => {}
            StoredKind::Level(kind) => return self.read_level(kind, counter, key, clock),
            StoredKind::Log => return self.read_log(counter, key, asked, clock),
            StoredKind::Holds => return self.read_held(counter, key),
        }
        let now = clock.now();
        let nothing = WindowCounts::of(counter.size.at(now), Hits::ZERO, Hits::ZERO).into();
        loop {
            let Some(occupant) = self.find(counter.identity(key)) else {
                return nothing;
            };
            let columns = WindowColumns::read_ahead(occupant, counter.size, now);
            let is_old = occupant.is_old(counter.size, now);
            let reading = if is_old { nothing } else { columns.reading() };
            // The loads before are Acquire: if the meta is unchanged, the words belong to this
            // counter.
            if occupant.is_there() {
                return reading;
            }
        }
    }

    /// Returns the hits of `key` in window `window` that this node has counted and, as far as it
    /// knows, the store has not. For a counter that is not synced, returns all hits.
    pub fn unsent(&self, counter: &Counter, key: Key<'_>, window: u64, clock: &impl Clock) -> Hits {
        let Some(occupant) = self.find(counter.identity(key)) else {
            return Hits::ZERO;
        };
        let at = WindowPosition { number: window, elapsed: 0 };
        let counted = WindowColumns::read(occupant.slot, occupant.meta, at).counted;
        let pushed = self.pushed(occupant, window);
        let is_old = occupant.is_old(counter.size, clock.now());
        // As in `read`: a reader that sees the slot change hands reads the key as just evicted.
        if is_old || !occupant.is_there() {
            return Hits::ZERO;
        }
        counted.minus(pushed)
    }

    /// Refunds hits of a receipt from `counter`, unless their window or the counter is gone.
    /// Returns whether it did.
    pub fn refund(&self, counter: &Counter, receipt: &Receipt<'m>) -> bool {
        match counter.kind {
            StoredKind::Windows => {}
            StoredKind::Level(kind) => {
                return self.refund_to_level(kind, counter.size, receipt);
            }
            StoredKind::Log => return self.refund_to_log(receipt),
            StoredKind::Holds => return self.release(receipt),
        }
        if counter.is_synced {
            self.mark_dirty(receipt.column);
        }
        let mut word = WindowCount::from_bits(receipt.column.load(Acquire));
        while word.stamp() == receipt.stamp {
            let mut left = word.hits().minus(receipt.value);
            if left < Hits::ZERO {
                // The window may have been cleared, reset or saturated.
                left = left.max(self.least_after(receipt).min(word.hits()));
            }
            let new = WindowCount::new(receipt.stamp, left);
            match receipt.column.compare_exchange(word.bits(), new.bits(), AcqRel, Acquire) {
                Ok(_) => {
                    fail_point!("refund.counted");
                    if counter.is_synced {
                        self.mark_dirty(receipt.column);
                    }
                    return true;
                }
                Err(changed) => word = WindowCount::from_bits(changed),
            }
        }
        false
    }
}
