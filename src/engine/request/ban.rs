//! Bans: the check whether a key is banned, and the rejections with which a ban begins.
//!
//! A ban is a count in windows, which are synced like others, and which [`Algorithm::Ban`] reads. The rejections before
//! it are counted by this node alone, in a moving window.

use super::bound_limit::BoundLimit;
use crate::engine::namespace::Namespace;
use crate::policy::algorithm::{Algorithm, BanCounts, MovingCount, Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::key::{BanNames, ShortName};
use crate::policy::limit::{BanRule, Burst, Limit};
use crate::policy::window::{Clock, WindowSize};
use crate::table::{Admission, Counter, Key};

/// The bans of a rule.
#[derive(Debug)]
pub struct Ban<'m> {
    /// The limit that refuses a banned key. It is named as the rule's limit with the longest window.
    pub bound: BoundLimit<'m>,
    names: BanNames,
    /// The rejections with which a ban begins.
    after: Hits,
    rejections: Counter,
}

impl<'m> Ban<'m> {
    /// Creates the bans of a rule with these limits in `namespace`; `None` without a limit.
    pub fn new<'a>(
        ban: BanRule,
        limits: impl IntoIterator<Item = &'a Limit>,
        namespace: &Namespace<'m>,
    ) -> Option<Ban<'m>> {
        let longest = limits.into_iter().max_by_key(|limit| limit.size.longest())?;
        let span = WindowSize::from_millis(longest.size.longest())?;
        let BanRule { rules, size, after } = ban;
        let of_rate = longest.burst.rate.and_then(|rate| longest.window(rate));
        let of_rule = of_rate.and_then(WindowSize::from_millis).unwrap_or(longest.size);
        let limit = Limit {
            name: longest.name.clone(),
            size,
            algorithm: Algorithm::Ban,
            burst: Burst::default(),
            of_rule: Some(of_rule),
        };
        Some(Ban {
            bound: BoundLimit::new(limit, namespace, []).of_bans(),
            names: BanNames::of(rules),
            after,
            rejections: namespace.counter_of(StoredKind::Log, span),
        })
    }

    /// Returns the name of the ban of the key with this counted name.
    #[inline]
    pub fn name(&self, counted: &[u8]) -> ShortName {
        self.names.name(counted)
    }

    /// Returns the milliseconds until the ban with this name ends; `None` without a ban.
    pub fn left(&self, name: Key<'_>, clock: &impl Clock) -> Option<u64> {
        self.left_after(&self.reading(name, clock))
    }

    /// Returns the counts of the ban with this name.
    pub fn reading(&self, name: Key<'_>, clock: &impl Clock) -> Reading {
        self.bound.table.read(&self.bound.counter, name, clock)
    }

    /// Returns the milliseconds after `reading` until the ban ends; `None` without a ban.
    pub fn left_after(&self, reading: &Reading) -> Option<u64> {
        BanCounts::from(*reading).left(self.bound.counter.size())
    }

    /// Returns the milliseconds until the ban of the key with this counted name ends; `None` without
    /// a ban.
    pub fn left_of(&self, counted: &[u8], clock: &impl Clock) -> Option<u64> {
        self.left(self.bound.table().key(&self.name(counted)), clock)
    }

    /// Lifts the ban of the key with this counted name, and forgets its rejections. Returns whether
    /// the key was banned.
    pub fn lift(&self, counted: &[u8], clock: &impl Clock) -> bool {
        let BoundLimit { table, counter, .. } = self.bound;
        let name = self.name(counted);
        let key = table.key(&name);
        let was_banned = self.left(key, clock).is_some();
        table.reset(&counter, key, clock);
        table.reset(&self.rejections, key, clock);
        was_banned
    }

    /// Records that the rule has rejected the key with this counted name. Returns whether that
    /// begins a ban.
    pub fn record(&self, counted: &[u8], clock: &impl Clock) -> bool {
        let BoundLimit { table, counter, .. } = self.bound;
        let name = self.name(counted);
        let key = table.key(&name);
        if self.after > Hits::ONE {
            // Rejections before the last ones would make a ban begin too early, since a full log merges hits.
            let admission = Admission::Latest(self.after);
            let counted = table.add(&self.rejections, key, clock, Hits::ONE, admission);
            if MovingCount::from(counted.reading).hits < self.after {
                return false;
            }
        }
        // Requests that were being decided when the ban began do not begin another one.
        if self.left(key, clock).is_some() {
            return false;
        }
        let size = counter.size();
        // Reaches other nodes at once, as a hit above a limit does.
        let admission = Admission::Regardless(Hits::ONE);
        table.add(&counter, key, clock, BanCounts::hits(size, clock.now()), admission);
        true
    }
}
