//! Counters near their limits, whose hits are pushed before the period is over.
//!
//! A counter is due when the hits of this node that the store has not reach `max(1, R/2N,
//! share*L/N)`, where `L` is its limit, `R` the remaining part of `L` as known here, and `N` the
//! number of living nodes. Most counters are far from that, which a request can tell from data that
//! it has read anyway ([`CounterTable::look_at_limit`]). Only otherwise the hits that the store has
//! are read. Other nodes' hits, too, make a counter due ([`CounterTable::look_at_remote`]): without
//! that, many nodes would each keep some hits of a counter whose limit others use up. A due counter
//! gets a cell, in which the worker that pushes finds it, so that its work
//! depends on the number of due counters, not of all changes.
//!
//! The zone has a fixed number of cells, and each counter can use a few of them. If other due
//! counters occupy all of these, the namespace is marked, and all changes are pushed. A cell stays
//! in use until another counter needs it, since it contains the limit, by which the sync computes
//! how many hits were admitted above it.
//!
//! A process may end between any two steps. Counters that it did not record are pushed with the
//! period.

use crate::policy::algorithm::{Algorithm, Reading, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, UnixMillis, WindowPosition};
use crate::table::slots::admission::{Admission, Counted, Receipt};
use crate::table::slots::columns::{WindowColumns, load};
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::table::words::fail::fail_point;
use crate::table::words::meta::NamespaceIndex;
use crate::table::words::slot::{Occupant, Slot, group_of};
use crate::table::zone::counter::{Counter, Key, Part};
use crate::table::zone::counter_table::{CounterRef, CounterTable};
use crate::table::zone::near_cell::{EarlyShare, LimitWord, NearCell, NearLimit, NearWord};

/// Number of cells that a counter can use.
const PLACES: usize = if cfg!(loom) { 2 } else { 8 };

/// The result of giving a counter a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placed {
    /// The counter is newly due.
    New,
    /// The counter was due before.
    Known,
    /// There is no free cell.
    NoRoom,
}

/// Groups slot numbers. Returns each group, in order, with the bits of its slots.
pub(super) fn by_group(indices: impl IntoIterator<Item = usize>) -> Vec<(usize, u64)> {
    let places = indices.into_iter();
    let mut places: Vec<_> = places.map(group_of).collect();
    places.sort_unstable();
    places.dedup_by(|(group, bits), (before, all)| {
        let is_same = group == before;
        if is_same {
            *all |= *bits;
        }
        is_same
    });
    places
}

impl<'m> CounterTable<'m> {
    /// Checks whether a synced counter is due after a hit.
    ///
    /// Starts with a cheap test: the counter can be due only if all hits of this window, times
    /// twice the number of nodes, reach the remaining part of the limit. When half of the limit is
    /// used, the counter gets a cell, by which other nodes' hits can make it due.
    #[inline(always)]
    pub(crate) fn look_at_limit(
        &self,
        occupant: Occupant<'m>,
        counter: &Counter,
        admission: Admission,
        counted: &Counted<'m>,
        clock: &impl Clock,
    ) {
        let (Some(limit), Some(receipt)) = (admission.limit(), &counted.receipt) else {
            return;
        };
        let (hits, local) = (limit.hits.thousandths(), load(receipt.column).hits());
        let counts = counted.reading.windows();
        let known = counts.current.plus_unsaturated(counts.previous);
        if self.by_nodes(counter, local).max(known) >= hits.wrapping_sub(known) {
            self.look_closer(occupant, counter, limit, (&counted.reading, local), clock);
        }
    }

    /// Checks a counter that another limit of the same request has counted in.
    pub(crate) fn look_at_further_limit(
        &self,
        counter: &Counter,
        key: Key<'_>,
        (hits, algorithm): (Hits, Algorithm),
        reading: &Reading,
        clock: &impl Clock,
    ) {
        let Some(occupant) = self.find(counter.identity(key)).filter(|_| counter.is_synced) else {
            return;
        };
        let (limit, window) =
            (NearLimit { hits, algorithm: Some(algorithm) }, reading.windows().window);
        let at = WindowPosition { number: window, elapsed: 0 };
        let local = WindowColumns::read(occupant.slot, occupant.meta, at).counted;
        self.look_closer(occupant, counter, limit, (reading, local), clock);
    }

