//! A circuit breaker in a word of shared memory: whether a store is asked, or known not to answer.
//!
//! Closed, requests ask. Open, they do not, and are decided otherwise: their time would be lost. That
//! ends by itself, since the word is a time: from then on the breaker is half open, and the first request
//! that looks has the store probed; if nothing comes of that, the first that looks after another pause
//! does. So whatever process is killed, and wherever, as long as there are requests, one of them looks
//! again.

use crate::table::MonotonicMillis;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::Relaxed;

/// The circuit breaker of a store.
#[derive(Clone, Copy, Debug)]
pub struct Breaker<'m> {
    /// Until when it is open; 0: it is closed.
    open_until: &'m AtomicU64,
}

/// The state of a circuit, as a request finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circuit {
    /// The store is to be asked.
    Closed,
    /// It is not: it did not answer in time, and has not since.
    Open,
    /// Nor is it, but the request that found this has the store probed: the next one finds it only after
    /// [`Breaker::PAUSE`].
    HalfOpen,
}

impl<'m> Breaker<'m> {
    /// Time for which the circuit stays open after a failure, in milliseconds: a little longer than
    /// a living broker needs for its next look.
    pub const PAUSE: u64 = 500;

    /// The breaker in this word, which was zero when the first process called this: closed.
    pub fn over(open_until: &'m AtomicU64) -> Breaker<'m> {
        Breaker { open_until }
    }

    /// Returns the state of the circuit at `now`.
    pub fn look(self, now: MonotonicMillis) -> Circuit {
        // Relaxed, as all of this: nothing else is read because of what it says.
        let until = self.open_until.load(Relaxed);
        if until == 0 {
            return Circuit::Closed;
        }
        // More than a pause is no time that was set, or of a clock that is not this one.
        if (1..=Self::PAUSE).contains(&until.saturating_sub(now.0)) {
            return Circuit::Open;
        }
        let next = now.0.saturating_add(Self::PAUSE);
        match self.open_until.compare_exchange(until, next, Relaxed, Relaxed) {
            Ok(_) => Circuit::HalfOpen,
            // Another process has found it half open in this moment, or has closed it.
            Err(_) => Circuit::Open,
        }
    }

    /// Whether the store is asked, as far as is known.
    pub fn is_closed(self) -> bool {
        self.open_until.load(Relaxed) == 0
    }

    /// The store did not answer in time. Returns whether it was asked until now.
    pub fn open(self, now: MonotonicMillis) -> bool {
        let until = now.0.saturating_add(Self::PAUSE);
        self.open_until.swap(until, Relaxed) == 0
    }

    /// The store answers.
    pub fn close(self) {
        // Many look at it at all times.
        if self.open_until.load(Relaxed) != 0 {
            self.open_until.swap(0, Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const T: u64 = 1_000_000;

    fn at(millis: u64) -> MonotonicMillis {
        MonotonicMillis(T + millis)
    }

    #[test]
    fn it_is_open_for_a_while_and_then_one_at_a_time_is_told_to_probe() {
        let word = AtomicU64::new(0);
        let breaker = Breaker::over(&word);
        assert_eq!(breaker.look(at(0)), Circuit::Closed);
        assert!(breaker.open(at(0)));
        assert!(!breaker.open(at(1)), "it was open");
        for millis in [1, 2, Breaker::PAUSE] {
            assert_eq!(breaker.look(at(millis)), Circuit::Open, "{millis}");
        }
        // Nothing comes of any probe, as if all that have one made were killed.
        for pause in 1..10 {
            let due = pause * Breaker::PAUSE + 1;
            assert_eq!(breaker.look(at(due)), Circuit::HalfOpen);
            for millis in [due, due + 1, due + Breaker::PAUSE - 1] {
                assert_eq!(breaker.look(at(millis)), Circuit::Open, "{millis}");
            }
        }
        breaker.close();
        assert_eq!(breaker.look(at(0)), Circuit::Closed);
        assert!(breaker.open(at(0)));
    }

    #[test]
    fn no_word_keeps_it_open_for_longer() {
        for bits in [1, T, T + Breaker::PAUSE + 1, u64::MAX] {
            let word = AtomicU64::new(bits);
            let breaker = Breaker::over(&word);
            assert_eq!(breaker.look(at(0)), Circuit::HalfOpen, "{bits}");
            assert_eq!(breaker.look(at(0)), Circuit::Open, "{bits}");
        }
    }
}
