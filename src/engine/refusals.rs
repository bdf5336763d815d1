//! Which counters were over a limit a moment ago, so that a datastore need not be asked again.

use core::time::Duration;
use std::collections::HashMap;

use super::synchronous::{Answered, LimitCheck};
use crate::policy::algorithm::{Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::decision::Few;
use crate::table::Identity;

/// Counters that were over a limit a moment ago. Counts only rise until a window ends: what would be
/// refused by the counts of then is refused now.
#[derive(Debug, Default)]
pub struct Refusals {
    known: HashMap<Identity, RecentRefusal>,
}

#[derive(Debug)]
struct RecentRefusal {
    at: Duration,
    size: WindowSize,
    reading: Reading,
}

impl Refusals {
    /// For how long a refusal is remembered.
    const LIFETIME: Duration = Duration::from_secs(1);
    /// How many are.
    const CAPACITY: usize = 4096;

    /// Remembers what was counted at `now` where a limit refused.
    pub fn remember(
        &mut self,
        checks: &[LimitCheck<'_, '_>],
        answered: &[Option<Answered>],
        now: Duration,
    ) {
        for (check, answered) in checks.iter().zip(answered) {
            let is_window = check.bound.limit.algorithm.kind() == StoredKind::Windows;
            let refused = answered.filter(|answered| is_window && !answered.admitted);
            let Some(Answered { reading, .. }) = refused else {
                continue;
            };
            if self.known.len() >= Self::CAPACITY {
                self.known.retain(|_, known| known.is_fresh(now));
            }
            if self.known.len() < Self::CAPACITY {
                let known = RecentRefusal {
                    at: now,
                    size: check.bound.limit.size,
                    reading,
                };
                self.known.insert(check.identity(), known);
            }
        }
    }

    /// What is known at `now` of each check, if that is enough for one of them to refuse.
    pub fn recall(
        &self,
        checks: &[LimitCheck<'_, '_>],
        now: Duration,
    ) -> Option<Few<Option<Answered>>> {
        // A hit that is refused changes a level, which the store has.
        let is_level = |check: &LimitCheck<'_, '_>| {
            check.store.is_some() && check.bound.limit.algorithm.kind() != StoredKind::Windows
        };
        if self.known.is_empty() || checks.iter().any(is_level) {
            return None;
        }
        let known = checks.iter().map(|check| {
            let known = check.store.and(self.known.get(&check.identity()))?;
            let reading = known.at(now)?;
            let LimitCheck {
                bound, hits, cost, ..
            } = check;
            let limit = &bound.limit;
            let admitted = limit.algorithm.admits(limit.size, &reading, *hits, *cost);
            Some(Answered {
                admitted,
                reading,
                charged: Hits::ZERO,
            })
        });
        let known: Few<_> = known.collect();
        let mut refused = known.iter().flatten().filter(|known| !known.admitted);
        refused.next().is_some().then_some(known)
    }
}

impl RecentRefusal {
    fn is_fresh(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) <= Refusals::LIFETIME
    }

    /// What is counted at `now` at least; `None` if it was too long ago.
    fn at(&self, now: Duration) -> Option<Reading> {
        if !self.is_fresh(now) {
            return None;
        }
        let passed = u64::try_from(now.saturating_sub(self.at).as_millis()).ok()?;
        let later = self.reading.windows().later(self.size, passed)?;
        Some(later.into())
    }
}
