//! Counts, reads and refunds hits in logs, for limits with a moving window.

use crate::policy::algorithm::{Algorithm, MovingCount, Reading};
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, UnixMillis, WindowSize};
use crate::table::slots::admission::{Admission, AskedHit, Counted, Receipt};
use crate::table::slots::insertion::relax_before;
use crate::table::slots::log::{Leaving, LogEntry, LogTime, MOST, newest, newest_word};
use crate::table::slots::log_chain::{End, LogPlace, is_unused};
use crate::table::slots::log_search::FEW;
use crate::table::words::fail::fail_point;
use crate::table::words::slot::{Lost, Occupant};
use crate::table::words::word::Stamp;
use crate::table::zone::counter::{Counter, Key};
use crate::table::zone::counter_table::CounterTable;

/// Reads of an incomplete log after which it is given up, since the process that was changing it
/// may have ended.
const PATIENCE: u32 = if cfg!(loom) { 50 } else { 100_000 };

/// Entries in addition to those of the limit, such as the base.
const EXTRA_ENTRIES: usize = 2;

/// A log as seen for one window.
#[derive(Clone, Copy)]
struct LogView<'m> {
    newest: LogEntry,
    /// The base; `None` without a chain.
    base: Option<LogPlace<'m>>,
    /// Whether the base is not yet the beginning of the chain.
    is_base_new: bool,
    base_sum: u64,
    /// Thousandths of hits counted after the base.
    hits: u64,
    /// Time of the oldest entry in the window.
    oldest: LogTime,
    /// Whether all entries have left the window.
    has_left: bool,
}

/// Returns the most entries of a log with this limit, in which `hits` thousandths are in the
/// window.
fn most_entries(limit: Hits, hits: u64) -> usize {
    let entries = MovingCount::most_entries(limit, to_hits(hits));
    // Blocks with back links have one word less for entries.
    let entries = usize::try_from(entries.saturating_add(entries / 64));
    entries.unwrap_or(1).saturating_add(EXTRA_ENTRIES)
}

fn to_hits(thousandths: u64) -> Hits {
    Hits::from_thousandths(i64::try_from(thousandths).unwrap_or(i64::MAX))
}

/// Returns the stamp that distinguishes a time from others of the last minute, and an occupancy of
/// the slot from the next.
fn stamp(time: LogTime, occupant: Occupant<'_>) -> Stamp {
    let generation = occupant.meta.generation().bits();
    Stamp::from_bits(time.lowest_bits().wrapping_add(generation))
}

