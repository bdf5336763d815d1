//! The hits of a counter that the store has: a word for the windows of each parity, in the first part of the
//! counter's name.
//!
//! Only the holder of the [lease](crate::table::zone::lease) changes them. But a holder may be stopped just before the
//! instruction that does so, and run it when another worker has long taken over: and the word may hold again
//! what that instruction expects, if the hits were forgotten and pushed anew in the meantime. So a worker that takes
//! the lease from one that has not given it back hands every counter over to itself, before it relies on any
//! ([`CounterTable::hand_over`]). The meta of the part counts such handovers, and the stamp of a word is that of its
//! window, moved by this number. After a handover, both words have stamps that no instruction expects which was
//! prepared before.
//!
//! A word of the handover before is valid too, since words change one after the other, and the process may end in
//! between. Two handovers at once void both words in one step, which is how hits are forgotten
//! ([`CounterTable::forget`]).

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

/// The words of a counter, as long as the meta of the part that has them stays.
#[derive(Clone, Copy)]
struct PushedWords<'m> {
    counter: Occupant<'m>,
    part: &'m Slot,
    meta: Meta,
}

impl<'m> PushedWords<'m> {
    /// The word for the windows of the parity of `number`, and its value.
    fn word(&self, number: u64) -> (&'m AtomicU64, WindowCount) {
        let (word, _) = self.part.local_columns(number);
        (word, load(word))
    }

    /// A value of that word with the stamp of its window.
    fn read(&self, word: WindowCount, number: u64) -> WindowCount {
        let (local, _) = self.counter.slot.local_columns(number);
        let (local, handovers) = (load(local).stamp(), self.meta.handovers());
        // The one window in which it matters how much was pushed is that which is counted in, which tells
        // a word of the handover before from one of a former window.
        let before = word.stamp().moved_back(handovers.wrapping_sub(1));
        let stamp = match before == local {
            true => local,
            false => word.stamp().moved_back(handovers),
        };
        WindowCount::new(stamp, word.hits())
    }

    /// Gives both words stamps of the present handover. What is of no window that is counted in is dropped.
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

    /// Returns the hits that the store has of a window of the parity of `number`, with the stamp of that
    /// window.
    pub(crate) fn pushed_word(&self, counter: Occupant<'m>, number: u64) -> WindowCount {
        loop {
            let Some(words) = self.pushed_words(counter) else {
                return WindowCount::empty(counter.meta.generation());
            };
            let (_, word) = words.word(number);
            let word = words.read(word, number);
            // A word that was read before a handover says nothing after it.
            if words.part.meta() == words.meta {
                return word;
            }
        }
    }

    /// Notes that the store has `up_to` hits of window `number`, if it had `from`. Returns whether it had.
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
            // After the word was read: whoever takes over from here on changes it.
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

    /// Sees to it that whatever a former holder of the lease was about to write to the words of a counter
    /// fails. What they hold stays.
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
            // The worker that took over before may have ended in between: no word may be two handovers
            // behind.
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

    /// Forgets that the store has any hits of a counter, and hands it over.
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
    /// Counts so many handovers; `None` if another process has changed the meta meanwhile.
    fn after(self, handovers: u16) -> Option<PushedWords<'m>> {
        let meta = self.meta.handed_over(handovers);
        let PushedWords { counter, part, .. } = self;
        part.replace_meta(self.meta, meta).ok()?;
        Some(PushedWords { counter, part, meta })
    }
}
