//! The rules of a level: what `ratelimit` says, and what becomes of it once the zones are there.

use core::ptr;
use std::cell::OnceCell;
use std::rc::Rc;

use super::directives::Word;
use super::text::{Amount, Text, WrittenText};
use super::{NamespaceConf, Synchronous};
use crate::conf::sharing::WindowLimits;
use crate::engine::BoundLimit;
use crate::policy::headers;
use crate::policy::limit::Limit;

/// The rules of a level, all of which must admit a request. `ratelimit off` is a set without any.
#[derive(Debug, Default)]
pub(in super::super) struct RuleSet {
    rules: Vec<Rule>,
    /// The value of `RateLimit-Policy` if all limits apply; empty if one of them is variable.
    policy: Vec<u8>,
    /// Set by the first request.
    active: OnceCell<Active>,
}

/// A `ratelimit` directive.
#[derive(Debug)]
pub(super) struct Rule {
    /// Its number in the order of the configuration.
    pub(super) number: usize,
    pub(super) namespace: Rc<NamespaceConf>,
    pub(super) key: OwnKey,
    pub(super) cost: Cost,
    pub(super) limits: Vec<RuleLimit>,
    /// The limits whose counter other rules have too, unless `counter=` says that this is meant.
    pub(super) shared: Vec<WindowLimits>,
}

/// How a rule counts in its own way.
#[derive(Debug)]
pub(in super::super) struct OwnKey {
    /// The key, if not that of the level.
    pub(super) text: Option<WrittenText>,
    /// The counter, if not the one that is shared.
    pub(super) counter: Option<Box<str>>,
}

/// A limit of a rule.
#[derive(Debug)]
pub(super) struct RuleLimit {
    pub(super) limit: Limit,
    /// The window as written.
    pub(super) window: Word,
    pub(super) hits: Amount,
    /// The name if no other limit has it, unless `name=` gave another one.
    pub(super) default_name: Option<Box<str>>,
}

/// What a request is charged.
#[derive(Debug)]
pub(in super::super) enum Cost {
    /// When it is decided on.
    AtOnce(Amount),
    /// When its response is known.
    Late(Amount),
}

/// What a request needs of its rules, in the order in which it needs it.
#[derive(Debug)]
pub(in super::super) struct Active {
    pub(in super::super) rules: Box<[ActiveRule]>,
    /// The limits of all rules together.
    pub(in super::super) limit_count: usize,
    /// Whether a rule has hits that are charged late.
    pub(in super::super) has_late: bool,
    /// Whether a rule is decided by a store.
    pub(in super::super) is_synchronous: bool,
}

/// A rule with its counters.
#[derive(Debug)]
pub(in super::super) struct ActiveRule {
    pub(in super::super) key: Key,
    pub(in super::super) cost: &'static Cost,
    pub(in super::super) limits: Box<[ActiveLimit]>,
    /// Who decides, if not the node.
    pub(in super::super) synchronous: Option<Synchronous>,
}