impl<'m> CounterTable<'m> {
    /// Counts `value` hits of `key`, above zero, in a log within `limit`, but only in the most
    /// frequent case: the counter is in its home slot. Otherwise returns `None` and counts nothing.
    #[inline(always)]
    pub fn add_to_log_at_home(
        &self,
        counter: &Counter,
        key: &Key<'_>,
        clock: &impl Clock,
        value: Hits,
        limit: Hits,
    ) -> Option<Counted<'m>> {
        let id = counter.identity(*key);
        let occupant = self.home(id)?;
        if !occupant.meta.is_log() || !occupant.slot.has_identity(id) {
            return None;
        }
        let admission = Admission::Within(limit, Algorithm::Moving);
        let counted = self.try_add_to_log(occupant, counter.size, clock, value, admission);
        counted.ok()
    }

    /// Counts `value` hits in a log if `admission` allows it. `None`, without counting, if the slot
    /// has another occupant by now.
    #[cold]
    #[inline(never)]
    pub(super) fn add_to_log(
        &self,
        occupant: Occupant<'m>,
        size: WindowSize,
        clock: &impl Clock,
        value: Hits,
        admission: Admission,
    ) -> Option<Counted<'m>> {
        for look in 1..=PATIENCE {
            let counted = self.try_add_to_log(occupant, size, clock, value, admission);
            if counted.is_ok() || !occupant.is_there() {
                return counted.ok();
            }
            relax_before(look);
        }
        // The log was never complete.
        self.give_up(occupant);
        None
    }

    /// Counts as `add_to_log` does, unless another process interferes.
    // Always inlined, so that the view of the log stays in registers.
    #[inline(always)]
    fn try_add_to_log(
        &self,
        occupant: Occupant<'m>,
        size: WindowSize,
        clock: &impl Clock,
        value: Hits,
        admission: Admission,
    ) -> Result<Counted<'m>, Lost> {
        let limit = match admission {
            Admission::Within(limit, _)
            | Admission::Regardless(limit)
            | Admission::Latest(limit)
            | Admission::Filling(limit) => limit,
            Admission::Unconditional | Admission::Refused => Hits::MAX,
        };
        let asked = AskedHit { limit, cost: value };
        let mut now = clock.now();
        let newest = newest(occupant.slot);
        if newest.time().is_ahead(now) {
            // This process has an old time, or the clock was set back.
            now = clock.fresh();
        }
        let mut view = self.view_of_log(occupant, newest, size, now)?;
        if let Admission::Latest(limit) = admission {
            self.drop_oldest(occupant, &mut view, limit.minus(value))?;
        }
        let before = MovingCount { hits: to_hits(view.hits), ..MovingCount::default() };
        if !admission.admits(size, &before.into(), value) {
            let reading = self.reading_of_log(occupant, &view, asked, size, now);
            return match occupant.is_there() {
                true => Ok(Counted::refused(reading)),
                false => Err(Lost),
            };
        }
        // Before the hit, so that a reader of the hit sees that the counter is in use.
        occupant.touch(now);
        let hits = u64::try_from(value.thousandths()).unwrap_or_default();
        let most = most_entries(limit, view.hits.saturating_add(hits));
        let after = self.count_in_log(occupant, &view, (hits, now), most, clock);
        fail_point!("log.counted");
        if !occupant.is_there() {
            // The hit was lost with the old counter.
            return Err(Lost);
        }
        let after = after?;
        Ok(Counted {
            reading: self.reading_of_log(occupant, &after, asked, size, now),
            admitted: true,
            receipt: Some(Receipt {
                column: newest_word(occupant.slot),
                stamp: stamp(after.newest.time(), occupant),
                value,
            }),
        })
    }

    /// Returns the view of a log for the window that ends at `now`. Its newest entry was read
    /// before.
    #[inline(always)]
    fn view_of_log(
        &self,
        occupant: Occupant<'m>,
        newest: LogEntry,
        size: WindowSize,
        now: UnixMillis,
    ) -> Result<LogView<'m>, Lost> {
        let leaving = newest.time().leaving(size, now);
        let leaving = leaving.filter(|_| !is_unused(occupant, size, now));
        let mut view = LogView {
            newest,
            base: self.tail(occupant)?,
            is_base_new: false,
            base_sum: LogEntry::first(occupant.meta.generation()).sum(),
            hits: 0,
            oldest: newest.time(),
            has_left: leaving.is_none(),
        };
        let Some(leaving) = leaving else {
            return Ok(view);
        };
        if let Some(mut base) = view.base {
            let mut sum = base.entry()?.ok_or(Lost)?.sum();
            let mut left = FEW;
            while let Some(place) = self.next_place(occupant, base)? {
                match place.entry()? {
                    // An entry whose hits were refunded does not count, either.
                    Some(entry) if leaving.has_left(entry) || entry.sum() == sum => {
                        (base, sum) = (place, entry.sum());
                        view.is_base_new = true;
                        left = left.wrapping_sub(1);
                        if left == 0 {
                            base = self.search_base(occupant, base, (leaving, sum))?;
                            (sum, left) = (base.entry()?.ok_or(Lost)?.sum(), FEW);
                        }
                    }
                    Some(entry) => {
                        view.oldest = entry.time();
                        break;
                    }
                    None => break,
                }
            }
            (view.base, view.base_sum) = (Some(base), sum);
        }
        view.hits = newest.since(view.base_sum);
        Ok(view)
    }

    /// Drops the oldest hits from a view, so far that at least `kept` are left.
    #[cold]
    #[inline(never)]
    fn drop_oldest(
        &self,
        occupant: Occupant<'m>,
        view: &mut LogView<'m>,
        kept: Hits,
    ) -> Result<(), Lost> {
        let kept = u64::try_from(kept.thousandths()).unwrap_or_default();
        while let Some(base) = view.base.filter(|_| !view.has_left)
            && let Some(place) = self.next_place(occupant, base)?
            && let Some(entry) = place.entry()?
            && view.newest.since(entry.sum()) >= kept
        {
            (view.base, view.is_base_new) = (Some(place), true);
            (view.base_sum, view.hits) = (entry.sum(), view.newest.since(entry.sum()));
            let next = self.next_place(occupant, place)?;
            let next = next.map(|place| place.entry()).transpose()?.flatten();
            view.oldest = next.map_or(view.newest.time(), LogEntry::time);
        }
        Ok(())
    }

    /// Returns the last entry before which all have left the window, or one a few blocks before it.
    /// `base` has left the window.
    #[cold]
    #[inline(never)]
    fn search_base(
        &self,
        occupant: Occupant<'m>,
        base: LogPlace<'m>,
        (leaving, sum): (Leaving, u64),
    ) -> Result<LogPlace<'m>, Lost> {
        let has_left = |entry: LogEntry| leaving.has_left(entry) || entry.sum() == sum;
        self.last_place(occupant, base, has_left)
    }

    /// Counts hits in the log that `view` shows. Returns the view afterwards. Fails, without
    /// counting, if the log has changed.
    #[inline(always)]
    fn count_in_log(
        &self,
        occupant: Occupant<'m>,
        view: &LogView<'m>,
        (value, now): (u64, UnixMillis),
        most: usize,
        clock: &impl Clock,
    ) -> Result<LogView<'m>, Lost> {
        let (word, newest) = (newest_word(occupant.slot), view.newest);
        let at = match view.has_left {
            // In a log that was unused for long, the newest time can be any.
            true => LogTime::of(now),
            false => newest.time().of_hit(now),
        };
        if view.has_left && !newest.is_marked() {
            return self.restart_log(occupant, view, (value, at), clock);
        }
        if let Some(base) = view.base.filter(|_| view.is_base_new) {
            self.advance(occupant, &base, clock);
        }
        let value = value.min(MOST.saturating_sub(view.hits));
        let sum = newest.sum().wrapping_add(value);
        let hits = view.hits.wrapping_add(value);
        let mut end = None;
        if !newest.is_marked() {
            if at == newest.time() {
                let entry = LogEntry::new(at, sum);
                newest.replace(word, entry)?;
                return Ok(LogView { newest: entry, hits, ..*view });
            }
            // Before closing the entry, since a closed entry must have a place.
            end = self.with_room(occupant, view.base, most, clock)?;
            // An entry without hits, as after a refund, needs no copy.
            if end.is_none_or(|end| end.last.sum() == newest.sum()) {
                return merge(occupant, view, LogEntry::new(at, sum), hits);
            }
            newest.replace(word, newest.marked())?;
            fail_point!("log.closed");
        }
        let closed = newest.marked();
        let at = if at == closed.time() { at.next() } else { at };
        let entry = LogEntry::new(at, sum);
        let Some(copy) = self.append(occupant, closed, end, most, clock)? else {
            let view = LogView { newest: closed, ..*view };
            return merge(occupant, &view, entry, hits);
        };
        closed.replace(word, entry)?;
        fail_point!("log.replaced");
        let view = LogView { newest: entry, hits, ..*view };
        if !view.has_left {
            return Ok(view);
        }
        self.advance(occupant, &copy, clock);
        Ok(LogView {
            base: Some(copy),
            base_sum: closed.sum(),
            oldest: at,
            has_left: false,
            ..view
        })
    }

    /// Counts hits in a log whose entries have all left the window. The last entry of the chain
    /// becomes the base, and the newest entry is dropped.
    #[cold]
    #[inline(never)]
    fn restart_log(
        &self,
        occupant: Occupant<'m>,
        view: &LogView<'m>,
        (value, at): (u64, LogTime),
        clock: &impl Clock,
    ) -> Result<LogView<'m>, Lost> {
        let (mut at, mut base, mut base_sum) = (at, None, view.base_sum);
        if let Some(End { last, at: place, .. }) = self.end(occupant)? {
            self.advance(occupant, &place, clock);
            (base, base_sum) = (Some(place), last.sum());
            if last.time() == at {
                at = at.next();
            }
        }
        let value = value.min(MOST);
        let entry = LogEntry::new(at, base_sum.wrapping_add(value));
        view.newest.replace(newest_word(occupant.slot), entry)?;
        Ok(LogView {
            newest: entry,
            base,
            is_base_new: false,
            base_sum,
            hits: value,
            oldest: at,
            has_left: false,
        })
    }

    /// Returns the reading of a view.
    #[inline(always)]
    fn reading_of_log(
        &self,
        occupant: Occupant<'m>,
        view: &LogView<'m>,
        asked: AskedHit,
        size: WindowSize,
        now: UnixMillis,
    ) -> Reading {
        let age = if view.hits == 0 { 0 } else { view.oldest.age(now) };
        let count = MovingCount {
            hits: to_hits(view.hits),
            oldest: UnixMillis(now.0.saturating_sub(age)),
            age,
            wait: self.wait_for_log(occupant, view, asked, size, now),
        };
        count.into()
    }

    /// Returns the milliseconds until enough hits have left for the asked ones; 0 if there is room,
    /// or never will be.
    fn wait_for_log(
        &self,
        occupant: Occupant<'m>,
        view: &LogView<'m>,
        AskedHit { limit, cost }: AskedHit,
        size: WindowSize,
        now: UnixMillis,
    ) -> u64 {
        let limit = limit.min(MovingCount::MAX_LIMIT).thousandths();
        let cost = cost.thousandths();
        // For a cost of zero, the rate must be below the limit.
        let room = limit.wrapping_sub(cost.max(1));
        let (Ok(room), false) = (u64::try_from(room), view.has_left) else {
            return 0;
        };
        let Some(excess) = view.hits.checked_sub(room).filter(|excess| *excess > 0) else {
            return 0;
        };
        let time = self.obstacle_in_log(occupant, view, excess);
        let time = time.unwrap_or(view.newest.time());
        let end = size.millis().saturating_add(1);
        end.saturating_sub(time.age(now))
    }

    /// Returns the time of the entry with which at least `excess` thousandths have left; `None`
    /// stands for the newest entry.
    fn obstacle_in_log(
        &self,
        occupant: Occupant<'m>,
        view: &LogView<'m>,
        excess: u64,
    ) -> Option<LogTime> {
        // The chain may have been created since.
        let base = view.base.or_else(|| self.tail(occupant).ok().flatten())?;
        let is_too_little = |entry: LogEntry| entry.since(view.base_sum) < excess;
        let place = self.last_place(occupant, base, is_too_little).ok()?;
        let next = self.next_place(occupant, place).ok().flatten()?;
        Some(next.entry().ok().flatten()?.time())
    }

    /// Reads the log of `key`; empty without a counter.
    pub(super) fn read_log(
        &self,
        counter: &Counter,
        key: Key<'_>,
        asked: AskedHit,
        clock: &impl Clock,
    ) -> Reading {
        let (size, mut now) = (counter.size, clock.now());
        for look in 1..=PATIENCE {
            let Some(occupant) = self.find(counter.identity(key)) else {
                break;
            };
            let entry = newest(occupant.slot);
            if entry.time().is_ahead(now) {
                now = clock.fresh();
            }
            if let Ok(view) = self.view_of_log(occupant, entry, size, now) {
                let reading = self.reading_of_log(occupant, &view, asked, size, now);
                if newest(occupant.slot) == entry && occupant.is_there() {
                    return reading;
                }
            }
            relax_before(look);
        }
        let nothing = MovingCount { oldest: now, ..MovingCount::default() };
        nothing.into()
    }

    /// Refunds hits of a log that were counted at most a minute before its newest hit, unless they
    /// have left the window or the log is gone. Returns whether it did.
    ///
    /// Lowers the sums of all entries from theirs on, the newest last. Until then, or if this
    /// process ends before, the hits count at the time of a later entry.
    pub(super) fn refund_to_log(&self, receipt: &Receipt<'m>) -> bool {
        let Some(slot) = self.slot_at(self.index_of(receipt.column)) else {
            return false;
        };
        let occupant = Occupant::of(slot);
        if !occupant.meta.is_log() {
            return false;
        }
        let generation = occupant.meta.generation().bits();
        let bits = receipt.stamp.bits().wrapping_sub(generation);
        let time = newest(slot).time().last_with(bits);
        let value = u64::try_from(receipt.value.thousandths()).unwrap_or_default();
        // The last entry of the chain that was lowered.
        let mut lowered: Option<LogPlace<'m>> = None;
        for look in 1..=PATIENCE {
            if !occupant.is_there() {
                return false;
            }
            match self.lower_log(occupant, time, value, &mut lowered) {
                Ok(is_lowered) => return is_lowered,
                Err(Lost) => relax_before(look),
            }
        }
        false
    }

    /// Lowers the entries from `time` on, after the last one that was `lowered`.
    fn lower_log(
        &self,
        occupant: Occupant<'m>,
        time: LogTime,
        value: u64,
        lowered: &mut Option<LogPlace<'m>>,
    ) -> Result<bool, Lost> {
        let word = newest_word(occupant.slot);
        let entry = newest(occupant.slot);
        if lowered.is_none() && entry.time() == time && !entry.is_marked() {
            // The usual case: nothing was counted since.
            entry.replace(word, entry.without(value))?;
            fail_point!("log.refunded");
            return Ok(true);
        }
        if let Some(start) = self.start_of_lowering(occupant, time, *lowered)? {
            let mut place = start;
            while let Some(next) = self.next_place(occupant, place)? {
                let Some(old) = next.entry()? else {
                    break;
                };
                if !old.time().is_before(time) {
                    old.replace(next.word()?, old.without(value))?;
                    fail_point!("log.lowered");
                    *lowered = Some(next);
                }
                place = next;
            }
        } else if self.tail(occupant)?.is_some() {
            // The hits have left the window.
            return Ok(false);
        }
        // The entry may have been appended since, and must then be lowered in the chain.
        if newest(occupant.slot) != entry {
            return Err(Lost);
        }
        if !entry.is_marked() {
            entry.replace(word, entry.without(value))?;
        } else {
            let last = lowered.as_ref().map_or(Ok(None), LogPlace::entry)?;
            let is_appended = last.is_some_and(|last| last.time() == entry.time());
            if !is_appended && self.append_at_hand(occupant, entry)? {
                // The entry was appended, and must be lowered in the chain.
                return Err(Lost);
            }
            let reopened = LogEntry::new(entry.time().next(), entry.sum());
            entry.replace(word, reopened.without(value))?;
        }
        fail_point!("log.refunded");
        Ok(true)
    }

    /// Returns the place after which entries must be lowered. `None` without a chain, or if the
    /// hits have left the window.
    fn start_of_lowering(
        &self,
        occupant: Occupant<'m>,
        time: LogTime,
        lowered: Option<LogPlace<'m>>,
    ) -> Result<Option<LogPlace<'m>>, Lost> {
        if lowered.is_some() {
            return Ok(lowered);
        }
        let Some(tail) = self.tail(occupant)? else {
            return Ok(None);
        };
        if !tail.entry()?.ok_or(Lost)?.time().is_before(time) {
            return Ok(None);
        }
        // Starts near the end if no earlier entry has the time.
        match self.head_before(occupant, &tail, time) {
            Some(head) => Ok(Some(head)),
            None => {
                let is_before = |entry: LogEntry| entry.time().is_before(time);
                self.last_place(occupant, tail, is_before).map(Some)
            }
        }
    }
}

/// Counts a hit without a new entry: all hits of the newest entry get its time.
fn merge<'m>(
    occupant: Occupant<'m>,
    view: &LogView<'m>,
    entry: LogEntry,
    hits: u64,
) -> Result<LogView<'m>, Lost> {
    view.newest.replace(newest_word(occupant.slot), entry)?;
    fail_point!("log.merged");
    let is_oldest = view.oldest == view.newest.time();
    Ok(LogView {
        newest: entry,
        hits,
        oldest: if is_oldest { entry.time() } else { view.oldest },
        ..*view
    })
}
