//! `legacy`: the headers of gateways before any draft, a pair for each window.

use super::text::{HeaderSink, HeaderText as _, MAX_DIGITS, ToldLimits, seconds, whole};
use crate::policy::calendar::CalendarUnit;
use crate::policy::limit::by_tightness;

const LIMIT: &str = "X-RateLimit-Limit-";
const REMAINING: &str = "X-RateLimit-Remaining-";

/// Adds two headers in whole hits for each limit; their names end with the window.
pub(super) fn add<'r>(told: &impl ToldLimits<'r>, response: &impl HeaderSink<'r>) -> Option<()> {
    // The tightest last: of two limits with one window, its headers replace the other's.
    for verdict in by_tightness(told.verdicts()).into_iter().rev() {
        for (start, value) in [(LIMIT, verdict.hits), (REMAINING, verdict.remaining())] {
            // Room for a number, a point and three decimals.
            let mut name = response.text(start.len().saturating_add(MAX_DIGITS + 4))?;
            name.put(start.as_bytes());
            match verdict.limit.told_size().calendar() {
                Some((unit, _)) => name.put(unit_name(unit)),
                None => {
                    let millis = verdict.window().unwrap_or(verdict.limit.told_size().millis());
                    window(millis, |part| name.put(part));
                }
            }
            let name = core::str::from_utf8(name.into_bytes()).ok()?;
            response.put_number(name, whole(value))?;
        }
    }
    Some(())
}

/// Returns the name of a unit of the calendar.
fn unit_name(unit: CalendarUnit) -> &'static [u8] {
    match unit {
        CalendarUnit::Hour => b"Hour",
        CalendarUnit::Day => b"Day",
        CalendarUnit::Week => b"Week",
        CalendarUnit::Month => b"Month",
    }
}

/// Writes a window of so many milliseconds as the headers name it: by its unit, or in seconds.
fn window(millis: u64, mut put: impl FnMut(&[u8])) {
    match millis {
        1_000 => put(b"Second"),
        60_000 => put(b"Minute"),
        3_600_000 => put(b"Hour"),
        86_400_000 => put(b"Day"),
        _ => seconds(millis, &mut put),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::window::WindowSize;

    #[test]
    fn windows_have_names_or_are_seconds() {
        for (text, name) in [
            ("1s", "Second"),
            ("60", "Minute"),
            ("1h", "Hour"),
            ("24h", "Day"),
            ("10s", "10"),
            ("30d", "2592000"),
            ("500ms", "0.5"),
            ("1.25", "1.25"),
            ("1ms", "0.001"),
            ("10.05", "10.05"),
        ] {
            let size = WindowSize::parse(text.as_bytes()).unwrap();
            let mut written = Vec::new();
            window(size.millis(), |part| written.extend_from_slice(part));
            assert_eq!(written, name.as_bytes());
        }
    }
}
