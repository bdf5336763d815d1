//! Search in a log's [chain](super::log_chain), which may have 100,000 entries.
//!
//! Blocks lead to the next one. Each 16th one *leads back*, too: its first word is no entry, but has the slots of two
//! blocks before it that lead back, the last one, and one that is 2^n such blocks away. Numbered in their order, block
//! *m* leads to *m* - 1, and to *m* without its lowest bit that is set. So from the newest one on, a place is found in
//! a number of steps that grows with the square of the chain's logarithm, and some 100 entries from there on.
//!
//! Both were written before the block was linked, and never change. They may lead to a block that was given back since:
//! all that was before it has left.

use super::log::LogEntry;
use super::log_chain::{ENTRIES, EVERY, LogPlace, NUMBER_MASK, index_word, leads_back};
use crate::table::words::atomic::Ordering::Acquire;
use crate::table::words::slot::{Lost, Occupant};
use crate::table::zone::counter_table::CounterTable;

/// Number of entries that are looked at one after the other before a search.
pub(crate) const FEW: usize = 8;

/// The numbers of the two blocks to which block `number` leads back.
fn numbers_before(number: u32) -> [u32; 2] {
    let order = number / EVERY;
    let further = order & order.wrapping_sub(1);
    let number_of = |order: u32| order.wrapping_mul(EVERY).wrapping_add(EVERY - 1) & NUMBER_MASK;
    [number_of(order.wrapping_sub(1)), number_of(further)]
}

impl<'m> CounterTable<'m> {
    /// The last place whose entry is such, in a chain that begins with `base`, whose entry is: where that is so of one
    /// entry, it is of all before.
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

    /// A place that is few blocks before that, or is it.
    pub(super) fn near_last_place(
        &self,
        occupant: Occupant<'m>,
        base: LogPlace<'m>,
        is_such: &impl Fn(LogEntry) -> bool,
    ) -> Result<LogPlace<'m>, Lost> {
        // Whether the block's entries are such, as far as its first one tells.
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

    /// The last block after `base` that leads back, as far as is noted.
    fn last_that_leads_back(
        &self,
        occupant: Occupant<'m>,
        base: &LogPlace<'m>,
    ) -> Option<LogPlace<'m>> {
        let hint = index_word(occupant.slot).load(Acquire);
        let noted = self.place_of(occupant, hint).map(LogPlace::first_in_block);
        noted.filter(|noted| leads_back(noted.number()) && noted.is_after(base))
    }

    /// The blocks to which `block` leads back, if they are after `base`.
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

    /// The first word of a new block of this number that leads back.
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
        // From one to the other, lowest bits are taken away one by one.
        let mut at = Some(one);
        while let Some(block) = at.filter(|at| at.number() != further) {
            let [_, next] = self.blocks_before(occupant, &block, &base)?;
            at = next;
        }
        Ok(link(&one) | at.map_or(0, |at| link(&at) << 32))
    }

    /// The block of this number that leads back: the one that is noted, or one after it.
    fn block_of_number(
        &self,
        occupant: Occupant<'m>,
        base: &LogPlace<'m>,
        number: u32,
    ) -> Result<Option<LogPlace<'m>>, Lost> {
        // Who appended the first entry of a block may have ended before it was noted.
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
