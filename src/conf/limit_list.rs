//! Limits that are a list in a variable: `limits=$variable`.

use crate::policy::algorithm::Algorithm;
use crate::policy::calendar::CalendarZone;
use crate::policy::hits::{Hits, ParseHitsError};
use crate::policy::options::shown;
use crate::policy::window::WindowSize;

/// The maximum number of limits in a list.
pub const MAX_LISTED: usize = 8;

/// A list of limits that each request has, with the list that applies if that is wrong.
#[derive(Debug)]
pub struct LimitList<T> {
    /// The text of a request's list.
    pub text: T,
    /// The list in place of a wrong one; empty if the rule then does not apply.
    pub default: WindowHits,
    /// The time zone of its windows of the calendar; `None` while that of the level is not known.
    pub zone: Option<&'static CalendarZone>,
    /// The windows of the namespace, once they are known. The rule has a limit for each.
    pub sizes: Vec<WindowSize>,
}

/// The hits of each window in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowHits(Vec<(WindowSize, Hits)>);

impl WindowHits {
    /// Parses a list such as `10/1s 1000/1d`, with limits of different windows; it may be empty.
    ///
    /// # Errors
    ///
    /// The reason, as the end of a message.
    pub fn parse(text: &[u8], algorithm: Algorithm) -> Result<WindowHits, String> {
        let most = algorithm.max_limit();
        let mut parsed: Vec<(WindowSize, Hits)> = Vec::new();
        let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        for word in words {
            let (size, hits) = parse_limit(word).ok_or_else(|| {
                format!("\"{}\" is no limit: expected hits/window, such as 10/1s", shown(word))
            })?;
            if hits > most {
                let name = algorithm.name();
                return Err(format!(
                    "\"{}\" is too large: expected at most {most} hits with window={name}",
                    shown(word)
                ));
            }
            if parsed.iter().any(|(known, _)| *known == size) {
                return Err(format!("the window {size} is there twice: expected it once"));
            }
            parsed.push((size, hits));
        }
        match parsed.len() {
            0..=MAX_LISTED => Ok(WindowHits(parsed)),
            more => Err(format!("{more} limits: expected at most {MAX_LISTED}")),
        }
    }

    /// Gives windows of the calendar their time zone.
    fn in_zone(self, zone: &CalendarZone) -> WindowHits {
        let limits = self.0.into_iter();
        WindowHits(limits.map(|(size, hits)| (size.in_zone(zone), hits)).collect())
    }

    /// Returns the hits of a window; `None` if the list has no limit for it.
    pub fn of(&self, size: WindowSize) -> Option<Hits> {
        let WindowHits(limits) = self;
        limits.iter().find(|(known, _)| *known == size).map(|(_, hits)| *hits)
    }

    /// Returns the windows of the limits.
    pub fn sizes(&self) -> impl Iterator<Item = WindowSize> {
        self.0.iter().map(|(size, _)| *size)
    }

    /// Whether there are no limits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that a namespace has the windows.
    ///
    /// # Errors
    ///
    /// The reason, as the end of a message.
    pub fn check(&self, sizes: &[WindowSize]) -> Result<(), String> {
        let WindowHits(limits) = self;
        let Some((other, _)) = limits.iter().find(|(size, _)| !sizes.contains(size)) else {
            return Ok(());
        };
        let expected: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        Err(format!("the namespace has no window {other}: expected {}", expected.join(", ")))
    }
}

impl<T> LimitList<T> {
    /// Gives windows of the calendar the zone of the level, unless the rule has a `tz=`.
    pub(crate) fn find_zone(&mut self, of_level: &'static CalendarZone) {
        let zone = self.zone.unwrap_or(of_level);
        self.zone = Some(zone);
        self.default = core::mem::take(&mut self.default).in_zone(zone);
    }

    /// Parses a request's list.
    ///
    /// # Errors
    ///
    /// The reason, as the end of a message.
    pub fn parse(&self, text: &[u8], algorithm: Algorithm) -> Result<WindowHits, String> {
        let limits =
            WindowHits::parse(text, algorithm)?.in_zone(self.zone.unwrap_or(CalendarZone::utc()));
        limits.check(&self.sizes)?;
        Ok(limits)
    }
}

/// Parses `hits/window`. Hits of 0 admit nothing.
fn parse_limit(word: &[u8]) -> Option<(WindowSize, Hits)> {
    let at = word.iter().position(|byte| *byte == b'/')?;
    let (hits, window) = word.split_at_checked(at)?;
    let hits = match Hits::parse(hits) {
        Ok(hits) => hits,
        Err(ParseHitsError::TooLarge) => Hits::MAX,
        Err(ParseHitsError::NotADecimal) => return None,
    };
    Some((WindowSize::parse(window.get(1..)?).ok()?, hits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<WindowHits, String> {
        WindowHits::parse(text.as_bytes(), Algorithm::Sliding)
    }

    #[test]
    fn a_list_has_a_limit_for_each_of_its_windows() {
        let of = |text: &str, window: &[u8]| {
            parse(text).unwrap().of(WindowSize::parse(window).unwrap()).map(Hits::thousandths)
        };
        assert_eq!(of("10/1s 1000.5/1d", b"1s"), Some(10_000));
        assert_eq!(of(" 10/1s\t1000.5/24h ", b"1d"), Some(1_000_500));
        assert_eq!(of("10/1s 0/1d", b"1d"), Some(0));
        assert_eq!(of("10/1s", b"1m"), None);
        assert_eq!(of("", b"1m"), None);
    }

    #[test]
    fn a_wrong_list_is_told_what_would_be_right() {
        let no_limit =
            |word| format!("\"{word}\" is no limit: expected hits/window, such as 10/1s");
        for word in ["10", "10/", "/1s", "-1/1s", "1e3/1s", "10/1x", "10r/s", "10/1s,5/1m", "x"] {
            assert_eq!(parse(&format!("5/1h {word}")), Err(no_limit(word)));
        }
        assert_eq!(
            parse("1/1s 2/1000ms"),
            Err("the window 1s is there twice: expected it once".into())
        );
        let nine: Vec<String> = (1..10).map(|size| format!("1/{size}s")).collect();
        assert_eq!(parse(&nine.join(" ")), Err("9 limits: expected at most 8".into()));
        let moving = WindowHits::parse(b"100001/1s", Algorithm::Moving);
        let message = "\"100001/1s\" is too large: expected at most 100000 hits with window=moving";
        assert_eq!(moving, Err(message.into()));
        let sizes = [b"1s", b"1m"].map(|size| WindowSize::parse(size).unwrap());
        let limits = parse("1/1h").unwrap();
        assert_eq!(
            limits.check(&sizes),
            Err("the namespace has no window 1h: expected 1s, 1m".into())
        );
    }
}
