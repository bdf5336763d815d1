//! Counters that come near their limits: those whose hits are to be pushed before the period is over, and the
//! limits of those.
//!
//! A counter is due when its hits that the store has not, on this node, reach `max(1, R/2N, share*L/N)`: `L`
//! its limit, `R` what remains of that as known here, `N` the nodes that live. Most counters are far from
//! that: then what a request has in hand says so ([`CounterTable::look_at_limit`]). Otherwise what the store
//! has is looked up, and a counter that is due gets a cell, in which the worker that pushes finds it, so that its work
//! follows the counters that are due, and not all that changed.
//!
//! There are some cells for the whole zone. A counter has a place in a few of them. If all of these are of
//! counters that are due, its namespace is noted to have more than there are cells for: then all that changed is pushed.
//! A cell is kept while nothing else needs it, for the limit: with that, the sync tells what was admitted above it.
//!
//! A process may end between any two steps: what was not noted is pushed with the period.

use crate::policy::algorithm::{Algorithm, Reading, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, UnixMillis, WindowPosition};
use crate::table::slots::admission::{Admission, Counted};
use crate::table::slots::columns::{WindowColumns, load};
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::table::words::fail::fail_point;
use crate::table::words::meta::NamespaceIndex;
use crate::table::words::part::Part;
use crate::table::words::slot::{Occupant, Slot};
use crate::table::zone::counter::{Counter, Key};
use crate::table::zone::counter_ref::CounterRef;
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::near_cell::{EarlyShare, LimitWord, NearCell, NearLimit, NearWord};

/// In how many cells a counter has a place.
const PLACES: usize = if cfg!(loom) { 2 } else { 8 };

/// The result of giving a counter a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placed {
    /// It is due now, and was not before.
    New,
    /// There is nothing new to tell.
    Known,
    /// There is none.
    NoRoom,
}

