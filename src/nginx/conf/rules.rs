//! The rules of a level, with their counters once the zones are mapped.

use core::ptr;
use std::cell::OnceCell;
use std::rc::Rc;

use super::served::{ServedNamespaces, Synchronous};
use super::text::{Amount, Text};
use crate::conf::level::rules::{self, RuleLimit, Rules};
use crate::engine::{Ban, BoundLimit};
use crate::table::Outcome;

/// The cost of a request.
pub(crate) type Cost = rules::Cost<Text>;

/// A rule's own key.
pub(crate) type OwnKey = rules::OwnKey<Text>;

/// The rules that apply on a level. All of them must admit a request.
#[derive(Debug)]
pub(crate) struct RuleSet {
    rules: Rc<Rules<Text>>,
    namespaces: ServedNamespaces,
    /// Whether rules without a `dry_run=` are only tried, beside rules that have one.
    is_dry_run: bool,
    /// Whether a rule limits how many requests are under way.
    pub(crate) has_holds: bool,
    /// Set by the first request.
    active: OnceCell<Active>,
}

/// The data of the rules that requests need, in the order of use.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) rules: Box<[ActiveRule]>,
    /// Number of limits of all rules together.
    pub(crate) limit_count: usize,
    /// Number of those that headers tell of: all but those on requests that are under way.
    told_count: usize,
    /// Most charges of a request: one for each limit, and one for each rule that bans keys.
    pub(crate) charge_count: usize,
    /// Most keys that a request needs: one for each rule, and one for each that bans keys.
    pub(crate) key_count: usize,
    /// Value of `RateLimit-Policy` if all limits apply; empty if one of them is variable.
    policy: &'static [u8],
    /// Whether a rule charges hits that depend on the response.
    pub(crate) has_deferred: bool,
    /// Whether a store decides a rule.
    pub(crate) is_synchronous: bool,
    /// Whether hits are reserved for all limits that a store decides.
    pub(crate) is_reserving: bool,
    /// Whether some rules have a `dry_run=`. Then each rule of a dry run is tried alone.
    pub(crate) has_trials: bool,
    /// Whether a rule charges an estimate with the decision.
    pub(crate) has_estimates: bool,
    /// Whether a rule bans keys.
    pub(crate) has_bans: bool,
    /// Whether requests are plain: none has to wait for a store or because of a rate, no rule is
    /// tried alone or bans keys, and no cost is an estimate.
    pub(crate) is_plain: bool,
}

/// A rule with its counters.
#[derive(Debug)]
pub(crate) struct ActiveRule {
    pub(crate) key: RuleKey,
    pub(crate) cost: &'static Cost,
    pub(crate) limits: Box<[ActiveLimit]>,
    /// The bans of rejected keys.
    pub(crate) ban: Option<Box<Ban<'static>>>,
    /// The deciders; `None` if this node decides.
    pub(crate) synchronous: Option<Synchronous>,
    /// The rule's number, if it is tried alone: it refuses no request.
    pub(crate) trial: Option<usize>,
    /// The rule's place in the configuration, such as `nginx.conf:31`.
    pub(crate) place: &'static str,
    /// The status of the rule's rejections; `None` for that of the level.
    pub(crate) status: Option<isize>,
}

