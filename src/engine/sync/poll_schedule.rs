//! The schedule of polls of a store without a channel, from the growth of the counters near their
//! limits.
//!
//! For such a counter with the limit `L` and the rest `R`, the store is polled when, at the last
//! speed, half of `R` will be used, or `share*L` if that is more. So other nodes' hits are known to
//! this precision, and a counter that does not grow is fetched only once in each period.

use core::time::Duration;
use std::collections::HashMap;

use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::table::{EarlyShare, MonotonicMillis, NearCount};

/// Shortest time between two polls, in milliseconds; some exchanges.
const SHORTEST: f64 = 20.0;

/// The growth of a namespace's counters, from which the time of the next poll is computed.
#[derive(Debug, Default)]
pub struct PollSchedule {
    seen: HashMap<u64, Seen>,
}

/// A counter after an exchange.
#[derive(Clone, Copy, Debug)]
struct Seen {
    window: u64,
    exchanged: Hits,
    at: MonotonicMillis,
    /// Thousandths of hits per millisecond.
    speed: f64,
}

impl PollSchedule {
    /// Records the counters after an exchange. Returns the time until the next poll, if nodes keep
    /// `share` of a limit; `None` if no counter near its limit grows. Other counters are removed.
    pub fn note(
        &mut self,
        counts: impl Iterator<Item = NearCount>,
        share: EarlyShare,
        now: MonotonicMillis,
    ) -> Option<Duration> {
        let before = core::mem::take(&mut self.seen);
        let mut soonest: Option<f64> = None;
        for count in counts {
            let seen = Seen::of(&count, before.get(&count.occupancy), now);
            if seen.speed > 0.0 {
                let pause = pause(&count, share, seen.speed);
                soonest = Some(soonest.map_or(pause, |soonest| soonest.min(pause)));
            }
            self.seen.insert(count.occupancy, seen);
        }
        let soonest = soonest?.max(SHORTEST) / 1000.0;
        Duration::try_from_secs_f64(soonest).ok()
    }
}

impl Seen {
    fn of(count: &NearCount, before: Option<&Seen>, now: MonotonicMillis) -> Seen {
        // Hits counted during the exchange grow the counter with the next one.
        let NearCount { at, exchanged, .. } = *count;
        let seen = Seen { window: at.number, exchanged, at: now, speed: 0.0 };
        let Some(before) = before else {
            return seen;
        };
        let passed = now.0.saturating_sub(before.at.0);
        if passed == 0 {
            return Seen { speed: before.speed, ..seen };
        }
        // In a window that has just begun, the previous window's speed is used.
        let speed = if seen.window == before.window {
            let grown = seen.exchanged.minus(before.exchanged).max(Hits::ZERO);
            grown.thousandths() as f64 / passed as f64
        } else {
            before.speed
        };
        // A new counter's growth may have been a burst, or none.
        let speed = match before.speed {
            0.0 => speed,
            before => (before + speed) / 2.0,
        };
        Seen { speed, ..seen }
    }
}

/// Returns the milliseconds until a counter with this growth must be polled.
fn pause(count: &NearCount, share: EarlyShare, speed: f64) -> f64 {
    let (limit, algorithm) = count.limit;
    let half = |hits: Hits| hits.thousandths() as f64 / 2.0;
    let least = share.of(limit).thousandths() as f64;
    let rest = limit.minus(count.rate);
    if rest <= Hits::ZERO && algorithm == Algorithm::Fixed {
        // The limit admits no hit before the next window.
        let left = count.size.length_of(count.at.number).saturating_sub(count.at.elapsed);
        return left as f64 + half(limit).max(least) / speed;
    }
    half(rest).max(least) / speed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::hits::hits;
    use crate::policy::window::{WindowPosition, WindowSize};

    fn count(
        number: u64,
        elapsed: u64,
        counted: i64,
        rate: i64,
        algorithm: Algorithm,
    ) -> NearCount {
        NearCount {
            occupancy: 1,
            size: WindowSize::from_millis(5000).unwrap(),
            at: WindowPosition { number, elapsed },
            exchanged: hits(counted),
            limit: (hits(1000), algorithm),
            rate: hits(rate),
        }
    }

    /// Returns the milliseconds until the next poll, after polls at these times.
    fn looks(counts: &[(u64, NearCount)]) -> Vec<Option<u128>> {
        let mut times = PollSchedule::default();
        let share = EarlyShare::of_milli_percent(6250);
        let mut note = |&(at, count)| {
            let pause = times.note([count].into_iter(), share, MonotonicMillis(at))?;
            Some(pause.as_millis())
        };
        counts.iter().map(&mut note).collect()
    }

    #[test]
    fn the_next_poll_is_when_half_of_the_rest_is_used() {
        let fixed = |number, elapsed, hits| count(number, elapsed, hits, hits, Algorithm::Fixed);
        let looks = looks(&[
            (0, fixed(7, 0, 0)),
            // 200 hits per second.
            (1000, fixed(7, 1000, 200)),
            (3000, fixed(7, 3000, 600)),
            (4000, fixed(7, 4000, 800)),
            // Half of the rest is less than the share.
            (4500, fixed(7, 4500, 900)),
            (4900, fixed(7, 4900, 980)),
            // None before the next window.
            (5000, fixed(7, 4999, 1000)),
            (7500, fixed(8, 2500, 500)),
            // No node counts any more, so polls become rarer.
            (8500, fixed(8, 3500, 500)),
            (9500, fixed(8, 4500, 500)),
        ]);
        let expected = [
            None,
            Some(2000),
            Some(1000),
            Some(500),
            Some(312),
            Some(312),
            Some(2501),
            Some(1250),
            Some(2500),
            Some(5000),
        ];
        assert_eq!(looks, expected);
    }

    #[test]
    fn a_full_sliding_window_is_polled_by_its_share() {
        let sliding = |hits| count(7, 1000, hits, 1000, Algorithm::Sliding);
        let looks = looks(&[(0, sliding(0)), (1000, sliding(200)), (1000, sliding(200))]);
        assert_eq!(looks, [None, Some(312), Some(312)]);
    }

    #[test]
    fn polls_are_not_closer_than_exchanges() {
        let fixed = |hits| count(7, 0, hits, hits, Algorithm::Fixed);
        assert_eq!(looks(&[(0, fixed(0)), (1, fixed(999))]), [None, Some(20)]);
    }

    #[test]
    fn counters_that_are_gone_are_forgotten() {
        let mut times = PollSchedule::default();
        let (share, it) = (EarlyShare::OFF, count(7, 0, 1, 1, Algorithm::Fixed));
        times.note([it].into_iter(), share, MonotonicMillis(0));
        assert_eq!(times.note([].into_iter(), share, MonotonicMillis(1)), None);
        assert!(times.seen.is_empty());
    }
}
