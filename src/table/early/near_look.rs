//! Counters near their limits, of stores without a channel: how fast they grow says when the store is asked what others
//! have pushed ([`PollSchedule`](crate::engine::PollSchedule)).

use super::near::by_group;
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowPosition, WindowSize};
use crate::table::slots::columns::WindowColumns;
use crate::table::words::atomic::Ordering::Acquire;
use crate::table::words::part::Part;
use crate::table::words::slot::Occupant;
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::near_cell::{LimitWord, NearCell, NearWord};

/// A counter that came near its limit, as it is known at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearCount {
    /// Occupancy of the counter: the same number while the counter stays in its slot.
    pub occupancy: u64,
    /// The size of its windows.
    pub size: WindowSize,
    /// The window that it is, and the time in it.
    pub at: WindowPosition,
    /// Hits of all nodes in this window.
    pub hits: Hits,
    /// Its limit, and how it is read.
    pub limit: (Hits, Algorithm),
    /// Used part of the limit.
    pub rate: Hits,
}

impl<'m> CounterTable<'m> {
    /// The counters of `part` that came near a limit, as long as that is known.
    pub fn near<'p>(
        &self,
        part: impl Into<Part<'p>>,
        now: UnixMillis,
    ) -> impl Iterator<Item = NearCount> {
        let part = part.into();
        let cells = self.parts.near.iter();
        cells.filter_map(move |cell| {
            let (word, occupant) = self.occupant_in(cell, part)?;
            let limit = LimitWord(cell.limit.load(Acquire)).limit_of(word)?;
            let (_, algorithm) = limit;
            let size = occupant.meta.size()?;
            if occupant.is_old(size, now) {
                return None;
            }
            let columns = WindowColumns::read_ahead(occupant, size, now);
            Some(NearCount {
                occupancy: word.0,
                size,
                at: columns.at,
                hits: columns.counted.plus_at_least_zero(columns.remote),
                limit,
                rate: algorithm.rate(size, &columns.reading()),
            })
        })
    }

    /// Returns the groups and bits, in order, at which [`CounterTable::take_changes_at`] finds near
    /// counters that changed, whether they are due or not.
    pub fn near_places<'p>(&self, part: impl Into<Part<'p>>) -> Vec<(usize, u64)> {
        let part = part.into();
        let cells = self.parts.near.iter();
        let found = cells.filter_map(|cell| self.occupant_in(cell, part)?.0.counter());
        by_group(found.map(|(index, _)| index))
    }

    /// Returns the word of a cell, due or not, and its counter, as [`CounterTable::near_occupant`]
    /// does.
    fn occupant_in(&self, cell: &NearCell, part: Part<'_>) -> Option<(NearWord, Occupant<'m>)> {
        let word = NearWord(cell.counter.load(Acquire)).not_due();
        Some((word, self.near_occupant(word, part)?))
    }
}
