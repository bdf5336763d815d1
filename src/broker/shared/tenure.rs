//! The broker's tenure: which worker asks the stores for all of them, in a word of shared memory. And the words that
//! the broker writes, which only the one of the present tenure can change.
//!
//! The process that serves may be stopped at any instruction, and go on when another has long taken over. So each word
//! that the broker changes has the number of its tenure beside the value, and whoever takes over puts its own there before it
//! relies on any ([`FencedWord`]). What has no such word, the broker writes where only its own process does: each
//! has rings of its own for answers.
//!
//! The broker shows by beats that it serves. Whoever waits replaces it when it has seen none in some looks, or at once
//! when it gets the lock that the broker had: the kernel passes that on when a process ends.

use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, SeqCst};

/// Another worker serves in place of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced;

/// The number of a tenure. It begins again after 65,535.
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

/// A word of the broker's: 16 bits of the term of who may change it, and 48 of the value.
#[derive(Clone, Copy, Debug)]
pub struct FencedWord<'m>(&'m AtomicU64);

impl<'m> FencedWord<'m> {
    /// The largest value, and the bits of any.
    pub const MAX: u64 = u64::MAX >> Term::BITS;

    /// The word, which was zero when the first process called this.
    pub fn over(word: &'m AtomicU64) -> FencedWord<'m> {
        FencedWord(word)
    }

    /// Returns the value, whoever wrote it.
    pub fn get(self, order: Ordering) -> u64 {
        self.0.load(order) & Self::MAX
    }

    /// Makes this the word of a term: the broker of one before changes it no more.
    ///
    /// # Errors
    ///
    /// [`Replaced`], if it is the word of a later one.
    pub fn take(self, term: Term) -> Result<(), Replaced> {
        let mut old = self.0.load(Acquire);
        while !term_of(old).is_after(term) {
            let new = word(term, old);
            match self.0.compare_exchange(old, new, AcqRel, Acquire) {
                Ok(_) => return Ok(()),
                Err(other) => old = other,
            }
        }
        Err(Replaced)
    }

    /// Returns the value as the broker of a term, which may [replace](Self::replace) it.
    ///
    /// # Errors
    ///
    /// [`Replaced`].
    pub fn own(self, term: Term) -> Result<u64, Replaced> {
        let word = self.0.load(Acquire);
        (term_of(word) == term).then_some(word & Self::MAX).ok_or(Replaced)
    }

    /// Replaces a value that was [read](Self::own) as the broker of a term, of which there is one. The bits of the new
    /// one beyond 48 are lost.
    ///
    /// # Errors
    ///
    /// [`Replaced`].
    pub fn replace(self, term: Term, old: u64, new: u64) -> Result<(), Replaced> {
        let (old, new) = (word(term, old), word(term, new));
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
#[derive(Clone, Copy, Debug, Default)]
pub struct TenureLooks {
    seen: u64,
    times: u32,
}

impl<'m> Tenure<'m> {
    /// In how many looks no beat was seen of a broker that is to be replaced.
    pub const LOOKS: u32 = 9;

    /// The tenure in this word, which was zero when the first process called this: nobody serves.
    pub fn over(word: &'m AtomicU64) -> Tenure<'m> {
        Tenure(word)
    }

    /// Looks as a process that waits, and has the lock or not. Returns the new term if it is this
    /// process's turn, and whether it replaces one that has not ended.
    ///
    /// Looks are to be a few beats apart. A process that was itself stopped between two does not take that for long.
    pub fn look(self, looks: &mut TenureLooks, has_lock: bool) -> Option<(Term, bool)> {
        let old = self.0.load(Acquire);
        if old != looks.seen {
            *looks = TenureLooks { seen: old, times: 0 };
        }
        looks.times = looks.times.saturating_add(1);
        // Who had the lock has ended, or nobody has served yet.
        let has_ended = has_lock && (old & LOCKED != 0 || old == 0);
        if !has_ended && looks.times <= Self::LOOKS {
            return None;
        }
        let term = Term(term_of(old).0.wrapping_add(1));
        let new = word(term, if has_lock { LOCKED } else { 0 });
        // SeqCst: who writes to a ring from here on looks at what the new broker asks for. See `Doorbell`.
        let taken = self.0.compare_exchange(old, new, SeqCst, Relaxed);
        taken.ok().map(|_| (term, !has_ended && old != 0))
    }

    /// Whether a broker that serves has not the lock, though it is beating.
    pub fn is_unlocked(self) -> bool {
        let word = self.0.load(Acquire);
        word != 0 && word & LOCKED == 0
    }

    /// Shows that the broker of a term serves, and whether it has the lock.
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
        let beaten = self.0.compare_exchange(old, new, AcqRel, Relaxed);
        beaten.map_or(Err(Replaced), |_| Ok(()))
    }

    /// Ends a term: whoever has the lock may take over at once.
    pub fn end(self, term: Term) {
        // If it fails, another serves.
        let _ = self.beat(term, true);
    }

    /// Whether the broker of a term was not replaced.
    pub fn is_of(self, term: Term) -> bool {
        term_of(self.0.load(Acquire)) == term
    }
}
