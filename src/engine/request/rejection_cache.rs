//! Counters that were over a limit a moment ago, so that a datastore need not be asked again.

use core::time::Duration;
use std::collections::HashMap;

use super::synchronous::{Answered, LimitCheck};
use crate::policy::algorithm::{Algorithm, MovingCount, Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::decision::{Certainty, Few};
use crate::table::Identity;

/// Counters that were over a limit a moment ago: windows, of which counts only rise until they end; buckets, of
/// which it is known how fast they leak; logs, of which the store has told when there is room. What would be
/// refused by what is left of then is refused now.
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
    /// Greatest count before the hit with which it would be admitted.
    room: Hits,
    /// Number of keys that had been set to zero.
    resets: u64,
}

/// Returns the greatest count with which a hit would be admitted.
fn room(check: &LimitCheck<'_, '_>) -> Hits {
    // "Below" a limit is "at most" a thousandth less.
    let cost = check.cost.max(Hits::from_thousandths(1));
    check.bound.limit.most(check.hits).minus(cost)
}

impl RejectionCache {
    /// For how long a refusal is remembered.
    const LIFETIME: Duration = Duration::from_secs(1);
    /// Greatest number of remembered refusals.
    const CAPACITY: usize = 4096;

    /// Remembers what was counted at `now` where a limit refused, by charges that stay.
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
            // Of a log with several limits, the store has told when all of them have room.
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

    /// Returns the known reading of each check at `now`, if one of them is enough to refuse.
    pub fn recall(
        &self,
        checks: &[LimitCheck<'_, '_>],
        now: Duration,
    ) -> Option<Few<Option<Answered>>> {
        // A hit that is refused extends it in the store.
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
            // At another rate, more may have leaked; of a log, there may be room for less.
            let is_known = known.kind == limit.algorithm.kind().at_rate(*hits)
                && (known.kind != StoredKind::Log || room(check) <= known.room)
                && known.resets == bound.resets();
            let reading = known.at(now).filter(|_| is_known)?;
            let most = limit.most(*hits);
            let admitted = limit.algorithm.admits(limit.size, &reading, most, *cost);
            Some(Answered { admitted, reading, charged: Hits::ZERO, certainty: Certainty::Settled })
        });
        let known: Few<_> = known.collect();
        let mut refused = known.iter().flatten().filter(|known| !known.admitted);
        refused.next().is_some().then_some(known)
    }
}

/// A time long after levels begin: only the time since a refusal matters, not the store's own time.
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
        }
    }
}
