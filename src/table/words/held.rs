//! The words of a counter of holds: how many requests of a key are under way, and in which processes.
//!
//! ```text
//!  63             48 47   46 45          36 35            16 15           0
//! +-----------------+-------+--------------+----------------+--------------+
//! | number of change| change| holder       | count          | generation   |  total
//! | number of change| 0                    | count          | generation   |  cell
//! +-----------------+-------+--------------+----------------+--------------+
//! ```
//!
//! A total has the holds of all processes, a cell those of one process. A process is a *holder*, with a number. A change
//! is one compare-and-swap of the total, which also writes down whose cell changes, how, and the number of the change
//! among those of this cell. Whoever replaces a total first completes its change in the cell, by a compare-and-swap from
//! the number before. So at every instant a change is either in neither word, or in the total and after one step in both,
//! wherever a process was killed or stopped.

use super::word::Generation;

const COUNT: u32 = 16;
const COUNT_BITS: u32 = 20;
const HOLDER: u32 = COUNT + COUNT_BITS;
const HOLDER_BITS: u32 = 10;
const CHANGE: u32 = HOLDER + HOLDER_BITS;
const NUMBER: u32 = 48;

/// Slots whose marks are in one word: see `holders`.
pub(crate) const MARKS: usize = 32;

/// The number of a process that holds requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HolderNumber(pub(crate) u16);

impl HolderNumber {
    /// The most holders. The last number marks a closed counter.
    pub(crate) const MOST: usize = (1 << HOLDER_BITS) - 1;
}

/// A change of a holder's cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldChange {
    /// One hold more.
    Taken,
    /// One hold less.
    Released,
    /// No holds any more: the holder has ended.
    Recovered,
}

impl HoldChange {
    /// Returns the change's bits; zero is no change.
    const fn bits(self) -> u64 {
        match self {
            HoldChange::Taken => 1,
            HoldChange::Released => 2,
            HoldChange::Recovered => 3,
        }
    }

    const fn from_bits(bits: u64) -> Option<HoldChange> {
        match bits & 3 {
            1 => Some(HoldChange::Taken),
            2 => Some(HoldChange::Released),
            3 => Some(HoldChange::Recovered),
            _ => None,
        }
    }
}

/// The holds of a key, with the last change. The slot's first column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldTotal(u64);

impl HeldTotal {
    /// The most holds of a key.
    pub(crate) const MOST: u32 = (1 << COUNT_BITS) - 1;

    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> HeldTotal {
        HeldTotal(bits)
    }

    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the total of a counter that nobody can hold in any more.
    pub(crate) const fn closed(generation: Generation) -> HeldTotal {
        HeldTotal((HolderNumber::MOST as u64) << HOLDER | generation.bits() as u64)
    }

    pub(crate) const fn is_closed(self) -> bool {
        self.holder().0 as usize == HolderNumber::MOST
    }

    /// Returns whether nobody has held yet.
    #[inline]
    pub(crate) const fn is_new(self) -> bool {
        self.0 >> COUNT == 0
    }

    #[inline]
    pub(crate) const fn is_of(self, generation: Generation) -> bool {
        self.0 as u16 == generation.bits()
    }

    #[inline]
    pub(crate) const fn count(self) -> u32 {
        (self.0 >> COUNT) as u32 & Self::MOST
    }

    /// Returns the holder of the last change.
    #[inline]
    pub(crate) const fn holder(self) -> HolderNumber {
        HolderNumber((self.0 >> HOLDER) as u16 & HolderNumber::MOST as u16)
    }

    /// Returns the total after `change` in a cell whose value is `cell`.
    #[inline]
    pub(crate) const fn after(
        self,
        change: HoldChange,
        holder: HolderNumber,
        cell: HeldCell,
    ) -> HeldTotal {
        let count = match change {
            HoldChange::Taken => self.count().wrapping_add(1),
            HoldChange::Released => self.count().saturating_sub(1),
            HoldChange::Recovered => self.count().saturating_sub(cell.count()),
        };
        let number = cell.number().wrapping_add(1);
        HeldTotal(
            (number as u64) << NUMBER
                | change.bits() << CHANGE
                | (holder.0 as u64) << HOLDER
                | (count as u64) << COUNT
                | self.0 & 0xffff,
        )
    }
}

