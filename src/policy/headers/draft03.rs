//! `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`, of the tightest limit: whole hits, and
//! seconds, rounded up.
//!
//! Source: <https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/03/>.

use super::super::limit::{Verdict, tightest};
use super::sink::{HeaderSink, Told};
use super::text::whole;

const LIMIT: &str = "RateLimit-Limit";
const REMAINING: &str = "RateLimit-Remaining";
const RESET: &str = "RateLimit-Reset";

#[inline(never)]
pub(super) fn put<'t, S: HeaderSink<'t>>(
    told: &Told<'t, impl Iterator<Item = Verdict<'t>> + Clone>,
    sink: &mut S,
) -> Option<()> {
    let verdict = tightest(told.verdicts.clone())?;
    let remaining = verdict.remaining();
    sink.put_number(LIMIT, whole(verdict.hits))?;
    sink.put_number(REMAINING, whole(remaining))?;
    match verdict.reset(remaining) {
        Some(reset) => sink.put_number(RESET, reset.div_ceil(1000)),
        None => {
            sink.remove(RESET);
            Some(())
        }
    }
}
