//! What gateways sent before there was a draft: `X-RateLimit-Limit-Minute` and
//! `X-RateLimit-Remaining-Minute`, a pair for each window.

use super::super::limit::{Verdict, by_tightness};
use super::sink::{HeaderSink, Told};
use super::text::{HeaderText, number, seconds, whole};

const LIMIT: &str = "X-RateLimit-Limit-";
const REMAINING: &str = "X-RateLimit-Remaining-";

#[inline(never)]
pub(super) fn put<'t, S: HeaderSink<'t>>(
    told: &Told<'t, impl Iterator<Item = Verdict<'t>> + Clone>,
    sink: &mut S,
) -> Option<()> {
    // The least tight first: where two limits have one window, the tightest stays.
    for verdict in by_tightness(told.verdicts.clone()).into_iter().rev() {
        for (start, hits) in [(LIMIT, verdict.hits), (REMAINING, verdict.remaining())] {
            // The window in seconds may have 20 digits and a point.
            let mut name = sink.text(start.len().saturating_add(24))?;
            name.put(start.as_bytes());
            let window = verdict.window().unwrap_or(verdict.limit.size.millis());
            write_window(window, &mut name);
            let mut value = sink.text(20)?;
            number(whole(hits), &mut value);
            sink.put_named(name, value)?;
        }
    }
    Some(())
}

/// Writes a window of so many milliseconds: a unit, or the number of seconds.
pub(super) fn write_window(millis: u64, text: &mut impl HeaderText) {
    match millis {
        1_000 => text.put(b"Second"),
        60_000 => text.put(b"Minute"),
        3_600_000 => text.put(b"Hour"),
        86_400_000 => text.put(b"Day"),
        _ => seconds(millis, text),
    }
}