    /// Checks whether other nodes are to be told at once how many requests are under way, after a hold of `limit` or its
    /// release changed that. `told` are the counters in which they are told.
    pub fn look_at_holds(
        &self,
        told: &Counter,
        hold: &Receipt<'m>,
        limit: Hits,
        clock: &impl Clock,
    ) {
        let hold = self.occupant_of_hold(hold);
        let Some(occupant) = hold.and_then(|hold| self.told_of(hold)) else { return };
        let at = told.size.at(clock.now());
        let columns = WindowColumns::read(occupant.slot, occupant.meta, at);
        let change = columns.counted.minus(self.pushed(occupant, at.number)).thousandths();
        let change = Hits::from_thousandths(change.saturating_abs());
        let rest = limit.minus(columns.counted).minus(columns.remote);
        let kept = told.early.kept(self.nodes_of(told.namespace), limit, rest);
        if told.early == EarlyShare::OFF || kept.is_none_or(|kept| change < kept) {
            return;
        }
        // Without a limit, by which admitted hits would be compared.
        let placed = self.place(occupant, NearLimit { hits: limit, algorithm: None }, true);
        if placed == Placed::NoRoom {
            self.record_crowd(told.namespace);
        }
        self.ring(told.namespace, clock.now());
    }

    /// Returns `hits` times twice the number of nodes; 0 while that number is unknown.
    #[inline(always)]
    fn by_nodes(&self, counter: &Counter, hits: Hits) -> i64 {
        // 48 bits and 15 bits, so the product cannot overflow.
        let nodes = i64::from(self.nodes_of(counter.namespace));
        hits.thousandths().wrapping_mul(nodes << 1)
    }

    /// Returns the number of living nodes; 0 while it is unknown.
    #[inline(always)]
    fn nodes_of(&self, namespace: NamespaceIndex) -> u32 {
        let entry = self.parts.directory.get(namespace.get());
        entry.map_or(0, |entry| entry.nodes.load(Relaxed) as u32)
    }

    #[cold]
    #[inline(never)]
    fn look_closer(
        &self,
        occupant: Occupant<'m>,
        counter: &Counter,
        limit: NearLimit,
        (reading, local): (&Reading, Hits),
        clock: &impl Clock,
    ) {
        let window = reading.windows().window;
        let unpushed = local.minus(self.pushed(occupant, window));
        // Without a limit, the window's own hits are compared.
        let algorithm = limit.algorithm.unwrap_or(Algorithm::Fixed);
        let rest = limit.hits.minus(algorithm.rate(counter.size, reading));
        let kept = counter.early.kept(self.nodes_of(counter.namespace), limit.hits, rest);
        let is_near = kept.is_some_and(|kept| unpushed >= kept);
        if !is_near && rest.plus(rest) > limit.hits {
            return;
        }
        let is_due = is_near && counter.early != EarlyShare::OFF;
        let placed = self.place(occupant, limit, is_due);
        if is_due {
            if placed == Placed::NoRoom {
                self.record_crowd(counter.namespace);
            }
            self.ring(counter.namespace, clock.now());
        }
    }

    /// Checks whether a counter is due after other nodes' hits became known: a smaller part of its
    /// limit remains than at its last hit.
    pub fn look_at_remote(&self, found: CounterRef, counter: &Counter, clock: &impl Clock) {
        let early = counter.early;
        let Some(occupant) = self.occupant_of(found).filter(|_| early != EarlyShare::OFF) else {
            return;
        };
        let index = self.index_of(occupant.slot);
        let word = NearWord::new(index, occupant.meta);
        let Some((cell, _)) = self.cells_of(word).find(|(_, found)| *found == word) else {
            return;
        };
        let now = clock.now();
        if self.is_due_still(cell, index, early, now) {
            // If the exchange fails, another process has changed the cell: a hit made the counter
            // due, or another counter has the cell now.
            let placed = cell.counter.compare_exchange(word.0, word.due().0, AcqRel, Relaxed);
            fail_point!("near.heard");
            if placed.is_ok() {
                self.ring(counter.namespace, now);
            }
        }
    }