/// Groups slot numbers: returns each group, in order, with the bits of its slots.
pub(super) fn by_group(indices: impl IntoIterator<Item = usize>) -> Vec<(usize, u64)> {
    let places = indices.into_iter();
    let mut places: Vec<_> = places.map(|it| (it / 64, 1 << (it % 64))).collect();
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
    /// Looks whether a synced counter is due that was just counted in.
    ///
    /// Only if all of this window's hits, times twice the nodes, are what remains of the limit at least. That is
    /// looked at first.
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
        if self.by_nodes(counter, local) >= hits.wrapping_sub(known) {
            self.look_closer(occupant, counter, limit, (&counted.reading, local), clock);
        }
    }

    /// Looks at a counter that another limit of the same request has counted in.
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

    /// Returns the hits times twice the number of nodes; 0 before that number is known.
    #[inline(always)]
    fn by_nodes(&self, counter: &Counter, hits: Hits) -> i64 {
        // 48 bits, and 15.
        let nodes = i64::from(self.nodes_of(counter.namespace));
        hits.thousandths().wrapping_mul(nodes << 1)
    }

    /// Returns the number of living nodes; 0 before it is known.
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
        // Of what refuses nothing, the window's own hits are what is near.
        let algorithm = limit.algorithm.unwrap_or(Algorithm::Fixed);
        let rest = limit.hits.minus(algorithm.rate(counter.size, reading));
        let kept = counter.early.kept(self.nodes_of(counter.namespace), limit.hits, rest);
        if kept.is_none_or(|kept| unpushed < kept) {
            return;
        }
        let is_due = counter.early != EarlyShare::OFF;
        let placed = self.place(occupant, limit, is_due);
        if is_due {
            if placed == Placed::NoRoom {
                self.record_crowd(counter.namespace);
            }
            self.ring(counter.namespace, clock.now());
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
            // What was never used, or is not due any more.
            let free = || cells().find(|(_, found)| !found.is_due());
            let Some((cell, found)) = known.or_else(free) else {
                return Placed::NoRoom;
            };
            // Before the counter: whoever reads it there finds its own limit. Until then, its tag is of no use.
            if let Some(limit) = &limit {
                cell.limit.store(limit.0, Release);
            }
            fail_point!("near.limited");
            if found == new || found == word.due() {
                return Placed::Known;
            }
            let swapped = cell.counter.compare_exchange(found.0, new.0, AcqRel, Relaxed);
            // If it fails, another process is at it.
            if swapped.is_ok() {
                fail_point!("near.placed");
                return if is_due { Placed::New } else { Placed::Known };
            }
        }
        Placed::NoRoom
    }

    /// The cells in which a counter has a place, with what they hold.
    fn cells_of(&self, word: NearWord) -> impl Iterator<Item = (&'m NearCell, NearWord)> {
        let cells: &'m [NearCell] = self.parts.near;
        let mixed = (word.0 >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let start = (mixed as usize).checked_rem(cells.len()).unwrap_or_default();
        let (before, after) = cells.split_at_checked(start).unwrap_or_default();
        let cells = after.iter().chain(before).take(PLACES);
        cells.map(|cell| (cell, NearWord(cell.counter.load(Acquire))))
    }

    /// The limit under which a counter came near it last, if that is known still.
    pub fn limit_of(&self, counter: CounterRef) -> Option<(Hits, Algorithm)> {
        let occupant = self.occupant_of(counter)?;
        let word = NearWord::new(self.index_of(occupant.slot), occupant.meta);
        let mut cells = self.cells_of(word);
        let (cell, _) = cells.find(|(_, found)| found.not_due() == word)?;
        LimitWord(cell.limit.load(Acquire)).limit_of(word)
    }

    /// Returns how many of the last `diff` hits that this node pushed exceed the counter's limit.
    /// They exceed it by the store's count, or in a sliding window by the rate at `now`; `diff` at
    /// most. Zero if no limit is known.
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
            // Of one that has ended, what was before it does not count any more.
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

    /// Whether counters of `part` are due.
    pub fn has_due<'p>(&self, part: impl Into<Part<'p>>) -> bool {
        let part = part.into();
        let mut cells = self.parts.near.iter();
        cells.any(|cell| self.due_in(cell, part).is_some())
    }

    /// Takes the counters of `part` that are due still, where nodes keep `early`: where
    /// [`CounterTable::take_changes_at`] finds them, in the order of groups. One was counted in while its hits were
    /// on their way may be due no more.
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
            // Before the counter is read: if hits are counted meanwhile, it may be due again. If this fails,
            // another process has taken it.
            let rest = word.not_due().0;
            let taken = cell.counter.compare_exchange(word.0, rest, AcqRel, Relaxed);
            fail_point!("near.taken");
            if taken.is_ok() && self.is_due_still(cell, index, early, now) {
                due.push(index);
            }
        }
        by_group(due)
    }

    /// Whether the counter in slot number `index`, which was due, is so by what the store has now.
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
        // One beyond which hits are counted is not known.
        let Some((limit, algorithm)) = limit else {
            return true;
        };
        let columns = WindowColumns::read_ahead(occupant, size, now);
        let unpushed = columns.counted.minus(self.pushed(occupant, columns.at.number));
        let rest = limit.minus(algorithm.rate(size, &columns.reading()));
        let kept = early.kept(self.nodes_of(occupant.meta.namespace()), limit, rest);
        kept.is_some_and(|kept| unpushed >= kept)
    }

    /// Frees the cell of a counter that is due, and gone.
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

    /// Forgets which counters are due.
    pub(crate) fn forget_due(&self) {
        for cell in self.parts.near {
            cell.counter.store(0, Release);
            fail_point!("near.forgotten");
        }
    }

    /// Returns the word of a cell, and the index of the slot, if the cell is of a counter of `part`
    /// that is due.
    fn due_in(&self, cell: &NearCell, part: Part<'_>) -> Option<(NearWord, usize)> {
        let word = NearWord(cell.counter.load(Acquire));
        let (index, _) = word.counter().filter(|_| word.is_due())?;
        self.near_occupant(word, part).map(|_| (word, index))
    }

    /// The counter that a cell with this word is of, if it is there still and one of `part`.
    pub(super) fn near_occupant(&self, word: NearWord, part: Part<'_>) -> Option<Occupant<'m>> {
        let (index, generation) = word.counter()?;
        let occupant = Occupant::of(self.slot_at(index)?);
        let meta = occupant.meta;
        let is_it = meta.is_synced() && meta.generation().bits() == generation;
        (is_it && self.is_in(part, occupant, false)).then_some(occupant)
    }
}