/// What a rule counts by.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Key {
    /// The key of the level.
    OfLevel,
    /// The same as the rule before, in the same table.
    AsBefore,
    /// A key of its own.
    Own(&'static Text),
    /// Either key, in a counter of its own.
    InCounter(&'static OwnKey),
}

/// A limit with its counters.
#[derive(Debug)]
pub(in super::super) struct ActiveLimit {
    pub(in super::super) bound: BoundLimit<'static>,
    pub(in super::super) hits: &'static Amount,
}

impl RuleSet {
    /// Whether this is `ratelimit off`.
    #[inline]
    pub(in super::super) fn is_off(&self) -> bool {
        self.rules.is_empty()
    }

    /// Adds a rule.
    ///
    /// # Errors
    ///
    /// The name of its policy, if that is another one's too.
    pub(super) fn push(&mut self, rule: Rule) -> Result<(), Box<str>> {
        let mut new = rule.limits.iter().filter(|limit| limit.is_named());
        let is_taken = |name: &str| {
            let mut named = self.limits().filter(|limit| limit.is_named());
            named.any(|limit| &*limit.limit.name == name)
        };
        if let Some(clash) = new.find(|new| is_taken(&new.limit.name)) {
            return Err(clash.limit.name.clone());
        }
        self.rules.push(rule);
        self.name_policies();
        self.write_policy();
        Ok(())
    }

    pub(super) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    fn limits(&self) -> impl Iterator<Item = &RuleLimit> {
        self.rules.iter().flat_map(|rule| &rule.limits)
    }

    /// Gives a number to policies whose default names are taken.
    fn name_policies(&mut self) {
        let named = self.limits().filter(|limit| limit.is_named());
        let mut taken: Vec<Box<str>> = named.map(|limit| limit.limit.name.clone()).collect();
        for RuleLimit {
            limit,
            default_name,
            ..
        } in self.rules.iter_mut().flat_map(|rule| &mut rule.limits)
        {
            let Some(default) = default_name else {
                continue;
            };
            let mut names = (1_u32..).map(|nth| match nth {
                1 => default.clone(),
                _ => format!("{default}-{nth}").into(),
            });
            if let Some(free) = names.find(|name| !taken.contains(name)) {
                limit.name = free;
            }
            taken.push(limit.name.clone());
        }
    }

    fn write_policy(&mut self) {
        let mut policy = Vec::new();
        let constant = self.limits().map(|limit| match limit.hits {
            Amount::Constant(hits) => Some((&limit.limit, hits)),
            Amount::Variable(_) => None,
        });
        if let Some(limits) = constant.collect::<Option<Vec<_>>>() {
            headers::policy(limits, |part| policy.extend_from_slice(part));
        }
        self.policy = policy;
    }

    /// The policies: namespace and name.
    pub(super) fn policies(&self) -> impl Iterator<Item = (&Rc<NamespaceConf>, &str)> {
        let rules = self.rules.iter();
        rules.flat_map(|rule| {
            let limits = rule.limits.iter();
            limits.map(|limit| (&rule.namespace, &*limit.limit.name))
        })
    }

    /// The value of `RateLimit-Policy` for a request that so many limits applied to; `None` if that
    /// depends on the request.
    #[inline]
    pub(in super::super) fn policy(&self, limits: usize) -> Option<&[u8]> {
        let is_known = !self.policy.is_empty() && self.active.get()?.limit_count == limits;
        is_known.then_some(&self.policy)
    }

    /// The rules with their counters, once the zones are mapped.
    #[inline]
    pub(in super::super) fn active(&'static self) -> &'static Active {
        self.active.get_or_init(|| self.activate())
    }

    #[cold]
    fn activate(&'static self) -> Active {
        let mut rules: Vec<ActiveRule> = Vec::new();
        // The table of the rule before, if that counts by the key of the level.
        let mut level_table = None;
        for rule in &self.rules {
            // There are no requests before every namespace is in its zone.
            let Some(namespace) = rule.namespace.namespace.get() else {
                continue;
            };
            let mut limits: Vec<ActiveLimit> = Vec::new();
            for RuleLimit { limit, hits, .. } in &rule.limits {
                let earlier = rules.iter().flat_map(|rule| &rule.limits).chain(&limits);
                let earlier = earlier.map(|limit| &limit.bound);
                let bound = BoundLimit::new(limit.clone(), namespace, earlier);
                limits.push(ActiveLimit { bound, hits });
            }
            let table = &raw const *namespace.table();
            let key = match &rule.key {
                own if own.counter.is_some() => Key::InCounter(own),
                OwnKey {
                    text: Some(key), ..
                } => Key::Own(&key.text),
                _ if level_table == Some(table) => Key::AsBefore,
                _ => Key::OfLevel,
            };
            level_table = matches!(key, Key::AsBefore | Key::OfLevel).then_some(table);
            rules.push(ActiveRule {
                key,
                cost: &rule.cost,
                limits: limits.into(),
                synchronous: rule.namespace.synchronous.get().copied(),
            });
        }
        Active {
            limit_count: rules.iter().map(|rule| rule.limits.len()).sum(),
            is_synchronous: rules.iter().any(|rule| rule.synchronous.is_some()),
            has_late: rules.iter().any(|rule| matches!(rule.cost, Cost::Late(_))),
            rules: rules.into(),
        }
    }
}

impl OwnKey {
    /// The key, if not that of the level.
    pub(in super::super) fn text(&self) -> Option<&Text> {
        self.text.as_ref().map(|key| &key.text)
    }

    /// The name of the counter, if not the one that is shared.
    pub(in super::super) fn counter(&self) -> Option<&str> {
        self.counter.as_deref()
    }
}

impl RuleLimit {
    fn is_named(&self) -> bool {
        self.default_name.is_none()
    }
}

impl ActiveRule {
    /// Whether `bound` is one of the rule's limits.
    pub(in super::super) fn has(&self, bound: &BoundLimit<'static>) -> bool {
        let mut limits = self.limits.iter();
        limits.any(|limit| ptr::eq(&limit.bound, bound))
    }
}