    /// Gives a counter a cell.
    fn place(&self, occupant: Occupant<'m>, limit: NearLimit, is_due: bool) -> Placed {
        let word = NearWord::new(self.index_of(occupant.slot), occupant.meta);
        let limit = limit.algorithm.map(|it| LimitWord::new(word, limit.hits, it));
        let new = if is_due { word.due() } else { word };
        for _ in 0..PLACES {
            let cells = || self.cells_of(word);
            let known = cells().find(|(_, found)| found.not_due() == word);
            // A cell that was never used, or whose counter is not due any more.
            let free = || cells().find(|(_, found)| !found.is_due());
            let Some((cell, found)) = known.or_else(free) else {
                return Placed::NoRoom;
            };
            // Before the counter, so that a reader of the counter finds its own limit. Until then,
            // the limit's tag matches no counter.
            if let Some(limit) = &limit {
                cell.limit.store(limit.0, Release);
            }
            fail_point!("near.limited");
            if found == new || found == word.due() {
                return Placed::Known;
            }
            let swapped = cell.counter.compare_exchange(found.0, new.0, AcqRel, Relaxed);
            // If the exchange fails, another process is using the cell.
            if swapped.is_ok() {
                fail_point!("near.placed");
                return if is_due { Placed::New } else { Placed::Known };
            }
        }
        Placed::NoRoom
    }

    /// Returns the cells that a counter can use, with their contents.
    fn cells_of(&self, word: NearWord) -> impl Iterator<Item = (&'m NearCell, NearWord)> {
        let cells: &'m [NearCell] = self.parts.near;
        let mixed = (word.0 >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let start = (mixed as usize).checked_rem(cells.len()).unwrap_or_default();
        let (before, after) = cells.split_at_checked(start).unwrap_or_default();
        let cells = after.iter().chain(before).take(PLACES);
        cells.map(|cell| (cell, NearWord(cell.counter.load(Acquire))))
    }

    /// Returns the limit that a counter last came near to; `None` if it is not known any more.
    pub fn limit_of(&self, counter: CounterRef) -> Option<(Hits, Algorithm)> {
        let occupant = self.occupant_of(counter)?;
        let word = NearWord::new(self.index_of(occupant.slot), occupant.meta);
        let mut cells = self.cells_of(word);
        let (cell, _) = cells.find(|(_, found)| found.not_due() == word)?;
        LimitWord(cell.limit.load(Acquire)).limit_of(word)
    }

    /// Returns how many of the last `diff` hits that this node pushed exceed the counter's limit,
    /// by the store's count, or in a sliding window by the rate at `now`. At most `diff`; zero if
    /// the limit is unknown.
    pub fn excess(&self, counter: CounterRef, window: u64, diff: Hits, now: UnixMillis) -> Hits {
        let (Some(occupant), Some((limit, algorithm))) =
            (self.occupant_of(counter), self.limit_of(counter))
        else {
            return Hits::ZERO;
        };
        let Some(size) = occupant.meta.size() else {
            return Hits::ZERO;
        };
        let at = size.at(now);
        let elapsed = match at.number == window {
            true => at.elapsed,
            // In a window that has ended, the previous window does not count any more.
            false => size.millis(),
        };
        let number = window;
        let columns =
            WindowColumns::read(occupant.slot, occupant.meta, WindowPosition { number, elapsed });
        let has = self.pushed(occupant, window).plus_at_least_zero(columns.remote);
        let has = WindowCounts::of(columns.at, has, columns.previous);
        let above = algorithm.rate(size, &has.into()).minus(limit);
        above.min(diff).max(Hits::ZERO)
    }

    /// Returns whether counters of `part` are due.
    pub fn has_due<'p>(&self, part: impl Into<Part<'p>>) -> bool {
        let part = part.into();
        let mut cells = self.parts.near.iter();
        cells.any(|cell| self.due_in(cell, part).is_some())
    }

