//! The share of other nodes' changes that one exchange reads: less after an exchange that took too
//! long.

/// A share of the usual number.
#[derive(Debug, Default)]
pub(super) struct ReadShare {
    /// Number of halvings.
    halvings: u32,
    /// Whether an exchange is reading. If it has ended, it took too long.
    is_reading: bool,
}

impl ReadShare {
    /// More halvings would read less than one counter of a batch.
    const MOST_HALVINGS: u32 = 9;

    /// Begins an exchange, after one that may have taken too long.
    pub(super) fn begin(&mut self) {
        if self.is_reading {
            self.is_reading = false;
            self.halvings = self.halvings.saturating_add(1).min(Self::MOST_HALVINGS);
        }
    }

    /// Returns whether an exchange that pushes reads nothing, so that it is fast enough.
    pub(super) fn is_apart(&self) -> bool {
        self.halvings > 0
    }

    /// Records that reading begins.
    pub(super) fn read(&mut self) {
        self.is_reading = true;
    }

    /// Returns the share of `number`, at least one.
    pub(super) fn of(&self, number: usize) -> usize {
        number.checked_shr(self.halvings).unwrap_or(0).max(1)
    }

    /// Records that the reading ended in time. Doubles the share for the next exchange.
    pub(super) fn done(&mut self) {
        self.is_reading = false;
        self.halvings = self.halvings.saturating_sub(1);
    }

    /// Records that the exchange failed, but not for lack of time.
    pub(super) fn failed(&mut self) {
        self.is_reading = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_takes_too_long_is_halved_until_it_does_not() {
        let mut share = ReadShare::default();
        let read = |share: &mut ReadShare| {
            share.begin();
            share.read();
            share.of(500)
        };
        for expected in [500, 250, 125, 62, 31, 15, 7, 3, 1, 1, 1] {
            assert_eq!(read(&mut share), expected);
            assert_eq!(share.is_apart(), expected < 500);
        }
        share.done();
        assert_eq!(read(&mut share), 1);
        share.done();
        assert_eq!(read(&mut share), 3);
        share.failed();
        assert_eq!(read(&mut share), 3);
        for _ in 0..9 {
            share.done();
        }
        assert_eq!((read(&mut share), share.is_apart()), (500, false));
    }
}
