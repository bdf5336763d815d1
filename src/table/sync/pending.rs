//! The number of counters with unsent hits, from a bounded number of dirty bits.

use crate::policy::window::UnixMillis;
use crate::table::slots::dirty::{bits_of, slot_of};
use crate::table::words::meta::NamespaceIndex;
use crate::table::words::slot::Occupant;
use crate::table::zone::counter_table::CounterTable;

/// The number of counters with unsent hits in each namespace, from [`CounterTable::pending`].
#[derive(Clone, Debug, Default)]
pub struct Pending {
    /// Numbers by the namespace's index.
    pub(crate) counters: Vec<u64>,
    /// Work that the count took.
    pub(crate) looked_at: LookedAt,
}

/// An amount of work for counting pending counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookedAt {
    /// Words with one bit for each of 48 counters.
    pub groups: usize,
    /// Counters.
    pub counters: usize,
}

impl LookedAt {
    /// Work that takes less than a millisecond.
    pub const BOUNDED: LookedAt = LookedAt { groups: 1 << 16, counters: 1 << 10 };
}

impl Pending {
    /// Returns the number of counters of `namespace` with unsent hits.
    pub fn of(&self, namespace: NamespaceIndex) -> u64 {
        let counters = self.counters.get(namespace.get());
        counters.copied().unwrap_or_default()
    }
}

impl<'m> CounterTable<'m> {
    /// Counts the counters with unsent hits at `now`, by namespace. `at_most` bounds the work, so
    /// that the caller is not blocked for long, whatever the size of the zone. The result is exact
    /// if all changes were read, and otherwise an estimate.
    pub fn pending(&self, now: UnixMillis, at_most: LookedAt) -> Pending {
        let words = self.parts.dirty;
        // If not all can be read, each call reads another part.
        let start = (now.0 as usize).wrapping_mul(at_most.groups);
        let start = start.checked_rem(words.len()).unwrap_or_default();
        let (before, after) = words.split_at_checked(start).unwrap_or_default();
        let groups = (start..).zip(after).chain((0..).zip(before));
        let mut pending = Pending {
            counters: vec![0; self.parts.directory.len()],
            looked_at: LookedAt::default(),
        };
        let looked_at = &mut pending.looked_at;
        let mut changed: u64 = 0;
        for (group, word) in groups.take(at_most.groups) {
            looked_at.groups = looked_at.groups.saturating_add(1);
            let mut bits = bits_of(word);
            changed = changed.saturating_add(bits.count_ones().into());
            while bits != 0 && looked_at.counters < at_most.counters {
                let index = slot_of(group, bits);
                bits &= bits.wrapping_sub(1);
                looked_at.counters = looked_at.counters.saturating_add(1);
                let Some(slot) = self.slot_at(index) else {
                    continue;
                };
                let meta = slot.meta();
                let is_pending = meta.is_counter() && self.has_unsent(Occupant { slot, meta }, now);
                let counters = pending.counters.get_mut(meta.namespace().get());
                if let Some(counters) = counters.filter(|_| is_pending) {
                    *counters = counters.saturating_add(1);
                }
            }
        }
        let LookedAt { groups, counters } = *looked_at;
        let (all, seen) = (
            u128::from(changed).saturating_mul(words.len() as u128),
            (counters as u128).saturating_mul(groups as u128),
        );
        for counters in &mut pending.counters {
            let of_all = u128::from(*counters).saturating_mul(all).checked_div(seen);
            *counters = u64::try_from(of_all.unwrap_or_default()).unwrap_or(u64::MAX);
        }
        pending
    }
}