    /// Takes the counters of `part` that are still due when nodes keep `early`, as places for
    /// [`CounterTable::take_changes_at`], in the order of groups. A counter may not be due any more
    /// if it was hit while its hits were in flight.
    pub fn take_due<'p>(
        &self,
        part: impl Into<Part<'p>>,
        early: EarlyShare,
        now: UnixMillis,
    ) -> Vec<(usize, u64)> {
        let part = part.into();
        let mut due = Vec::new();
        for cell in self.parts.near {
            let Some((word, index)) = self.due_in(cell, part) else {
                self.free_if_gone(cell);
                continue;
            };
            // Before the counter is read, so that a later hit makes it due again. If the exchange
            // fails, another process has taken it.
            let rest = word.not_due().0;
            let taken = cell.counter.compare_exchange(word.0, rest, AcqRel, Relaxed);
            fail_point!("near.taken");
            if taken.is_ok() && self.is_due_still(cell, index, early, now) {
                due.push(index);
            }
        }
        by_group(due)
    }

    /// Returns whether the counter in slot `index` is still due, with the hits that the store has
    /// now.
    fn is_due_still(
        &self,
        cell: &NearCell,
        index: usize,
        early: EarlyShare,
        now: UnixMillis,
    ) -> bool {
        let occupant = self.slot_at(index).map(Occupant::of);
        let sized = occupant.and_then(|it| Some((it, it.meta.size()?)));
        let Some((occupant, size)) = sized else {
            return false;
        };
        let word = NearWord::new(index, occupant.meta);
        let limit = LimitWord(cell.limit.load(Acquire)).limit_of(word);
        // Without a known limit, the counter cannot be compared.
        let Some((limit, algorithm)) = limit else {
            return true;
        };
        let columns = WindowColumns::read_ahead(occupant, size, now);
        let unpushed = columns.counted.minus(self.pushed(occupant, columns.at.number));
        let rest = limit.minus(algorithm.rate(size, &columns.reading()));
        let kept = early.kept(self.nodes_of(occupant.meta.namespace()), limit, rest);
        kept.is_some_and(|kept| unpushed >= kept)
    }

    /// Frees the cell of a due counter that is gone.
    fn free_if_gone(&self, cell: &NearCell) {
        let word = NearWord(cell.counter.load(Acquire));
        let Some((index, generation)) = word.counter().filter(|_| word.is_due()) else {
            return;
        };
        let meta = self.slot_at(index).map(Slot::meta);
        if meta.is_none_or(|meta| meta.generation().bits() != generation || !meta.is_synced()) {
            let _ = cell.counter.compare_exchange(word.0, 0, AcqRel, Relaxed);
            fail_point!("near.freed");
        }
    }

    /// Marks all counters as not due.
    pub(crate) fn forget_due(&self) {
        for cell in self.parts.near {
            cell.counter.store(0, Release);
            fail_point!("near.forgotten");
        }
    }

    /// Returns the word of a cell, and the slot's index, if its counter is due and in `part`.
    fn due_in(&self, cell: &NearCell, part: Part<'_>) -> Option<(NearWord, usize)> {
        let word = NearWord(cell.counter.load(Acquire));
        let (index, _) = word.counter().filter(|_| word.is_due())?;
        self.near_occupant(word, part).map(|_| (word, index))
    }

    /// Returns the counter of a cell with this word, if it still exists and is in `part`.
    pub(super) fn near_occupant(&self, word: NearWord, part: Part<'_>) -> Option<Occupant<'m>> {
        let (index, generation) = word.counter()?;
        let occupant = Occupant::of(self.slot_at(index)?);
        let meta = occupant.meta;
        let is_it = meta.is_synced() && meta.generation().bits() == generation;
        (is_it && self.is_in(part, occupant, false)).then_some(occupant)
    }
}
