//! The rules that apply on each level, and warnings that depend on that.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::configuration::Configuration;
use super::level::LevelConf;
use super::level::rules::Rules;
use super::listed::{self, ListedRule, RuleOnLevel};
use super::review::{Shared, Sharing};
use super::words::message::Message;
use super::words::settings::Phase;
use super::words::text::names;
use crate::policy::options::shown;
use crate::table::Outcome;

/// The maximum number of pairs of limits sharing a counter that get a warning each.
const MOST_PAIRS: usize = 20;

/// The warning for a directive that an earlier `return` makes unreachable.
const UNREACHED: &str = "\"return\" stands in the same place, and answers every request before this: expected it in a \
                         location of its own,";

/// The warning for a rule whose key has an unverified user name, which clients can forge.
const UNVERIFIED: &str = "the key has $remote_user, which auth_basic verifies only after this rule: expected \
                          \"ratelimit_phase precontent;\"";

/// The rules that apply on the levels of a configuration, each with the key of the level.
#[derive(Debug)]
pub struct AppliedRules<T> {
    levels: Vec<AppliedLevel<T>>,
    /// Warnings about unreachable content of levels.
    warnings: Vec<Message>,
    /// The numbers of rules that no request reaches.
    unreached: Vec<usize>,
}

/// The rules that apply on a level, with the level's settings.
#[derive(Debug)]
struct AppliedLevel<T> {
    rules: Rc<Rules<T>>,
    /// The level's key, as it is written.
    key: Box<[u8]>,
    phase: Phase,
    is_dry_run: bool,
    /// Whether `auth_basic` applies, but runs only after the rules.
    is_before_auth: bool,
}

impl<T> AppliedRules<T> {
    /// Records a level that has inherited.
    pub fn note(&mut self, level: &LevelConf<T>) {
        if let Some((origin, name)) = level.unreached_content() {
            let message = format!("{name}: {UNREACHED}");
            self.warnings.push(Message::At(origin.clone(), message));
        }
        let Some(rules) = level.effective_rules() else {
            return;
        };
        if level.has_unreached_rules() {
            self.unreached.extend(rules.rules().first().map(|rule| rule.number));
        }
        let is_before_auth = level.is_before_basic_auth();
        let (key, settings) = (level.written_key(), level.settings());
        let (phase, is_dry_run) = (settings.phase, settings.refusal == Outcome::RejectedDryRun);
        // Most locations inherit the same rules and key as the one before.
        let last = self.levels.last();
        let is_like = |last: &&AppliedLevel<T>| {
            Rc::ptr_eq(&last.rules, rules)
                && *last.key == *key
                && (last.phase, last.is_dry_run) == (phase, is_dry_run)
                && last.is_before_auth == is_before_auth
        };
        if last.filter(is_like).is_none() {
            let (rules, key) = (rules.clone(), key.into());
            self.levels.push(AppliedLevel { rules, key, phase, is_dry_run, is_before_auth });
        }
    }

    /// Returns the recorded rules, in the order of the configuration.
    pub fn listed(&self) -> Vec<ListedRule> {
        listed::list(self.levels.iter().flat_map(|level| {
            let AppliedLevel { rules, key, phase, is_dry_run, .. } = level;
            rules.rules().iter().map(|rule| RuleOnLevel {
                rule,
                key: rule.written_key(key),
                phase: *phase,
                is_dry_run: rule.dry_run.unwrap_or(*is_dry_run),
            })
        }))
    }

    /// Returns the warnings about applied rules; every level must have been recorded.
    pub fn warnings(&self, configuration: &Configuration) -> Vec<Message> {
        let at = |rule: &usize, message: &str| {
            let place = configuration.rules.get(*rule)?.clone();
            Some(Message::At(place, format!("ratelimit: {message}")))
        };
        let mut warnings = self.warnings.clone();
        let unreached = self.unreached.iter();
        warnings.extend(unreached.filter_map(|rule| at(rule, UNREACHED)));
        let unverified = self.unverified();
        warnings.extend(unverified.iter().filter_map(|rule| at(rule, UNVERIFIED)));
        warnings.extend(self.sharing_warnings(configuration));
        warnings
    }

    /// Returns the numbers of rules whose key has a user that `auth_basic` verifies only later.
    fn unverified(&self) -> BTreeSet<usize> {
        let levels = self.levels.iter().filter(|level| level.is_before_auth);
        let rules = levels.flat_map(|AppliedLevel { rules, key, .. }| {
            let rules = rules.rules().iter().map(move |rule| (rule, rule.written_key(key)));
            rules
                .filter(|(_, key)| names(key).any(|name| name.eq_ignore_ascii_case(b"remote_user")))
        });
        rules.map(|(rule, _)| rule.number).collect()
    }

    /// Returns the warnings about rules of different limits that share a counter.
    fn sharing_warnings(&self, configuration: &Configuration) -> Vec<Message> {
        let mut sharing = Sharing::default();
        for AppliedLevel { rules, key, .. } in &self.levels {
            for rule in rules.rules() {
                if let Some(namespace) = configuration.namespaces.get(rule.namespace) {
                    let key = rule.written_key(key);
                    sharing.add(rule.number, key, &namespace.name, &rule.shared);
                }
            }
        }
        let pairs = sharing.pairs();
        let (told, left) = pairs.split_at_checked(MOST_PAIRS).unwrap_or((&pairs, &[]));
        let mut warnings: Vec<Message> =
            told.iter().filter_map(|pair| of_pair(configuration, pair)).collect();
        if let Some(place) = left.first().and_then(|it| configuration.rules.get(it.second)) {
            let message = format!(
                "ratelimit: {} more pairs of different limits share counters, the first of them",
                left.len()
            );
            warnings.push(Message::At(place.clone(), message));
        }
        warnings
    }
}

/// Returns the warning about two limits that share a counter; `None` if a rule of the pair does not exist.
fn of_pair(configuration: &Configuration, pair: &Shared<'_>) -> Option<Message> {
    let key = shown(pair.key);
    let window = pair.size.map_or_else(String::new, |size| format!(" and window {size}"));
    let first = configuration.rules.get(pair.first)?;
    let second = configuration.rules.get(pair.second)?;
    let places = match pair.places {
        1 => String::new(),
        places => format!(" (in {places} places)"),
    };
    let message = format!(
        "ratelimit: this rule{places} and that in {first} have different limits, and share the counter \
         of key \"{key}\"{window}: expected counter=name for another counter, or \
         counter=default if this is meant,"
    );
    Some(Message::At(second.clone(), message))
}

impl<T> Default for AppliedRules<T> {
    fn default() -> Self {
        AppliedRules { levels: Vec::new(), warnings: Vec::new(), unreached: Vec::new() }
    }
}
