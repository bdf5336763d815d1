//! The headers of `ietf`, `RateLimit-Policy` and `RateLimit`: <https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/10/>

use super::text::{HeaderSink, HeaderText as _, ToldLimits, number, whole};
use crate::policy::hits::Hits;
use crate::policy::limit::{Verdict, by_tightness};

const POLICY: &str = "RateLimit-Policy";
const STATE: &str = "RateLimit";

/// An item of `RateLimit-Policy`.
#[derive(Clone, Copy, Debug)]
pub struct PolicyItem<'a> {
    /// The name of the policy.
    pub name: &'a str,
    /// The limit.
    pub hits: Hits,
    /// The window in milliseconds, if the limit has one.
    pub window: Option<u64>,
}

/// Writes the value of `RateLimit-Policy`: `"api-1s";q=10;w=1, ...`.
///
/// `q` is the integer part of the limit. `w` is the window in seconds, if that is a whole number.
pub fn policy<'a>(policies: impl IntoIterator<Item = PolicyItem<'a>>, mut put: impl FnMut(&[u8])) {
    for (index, policy) in policies.into_iter().enumerate() {
        name(index, policy.name, &mut put);
        put(b";q=");
        number(whole(policy.hits), &mut put);
        if let Some(millis) = policy.window.filter(|millis| millis.is_multiple_of(1000)) {
            put(b";w=");
            number(millis / 1000, &mut put);
        }
    }
}

/// Adds `RateLimit-Policy` and `RateLimit`.
#[inline]
pub(super) fn add<'r>(told: &impl ToldLimits<'r>, response: &impl HeaderSink<'r>) -> Option<()> {
    // Room for two numbers of at most 20 digits, and for the characters between them.
    let names = told.verdicts().map(|verdict| verdict.limit.name.len());
    let numbers = told.count().saturating_mul(52);
    let capacity = names.sum::<usize>().saturating_add(numbers);

    let policy_value = match told.policy() {
        Some(policy) => policy,
        None => {
            let mut value = response.text(capacity)?;
            let policies = told.verdicts().map(|verdict| PolicyItem {
                name: &verdict.limit.name,
                hits: verdict.hits,
                window: verdict.window(),
            });
            policy(policies, |part| value.put(part));
            value.into_bytes()
        }
    };
    response.put(POLICY, policy_value)?;

    let mut value = response.text(capacity)?;
    match told.count() {
        1 => state(told.verdicts(), |part| value.put(part)),
        _ => state(by_tightness(told.verdicts()), |part| value.put(part)),
    }
    response.put(STATE, value.into_bytes())
}

/// Writes the value of `RateLimit` for `verdicts`, in their order: `"api-1s";r=9;t=1, ...`.
///
/// `r` is the remainder in whole hits, `t` the reset in seconds, rounded up. A limit without a reset has no `t`.
fn state<'a>(verdicts: impl IntoIterator<Item = Verdict<'a>>, mut put: impl FnMut(&[u8])) {
    for (index, verdict) in verdicts.into_iter().enumerate() {
        let remaining = verdict.remaining();
        name(index, &verdict.limit.name, &mut put);
        put(b";r=");
        number(whole(remaining), &mut put);
        if let Some(reset) = verdict.reset(remaining) {
            put(b";t=");
            number(reset.div_ceil(1000), &mut put);
        }
    }
}

fn name(index: usize, name: &str, put: &mut impl FnMut(&[u8])) {
    put(if index == 0 { b"\"" } else { b", \"" });
    put(name.as_bytes());
    put(b"\"");
}
