//! The broker's tenure: which worker asks the stores for all workers, as a word of shared memory.
//! Also the words that only the broker of the current term can change.
//!
//! The broker's process may be stopped at any instruction, and continue after another one has taken
//! over. So each word that the broker changes contains its term next to the value, and a process
//! that takes over sets its own term in all words before it relies on any ([`FencedWord`]). Other
//! memory is written only by the broker of one process: each process has its own rings for answers.
//!
//! The broker beats to show that it is alive. A waiting process replaces it after some looks
//! without a beat, or at once when it gets the broker's lock, which the kernel releases when a
//! process ends.

use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, SeqCst};
use crate::table::words::fail::fail_point;

/// The error that another worker has taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced;

/// The number of a tenure. It wraps around after 65,535.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Term(u16);

impl Term {
    const BITS: u32 = 16;

    #[cfg(test)]
    pub(super) const fn of(number: u16) -> Term {
        Term(number)
    }

    fn is_after(self, other: Term) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() > 0
    }
}

/// A word of the broker: 16 bits of the term that may change it, and a value of 48 bits.
#[derive(Clone, Copy, Debug)]
pub struct FencedWord<'m>(&'m AtomicU64);

impl<'m> FencedWord<'m> {
    /// The largest value, which has all bits of a value.
    pub const MAX: u64 = u64::MAX >> Term::BITS;

    /// Returns the word, which must be zero at first.
    pub fn over(word: &'m AtomicU64) -> FencedWord<'m> {
        FencedWord(word)
    }

    /// Returns the value, of any term.
    pub fn get(self, order: Ordering) -> u64 {
        self.0.load(order) & Self::MAX
    }

    /// Sets the word's term, so that the broker of an earlier term cannot change it any more.
    ///
    /// # Errors
    ///
    /// [`Replaced`] if the word has a later term.
    pub fn take(self, term: Term) -> Result<(), Replaced> {
        let mut old = self.0.load(Acquire);
        while !term_of(old).is_after(term) {
            let new = word(term, old);
            match self.0.compare_exchange(old, new, AcqRel, Acquire) {
                Ok(_) => {
                    fail_point!("broker.fenced");
                    return Ok(());
                }
                Err(other) => old = other,
            }
        }
        Err(Replaced)
    }

    /// Returns the value for the broker of a term, which may then [replace](Self::replace) it.
    ///
    /// # Errors
    ///
    /// [`Replaced`].
    pub fn own(self, term: Term) -> Result<u64, Replaced> {
        let word = self.0.load(Acquire);
        (term_of(word) == term).then_some(word & Self::MAX).ok_or(Replaced)
    }

    /// Replaces a value that the broker of a term has [read](Self::own). Only the lower 48 bits of
    /// `new` are kept.
    ///
    /// # Errors
    ///
    /// [`Replaced`].
    pub fn replace(self, term: Term, old: u64, new: u64) -> Result<(), Replaced> {
        let (old, new) = (word(term, old), word(term, new));
        fail_point!("broker.replacing");
        let replaced = self.0.compare_exchange(old, new, AcqRel, Relaxed);
        replaced.map_or(Err(Replaced), |_| Ok(()))
    }

    /// Sets the value as the broker of a term.
    ///
    /// # Errors
    ///
    /// [`Replaced`].
    pub fn set(self, term: Term, new: u64) -> Result<(), Replaced> {
        let old = self.own(term)?;
        self.replace(term, old, new)
    }
}

fn word(Term(term): Term, value: u64) -> u64 {
    u64::from(term) << (64 - Term::BITS) | value & FencedWord::MAX
}

fn term_of(word: u64) -> Term {
    Term((word >> (64 - Term::BITS)) as u16)
}

/// The tenure of the broker: its term, its beats, and whether it has the lock.
///
/// ```text
///  63      48   47     46      0
/// +----------+--------+---------+
/// | term     | locked | beats   |
/// +----------+--------+---------+
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Tenure<'m>(&'m AtomicU64);

