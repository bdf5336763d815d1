//! `RateLimit-Policy` and `RateLimit`, of all limits.
//!
//! Source: <https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/10/>.

use super::super::hits::Hits;
use super::super::limit::{Verdict, by_tightness};
use super::sink::{HeaderSink, Told};
use super::text::{HeaderText, number, whole};

const POLICY: &str = "RateLimit-Policy";
const STATE: &str = "RateLimit";

/// What `RateLimit-Policy` says of a limit.
#[derive(Clone, Copy, Debug)]
pub struct PolicyItem<'a> {
    /// Its name.
    pub name: &'a str,
    /// The most hits.
    pub hits: Hits,
    /// Milliseconds of the window that they are for, if there is one.
    pub window: Option<u64>,
}

// What most requests are told.
#[inline(always)]
pub(super) fn put<'t, S: HeaderSink<'t>>(
    told: &Told<'t, impl Iterator<Item = Verdict<'t>> + Clone>,
    sink: &mut S,
) -> Option<()> {
    let verdicts = || told.verdicts.clone();
    // A name and two numbers of at most 20 digits, with what is between them.
    let lengths = verdicts().map(|it| it.limit.name.len().saturating_add(52));
    let capacity = lengths.sum();
    match told.policy {
        Some(policy) => sink.put_written(POLICY, policy)?,
        None => {
            let mut value = sink.text(capacity)?;
            let policies = verdicts().map(|verdict| PolicyItem {
                name: &verdict.limit.name,
                hits: verdict.hits,
                window: verdict.window(),
            });
            policy(policies, &mut value);
            sink.put(POLICY, value)?;
        }
    }
    let mut value = sink.text(capacity)?;
    match told.count {
        1 => state(verdicts(), &mut value),
        _ => state(by_tightness(verdicts()), &mut value),
    }
    sink.put(STATE, value)
}

/// Writes the value of `RateLimit-Policy`: `"api-1s";q=10;w=1, ...`.
///
/// `q` is the integer part of the limit, `w` the window in seconds where those are whole.
pub fn policy<'a>(policies: impl IntoIterator<Item = PolicyItem<'a>>, value: &mut impl HeaderText) {
    for (index, policy) in policies.into_iter().enumerate() {
        name(index, policy.name, value);
        value.put(b";q=");
        number(whole(policy.hits), value);
        if let Some(millis) = policy.window.filter(|millis| millis.is_multiple_of(1000)) {
            value.put(b";w=");
            number(millis / 1000, value);
        }
    }
}

/// Writes the value of `RateLimit` for `verdicts`, in their order: `"api-1s";r=9;t=1, ...`.
///
/// `r` is what remains in whole hits, `t` the reset in seconds, rounded up; a limit without a
/// reset has no `t`.
pub(super) fn state<'a>(
    verdicts: impl IntoIterator<Item = Verdict<'a>>,
    value: &mut impl HeaderText,
) {
    for (index, verdict) in verdicts.into_iter().enumerate() {
        let remaining = verdict.remaining();
        name(index, &verdict.limit.name, value);
        value.put(b";r=");
        number(whole(remaining), value);
        if let Some(reset) = verdict.reset(remaining) {
            value.put(b";t=");
            number(reset.div_ceil(1000), value);
        }
    }
}

fn name(index: usize, name: &str, value: &mut impl HeaderText) {
    value.put(if index == 0 { b"\"" } else { b", \"" });
    value.put(name.as_bytes());
    value.put(b"\"");
}
