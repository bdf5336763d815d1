//! The node's budget of exchanges with a store, which its workers share: see
//! [`policy::budget`](crate::policy::budget).

use core::num::{NonZeroU16, NonZeroU32};
use core::time::Duration;

use crate::policy::budget::{Exchange, UsedUntil, interval};
use crate::table::words::fail::fail_point;
use crate::table::zone::named::Named;

/// The budget of exchanges with a store.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeBudget<'m> {
    word: Named<'m>,
    /// Exchanges of all nodes with one server in a second.
    per_second: NonZeroU32,
}

impl<'m> ExchangeBudget<'m> {
    /// Opens the budget in `word`. All nodes together make `per_second` exchanges with one server.
    pub fn new(word: Named<'m>, per_second: NonZeroU32) -> ExchangeBudget<'m> {
        ExchangeBudget { word, per_second }
    }

    /// Records an exchange at `now`, in time of a clock that all processes share. `nodes` live, and
    /// spread their exchanges over so many servers.
    pub fn record(&self, now: Duration, nodes: u64, servers: u16) {
        let (now, interval) = (micros(now), self.interval(nodes, servers));
        let after = |used| Some(UsedUntil(used).after_exchange(now, interval).0);
        self.word.update(after);
        fail_point!("budget.recorded");
    }

    /// Returns the time from `now` until an exchange of this kind may begin.
    pub fn wait(&self, kind: Exchange, now: Duration) -> Duration {
        Duration::from_micros(UsedUntil(self.word.get()).wait(kind, micros(now)))
    }

    /// Returns the time from `now` until another read may follow one that began at `last`.
    pub fn wait_for_read(
        &self,
        last: Duration,
        now: Duration,
        nodes: u64,
        servers: u16,
    ) -> Duration {
        let apart = match UsedUntil(self.word.get()).is_unused(micros(now)) {
            true => Duration::ZERO,
            false => Duration::from_micros(self.interval(nodes, servers)),
        };
        let next = last.saturating_add(apart).saturating_sub(now);
        self.wait(Exchange::Read, now).max(next)
    }

    fn interval(&self, nodes: u64, servers: u16) -> u64 {
        let servers = NonZeroU16::new(servers).unwrap_or(NonZeroU16::MIN);
        interval(nodes, self.per_second.saturating_mul(servers.into()))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
