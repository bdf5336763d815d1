//! The hits of a counter that the store has: one word for the windows of each parity, in the first
//! part of the counter's name.
//!
//! Only the holder of the [lease](crate::table::zone::lease) changes them. But a holder may be
//! stopped just before the instruction that does so, and execute it after another worker has taken
//! over. The word may then have the expected value again, if the hits were discarded and pushed
//! anew meanwhile. So a worker that takes the lease from one that has not released it hands every
//! counter over to itself before it relies on the counter ([`CounterTable::hand_over`]). The part's
//! meta counts these handovers, and the stamp of a word is its window's, moved by this number.
//! After a handover, both words have stamps that no instruction prepared before it expects.
//!
//! A word with the stamp of the previous handover is valid too, since the words change one after
//! the other, and the process may end in between. Two handovers at once invalidate both words in
//! one step, which discards the hits ([`CounterTable::forget`]).

use super::columns::load;
use crate::policy::hits::Hits;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire};
use crate::table::words::fail::fail_point;
use crate::table::words::meta::Meta;
use crate::table::words::slot::{Occupant, Slot};
use crate::table::words::word::{Stamp, WindowCount};
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::lease::{IsHeld, LeaseLost, confirm};

/// The words of a counter, valid while the meta of their part is unchanged.
#[derive(Clone, Copy)]
struct PushedWords<'m> {
    counter: Occupant<'m>,
    part: &'m Slot,
    meta: Meta,
}

impl<'m> PushedWords<'m> {
    /// Returns the word for the parity of window `number`, and its value.
    fn word(&self, number: u64) -> (&'m AtomicU64, WindowCount) {
        let (word, _) = self.part.local_columns(number);
        (word, load(word))
    }

    /// Returns a value of that word with its stamp moved back to the window's.
    fn read(&self, word: WindowCount, number: u64) -> WindowCount {
        let (local, _) = self.counter.slot.local_columns(number);
        let (local, handovers) = (load(local).stamp(), self.meta.handovers());
        // Only pushed hits of the current window matter here, so a word of the previous handover
        // can be distinguished from one of an earlier window.
        let before = word.stamp().moved_back(handovers.wrapping_sub(1));
        let stamp = match before == local {
            true => local,
            false => word.stamp().moved_back(handovers),
        };
        WindowCount::new(stamp, word.hits())
    }

