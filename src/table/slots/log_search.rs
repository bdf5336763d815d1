//! Searches in a log's [chain](super::log_chain), which can have 100,000 entries.
//!
//! Each block links to the next one. Each 16th block also has *back links*: its first word
//! contains, instead of an entry, the slots of two earlier blocks with back links. One is the
//! previous such block, the other is 2^n of them away: if these blocks are numbered in order, block
//! *m* links to *m* - 1, and to *m* without its lowest set bit. So a search from the newest one
//! takes a number of steps that grows with the square of the chain's logarithm, and then reads
//! about 100 entries.
//!
//! Both links are written before the block is linked, and never change. They may lead to a block
//! that was released since; all entries before that have left the window.

use super::log::LogEntry;
use super::log_chain::{ENTRIES, EVERY, LogPlace, NUMBER_MASK, index_word, leads_back};
use crate::table::words::atomic::Ordering::Acquire;
use crate::table::words::slot::{Lost, Occupant};
use crate::table::zone::counter_table::CounterTable;

/// Entries that are read one by one before a search.
pub(crate) const FEW: usize = 8;

/// Returns the numbers of the two blocks that block `number` links back to.
fn numbers_before(number: u32) -> [u32; 2] {
    let order = number / EVERY;
    let further = order & order.wrapping_sub(1);
    let number_of = |order: u32| order.wrapping_mul(EVERY).wrapping_add(EVERY - 1) & NUMBER_MASK;
    [number_of(order.wrapping_sub(1)), number_of(further)]
}

impl<'m> CounterTable<'m> {
    /// Returns the last place whose entry satisfies `is_such`, in a chain that begins with `base`.
    /// `base` satisfies it, and so do all entries before one that does.
    pub(crate) fn last_place(
        &self,
        occupant: Occupant<'m>,
        base: LogPlace<'m>,
        is_such: impl Fn(LogEntry) -> bool,
    ) -> Result<LogPlace<'m>, Lost> {
        let (mut place, mut left) = (base, FEW);
        loop {
            let next = self.next_place(occupant, place)?;
            let entry = next.map_or(Ok(None), |next| next.entry())?;
            match next.zip(entry) {
                Some((next, entry)) if is_such(entry) => place = next,
                _ => return Ok(place),
            }
            left = left.wrapping_sub(1);
            if left == 0 {
                place = self.near_last_place(occupant, place, &is_such)?;
            }
        }
    }

    /// Returns a place that is the last one, or a few blocks before it.
    pub(super) fn near_last_place(
        &self,
        occupant: Occupant<'m>,
        base: LogPlace<'m>,
        is_such: &impl Fn(LogEntry) -> bool,
    ) -> Result<LogPlace<'m>, Lost> {
        // Tests the first entry of a block.
        let is_such_at = |block: &LogPlace<'m>| {
            let entry = block.first_in_block().entry()?;
            Ok(entry.is_some_and(is_such))
        };
        let mut last = self.last_that_leads_back(occupant, &base);
        while let Some(block) = last {
            if is_such_at(&block)? {
                return Ok(block.first_in_block());
            }
            let [one, further] = self.blocks_before(occupant, &block, &base)?;
            last = match further {
                Some(further) if !is_such_at(&further)? => Some(further),
                _ => one,
            };
        }
        Ok(base)
    }

    /// Returns the last known block after `base` with back links.
    fn last_that_leads_back(
        &self,
        occupant: Occupant<'m>,
        base: &LogPlace<'m>,
    ) -> Option<LogPlace<'m>> {
        let hint = index_word(occupant.slot).load(Acquire);
        let noted = self.place_of(occupant, hint).map(LogPlace::first_in_block);
        noted.filter(|noted| leads_back(noted.number()) && noted.is_after(base))
    }

    /// Returns the blocks that `block` links back to, if they are after `base`.
    fn blocks_before(
        &self,
        occupant: Occupant<'m>,
        block: &LogPlace<'m>,
        base: &LogPlace<'m>,
    ) -> Result<[Option<LogPlace<'m>>; 2], Lost> {
        let first = LogPlace { offset: 0, ..*block };
        let word = first.word()?.load(Acquire);
        if block.block.meta() != block.meta {
            return Err(Lost);
        }
        let links = [word as u32, (word >> 32) as u32];
        let blocks = links.into_iter().zip(numbers_before(block.number()));
        let mut blocks = blocks.map(|(link, number)| {
            let index = (link as usize).checked_sub(1)?;
            let found = self.block_at(occupant, index, number)?;
            Some(found.first_in_block()).filter(|found| found.is_after(base))
        });
        Ok([blocks.next().flatten(), blocks.next().flatten()])
    }

    /// Returns the first word of a new block with back links and this number.
    pub(super) fn links_back(&self, occupant: Occupant<'m>, number: u32) -> Result<u64, Lost> {
        let Some(base) = self.tail(occupant)? else {
            return Ok(0);
        };
        let [before, further] = numbers_before(number);
        let Some(one) = self.block_of_number(occupant, &base, before)? else {
            return Ok(0);
        };
        let link = |block: &LogPlace<'_>| {
            (self.index_of(block.block) as u64).wrapping_add(1) & u64::from(u32::MAX)
        };
        // Following the links clears the lowest bits one by one.
        let mut at = Some(one);
        while let Some(block) = at.filter(|at| at.number() != further) {
            let [_, next] = self.blocks_before(occupant, &block, &base)?;
            at = next;
        }
        Ok(link(&one) | at.map_or(0, |at| link(&at) << 32))
    }

    /// Returns the block with back links and this number: the last known one, or one after it.
    fn block_of_number(
        &self,
        occupant: Occupant<'m>,
        base: &LogPlace<'m>,
        number: u32,
    ) -> Result<Option<LogPlace<'m>>, Lost> {
        // A process that appended the first entry of a block may have ended before it recorded the
        // block.
        let mut place = self.last_that_leads_back(occupant, base).unwrap_or(*base);
        while place.number() != number {
            let last = LogPlace { offset: ENTRIES.wrapping_sub(1), ..place };
            match self.next_place(occupant, last)? {
                Some(next) => place = next,
                None => return Ok(None),
            }
        }
        Ok(Some(place))
    }
}