const LOCKED: u64 = 1 << (63 - Term::BITS);

/// The tenure as a waiting process last saw it.
#[derive(Clone, Copy, Debug)]
pub struct TenureLooks {
    seen: u64,
    times: u32,
    patience: u32,
}

impl TenureLooks {
    /// Creates the first look of a process that replaces a broker after more than `patience` looks
    /// without a beat.
    pub fn new(patience: u32) -> TenureLooks {
        TenureLooks { seen: 0, times: 0, patience }
    }
}

impl<'m> Tenure<'m> {
    /// Returns the tenure in this word, which must be zero at first: no process serves.
    pub fn over(word: &'m AtomicU64) -> Tenure<'m> {
        Tenure(word)
    }

    /// Looks at the tenure as a waiting process. Returns the new term if it is this process's turn,
    /// and whether it replaces a broker that has not ended.
    ///
    /// Looks must be a few beats apart. If this process itself was stopped between two looks, that
    /// does not count as a missing beat.
    pub fn look(self, looks: &mut TenureLooks, has_lock: bool) -> Option<(Term, bool)> {
        let old = self.0.load(Acquire);
        if old != looks.seen {
            *looks = TenureLooks { seen: old, times: 0, ..*looks };
        }
        looks.times = looks.times.saturating_add(1);
        // The lock's holder has ended, or no process has served yet.
        let has_ended = has_lock && (old & LOCKED != 0 || old == 0);
        if !has_ended && looks.times <= looks.patience {
            return None;
        }
        let term = Term(term_of(old).0.wrapping_add(1));
        let new = word(term, if has_lock { LOCKED } else { 0 });
        // SeqCst: a process that writes to a ring from here on reads the new broker's doorbell. See
        // `Doorbell`.
        let taken = self.0.compare_exchange(old, new, SeqCst, Relaxed);
        fail_point!("broker.taken");
        taken.ok().map(|_| (term, !has_ended && old != 0))
    }

    /// Returns whether a broker serves and beats without the lock.
    pub fn is_unlocked(self) -> bool {
        let word = self.0.load(Acquire);
        word != 0 && word & LOCKED == 0
    }

    /// Beats, and records whether the broker has the lock.
    ///
    /// # Errors
    ///
    /// [`Replaced`].
    pub fn beat(self, term: Term, has_lock: bool) -> Result<(), Replaced> {
        let old = self.0.load(Acquire);
        if term_of(old) != term {
            return Err(Replaced);
        }
        let beats = (old & (LOCKED - 1)).wrapping_add(1) & (LOCKED - 1);
        let new = word(term, beats | if has_lock { LOCKED } else { 0 });
        fail_point!("broker.beating");
        let beaten = self.0.compare_exchange(old, new, AcqRel, Relaxed);
        beaten.map_or(Err(Replaced), |_| Ok(()))
    }

    /// Ends a term. A process with the lock can take over at once.
    pub fn end(self, term: Term) {
        // If this fails, another process serves.
        let _ = self.beat(term, true);
    }

    /// Returns whether the broker of a term was not replaced.
    pub fn is_of(self, term: Term) -> bool {
        term_of(self.0.load(Acquire)) == term
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_replaced_after_some_looks_without_a_beat_and_never_before() {
        let word = AtomicU64::new(0);
        let tenure = Tenure::over(&word);
        let (term, _) = tenure.look(&mut TenureLooks::new(9), true).unwrap();
        let mut looks = TenureLooks::new(9);
        for _ in 0..3 {
            tenure.beat(term, true).unwrap();
            let mut again = (0..9).map(|_| tenure.look(&mut looks, false));
            assert!(again.all(|it| it.is_none()));
        }
        let (_, is_replaced) = tenure.look(&mut looks, false).unwrap();
        assert!(is_replaced);
        assert_eq!(tenure.beat(term, true), Err(Replaced));
    }
}
