//! Where rules apply, and what is to be said of rules that share a counter there.

use std::rc::Rc;

use super::configuration::Configuration;
use super::level::LevelConf;
use super::message::Message;
use super::rules::Rules;
use super::sharing::{Shared, Sharing};
use crate::policy::options::shown;

/// The most pairs of limits that share a counter of which each has a warning.
const MOST_PAIRS: usize = 20;

/// The rules that apply on the levels of a configuration, each with the key of the level.
#[derive(Debug)]
pub struct AppliedRules<T> {
    levels: Vec<AppliedLevel<T>>,
}

/// The rules that apply on a level, and its key, as it is written.
#[derive(Debug)]
struct AppliedLevel<T> {
    rules: Rc<Rules<T>>,
    key: Box<[u8]>,
}

impl<T> AppliedRules<T> {
    /// Notes a level, which has inherited.
    pub fn note(&mut self, level: &LevelConf<T>) {
        let Some(rules) = level.effective_rules() else {
            return;
        };
        let key = level.written_key();
        // Most locations inherit both, as the one before did.
        let last = self.levels.last();
        let last = last.filter(|last| Rc::ptr_eq(&last.rules, rules) && *last.key == *key);
        if last.is_none() {
            let (rules, key) = (rules.clone(), key.into());
            self.levels.push(AppliedLevel { rules, key });
        }
    }

    /// What is to be said of rules of different limits that share a counter, once all levels were
    /// noted.
    pub fn warnings(&self, configuration: &Configuration) -> Vec<Message> {
        let mut sharing = Sharing::default();
        for AppliedLevel { rules, key } in &self.levels {
            for rule in rules.rules() {
                if let Some(namespace) = configuration.namespaces.get(rule.namespace) {
                    let key = rule.written_key(key);
                    sharing.add(rule.number, key, &namespace.name, &rule.shared);
                }
            }
        }
        let pairs = sharing.pairs();
        let (told, left) = pairs.split_at_checked(MOST_PAIRS).unwrap_or((&pairs, &[]));
        let mut warnings: Vec<Message> = told
            .iter()
            .filter_map(|pair| of_pair(configuration, pair))
            .collect();
        if let Some(place) = left
            .first()
            .and_then(|it| configuration.rules.get(it.second))
        {
            let message = format!(
                "ratelimit: {} more pairs of different limits share counters, the first of them",
                left.len()
            );
            warnings.push(Message::At(place.clone(), message));
        }
        warnings
    }
}

/// Returns the warning of two limits that share a counter; `None`: no rule has these numbers.
fn of_pair(configuration: &Configuration, pair: &Shared<'_>) -> Option<Message> {
    let (key, size) = (shown(pair.key), pair.size);
    let first = configuration.rules.get(pair.first)?;
    let second = configuration.rules.get(pair.second)?;
    let places = match pair.places {
        1 => String::new(),
        places => format!(" (in {places} places)"),
    };
    let message = format!(
        "ratelimit: this rule{places} and that in {first} have different limits, and share the counter \
         of key \"{key}\" and window {size}: expected counter=name for another counter, or \
         counter=default if this is meant,"
    );
    Some(Message::At(second.clone(), message))
}

impl<T> Default for AppliedRules<T> {
    fn default() -> Self {
        AppliedRules { levels: Vec::new() }
    }
}
