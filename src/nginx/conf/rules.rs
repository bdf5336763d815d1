//! The rules of a level, with their counters once the zones are mapped.

use core::ptr;
use std::cell::OnceCell;
use std::rc::Rc;

use super::served::{ServedNamespaces, Synchronous};
use super::text::{Amount, Text};
use crate::conf::level::rules::{self, RuleLimit, Rules};
use crate::engine::BoundLimit;

/// The cost of a request.
pub(crate) type Cost = rules::Cost<Text>;

/// A rule's own key.
pub(crate) type OwnKey = rules::OwnKey<Text>;

/// The rules that apply on a level. All of them must admit a request.
#[derive(Debug)]
pub(crate) struct RuleSet {
    rules: Rc<Rules<Text>>,
    namespaces: ServedNamespaces,
    /// Set by the first request.
    active: OnceCell<Active>,
}

/// The data of the rules that requests need, in the order of use.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) rules: Box<[ActiveRule]>,
    /// Number of limits of all rules together.
    pub(crate) limit_count: usize,
    /// Value of `RateLimit-Policy` if all limits apply; empty if one of them is variable.
    policy: &'static [u8],
    /// Whether a rule charges hits that depend on the response.
    pub(crate) has_deferred: bool,
    /// Whether a store decides a rule.
    pub(crate) is_synchronous: bool,
    /// Whether hits are reserved for all limits that a store decides.
    pub(crate) is_reserving: bool,
    /// Whether a request may have to wait, for a store or because of a rate.
    pub(crate) may_wait: bool,
}

/// A rule with its counters.
#[derive(Debug)]
pub(crate) struct ActiveRule {
    pub(crate) key: RuleKey,
    pub(crate) cost: &'static Cost,
    pub(crate) limits: Box<[ActiveLimit]>,
    /// The deciders; `None` if this node decides.
    pub(crate) synchronous: Option<Synchronous>,
    /// The rule's place in the configuration, such as `nginx.conf:31`.
    pub(crate) place: &'static str,
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
    /// Either key, with a counter variable.
    InCounter(&'static OwnKey),
}

/// A limit with its counters.
#[derive(Debug)]
pub(crate) struct ActiveLimit {
    pub(crate) bound: BoundLimit<'static>,
    pub(crate) hits: &'static Amount,
}

impl RuleSet {
    /// Creates the rule set of `rules`, whose limits count in `namespaces`.
    pub(super) fn new(rules: Rc<Rules<Text>>, namespaces: ServedNamespaces) -> RuleSet {
        RuleSet { rules, namespaces, active: OnceCell::new() }
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
        let is_known = !active.policy.is_empty() && active.limit_count == limits;
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
        for rule in self.rules.rules() {
            let Some(Some(served)) = namespaces.get(rule.namespace) else {
                continue;
            };
            let namespace = &served.namespace;
            let mut limits: Vec<ActiveLimit> = Vec::new();
            for RuleLimit { limit, hits, .. } in &rule.limits {
                let earlier = rules.iter().flat_map(|rule| &rule.limits).chain(&limits);
                let earlier = earlier.map(|limit| &limit.bound);
                let mut bound = BoundLimit::new(limit.clone(), namespace, earlier);
                if served.synchronous.is_some_and(|it| it.is_reserving) {
                    bound = bound.reserving(namespace);
                }
                limits.push(ActiveLimit { bound, hits });
            }
            let table = &raw const *namespace.table();
            let key = match (rule.key.counter(), rule.key.text()) {
                (Some(_), _) => RuleKey::InCounter(&rule.key),
                (None, Some(text)) => RuleKey::Own(text),
                (None, None) if level_table == Some(table) => RuleKey::AsBefore,
                (None, None) => RuleKey::OfLevel,
            };
            level_table = matches!(key, RuleKey::AsBefore | RuleKey::OfLevel).then_some(table);
            rules.push(ActiveRule {
                key,
                cost: &rule.cost,
                limits: limits.into(),
                synchronous: served.synchronous,
                place: &rule.place,
            });
        }
        let mut synchronous = rules.iter().filter(|rule| rule.synchronous.is_some());
        let is_synchronous = synchronous.clone().next().is_some();
        let mut limits = rules.iter().flat_map(|rule| &rule.limits);
        let has_delay = limits.any(|limit| limit.bound.limit.burst.delay.is_some());
        Active {
            limit_count: rules.iter().map(|rule| rule.limits.len()).sum(),
            policy: self.rules.policy(),
            is_synchronous,
            is_reserving: is_synchronous
                && synchronous.all(ActiveRule::is_reserving)
                && are_apart(&rules),
            may_wait: is_synchronous || has_delay,
            has_deferred: rules.iter().any(|rule| matches!(rule.cost, Cost::Deferred(_))),
            rules: rules.into(),
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

    /// Returns whether `bound` is one of the rule's limits.
    pub(crate) fn has(&self, bound: &BoundLimit<'static>) -> bool {
        let mut limits = self.limits.iter();
        limits.any(|limit| ptr::eq(&limit.bound, bound))
    }
}
