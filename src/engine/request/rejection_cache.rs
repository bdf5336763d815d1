//! A cache of counters that were over a limit a moment ago, for which the datastore need not be
//! asked.

use core::time::Duration;
use std::collections::HashMap;

use super::synchronous::{Answered, LimitCheck};
use crate::policy::algorithm::{Algorithm, MovingCount, Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::decision::{Certainty, Few};
use crate::table::Identity;

/// Counters that were over a limit a moment ago: windows, whose counts only grow until they end;
/// buckets, which leak at a known rate; and logs, for which the store has returned when they have
/// room. A hit is refused if the lower bound of the count would still refuse it.
#[derive(Debug, Default)]
pub struct RejectionCache {
    known: HashMap<Identity, RecentRefusal>,
}

#[derive(Debug)]
struct RecentRefusal {
    at: Duration,
    kind: StoredKind,
    size: WindowSize,
    reading: Reading,
    /// Greatest count with which the hit would be admitted.
    room: Hits,
    /// Number of resets when the refusal was stored. After another reset it is not valid.
    resets: u64,
}

/// Returns the greatest count with which a hit would be admitted.
fn room(check: &LimitCheck<'_, '_>) -> Hits {
    // "Below the limit" is the same as "at most the limit minus 0.001".
    let cost = check.cost.max(Hits::from_thousandths(1));
    check.bound.limit.most(check.hits).minus(cost)
}

impl RejectionCache {
    /// Time for which a refusal is valid.
    const LIFETIME: Duration = Duration::from_secs(1);
    /// Most stored refusals.
    const CAPACITY: usize = 4096;

    /// Stores the counts at `now`, of charges that stay, after a limit has refused.
    pub fn remember(
        &mut self,
        checks: &[LimitCheck<'_, '_>],
        answered: &[Option<Answered>],
        now: Duration,
    ) {
        for (check, answered) in checks.iter().zip(answered) {
            let limit = &check.bound.limit;
            let is_full = |it: &Answered| !it.admitted && it.certainty == Certainty::Settled;
            let Some(Answered { reading, .. }) = answered.filter(is_full) else {
                continue;
            };
            let kind = limit.algorithm.kind().at_rate_of(&reading);
            // For a log with several limits, the store returns when all of them have room.
            let of_counter = checks.iter();
            let of_counter = of_counter.filter(|it| it.identity() == check.identity());
            let is_shared = kind == StoredKind::Log && of_counter.count() > 1;
            if kind.changes_with_refusals() || is_shared {
                continue;
            }
            if self.known.len() >= Self::CAPACITY {
                self.known.retain(|_, known| known.is_fresh(now));
            }
            if self.known.len() < Self::CAPACITY {
                let known = RecentRefusal {
                    at: now,
                    kind,
                    size: limit.size,
                    reading,
                    room: room(check),
                    resets: check.bound.resets(),
                };
                self.known.insert(check.identity(), known);
            }
        }
    }

    /// Returns the known readings of all checks at `now`, if one of them suffices to refuse;
    /// otherwise `None`.
    pub fn recall(
        &self,
        checks: &[LimitCheck<'_, '_>],
        now: Duration,
    ) -> Option<Few<Option<Answered>>> {
        // A refused hit extends an elastic window in the store, so the store must be asked.
        let is_extended = |check: &LimitCheck<'_, '_>| {
            check.store.is_some() && check.bound.limit.algorithm == Algorithm::Elastic
        };
        if self.known.is_empty() || checks.iter().any(is_extended) {
            return None;
        }
        let known = checks.iter().map(|check| {
            let known = check.store.and(self.known.get(&check.identity()))?;
            let LimitCheck { bound, hits, cost, .. } = check;
            let limit = &bound.limit;
            // At another rate more may have leaked, and a log may have room for a smaller cost.
            let is_known = known.kind == limit.algorithm.kind().at_rate(*hits)
                && (known.kind != StoredKind::Log || room(check) <= known.room)
                && known.resets == bound.resets();
            let reading = known.at(now).filter(|_| is_known)?;
            let most = limit.most(*hits);
            let admitted = limit.algorithm.admits(limit.size, &reading, most, *cost);
            Some(Answered { admitted, reading, charged: Hits::ZERO, certainty: Certainty::Settled })
        });
        let known: Few<_> = known.collect();
        // A rule that is tried alone refuses no request.
        let mut refused = checks.iter().zip(&known).filter(|(check, known)| {
            check.trial.is_none() && known.is_some_and(|known| !known.admitted)
        });
        refused.next().is_some().then_some(known)
    }
}

/// An arbitrary late time: only the time since the refusal matters, not the store's time.
const SOME_TIME: UnixMillis = UnixMillis(1 << 44);

impl RecentRefusal {
    fn is_fresh(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) <= RejectionCache::LIFETIME
    }

    /// Returns a lower bound of the count at `now`; `None` if the refusal is too old.
    fn at(&self, now: Duration) -> Option<Reading> {
        if !self.is_fresh(now) {
            return None;
        }
        let passed = u64::try_from(now.saturating_sub(self.at).as_millis()).ok()?;
        match self.kind {
            StoredKind::Windows => {
                let later = self.reading.windows().later(self.size, passed)?;
                Some(later.into())
            }
            StoredKind::Level(kind) => {
                let level = kind.level_of(self.size, self.reading, SOME_TIME);
                let now = UnixMillis(SOME_TIME.0.saturating_add(passed));
                Some(kind.reading(self.size, level, now))
            }
            StoredKind::Log => {
                let count = MovingCount::from(self.reading);
                let later = MovingCount {
                    age: count.age.saturating_add(passed),
                    wait: count.wait.saturating_sub(passed),
                    ..count
                };
                (later.wait > 0).then(|| later.into())
            }
            // No store decides about them.
            StoredKind::Holds => None,
        }
    }
}
