//! The applied rules as users see them: where they are written, and what they say.

use std::collections::BTreeMap;

use super::level::rules::{Cost, Rule, RuleLimit};
use super::words::settings::Phase;
use super::words::text::Amount;
use crate::policy::hits::Hits;
use crate::policy::limit::{BanRule, Limit};

/// A rule with the key and the settings of the levels on which it applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRule {
    /// The index of its namespace in the configuration.
    pub namespace: usize,
    /// The place of the rule, such as `nginx.conf:31`.
    pub place: Box<str>,
    /// The key, as it is written.
    pub key: Box<[u8]>,
    /// The name of the counter; `None` for the shared one.
    pub counter: Option<Box<str>>,
    /// The cost with which requests are admitted; `None` if it is variable.
    pub cost: Option<Hits>,
    /// The limits, at least one.
    pub limits: Box<[ListedLimit]>,
    /// The bans of rejected keys.
    pub ban: Option<BanRule>,
    /// The phase in which requests are decided on.
    pub phase: Phase,
    /// Whether rejections are only counted.
    pub is_dry_run: bool,
}

/// A limit of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedLimit {
    /// The limit, with the name of its policy.
    pub limit: Limit,
    /// The number of hits that the rule admits, or its rate; `None` if it is variable.
    pub hits: Option<Hits>,
}

/// A rule on a level where it applies.
pub(super) struct RuleOnLevel<'a, T> {
    pub(super) rule: &'a Rule<T>,
    /// The rule's key on this level, as it is written.
    pub(super) key: &'a [u8],
    pub(super) phase: Phase,
    pub(super) is_dry_run: bool,
}

/// Lists rules in the order of the configuration. A rule that applies on several levels is listed once for each key,
/// phase and dry run.
pub(super) fn list<'a, T: 'a>(rules: impl Iterator<Item = RuleOnLevel<'a, T>>) -> Vec<ListedRule> {
    let mut listed = BTreeMap::new();
    for on_level in rules {
        let RuleOnLevel { rule, key, phase, is_dry_run } = on_level;
        let place = (rule.number, key, phase == Phase::Precontent, is_dry_run);
        listed.entry(place).or_insert_with(|| ListedRule {
            namespace: rule.namespace,
            place: rule.place.clone(),
            key: key.into(),
            counter: rule.key.counter.clone(),
            cost: match &rule.cost {
                Cost::AtOnce(cost) | Cost::Estimated { cost, .. } => constant(cost),
                // Such a request is admitted by what is already counted.
                Cost::Deferred(_) => Some(Hits::ZERO),
            },
            limits: rule.limits.iter().map(ListedLimit::new).collect(),
            ban: rule.ban,
            phase,
            is_dry_run,
        });
    }
    listed.into_values().collect()
}

impl ListedLimit {
    fn new<T>(limit: &RuleLimit<T>) -> ListedLimit {
        ListedLimit { limit: limit.limit.clone(), hits: constant(&limit.hits) }
    }
}

fn constant<T>(amount: &Amount<T>) -> Option<Hits> {
    match amount {
        Amount::Constant(hits) => Some(*hits),
        Amount::Variable(_) | Amount::Listed(_) => None,
    }
}
