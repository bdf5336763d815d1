//! Warnings about directives that are legal, but surely mistakes: nothing would show them when requests come.

use crate::conf::rule::{CostText, RuleText};
use crate::conf::words::message::Message;
use crate::conf::words::nginx::Nginx;
use crate::conf::words::text::is_in_name;
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::limit::QuotaHits;
use crate::policy::options::shown;

/// Warns of a key that is always empty, or that has the name of a variable without its `$`; `what` names the key in the
/// message.
pub(crate) fn warn_of_key(nginx: &mut impl Nginx, what: &str, key: &[u8]) {
    let message = if key.is_empty() {
        format!(
            "{what} is empty, and requests with an empty key are not accounted: expected a variable, or \
             \"ratelimit off;\" if that is meant,"
        )
    } else if let Some(name) = variable_meant(nginx, key) {
        format!(
            "{what} \"{}\" has no variable, so that all requests count together: did you mean ${name}?",
            shown(key)
        )
    } else {
        return;
    };
    nginx.warn(Message::Here(message));
}

/// Returns the variable that was probably meant by a key without variables.
fn variable_meant(nginx: &impl Nginx, key: &[u8]) -> Option<String> {
    // These names are also plain words, so they count only if they stand alone.
    const WORDS: [&[u8]; 4] = [b"uri", b"host", b"args", b"hostname"];
    if key.contains(&b'$') {
        return None;
    }
    let mut names = key.split(|byte| !is_in_name(byte));
    let name = names.find(|name| {
        let is_alone = || key.trim_ascii().len().saturating_sub(name.len()) <= 2;
        let is_name = name.contains(&b'_') || WORDS.contains(name) && is_alone();
        is_name && nginx.has_variable(name)
    });
    name.map(shown)
}

/// Warns of a rule that never admits a request, has a useless key, or has a parameter without effect.
pub(crate) fn warn_of_rule(nginx: &mut impl Nginx, rule: &RuleText<'_>) {
    if let Some(key) = rule.key {
        warn_of_key(nginx, "ratelimit: the key", key);
    }
    if let Some(message) = admits_nothing(rule) {
        nginx.warn(Message::Here(message));
    }
    if rule.burst.delay.is_some() && rule.burst.hits == Hits::ZERO {
        let message = "ratelimit: delay= has no effect without a burst, since what is above the rate is \
                       rejected: expected burst=hits beside it";
        nginx.warn(Message::Here(message.into()));
    }
}

/// Returns a warning if a constant limit is below the constant cost of each request.
fn admits_nothing(rule: &RuleText<'_>) -> Option<String> {
    let cost = match rule.cost {
        CostText::One => Hits::ONE,
        CostText::AtOnce(cost) => Hits::parse(cost.value).ok()?,
        CostText::Deferred(_) => return None,
    };
    let is_rate = rule.algorithm == Algorithm::Bucket;
    let (hits, window) = rule.quotas.iter().find_map(|quota| match quota.hits {
        QuotaHits::Constant(hits) => {
            let most = if is_rate { rule.burst.most(hits) } else { hits };
            (cost > most).then_some((hits, quota.window))
        }
        QuotaHits::Variable(_) => None,
    })?;
    let window = shown(window);
    Some(match is_rate {
        true => format!(
            "ratelimit: \"rate={hits}/{window}\" never admits a request, which costs {cost}: expected \
             burst={} at least",
            cost.minus(Hits::ONE)
        ),
        false => format!(
            "ratelimit: \"limit={hits}/{window}\" never admits a request, which costs {cost}: expected \
             at least that, or a lower cost="
        ),
    })
}
