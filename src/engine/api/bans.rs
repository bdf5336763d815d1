//! The answers about banned keys: their list, and the end of a key's bans.

use super::json::{ApiError, Thousandths, json, object};
use super::key::check_key;
use super::list::ListBody;
use super::top::encoded;
use crate::conf::listed::ListedRule;
use crate::engine::report::bans::{BanSearch, BannedKey};
use crate::engine::{Ban, Namespace};
use crate::policy::key::{counted_name, key_and_counter};
use crate::policy::window::Clock;

/// Answers [`ApiCall::Bans`](super::ApiCall::Bans) with at most `limit` keys that these rules of `namespace` have banned.
pub fn bans<'c, C: Clock>(
    namespace: &'c Namespace<'c>,
    limit: usize,
    rules: impl Iterator<Item = &'c ListedRule>,
    clock: &'c C,
) -> ListBody<impl Iterator<Item = Option<String>> + 'c> {
    let mut search = BanSearch::new(namespace, rules);
    let mut left = limit;
    let steps = core::iter::from_fn(move || {
        let banned = if left > 0 { search.step(clock)? } else { return None };
        let listed: Vec<_> = banned.iter().take(left).map(|it| of_key(it, clock)).collect();
        left = left.saturating_sub(listed.len());
        // An item of the list is what a step finds.
        Some((!listed.is_empty()).then(|| listed.join(",")))
    });
    ListBody::new("bans", steps)
}

fn of_key(banned: &BannedKey<'_>, clock: &impl Clock) -> String {
    let BannedKey { name, rule, left } = banned;
    let (key, counter) = key_and_counter(name);
    json(&object! {
        key: encoded(key),
        counter: counter.map(encoded),
        rule: &*rule.place,
        name: rule.limits.iter().max_by_key(|it| it.limit.size.longest()).map(|it| &*it.limit.name),
        dry_run: rule.is_dry_run,
        until: Thousandths::of(clock.now().0.saturating_add(*left)),
    })
}

/// Answers [`ApiCall::Lift`](super::ApiCall::Lift): lifts the bans of a key by these rules of `namespace`, on this node
/// and on those that sync with it. Returns the answer with the rules that had banned the key.
///
/// # Errors
///
/// 400 if the key is empty.
pub fn lift<'c>(
    key: &[u8],
    namespace: &Namespace<'_>,
    rules: impl Iterator<Item = &'c ListedRule>,
    clock: &impl Clock,
) -> Result<String, ApiError> {
    check_key(key)?;
    let mut lifted = Vec::new();
    for rule in rules {
        let limits = rule.limits.iter().map(|it| &it.limit);
        let Some(ban) = rule.ban.and_then(|ban| Ban::new(ban, limits, namespace)) else {
            continue;
        };
        if ban.lift(&counted_name(key, rule.counter.as_deref()), clock) {
            lifted.push(object! { rule: &*rule.place, counter: rule.counter.as_deref() });
        }
    }
    Ok(json(&object! { lifted: lifted }))
}
