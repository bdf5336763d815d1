//! The headers of `draft03`: <https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/03/>. A file of its own, as each format.

use super::text::{HeaderSink, ToldLimits, whole};
use crate::policy::limit::tightest;

const LIMIT: &str = "RateLimit-Limit";
const REMAINING: &str = "RateLimit-Remaining";
const RESET: &str = "RateLimit-Reset";

/// Adds the headers of the tightest limit, in whole hits and in seconds, rounded up.
pub(super) fn add<'r>(told: &impl ToldLimits<'r>, response: &impl HeaderSink<'r>) -> Option<()> {
    let verdict = tightest(told.verdicts())?;
    let remaining = verdict.remaining();
    response.put_number(LIMIT, whole(verdict.hits))?;
    response.put_number(REMAINING, whole(remaining))?;
    match verdict.reset(remaining) {
        Some(reset) => response.put_number(RESET, reset.div_ceil(1000)),
        None => {
            response.remove(RESET);
            Some(())
        }
    }
}
