//! The banned keys of a namespace, found in steps that take a bounded time.

use crate::conf::listed::ListedRule;
use crate::engine::Namespace;
use crate::policy::algorithm::BanCounts;
use crate::policy::key::{banned_by, key_and_counter};
use crate::policy::window::Clock;
use crate::table::NamedCounter;

/// A banned key.
#[derive(Clone, Debug)]
pub struct BannedKey<'c> {
    /// The counted name of the key.
    pub name: Vec<u8>,
    /// The first rule that shares the ban.
    pub rule: &'c ListedRule,
    /// The milliseconds until the ban ends.
    pub left: u64,
}

/// Looks for the banned keys of a namespace.
#[derive(Debug)]
pub struct BanSearch<'c> {
    namespace: &'c Namespace<'c>,
    /// The rules that ban keys.
    rules: Vec<&'c ListedRule>,
    next: usize,
}

impl<'c> BanSearch<'c> {
    /// The slots that a step looks at.
    const SLOTS: usize = 256;

    /// Starts to look for keys that these rules of `namespace` have banned.
    pub fn new(
        namespace: &'c Namespace<'c>,
        rules: impl IntoIterator<Item = &'c ListedRule>,
    ) -> BanSearch<'c> {
        let rules = rules.into_iter().filter(|rule| rule.ban.is_some()).collect();
        BanSearch { namespace, rules, next: 0 }
    }

    /// Returns the banned keys of the next step; `None` at the end.
    pub fn step(&mut self, clock: &impl Clock) -> Option<Vec<BannedKey<'c>>> {
        let table = self.namespace.table();
        if self.rules.is_empty() || self.next >= table.slot_count() {
            return None;
        }
        let end = self.next.saturating_add(Self::SLOTS);
        let slots = self.next..end;
        self.next = end;
        let counters = table.named_counters(
            self.namespace.index(),
            slots,
            |size, reading| BanCounts::from(*reading).left(size).is_some(),
            clock,
        );
        Some(counters.into_iter().filter_map(|counter| self.banned(&counter)).collect())
    }

    fn banned(&self, counter: &NamedCounter) -> Option<BannedKey<'c>> {
        let (rules, name) = banned_by(&counter.name)?;
        let (_, own) = key_and_counter(name);
        let is_its = |rule: &&&ListedRule| {
            rule.ban.is_some_and(|ban| (ban.rules, ban.size) == (rules, counter.size))
                && rule.counter.as_deref().map(str::as_bytes) == own
        };
        let rule = self.rules.iter().find(is_its)?;
        let left = BanCounts::from(counter.reading).left(counter.size)?;
        Some(BannedKey { name: name.to_vec(), rule, left })
    }
}
