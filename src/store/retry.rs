//! Pauses between attempts after a store has failed.

use core::time::Duration;

/// Longest pause.
const LONGEST: Duration = Duration::from_secs(2);

/// Returns the pause after this number of failures in a row. It grows, and half of it is chosen by
/// `random` bits, so that nodes do not all retry at once.
pub fn back_off(failures: u32, random: u64) -> Duration {
    pause(50, failures, random)
}

/// Returns the pause after `times` events in a row, like [`back_off`]: `shortest` milliseconds,
/// doubled each time.
pub fn pause(shortest: u64, times: u32, random: u64) -> Duration {
    let doubled = shortest.saturating_mul(1 << times.min(16));
    let doubled = Duration::from_millis(doubled).min(LONGEST);
    let half = u64::try_from(doubled.as_millis()).unwrap_or(u64::MAX) / 2;
    let random = random.checked_rem(half).unwrap_or(0);
    Duration::from_millis(half.saturating_add(random))
}

/// The failures of a store in a row. A store that is back only for a moment continues them.
#[derive(Debug, Default)]
pub struct Retries {
    failures: u32,
    /// Time at which the store came back.
    back_at: Option<Duration>,
}

impl Retries {
    /// Time for which a store must work until its failures are reset.
    const STEADY: Duration = Duration::from_secs(10);

    /// Records that the store has failed at `now`, after it worked.
    pub fn begin(&mut self, now: Duration) {
        let is_steady = |at: Duration| now.saturating_sub(at) >= Self::STEADY;
        if self.back_at.is_none_or(is_steady) {
            self.failures = 0;
        }
    }

    /// Returns the pause before the next attempt.
    pub fn pause(&mut self, random: u64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        back_off(self.failures, random)
    }

    /// Records that the store works again.
    pub fn end(&mut self, now: Duration) {
        self.back_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_two_seconds_of_which_half_is_random() {
        for (failures, least, most) in
            [(1, 50, 100), (2, 100, 200), (5, 800, 1600), (6, 1000, 2000), (u32::MAX, 1000, 2000)]
        {
            for random in [0, 1, 49, u64::MAX] {
                let pause = back_off(failures, random).as_millis();
                assert!((least..most).contains(&pause), "{failures} {random} {pause}");
            }
        }
    }

    #[test]
    fn a_store_that_is_back_for_a_moment_is_tried_as_seldom_as_before() {
        let mut retries = Retries::default();
        let seconds = Duration::from_secs;
        for (lost, back, pauses) in [
            (1, 2, [50, 100, 200]),
            // It worked for one second.
            (3, 4, [400, 800, 1000]),
            (14, 15, [50, 100, 200]),
        ] {
            retries.begin(seconds(lost));
            let waited = [(); 3].map(|()| retries.pause(0).as_millis());
            assert_eq!(waited, pauses, "{lost}");
            retries.end(seconds(back));
        }
    }
}