/// The key of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RuleKey {
    /// The level's key.
    OfLevel,
    /// The previous rule's key, in the same table.
    AsBefore,
    /// The rule's own key.
    Own(&'static Text),
    /// Either key, in a counter with a name, or with an exception.
    Rare(&'static OwnKey),
}

/// A limit with its counters.
#[derive(Debug)]
pub(crate) struct ActiveLimit {
    pub(crate) bound: BoundLimit<'static>,
    pub(crate) hits: &'static Amount,
}

impl RuleSet {
    /// Creates the rule set of `rules`, whose limits count in `namespaces`. `is_dry_run` is what
    /// the level says.
    pub(super) fn new(
        rules: Rc<Rules<Text>>,
        namespaces: ServedNamespaces,
        is_dry_run: bool,
    ) -> RuleSet {
        let mut limits = rules.rules().iter().flat_map(|rule| &rule.limits);
        let has_holds = limits.any(|it| it.limit.algorithm.is_of_concurrency());
        RuleSet { rules, namespaces, is_dry_run, has_holds, active: OnceCell::new() }
    }

    /// Returns the policies, each with the number of its namespace.
    pub(super) fn policies(&self) -> impl Iterator<Item = (usize, &str)> {
        let rules = self.rules.rules().iter();
        rules.flat_map(|rule| {
            let limits = rule.limits.iter();
            limits.map(|limit| (rule.namespace, &*limit.limit.name))
        })
    }

    /// Returns the value of `RateLimit-Policy` for a request to which `limits` limits applied;
    /// `None` if the value depends on the request.
    #[inline]
    pub(crate) fn policy(&self, limits: usize) -> Option<&[u8]> {
        let active = self.active.get()?;
        let is_known = !active.policy.is_empty() && active.told_count == limits;
        is_known.then_some(active.policy)
    }

    /// Returns the rules with their counters. To be called once the zones are mapped.
    #[inline]
    pub(crate) fn active(&'static self) -> &'static Active {
        self.active.get_or_init(|| self.activate())
    }

    #[cold]
    fn activate(&'static self) -> Active {
        let mut rules: Vec<ActiveRule> = Vec::new();
        // Table of the previous rule, if that uses the level's key.
        let mut level_table = None;
        // Requests come only after every namespace was found in its zone.
        let namespaces = self.namespaces.get().map_or(&[][..], |it| it);
        let has_trials = self.rules.has_own_dry_run();
        for (number, rule) in self.rules.rules().iter().enumerate() {
            let Some(Some(served)) = namespaces.get(rule.namespace) else {
                continue;
            };
            let namespace = &served.namespace;
            let mut limits: Vec<ActiveLimit> = Vec::new();
            for RuleLimit { limit, hits, .. } in &rule.limits {
                let earlier = rules.iter().flat_map(|rule| &rule.limits).chain(&limits);
                let earlier = earlier.map(|limit| &limit.bound);
                let mut bound = BoundLimit::new(limit.clone(), namespace, earlier)
                    .estimated(rule.cost.is_estimated());
                if served.synchronous.is_some_and(|it| it.is_reserving) {
                    bound = bound.reserving(namespace);
                }
                limits.push(ActiveLimit { bound, hits });
            }
            let ban = rule.ban.and_then(|ban| {
                let limits = rule.limits.iter().map(|limit| &limit.limit);
                Ban::new(ban, limits, namespace).map(Box::new)
            });
            let table = &raw const *namespace.table();
            let is_rare = rule.key.counter().is_some() || rule.key.unless().is_some();
            let key = match (is_rare, rule.key.text()) {
                (true, _) => RuleKey::Rare(&rule.key),
                (false, Some(text)) => RuleKey::Own(text),
                (false, None) if level_table == Some(table) => RuleKey::AsBefore,
                (false, None) => RuleKey::OfLevel,
            };
            level_table = matches!(key, RuleKey::AsBefore | RuleKey::OfLevel).then_some(table);
            rules.push(ActiveRule {
                key,
                cost: &rule.cost,
                limits: limits.into(),
                ban,
                synchronous: served.synchronous,
                trial: (has_trials && rule.dry_run.unwrap_or(self.is_dry_run)).then_some(number),
                place: &rule.place,
                status: rule.status,
            });
        }
        let mut synchronous = rules.iter().filter(|rule| rule.synchronous.is_some());
        let is_synchronous = synchronous.clone().next().is_some();
        let mut limits = rules.iter().flat_map(|rule| &rule.limits);
        let is_told = |it: &&ActiveLimit| !it.bound.limit.algorithm.is_of_concurrency();
        let (told_count, limit_count) =
            (limits.clone().filter(is_told).count(), limits.clone().count());
        let has_delay = limits.any(|limit| limit.bound.limit.burst.delay.is_some());
        let bans = rules.iter().filter(|rule| rule.ban.is_some()).count();
        let has_bans = bans > 0;
        let has_estimates = rules.iter().any(|rule| rule.cost.is_estimated());
        Active {
            limit_count,
            told_count,
            key_count: rules.len().saturating_add(bans),
            charge_count: limit_count.saturating_add(bans),
            policy: self.rules.policy(),
            is_synchronous,
            is_reserving: is_synchronous
                && !has_trials
                && synchronous.all(ActiveRule::is_reserving)
                && are_apart(&rules),
            has_trials,
            has_estimates,
            has_bans,
            is_plain: !(is_synchronous || has_delay || has_trials || has_estimates || has_bans),
            has_deferred: rules.iter().any(|rule| rule.cost.is_deferred()),
            rules: rules.into(),
        }
    }
}

impl Active {
    /// Returns the outcome of a refused request, where `of_level` is what the level says.
    pub(crate) fn refusal(&self, of_level: Outcome) -> Outcome {
        match self.has_trials {
            // The rules of a dry run are tried, so the others are those that reject.
            true => Outcome::Rejected,
            false => of_level,
        }
    }
}

/// Returns whether no two limits share a counter. With a shared counter, a hit would be spent
/// twice.
fn are_apart(rules: &[ActiveRule]) -> bool {
    let limits = || rules.iter().flat_map(|rule| &rule.limits);
    limits().enumerate().all(|(index, one)| {
        let mut earlier = limits().take(index);
        !earlier.any(|other| one.bound.has_counters_of(&other.bound))
    })
}

impl ActiveRule {
    /// Returns whether hits are reserved for all limits of the rule.
    fn is_reserving(&self) -> bool {
        self.limits.iter().all(|limit| limit.bound.is_reserving())
    }

    /// Returns whether `bound` is one of the rule's limits, or that of its bans.
    pub(crate) fn has(&self, bound: &BoundLimit<'static>) -> bool {
        let limits = self.limits.iter().map(|limit| &limit.bound);
        let mut bounds = limits.chain(self.ban.as_ref().map(|ban| &ban.bound));
        bounds.any(|it| ptr::eq(it, bound))
    }
}
