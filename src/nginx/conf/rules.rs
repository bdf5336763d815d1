//! The rules of a level, as requests use them once the zones are mapped.

use core::ptr;
use std::cell::OnceCell;
use std::rc::Rc;

use super::served::{ServedNamespaces, Synchronous};
use super::text::{Amount, Text};
use crate::conf::level::rules::{self, RuleLimit, Rules};
use crate::engine::BoundLimit;

/// Cost of a request.
pub(crate) type Cost = rules::Cost<Text>;

/// Own key of a rule.
pub(crate) type OwnKey = rules::OwnKey<Text>;

/// The rules that apply on a level, all of which must admit a request.
#[derive(Debug)]
pub(crate) struct RuleSet {
    rules: Rc<Rules<Text>>,
    namespaces: ServedNamespaces,
    /// Set by the first request.
    active: OnceCell<Active>,
}

/// The data of rules that a request needs, in the order in which it needs them.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) rules: Box<[ActiveRule]>,
    /// The limits of all rules together.
    pub(crate) limit_count: usize,
    /// The value of `RateLimit-Policy` if all limits apply; empty if one of them is variable.
    policy: &'static [u8],
    /// Whether a rule has hits that are charged when the response is known.
    pub(crate) has_deferred: bool,
    /// Whether a rule is decided by a store.
    pub(crate) is_synchronous: bool,
    /// Whether hits are reserved of all limits that a store decides about.
    pub(crate) is_reserving: bool,
    /// Whether a request may have to wait: for a store, or since a rate holds it back.
    pub(crate) may_wait: bool,
}

/// A rule with its counters.
#[derive(Debug)]
pub(crate) struct ActiveRule {
    pub(crate) key: RuleKey,
    pub(crate) cost: &'static Cost,
    pub(crate) limits: Box<[ActiveLimit]>,
    /// The deciders, if not the node.
    pub(crate) synchronous: Option<Synchronous>,
    /// The rule's place in the configuration, such as `nginx.conf:31`.
    pub(crate) place: &'static str,
}

/// The key of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RuleKey {
    /// The key of the level.
    OfLevel,
    /// The key of the rule before, in the same table.
    AsBefore,
    /// A key of its own.
    Own(&'static Text),
    /// Either key, in a counter of its own.
    InCounter(&'static OwnKey),
}

/// A limit with its counters.
#[derive(Debug)]
pub(crate) struct ActiveLimit {
    pub(crate) bound: BoundLimit<'static>,
    pub(crate) hits: &'static Amount,
}

impl RuleSet {
    /// Rules that count in `namespaces`.
    pub(super) fn new(rules: Rc<Rules<Text>>, namespaces: ServedNamespaces) -> RuleSet {
        RuleSet { rules, namespaces, active: OnceCell::new() }
    }

    /// The policies: the number of the namespace, and the name.
    pub(super) fn policies(&self) -> impl Iterator<Item = (usize, &str)> {
        let rules = self.rules.rules().iter();
        rules.flat_map(|rule| {
            let limits = rule.limits.iter();
            limits.map(|limit| (rule.namespace, &*limit.limit.name))
        })
    }

    /// Returns the value of `RateLimit-Policy` for a request to which `limits` limits applied; `None` if it
    /// depends on the request.
    #[inline]
    pub(crate) fn policy(&self, limits: usize) -> Option<&[u8]> {
        let active = self.active.get()?;
        let is_known = !active.policy.is_empty() && active.limit_count == limits;
        is_known.then_some(active.policy)
    }

    /// The rules with their counters, once the zones are mapped.
    #[inline]
    pub(crate) fn active(&'static self) -> &'static Active {
        self.active.get_or_init(|| self.activate())
    }

    #[cold]
    fn activate(&'static self) -> Active {
        let mut rules: Vec<ActiveRule> = Vec::new();
        // The table of the rule before, if that counts by the key of the level.
        let mut level_table = None;
        // There are no requests before every namespace is in its zone.
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

/// Whether each limit has counters of its own: of a counter that two share, a hit would be spent twice.
fn are_apart(rules: &[ActiveRule]) -> bool {
    let limits = || rules.iter().flat_map(|rule| &rule.limits);
    limits().enumerate().all(|(index, one)| {
        let mut earlier = limits().take(index);
        !earlier.any(|other| one.bound.has_counters_of(&other.bound))
    })
}

impl ActiveRule {
    /// Whether hits are reserved of all of its limits.
    fn is_reserving(&self) -> bool {
        self.limits.iter().all(|limit| limit.bound.is_reserving())
    }

    /// Whether `bound` is one of the rule's limits.
    pub(crate) fn has(&self, bound: &BoundLimit<'static>) -> bool {
        let mut limits = self.limits.iter();
        limits.any(|limit| ptr::eq(&limit.bound, bound))
    }
}
