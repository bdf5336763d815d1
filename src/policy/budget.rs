//! The budget of exchanges with a store's server, which all nodes share without asking each other.
//!
//! All nodes together make at most `B` exchanges in a second. Each of `N` living nodes may make one
//! in `N/B` seconds, early pushes and reads of other nodes' pushes together. A node that made fewer
//! has saved some, since hits come in bursts. Pushes may use more of what is saved than reads: a
//! push tells all others, and its answer has their pushes too, so that it replaces a read.
//!
//! The state is one number, the time up to which the budget is used (the generic cell rate
//! algorithm, ITU-T I.371). `scripts/converge.sh --model` runs this very code.

use core::num::{NonZeroU32, NonZeroU64};

/// The time up to which a node has used its budget, in microseconds of a monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsedUntil(pub u64);

/// The kind of an exchange that can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// An early push.
    Push,
    /// A read of other nodes' pushes.
    Read,
}

/// Savings that an exchange may use, in microseconds.
const SAVED_FOR_PUSHES: u64 = 250_000;
const SAVED_FOR_READS: u64 = 50_000;
/// Bound of the time that is used ahead, in microseconds: exchanges that do not wait, such as those
/// of a first fetch, delay others no longer.
const MAX_AHEAD: u64 = 2 * SAVED_FOR_PUSHES;

/// Returns the time of a node between two exchanges, in microseconds, if all `nodes` together make
/// `per_second` of them.
pub fn interval(nodes: u64, per_second: NonZeroU32) -> u64 {
    let nodes = nodes.max(1).saturating_mul(1_000_000);
    nodes / NonZeroU64::from(per_second)
}

impl UsedUntil {
    /// Returns the budget after an exchange at `now`.
    pub fn after_exchange(self, now: u64, interval: u64) -> UsedUntil {
        let used = self.0.max(now).saturating_add(interval);
        UsedUntil(used.min(now.saturating_add(MAX_AHEAD)))
    }

    /// Returns the time from `now` until an exchange of this kind may begin.
    pub fn wait(self, kind: Exchange, now: u64) -> u64 {
        let saved = match kind {
            Exchange::Push => SAVED_FOR_PUSHES,
            Exchange::Read => SAVED_FOR_READS,
        };
        self.0.saturating_sub(saved).saturating_sub(now).min(MAX_AHEAD)
    }

    /// Returns whether nothing is used at `now`.
    pub fn is_unused(self, now: u64) -> bool {
        self.0 <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: NonZeroU32 = NonZeroU32::new(5000).unwrap();

    /// Makes exchanges of a kind as often as the budget allows. Returns their number in each second.
    fn exchanges(kind: Exchange, nodes: u64, seconds: u64) -> Vec<u64> {
        let interval = interval(nodes, B);
        let (mut used, mut now, start) = (UsedUntil::default(), 1_000_000_000, 1_000_000_000);
        let mut counts = vec![0; seconds as usize];
        loop {
            now += used.wait(kind, now);
            let Some(count) = counts.get_mut(((now - start) / 1_000_000) as usize) else {
                return counts;
            };
            *count += 1;
            used = used.after_exchange(now, interval);
            assert_eq!(used.is_unused(now), interval == 0);
        }
    }

    #[test]
    fn all_nodes_together_keep_the_budget() {
        // 50 nodes make 100 exchanges each, and what they had saved before.
        assert_eq!(exchanges(Exchange::Push, 50, 4), [125, 100, 100, 100]);
        assert_eq!(exchanges(Exchange::Read, 50, 4), [105, 100, 100, 100]);
        assert_eq!(exchanges(Exchange::Push, 1, 2), [6250, 5000]);
        // The number of nodes is unknown.
        assert_eq!(interval(0, B), 200);
        assert_eq!(interval(300, B), 60_000);
    }

    #[test]
    fn exchanges_that_do_not_wait_delay_others_at_most_half_a_second() {
        let (now, interval) = (7_000_000, interval(300, B));
        let mut used = UsedUntil::default();
        for _ in 0..1000 {
            used = used.after_exchange(now, interval);
        }
        assert_eq!(used, UsedUntil(7_500_000));
        assert_eq!(used.wait(Exchange::Push, now), 250_000);
        assert_eq!(used.wait(Exchange::Read, now), 450_000);
        assert_eq!(used.wait(Exchange::Read, 7_450_000), 0);
    }

    #[test]
    fn a_time_of_another_clock_delays_at_most_half_a_second() {
        let used = UsedUntil(u64::MAX);
        assert_eq!(used.wait(Exchange::Push, 5), 500_000);
        assert_eq!(used.after_exchange(5, 10), UsedUntil(500_005));
    }
}
