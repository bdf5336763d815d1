//! Growth of counters near their limits, for stores without a channel. It determines when the store
//! is polled for other nodes' pushes ([`PollSchedule`](crate::engine::PollSchedule)).

use super::near::by_group;
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowPosition, WindowSize};
use crate::table::slots::columns::WindowColumns;
use crate::table::words::atomic::Ordering::Acquire;
use crate::table::words::slot::Occupant;
use crate::table::zone::counter::Part;
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::near_cell::{LimitWord, NearCell, NearWord};

/// A counter near its limit, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearCount {
    /// Identifies the counter while it stays in its slot.
    pub occupancy: u64,
    /// Size of its windows.
    pub size: WindowSize,
    /// The current window, and the time in it.
    pub at: WindowPosition,
    /// Hits of all nodes in this window, as far as this node knows them by the last exchanges.
    pub exchanged: Hits,
    /// Its limit and algorithm.
    pub limit: (Hits, Algorithm),
    /// The rate that is compared with the limit.
    pub rate: Hits,
}

impl<'m> CounterTable<'m> {
    /// Returns the counters of `part` that have a cell.
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
            let pushed = self.pushed(occupant, columns.at.number);
            Some(NearCount {
                occupancy: word.0,
                size,
                at: columns.at,
                exchanged: pushed.plus_at_least_zero(columns.remote),
                limit,
                rate: algorithm.rate(size, &columns.reading()),
            })
        })
    }

    /// Returns the places for [`CounterTable::take_changes_at`] of changed counters that have a
    /// cell, due or not, in order.
    pub fn near_places<'p>(&self, part: impl Into<Part<'p>>) -> Vec<(usize, u64)> {
        let part = part.into();
        let cells = self.parts.near.iter();
        let found = cells.filter_map(|cell| self.occupant_in(cell, part)?.0.counter());
        by_group(found.map(|(index, _)| index))
    }

    /// Returns the word of a cell and its counter, due or not. See [`CounterTable::near_occupant`].
    fn occupant_in(&self, cell: &NearCell, part: Part<'_>) -> Option<(NearWord, Occupant<'m>)> {
        let word = NearWord(cell.counter.load(Acquire)).not_due();
        Some((word, self.near_occupant(word, part)?))
    }
}
