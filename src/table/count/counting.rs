//! Counting, reading, refunding: what a request does in the table, from top to bottom.

use core::ptr;

use crate::policy::algorithm::{Algorithm, Reading, StoredKind, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, WindowPosition};
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

/// The reason why hits could not be counted.
enum Missed {
    /// Another process changed the column in this very moment.
    Changed,
    /// The slot has another occupant.
    Gone,
}

impl<'m> CounterTable<'m> {
    /// Counts `value` (above zero) hits of `key`, if `admission` allows it.
    ///
    /// A key without a counter gets one, in an otherwise full table that of another key: see
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
                self.add_at_home(counter, &key, clock, value, limit, algorithm)
            }
            Admission::Unconditional
            | Admission::Regardless(_)
            | Admission::Filling(_)
            | Admission::Refused => None,
        };
        match at_home {
            Some(counted) => counted,
            None => self.add_anywhere(counter, key, clock, value, admission),
        }
    }

    /// [`CounterTable::add`] within a limit in the case that most requests are: the counter is at
    /// home, not synced, in use, and no process is in the way. `None` if it is another case: then
    /// nothing was counted.
    #[inline(always)]
    pub fn add_at_home(
        &self,
        counter: &Counter,
        key: &Key<'_>,
        clock: &impl Clock,
        value: Hits,
        limit: Hits,
        algorithm: Algorithm,
    ) -> Option<Counted<'m>> {
        let id = counter.identity(*key);
        let occupant = self.home(id)?;
        if !occupant.meta.is_local_counter() || !occupant.slot.has_identity(id) || counter.is_synced
        {
            return None;
        }
        let now = clock.now();
        let columns = PlainColumns::read(occupant, counter.size, now)?;
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

    /// [`CounterTable::add`] in any case.
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
                // A table without buckets would count nothing.
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
            // The slot was given to another key in this very moment.
        }
    }

    /// Counts in a slot that has no windows. `None` if it has another occupant by now.
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
        }
    }

    /// Whether a counter that is to be synced is so, and has a name, as most have.
    #[inline(always)]
    fn is_ready(&self, occupant: Occupant<'m>) -> bool {
        occupant.meta.is_synced() && occupant.slot.extension.load(Relaxed) != 0
    }

    /// Returns the least count after a refund: zero, or as far below it as a reset has gone.
    pub(super) fn least_after(&self, receipt: &Receipt<'m>) -> Hits {
        let slot = self.slot_at(self.index_of(receipt.column));
        let remote = slot.and_then(|slot| {
            let mut columns = slot.local.iter().zip(&slot.remote);
            let (_, remote) = columns.find(|(local, _)| ptr::eq(*local, receipt.column))?;
            Some(load(remote).hits_of(receipt.stamp))
        });
        Hits::ZERO.minus(remote.unwrap_or_default()).min(Hits::ZERO)
    }

    /// Sees to it that a counter which is about to change is synced, or is not, as `counter` says.
    #[cold]
    pub(super) fn prepare_sync(
        &self,
        occupant: Occupant<'m>,
        counter: &Counter,
        key: Key<'_>,
        clock: &impl Clock,
    ) {
        if occupant.meta.is_synced() != counter.is_synced {
            // As after a change of the configuration. If this fails, another process has done it, or
            // the slot has changed hands.
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

    /// Counts in a slot. `None` if it has another occupant by now: then nothing was counted.
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
                        let dropped = dropped.thousandths();
                        self.count(counter.lines, |line| line.dropped(dropped));
                    }
                    return Some(Counted::admitted(before, receipt));
                }
                Err(Missed::Changed) => {}
                Err(Missed::Gone) => return None,
            }
        }
    }

    /// Counts `value` hits in a column that was just read as `old`, by making it `new`.
    #[inline(always)]
    fn count_in(
        &self,
        column: &'m AtomicU64,
        old: WindowCount,
        new: WindowCount,
        occupant: Occupant<'m>,
        value: Hits,
    ) -> Result<Receipt<'m>, Missed> {
        // The one instruction that counts: it fails if the window was turned, if the slot
        // changed hands, or if another process counted since the limit was checked. AcqRel: the
        // next reader of the word sees the slot as this process saw it.
        let swapped = column.compare_exchange(old.bits(), new.bits(), AcqRel, Acquire);
        if swapped.is_err() {
            return Err(Missed::Changed);
        }
        fail_point!("add.counted");
        // If the slot changed hands meanwhile, the hit went with its old counter.
        if !occupant.is_there() {
            return Err(Missed::Gone);
        }
        Ok(Receipt { column, stamp: new.stamp(), value })
    }

    /// Does what is done with a hit of `key` that is not counted, since another limit refused it; returns
    /// what was counted so far.
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

    /// Reads the count of `key`: zeros for a key without a counter.
    pub fn read(&self, counter: &Counter, key: Key<'_>, clock: &impl Clock) -> Reading {
        // There is always room.
        let asked = AskedHit { limit: Hits::MAX, cost: Hits::ZERO };
        self.read_for(counter, key, asked, clock)
    }

    /// Reads the count of `key` for a caller that needs the time at which there will be room for a
    /// hit.
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
            // Acquire on the words before: if the meta is unchanged, they were the counter's.
            if occupant.is_there() {
                return reading;
            }
        }
    }

    /// Returns the hits of `key` in window number `window` that this node counted and the store, as
    /// far as this node knows, has not. For a counter that is not synced, these are all hits.
    pub fn unsent(&self, counter: &Counter, key: Key<'_>, window: u64, clock: &impl Clock) -> Hits {
        let Some(occupant) = self.find(counter.identity(key)) else {
            return Hits::ZERO;
        };
        let at = WindowPosition { number: window, elapsed: 0 };
        let counted = WindowColumns::read(occupant.slot, occupant.meta, at).counted;
        let pushed = self.pushed(occupant, window);
        let is_old = occupant.is_old(counter.size, clock.now());
        // As in `read`; a reader that sees the slot change hands sees a key that was just evicted.
        if is_old || !occupant.is_there() {
            return Hits::ZERO;
        }
        counted.minus(pushed)
    }

    /// Refunds hits that were counted in one of `counter`, unless their window or the counter is
    /// gone; returns whether it did.
    pub fn refund(&self, counter: &Counter, receipt: &Receipt<'m>) -> bool {
        match counter.kind {
            StoredKind::Windows => {}
            StoredKind::Level(kind) => {
                return self.refund_to_level(kind, counter.size, receipt);
            }
            StoredKind::Log => return self.refund_to_log(receipt),
        }
        if counter.is_synced {
            self.mark_dirty(receipt.column);
        }
        let mut word = WindowCount::from_bits(receipt.column.load(Acquire));
        while word.stamp() == receipt.stamp {
            let mut left = word.hits().minus(receipt.value);
            if left < Hits::ZERO {
                // The window may have been forgotten or reset, or have been full.
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