/// The holds of one process of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldCell(u64);

impl HeldCell {
    /// Returns the cell of a process that has not held yet.
    pub(crate) const fn empty(generation: Generation) -> HeldCell {
        HeldCell(generation.bits() as u64)
    }

    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> HeldCell {
        HeldCell(bits)
    }

    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) const fn count(self) -> u32 {
        (self.0 >> COUNT) as u32 & HeldTotal::MOST
    }

    #[inline]
    const fn number(self) -> u16 {
        (self.0 >> NUMBER) as u16
    }

    /// Returns the cell with the last change of `total`, which is one of this cell; `None` if the cell has it already.
    #[inline]
    pub(crate) const fn completed(self, total: HeldTotal) -> Option<HeldCell> {
        let number = (total.0 >> NUMBER) as u16;
        let is_of_total = self.0 as u16 == total.0 as u16;
        if !is_of_total || self.number().wrapping_add(1) != number {
            return None;
        }
        let count = match HoldChange::from_bits(total.0 >> CHANGE) {
            Some(HoldChange::Taken) => self.count().wrapping_add(1),
            Some(HoldChange::Released) => self.count().saturating_sub(1),
            Some(HoldChange::Recovered) => 0,
            None => return None,
        };
        Some(HeldCell((number as u64) << NUMBER | (count as u64) << COUNT | self.0 & 0xffff))
    }
}

/// The link of a counter of holds to the counter in which their number is told to other nodes: the generation of the
/// former, the generation of the latter, and the latter's slot plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToldLink(u64);

impl ToldLink {
    pub(crate) fn new(own: Generation, told: Generation, slot: usize) -> ToldLink {
        let slot = (slot as u64).wrapping_add(1) << 32;
        ToldLink(slot | u64::from(told.bits()) << 16 | u64::from(own.bits()))
    }

    pub(crate) const fn from_bits(bits: u64) -> ToldLink {
        ToldLink(bits)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the slot and its generation; `None` without a link in the occupancy `own`.
    #[inline]
    pub(crate) fn of(self, own: Generation) -> Option<(usize, Generation)> {
        let slot = ((self.0 >> 32) as usize).checked_sub(1)?;
        (self.0 as u16 == own.bits())
            .then_some((slot, Generation::from_bits((self.0 >> 16) as u16)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_completed_once() {
        let generation = Generation::from_bits(0xbeef);
        let mut total = HeldTotal::from_bits(generation.bits().into());
        let mut cell = HeldCell::empty(generation);
        assert!(total.is_new() && total.is_of(generation) && !total.is_closed());
        // The number of changes wraps around.
        for n in 0..70_000_u32 {
            let change = if n % 3 == 2 { HoldChange::Released } else { HoldChange::Taken };
            total = total.after(change, HolderNumber(1022), cell);
            cell = cell.completed(total).unwrap();
            assert_eq!(cell.completed(total), None);
            assert_eq!(cell.count(), total.count());
            assert_eq!(total.holder(), HolderNumber(1022));
            assert!(!total.is_new() && total.is_of(generation));
        }
        assert_eq!(total.count(), 23_334);
        total = total.after(HoldChange::Recovered, HolderNumber(1022), cell);
        assert_eq!(total.count(), 0);
        assert_eq!(cell.completed(total).map(HeldCell::count), Some(0));
    }

    #[test]
    fn a_closed_total_is_of_no_holder() {
        let closed = HeldTotal::closed(Generation::from_bits(7));
        assert!(closed.is_closed() && !closed.is_new() && closed.count() == 0);
        assert!(closed.is_of(Generation::from_bits(7)));
        assert_eq!(HeldCell::empty(Generation::from_bits(7)).completed(closed), None);
    }
}
