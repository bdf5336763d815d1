//! The batching delay: whether an exchange with a datastore waits for more questions.
//!
//! An exchange costs this node and its datastore as much as some ten to twenty questions in it. Where
//! few come in, that does not matter, and each is asked at once. Where many do, most exchanges would
//! still be small, since event loops take what is ready more quickly than clients send it: there a
//! short pause makes exchanges larger and fewer.

use core::time::Duration;

/// The delay in which questions for one datastore wait for more, by the recent rate of questions.
#[derive(Clone, Debug, Default)]
pub struct BatchingDelay {
    /// Number of questions since the last look.
    asked: usize,
    /// Number of questions that recently came during the longest pause.
    expected: usize,
}

impl BatchingDelay {
    /// Longest pause.
    pub const PAUSE: Duration = Duration::from_micros(400);
    /// For how long it is counted how many questions come in.
    const SPAN: Duration = Duration::from_millis(2);
    /// Number of questions during a pause that make it worthwhile.
    const WORTHWHILE: usize = 8;

    /// Notes that so many questions are asked.
    pub fn note(&mut self, questions: usize) {
        self.asked = self.asked.saturating_add(questions);
    }

    /// Learns how many come in, if it is time: when it last did so is so long ago. Returns whether it
    /// did.
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

    /// For how many questions to wait while so many are there; `None` if a pause is not worthwhile, as
    /// if there is none. It is half as many again as come in during the longest pause, since clients
    /// that were answered at once ask again at once.
    pub fn awaits(&self, waiting: usize) -> Option<usize> {
        let are_few = waiting > 0 && waiting < self.expected;
        let is_worthwhile = self.expected >= Self::WORTHWHILE && are_few;
        is_worthwhile.then(|| self.expected.saturating_add(self.expected / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After so many questions in a tenth of a second.
    fn after(questions: usize) -> BatchingDelay {
        let mut delay = BatchingDelay::default();
        delay.note(questions);
        assert!(delay.learn(Duration::from_millis(100)));
        delay
    }

    #[test]
    fn where_few_ask_nobody_waits() {
        for delay in [BatchingDelay::default(), after(0), after(1), after(1999)] {
            assert_eq!(delay.awaits(1), None, "{delay:?}");
        }
    }

    #[test]
    fn where_many_ask_few_questions_wait_for_more() {
        // Eight in 0.4 ms.
        let delay = after(2000);
        assert_eq!([0, 1, 7, 8].map(|it| delay.awaits(it)), [None, Some(12), Some(12), None]);
        assert!(after(usize::MAX).awaits(1_000_000) > Some(1_000_000));
    }

    #[test]
    fn what_was_a_while_ago_does_not_matter() {
        let mut delay = after(10_000);
        delay.note(3);
        // Too soon to tell.
        assert!(!delay.learn(Duration::from_micros(1999)));
        assert_eq!(delay.awaits(3), Some(60));
        assert!(delay.learn(Duration::from_secs(1)));
        assert_eq!(delay.awaits(3), None);
        // No time at all.
        assert!(!delay.learn(Duration::ZERO));
    }
}