    /// Gives both words stamps of the current handover. Drops hits of windows that are not current.
    fn restamp(&self, is_held: IsHeld<'_>) -> Result<(), LeaseLost> {
        for number in [0, 1] {
            loop {
                let (pushed, old) = self.word(number);
                let (local, _) = self.counter.slot.local_columns(number);
                let (local, word) = (load(local).stamp(), self.read(old, number));
                let (stamp, hits) = match word.stamp() == local {
                    true => (local, word.hits()),
                    false => (self.empty().stamp(), Hits::ZERO),
                };
                let new = WindowCount::new(stamp.moved(self.meta.handovers()), hits);
                confirm(is_held)?;
                fail_point!("pushed.restamping");
                if swap(pushed, old, new) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn empty(&self) -> WindowCount {
        WindowCount::empty(self.counter.meta.generation())
    }
}

fn swap(word: &AtomicU64, old: WindowCount, new: WindowCount) -> bool {
    word.compare_exchange(old.bits(), new.bits(), AcqRel, Acquire).is_ok()
}

impl<'m> CounterTable<'m> {
    fn pushed_words(&self, counter: Occupant<'m>) -> Option<PushedWords<'m>> {
        let (part, meta) = self.first_part(counter)?;
        Some(PushedWords { counter, part, meta })
    }

    /// Returns how many of this node's hits in window `number` the store has.
    pub(crate) fn pushed(&self, counter: Occupant<'m>, number: u64) -> Hits {
        let stamp = Stamp::new(number, counter.meta.generation());
        self.pushed_word(counter, number).hits_of(stamp)
    }

    /// Returns the hits that the store has of a window of `number`'s parity, with the stamp of that
    /// window.
    pub(crate) fn pushed_word(&self, counter: Occupant<'m>, number: u64) -> WindowCount {
        loop {
            let Some(words) = self.pushed_words(counter) else {
                return WindowCount::empty(counter.meta.generation());
            };
            let (_, word) = words.word(number);
            let word = words.read(word, number);
            // A value read before a handover is not valid after it.
            if words.part.meta() == words.meta {
                return word;
            }
        }
    }

    /// Records that the store has `up_to` hits of window `number`, if it had `from`. Returns
    /// whether it had.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub(crate) fn set_pushed(
        &self,
        counter: Occupant<'m>,
        number: u64,
        (from, up_to): (Hits, Hits),
        is_held: IsHeld<'_>,
    ) -> Result<bool, LeaseLost> {
        let stamp = Stamp::new(number, counter.meta.generation());
        while let Some(words) = self.pushed_words(counter) {
            let (pushed, old) = words.word(number);
            let is_due = words.read(old, number).hits_of(stamp) == from;
            // After the load, so that a worker that takes over from here on changes the word.
            confirm(is_held)?;
            if !is_due || !counter.is_there() {
                break;
            }
            fail_point!("pushed.advancing");
            let new = WindowCount::new(stamp.moved(words.meta.handovers()), up_to);
            if swap(pushed, old, new) {
                fail_point!("pushed.advanced");
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Records hits of a counter that were given back as pushed, so that they are not: the store has
    /// lost the charges that they belong to.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub(crate) fn withhold(
        &self,
        counter: Occupant<'m>,
        is_held: IsHeld<'_>,
    ) -> Result<(), LeaseLost> {
        for number in [0, 1] {
            while let Some(words) = self.pushed_words(counter) {
                let (pushed, old) = words.word(number);
                let (local, _) = counter.slot.local_columns(number);
                let (local, known) = (load(local), words.read(old, number));
                // As in `set_pushed`.
                confirm(is_held)?;
                if local.hits() >= known.hits_of(local.stamp()) || !counter.is_there() {
                    break;
                }
                fail_point!("pushed.withholding");
                let stamp = local.stamp().moved(words.meta.handovers());
                if swap(pushed, old, WindowCount::new(stamp, local.hits())) {
                    fail_point!("pushed.withheld");
                    break;
                }
            }
        }
        Ok(())
    }

    /// Makes all pending writes of a former lease holder to a counter's words fail. Their contents
    /// stay.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub(crate) fn hand_over(
        &self,
        counter: Occupant<'m>,
        is_held: IsHeld<'_>,
    ) -> Result<(), LeaseLost> {
        while let Some(words) = self.pushed_words(counter) {
            // The worker that took over before may have ended in between. No word may be two
            // handovers behind.
            words.restamp(is_held)?;
            confirm(is_held)?;
            fail_point!("pushed.handing_over");
            if let Some(words) = words.after(1) {
                fail_point!("pushed.handed_over");
                return words.restamp(is_held);
            }
        }
        Ok(())
    }

    /// Discards the hits that the store has of a counter, and hands it over.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub(crate) fn forget(
        &self,
        counter: Occupant<'m>,
        is_held: IsHeld<'_>,
    ) -> Result<(), LeaseLost> {
        while let Some(words) = self.pushed_words(counter) {
            confirm(is_held)?;
            fail_point!("pushed.forgetting");
            if words.after(2).is_some() {
                fail_point!("pushed.forgotten");
                break;
            }
        }
        Ok(())
    }
}

impl<'m> PushedWords<'m> {
    /// Adds handovers; `None` if another process has changed the meta meanwhile.
    fn after(self, handovers: u16) -> Option<PushedWords<'m>> {
        let meta = self.meta.handed_over(handovers);
        let PushedWords { counter, part, .. } = self;
        part.replace_meta(self.meta, meta).ok()?;
        Some(PushedWords { counter, part, meta })
    }
}
