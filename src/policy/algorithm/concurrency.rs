//! Concurrency: a request counts from its admission to its end. A file of its own, as each algorithm.

use super::method::{Method, Reading, has_room};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};

pub(super) struct Concurrency;

/// The number of a key's requests that are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnderWay(pub Hits);

/// The time after which a rejected client is told to retry, in milliseconds: no one knows when a request will end.
const RETRY_AFTER: u64 = 1000;

/// The largest limit, which is what a counter can hold.
pub(super) const MAX_LIMIT: Hits = Hits::from_thousandths(((1 << 20) - 1) * 1000);

impl Method for Concurrency {
    type Stored = UnderWay;

    fn rate(_: WindowSize, UnderWay(hits): &UnderWay) -> Hits {
        *hits
    }

    #[inline]
    fn admits(_: WindowSize, UnderWay(hits): &UnderWay, limit: Hits, cost: Hits) -> bool {
        has_room(*hits, limit, cost)
    }

    fn start(_: WindowSize, _: &UnderWay) -> UnixMillis {
        UnixMillis(0)
    }

    /// Returns 0: there is no window.
    fn reset(_: WindowSize, _: &UnderWay) -> u64 {
        0
    }

    fn retry_after(
        _: WindowSize,
        UnderWay(hits): &UnderWay,
        limit: Hits,
        cost: Hits,
    ) -> Option<u64> {
        if has_room(*hits, limit, cost) {
            return Some(0);
        }
        has_room(Hits::ZERO, limit, cost).then_some(RETRY_AFTER)
    }

    fn window(_: WindowSize, _: &UnderWay, _limit: Hits) -> Option<u64> {
        None
    }
}

impl From<UnderWay> for Reading {
    #[inline]
    fn from(UnderWay(hits): UnderWay) -> Reading {
        Reading { hits, ..Reading::default() }
    }
}

impl From<Reading> for UnderWay {
    #[inline]
    fn from(reading: Reading) -> UnderWay {
        UnderWay(reading.hits)
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::algorithm::{Algorithm, Reading, UnderWay};
    use crate::policy::hits::{Hits, hits};
    use crate::policy::window::WindowSize;

    #[test]
    fn a_request_is_admitted_below_the_limit_and_retried_after_a_second() {
        let (size, algorithm) = (WindowSize::MIN, Algorithm::Concurrency);
        for (under_way, limit, admitted, retry_after) in [
            (0, 1, true, Some(0)),
            (1, 1, false, Some(1000)),
            (4, 5, true, Some(0)),
            (6, 5, false, Some(1000)),
            (0, 0, false, None),
        ] {
            let reading = Reading::from(UnderWay(hits(under_way)));
            let limit = hits(limit);
            assert_eq!(algorithm.admits(size, &reading, limit, Hits::ONE), admitted);
            assert_eq!(algorithm.retry_after(size, &reading, limit, Hits::ONE), retry_after);
            assert_eq!(algorithm.rate(size, &reading), hits(under_way));
            assert_eq!(algorithm.window(size, &reading, limit), None);
        }
    }
}
