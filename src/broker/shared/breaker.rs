//! A circuit breaker in a word of shared memory, which says whether requests ask a store.
//!
//! While it is closed, requests ask. While it is open, they are decided without the store, so that
//! they do not wait in vain. The word is the time at which it becomes half-open: the first request
//! that reads it then makes a probe, and if the probe is lost, the first request after another
//! pause makes the next. So whichever process is killed, another request probes, as long as there
//! are requests.

use crate::table::MonotonicMillis;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::Relaxed;

/// The circuit breaker of a store.
#[derive(Clone, Copy, Debug)]
pub struct Breaker<'m> {
    /// Time until which it is open; 0 if it is closed.
    open_until: &'m AtomicU64,
}

/// The state of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circuit {
    /// Requests ask the store.
    Closed,
    /// Requests do not ask: the store did not answer in time, and has not since.
    Open,
    /// Requests do not ask, but the request that found this state must probe the store. The next
    /// one finds it only after [`Breaker::PAUSE`].
    HalfOpen,
}

impl<'m> Breaker<'m> {
    /// Time for which the circuit stays open after a failure, in milliseconds: slightly longer than
    /// a live broker needs to notice questions.
    pub const PAUSE: u64 = 500;

    /// Returns the breaker in this word, which must be zero (closed) at first.
    pub fn over(open_until: &'m AtomicU64) -> Breaker<'m> {
        Breaker { open_until }
    }

    /// Returns the state of the circuit at `now`.
    pub fn look(self, now: MonotonicMillis) -> Circuit {
        // Relaxed, as in all methods: the word orders no other memory.
        let until = self.open_until.load(Relaxed);
        if until == 0 {
            return Circuit::Closed;
        }
        // A time further ahead was not set by this clock.
        if (1..=Self::PAUSE).contains(&until.saturating_sub(now.0)) {
            return Circuit::Open;
        }
        let next = now.0.saturating_add(Self::PAUSE);
        match self.open_until.compare_exchange(until, next, Relaxed, Relaxed) {
            Ok(_) => Circuit::HalfOpen,
            // Another process has just found it half-open, or has closed it.
            Err(_) => Circuit::Open,
        }
    }

    /// Returns whether the circuit is closed.
    pub fn is_closed(self) -> bool {
        self.open_until.load(Relaxed) == 0
    }

    /// Opens the circuit, since the store did not answer in time. Returns whether it was closed.
    pub fn open(self, now: MonotonicMillis) -> bool {
        let until = now.0.saturating_add(Self::PAUSE);
        self.open_until.swap(until, Relaxed) == 0
    }

    /// Closes the circuit, since the store answers.
    pub fn close(self) {
        // Only written if it changes, since all workers read it all the time.
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
    fn the_circuit_is_open_for_a_while_and_then_admits_one_probe_at_a_time() {
        let word = AtomicU64::new(0);
        let breaker = Breaker::over(&word);
        assert_eq!(breaker.look(at(0)), Circuit::Closed);
        assert!(breaker.open(at(0)));
        assert!(!breaker.open(at(1)), "it was open");
        for millis in [1, 2, Breaker::PAUSE] {
            assert_eq!(breaker.look(at(millis)), Circuit::Open, "{millis}");
        }
        // All probes are lost, as if their processes were killed.
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
    fn no_word_keeps_the_circuit_open_for_longer() {
        for bits in [1, T, T + Breaker::PAUSE + 1, u64::MAX] {
            let word = AtomicU64::new(bits);
            let breaker = Breaker::over(&word);
            assert_eq!(breaker.look(at(0)), Circuit::HalfOpen, "{bits}");
            assert_eq!(breaker.look(at(0)), Circuit::Open, "{bits}");
        }
    }
}
