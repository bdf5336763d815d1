//! The answer to a request for the most rejected keys, and whether they are limited now.

use core::cmp::Reverse;
use std::vec;

use super::json::{Thousandths, json, object};
use super::list::ListBody;
use super::rules::ExplainedRule;
use crate::conf::listed::ListedRule;
use crate::engine::Namespace;
use crate::policy::key::{digest_in, key_and_counter};
use crate::policy::window::Clock;
use crate::table::{RejectedKey, TopRejected};

/// Answers [`ApiCall::Top`](super::ApiCall::Top) with the `limit` most rejected keys of `namespace`. A key without
/// rejections in the last minutes is listed while one of `rules` refuses it.
pub fn top<'c, C: Clock>(
    namespace: &'c Namespace<'c>,
    limit: usize,
    rules: impl Iterator<Item = &'c ListedRule> + Clone + 'c,
    clock: &'c C,
) -> ListBody<impl Iterator<Item = Option<String>> + 'c> {
    let TopRejected { keys, missed, followed } =
        namespace.table().top_rejected(namespace.index(), clock.now());
    let keys = TopKeys { namespace, rules, clock, keys: keys.into_iter(), left: limit, next: None };
    ListBody::new("keys", keys).and(&json(&object! { missed: missed, followed: followed }))
}

/// The keys of an answer. Each step asks one rule about a key, or ends a key.
struct TopKeys<'c, R, C> {
    namespace: &'c Namespace<'c>,
    rules: R,
    clock: &'c C,
    keys: vec::IntoIter<RejectedKey>,
    /// The number of keys that may still be listed.
    left: usize,
    next: Option<AskedKey<'c, R>>,
}

/// A key about which rules are being asked.
struct AskedKey<'c, R> {
    rejected: RejectedKey,
    /// The rules that are not asked yet.
    rules: R,
    /// The limit to tell of, among the rules that were asked.
    limited: Option<LimitedBy<'c>>,
}

/// A limit that refuses a key now.
#[derive(Clone, Copy)]
struct LimitedBy<'c> {
    rule: &'c str,
    name: &'c str,
    dry_run: bool,
    /// `None` if it never ends.
    until: Option<Thousandths>,
}

impl<'c, R: Iterator<Item = &'c ListedRule> + Clone, C: Clock> Iterator for TopKeys<'c, R, C> {
    type Item = Option<String>;

    fn next(&mut self) -> Option<Option<String>> {
        if self.left == 0 {
            return None;
        }
        let mut asked = match self.next.take() {
            Some(asked) => asked,
            None => {
                let (rejected, rules) = (self.keys.next()?, self.rules.clone());
                AskedKey { rejected, rules, limited: None }
            }
        };
        // The counters of a digest are unknown.
        let is_known = digest_in(&asked.rejected.name).is_none();
        if let Some(rule) = asked.rules.next().filter(|_| is_known) {
            asked.ask(rule, self.namespace, self.clock);
            self.next = Some(asked);
            return Some(None);
        }
        let text = asked.to_json();
        self.left = self.left.saturating_sub(text.is_some().into());
        Some(text)
    }
}

impl<'c, R> AskedKey<'c, R> {
    /// Asks a rule whether it refuses the key, and for longer than the rules before.
    fn ask(&mut self, rule: &'c ListedRule, namespace: &Namespace<'_>, clock: &impl Clock) {
        let (_, counter) = key_and_counter(&self.rejected.name);
        if rule.counter.as_deref().map(str::as_bytes) != counter {
            return;
        }
        let name = &self.rejected.name;
        let ExplainedRule { place: rule, dry_run, limits, has_hits, .. } =
            ExplainedRule::new(rule, namespace, name, (None, None), clock);
        let refusing = limits.iter().filter(|it| has_hits && it.admitted == Some(false));
        let limited =
            refusing.map(|it| LimitedBy { rule, name: it.name, dry_run, until: it.until });
        self.limited = self.limited.into_iter().chain(limited).min_by_key(LimitedBy::rank);
    }

    /// Returns the key's part of the answer; `None` if it is left out.
    fn to_json(&self) -> Option<String> {
        let AskedKey { rejected, limited, .. } = self;
        let (key, counter) = key_and_counter(&rejected.name);
        let is_listed = rejected.count > 0 || limited.is_some();
        is_listed.then(|| {
            json(&object! {
                key: encoded(key),
                counter: counter.map(encoded),
                rejected: rejected.count,
                error: rejected.error,
                rule: limited.map(|it| it.rule),
                name: limited.map(|it| it.name),
                until: limited.and_then(|it| it.until),
                dry_run: limited.map(|it| it.dry_run),
            })
        })
    }
}

impl LimitedBy<'_> {
    /// Ranks limits: first those that clients meet, then those that last longer.
    fn rank(&self) -> (bool, Reverse<i64>) {
        (self.dry_run, Reverse(self.until.map_or(i64::MAX, |Thousandths(millis)| millis)))
    }
}

/// Encodes a key for use in a path, in a query, and in any text.
pub(super) fn encoded(key: &[u8]) -> String {
    let one = |byte: &u8| match byte {
        b'%' | b'?' | b'#' | b'&' | b'+' | b'"' | b'\\' | b'\'' | b'`' => format!("%{byte:02X}"),
        0x21..=0x7e => char::from(*byte).into(),
        _ => format!("%{byte:02X}"),
    };
    key.iter().map(one).collect()
}
