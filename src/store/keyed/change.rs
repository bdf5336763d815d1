//! The log: a value for each change, by which nodes learn what others changed.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use super::name::CounterId;
use super::value::NewTotals;
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::contract::strategy::{Count, NodeId};

/// Time for which changes are kept for nodes to catch up. A node that needs older ones fetches all counters.
pub(crate) const CHANGE_LIFE: Duration = Duration::from_secs(60);

/// Most changes that an exchange reads.
pub(crate) const PAGE: usize = 64;

/// A change of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoggedChange {
    pub(crate) number: u64,
    pub(crate) node: NodeId,
    pub(crate) is_news: bool,
    /// The counters with their totals after the change.
    pub(crate) counts: Vec<Count>,
}

impl LoggedChange {
    pub(crate) fn new(
        number: u64,
        (node, is_news): (NodeId, bool),
        totals: &NewTotals<'_>,
    ) -> LoggedChange {
        let counts = totals.iter().map(|((size, window, key), (total, _))| {
            let total = Hits::from_thousandths(*total);
            Count { key: key.to_vec(), size: *size, window: *window, total }
        });
        LoggedChange { number, node, is_news, counts: counts.collect() }
    }

    /// Encodes the change as 64-bit numbers, big-endian, and keys after their lengths.
    pub(crate) fn to_value(&self) -> Vec<u8> {
        let NodeId([high, low]) = self.node;
        let mut value = Vec::new();
        put_numbers(&mut value, [self.number, high, low, u64::from(self.is_news)]);
        for Count { key, size, window, total } in &self.counts {
            let total = total.thousandths().cast_unsigned();
            put_numbers(&mut value, [size.bits(), *window, total, key.len() as u64]);
            value.extend(key);
        }
        value
    }

    /// Decodes a change; `None` if somebody else wrote it. Leaves out windows in time zones that this process does
    /// not know.
    pub(crate) fn parse(mut value: &[u8]) -> Option<LoggedChange> {
        let [number, high, low, is_news] = numbers(&mut value)?;
        let mut counts = Vec::new();
        while !value.is_empty() {
            let [size, window, total, length] = numbers(&mut value)?;
            let key = value.split_off(..usize::try_from(length).ok()?)?;
            let total = Hits::from_thousandths(total.cast_signed());
            let size = WindowSize::from_bits(size);
            counts.extend(size.map(|size| Count { key: key.into(), size, window, total }));
        }
        Some(LoggedChange { number, node: NodeId([high, low]), is_news: is_news != 0, counts })
    }

    /// Returns the changed counters.
    pub(crate) fn names(&self) -> impl Iterator<Item = CounterId<'_>> + Clone {
        self.counts.iter().map(|it| (it.size, it.window, &*it.key))
    }
}

/// Appends 64-bit numbers, big-endian.
pub(crate) fn put_numbers<const N: usize>(value: &mut Vec<u8>, numbers: [u64; N]) {
    value.extend(numbers.into_iter().flat_map(u64::to_be_bytes));
}

/// Takes numbers off the beginning of a value; `None` if it is too short.
pub(crate) fn numbers<const N: usize>(value: &mut &[u8]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let bytes;
        (bytes, *value) = value.split_first_chunk()?;
        *number = u64::from_be_bytes(*bytes);
    }
    Some(numbers)
}

/// Decodes the changes after number `after`; `None` if some are missing. The last change has number `last`, and is among
/// these unless `has_more`.
pub(crate) fn changes_after<'a>(
    after: u64,
    last: u64,
    values: impl Iterator<Item = Option<&'a [u8]>>,
    has_more: bool,
) -> Option<Vec<LoggedChange>> {
    let changes = values.map(|value| LoggedChange::parse(value?));
    let changes: Vec<_> = changes.collect::<Option<_>>()?;
    let mut numbers = changes.iter().map(|it| it.number);
    let are_in_order = numbers.clone().zip(after.saturating_add(1)..).all(|(it, next)| it == next);
    let end = numbers.next_back().unwrap_or(after);
    let is_end = if has_more { end < last } else { end == last };
    (are_in_order && is_end).then_some(changes)
}

/// The counters that other nodes changed.
#[derive(Debug)]
pub(crate) struct OthersCounters<'a> {
    pub(crate) names: BTreeSet<CounterId<'a>>,
    /// The totals after the last of these changes.
    pub(crate) totals: BTreeMap<CounterId<'a>, Hits>,
    /// Number of the last change; `None` without one.
    pub(crate) last: Option<u64>,
    /// Whether there are changes after these, maybe of the node itself and of these totals.
    pub(crate) has_more: bool,
}

impl<'a> OthersCounters<'a> {
    /// Returns those that nodes other than `node` changed, at most `limit`, or those of one change.
    pub(crate) fn of(
        changes: &'a [LoggedChange],
        node: NodeId,
        limit: usize,
        has_more: bool,
    ) -> OthersCounters<'a> {
        let mut others = OthersCounters {
            names: BTreeSet::new(),
            totals: BTreeMap::new(),
            last: None,
            has_more,
        };
        for change in changes {
            let (names, is_own) = (change.names(), change.node == node);
            let is_new = |name: &CounterId<'_>| !is_own && !others.names.contains(name);
            let new = names.clone().filter(is_new).count();
            if !others.names.is_empty() && new.saturating_add(others.names.len()) > limit {
                others.has_more = true;
                break;
            }
            if !is_own {
                others.names.extend(names.clone());
            }
            others.totals.extend(names.zip(change.counts.iter().map(|it| it.total)));
            others.last = Some(change.number);
        }
        others
    }

    /// Returns the counters with their totals.
    pub(crate) fn counts(&self) -> Vec<Count> {
        let counts = self.names.iter().filter_map(|name| {
            let (size, window, key) = *name;
            Some(Count { key: key.into(), size, window, total: *self.totals.get(name)? })
        });
        counts.collect()
    }
}
