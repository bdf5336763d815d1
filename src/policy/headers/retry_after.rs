//! `Retry-After`, a header of responses to rejected requests in every format, so in a file beside them.

use super::text::HeaderSink;
use crate::policy::limit::{Verdict, tightest};

const NAME: &str = "Retry-After";

/// Sets the header to `millis`, in seconds. Without `millis`, a retry is futile and the header is removed. Returns
/// `None` without memory.
pub fn add<'r>(millis: Option<u64>, response: &impl HeaderSink<'r>) -> Option<()> {
    match millis {
        Some(millis) => response.put_number(NAME, whole_seconds(millis)),
        None => {
            response.remove(NAME);
            Some(())
        }
    }
}

/// Converts `millis` to whole seconds for the header: rounded up, at least 1.
pub fn whole_seconds(millis: u64) -> u64 {
    millis.div_ceil(1000).max(1)
}

/// Returns the milliseconds until every one of `verdicts` would admit the hit, at least the reset reported for the
/// tightest one; `None` if one of them never will.
///
/// The tightest verdict may be an admission: a limit that rejects a cost above 1 can have more left.
pub fn retry_after<'a>(
    verdicts: impl IntoIterator<Item = Verdict<'a>, IntoIter: Clone>,
) -> Option<u64> {
    let verdicts = verdicts.into_iter();
    let tightest = tightest(verdicts.clone());
    let reset = tightest.and_then(|verdict| verdict.reset(verdict.remaining()));
    let refusals = verdicts.filter(|verdict| !verdict.admitted);
    refusals
        .map(|verdict| verdict.retry_after())
        .try_fold(reset.unwrap_or(0), |latest, wait| Some(latest.max(wait?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_at_least_a_second_and_rounded_up() {
        assert_eq!([0, 1, 1_000, 1_001].map(whole_seconds), [1, 1, 1, 2]);
    }
}
