//! The batching delay: whether an exchange with a datastore waits for more questions.
//!
//! An exchange costs this node and its datastore about as much as ten to twenty questions in it. At
//! a low rate that does not matter, and each question is asked at once. At a high rate most
//! exchanges would still be small, since event loops handle ready events faster than clients send
//! requests. A short pause then makes exchanges larger and fewer.

use core::time::Duration;

/// The delay for which questions to one datastore wait for more, from the recent rate of questions.
#[derive(Clone, Debug, Default)]
pub struct BatchingDelay {
    /// Questions since the rate was last computed.
    asked: usize,
    /// Recent number of questions in the longest pause.
    expected: usize,
}

impl BatchingDelay {
    /// Longest pause.
    pub const PAUSE: Duration = Duration::from_micros(400);
    /// Time over which questions are counted.
    const SPAN: Duration = Duration::from_millis(2);
    /// Number of questions in a pause that makes it worthwhile.
    const WORTHWHILE: usize = 8;

    /// Counts questions.
    pub fn note(&mut self, questions: usize) {
        self.asked = self.asked.saturating_add(questions);
    }

    /// Computes the rate if `passed`, the time since it was last computed, is long enough. Returns
    /// whether it did.
    pub fn learn(&mut self, passed: Duration) -> bool {
        let is_time = passed >= Self::SPAN;
        if is_time {
            let asked = (self.asked as u128).saturating_mul(Self::PAUSE.as_nanos());
            let expected = asked.checked_div(passed.as_nanos()).unwrap_or(0);
            self.expected = usize::try_from(expected).unwrap_or(usize::MAX);
            self.asked = 0;
        }
        is_time
    }

    /// Returns the number of questions to wait for when `waiting` are there; `None` if a pause is
    /// not worthwhile. It is 1.5 times the number that the longest pause brings, since clients that
    /// are answered together ask again together.
    pub fn awaits(&self, waiting: usize) -> Option<usize> {
        let are_few = waiting > 0 && waiting < self.expected;
        let is_worthwhile = self.expected >= Self::WORTHWHILE && are_few;
        is_worthwhile.then(|| self.expected.saturating_add(self.expected / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the delay after this number of questions in 0.1 s.
    fn after(questions: usize) -> BatchingDelay {
        let mut delay = BatchingDelay::default();
        delay.note(questions);
        assert!(delay.learn(Duration::from_millis(100)));
        delay
    }

    #[test]
    fn at_a_low_rate_no_question_waits() {
        for delay in [BatchingDelay::default(), after(0), after(1), after(1999)] {
            assert_eq!(delay.awaits(1), None, "{delay:?}");
        }
    }

    #[test]
    fn at_a_high_rate_few_questions_wait_for_more() {
        // Eight in 0.4 ms.
        let delay = after(2000);
        assert_eq!([0, 1, 7, 8].map(|it| delay.awaits(it)), [None, Some(12), Some(12), None]);
        assert!(after(usize::MAX).awaits(1_000_000) > Some(1_000_000));
    }

    #[test]
    fn an_old_rate_does_not_matter() {
        let mut delay = after(10_000);
        delay.note(3);
        // The time is too short to compute a rate.
        assert!(!delay.learn(Duration::from_micros(1999)));
        assert_eq!(delay.awaits(3), Some(60));
        assert!(delay.learn(Duration::from_secs(1)));
        assert_eq!(delay.awaits(3), None);
        // No time has passed.
        assert!(!delay.learn(Duration::ZERO));
    }
}
