//! Hits: a decimal number of counted requests, exact to 0.001.

use core::fmt;

/// A number of hits, in thousandths, from [`Hits::MIN`] to [`Hits::MAX`].
///
/// Sums saturate at these bounds; they never wrap. Negative numbers occur in differences only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hits(i64);

impl Hits {
    /// No hits.
    pub const ZERO: Hits = Hits(0);
    /// One hit.
    pub const ONE: Hits = Hits(Self::SCALE);
    /// The largest number: 2^47 - 1 thousandths, above 10^11 hits.
    pub const MAX: Hits = Hits((1 << 47) - 1);
    /// The least number: minus the largest.
    pub const MIN: Hits = Hits(-Self::MAX.0);

    const SCALE: i64 = 1000;

    /// Creates a number from thousandths, saturated to the range.
    #[inline]
    pub const fn from_thousandths(thousandths: i64) -> Hits {
        if thousandths > Self::MAX.0 {
            Self::MAX
        } else if thousandths < Self::MIN.0 {
            Self::MIN
        } else {
            Hits(thousandths)
        }
    }

    /// Decodes the upper 48 bits of a word, two's complement, as encoded by [`Hits::to_upper_bits`].
    #[inline]
    pub(crate) const fn from_upper_bits(word: u64) -> Hits {
        // An arithmetic shift keeps the sign. Only -2^47 would be out of range; it is never written.
        Hits((word as i64) >> 16)
    }

    /// Encodes the number in the upper 48 bits of a word; the lower ones are zero.
    #[inline]
    pub(crate) const fn to_upper_bits(self) -> u64 {
        (self.0 as u64) << 16
    }

    /// Converts to a floating point number, with three decimals.
    #[inline]
    pub fn to_f64(self) -> f64 {
        self.thousandths() as f64 / 1000.0
    }

    /// Returns the number in thousandths.
    #[inline]
    pub const fn thousandths(self) -> i64 {
        self.0
    }

    /// Returns the integer part (towards zero).
    pub const fn whole(self) -> i64 {
        self.0 / Self::SCALE
    }

    /// Returns `self + other`, saturated.
    #[inline]
    pub const fn plus(self, other: Hits) -> Hits {
        // Two numbers of 48 bits do not overflow 64.
        Self::from_thousandths(self.0.wrapping_add(other.0))
    }

    /// Returns the thousandths of `self + other`.
    #[inline]
    pub(crate) const fn plus_unsaturated(self, other: Hits) -> i64 {
        // Two numbers of 48 bits do not overflow 64.
        self.0.wrapping_add(other.0)
    }

    /// Returns `self + value`, saturated; `value` must not be negative.
    #[inline]
    pub const fn plus_value(self, value: Hits) -> Hits {
        let sum = self.0.wrapping_add(value.0);
        if sum > Self::MAX.0 { Self::MAX } else { Hits(sum) }
    }

    /// Returns `self + other`, saturated, and at least zero.
    #[inline]
    pub const fn plus_at_least_zero(self, other: Hits) -> Hits {
        let sum = self.0.wrapping_add(other.0);
        let sum = if sum < 0 { 0 } else { sum };
        if sum > Self::MAX.0 { Self::MAX } else { Hits(sum) }
    }

    /// Returns `self` less so many thousandths, at least zero; `self` must not be negative.
    #[inline]
    pub const fn without_thousandths(self, thousandths: u64) -> Hits {
        let left = self.0.cast_unsigned().saturating_sub(thousandths);
        Hits(left.cast_signed())
    }

    /// Returns `self - other`, saturated.
    #[inline]
    pub const fn minus(self, other: Hits) -> Hits {
        Self::from_thousandths(self.0.wrapping_sub(other.0))
    }

    /// Parses a plain decimal: digits, at most one point, no sign, no exponent.
    ///
    /// More than three decimals are rounded to the nearest thousandth, halves up.
    ///
    /// # Errors
    ///
    /// [`ParseHitsError::NotADecimal`] for anything else, [`ParseHitsError::TooLarge`] above
    /// [`Hits::MAX`].
    pub fn parse(text: &[u8]) -> Result<Hits, ParseHitsError> {
        let mut parts = text.splitn(2, |&byte| byte == b'.');
        let integer = parts.next().unwrap_or_default();
        let fraction = parts.next();
        if integer.is_empty() || fraction.is_some_and(<[u8]>::is_empty) {
            return Err(ParseHitsError::NotADecimal);
        }
        let fraction = fraction.unwrap_or_default();
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(i64::from(byte & 0x0f)),
            _ => Err(ParseHitsError::NotADecimal),
        };
        if let Some(&bad) = fraction.iter().find(|byte| !byte.is_ascii_digit()) {
            digit(bad)?;
        }

        let mut value: i64 = 0;
        for &byte in integer {
            // Saturates, so that the remaining digits are still checked.
            value = value.saturating_mul(10).saturating_add(digit(byte)?);
        }
        for place in 0..3 {
            let next = fraction.get(place).copied().unwrap_or(b'0');
            value = value.saturating_mul(10).saturating_add(digit(next)?);
        }
        if fraction.get(3).is_some_and(|&byte| byte >= b'5') {
            value = value.saturating_add(1);
        }
        if value > Self::MAX.0 { Err(ParseHitsError::TooLarge) } else { Ok(Hits(value)) }
    }
}

/// Writes a plain decimal without trailing zeros: `5`, `0.5`, `12.345`.
impl fmt::Display for Hits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, thousandths) = (self.0.unsigned_abs() / 1000, self.0.unsigned_abs() % 1000);
        if self.0 < 0 {
            f.write_str("-")?;
        }
        write!(f, "{whole}")?;
        match (thousandths, thousandths % 10, thousandths % 100) {
            (0, ..) => Ok(()),
            (_, _, 0) => write!(f, ".{}", thousandths / 100),
            (_, 0, _) => write!(f, ".{:02}", thousandths / 10),
            _ => write!(f, ".{thousandths:03}"),
        }
    }
}

/// The error for a text that is no number of hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseHitsError {
    /// Something else than digits with at most one point.
    NotADecimal,
    /// More than [`Hits::MAX`].
    TooLarge,
}

impl fmt::Display for ParseHitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseHitsError::NotADecimal => f.write_str("not a plain decimal"),
            ParseHitsError::TooLarge => write!(f, "larger than {}", Hits::MAX),
        }
    }
}

impl core::error::Error for ParseHitsError {}

/// Returns the decimal that was probably meant by an invalid `text`: `1000` for `1,000`, `1_000`, `1e3` and `1k`, `0.5`
/// for `0,5`.
pub(crate) fn meant_by(text: &str) -> Option<String> {
    let is_group =
        |group: &str| group.len() == 3 && group.bytes().all(|byte| byte.is_ascii_digit());
    let meant = match text.split_once([',', '_', '\'']) {
        Some((_, rest)) if rest.split([',', '_', '\'']).all(is_group) => {
            text.replace([',', '_', '\''], "")
        }
        Some(_) => text.replacen(',', ".", 1),
        None => {
            let (number, unit) = match text.strip_suffix(['k', 'K']) {
                Some(number) => (number, 1e3),
                None => (text, 1.0),
            };
            // The standard library would also accept a sign, and words such as `inf`.
            let is_part = |byte: u8| byte.is_ascii_digit() || b".eE+".contains(&byte);
            let is_number = number.starts_with(|first: char| first.is_ascii_digit());
            let number = number.bytes().all(is_part).then_some(number)?;
            let value = number.parse::<f64>().ok().filter(|_| is_number)?;
            format!("{}", value * unit)
        }
    };
    let hits = Hits::parse(meant.as_bytes()).ok();
    hits.filter(|hits| *hits > Hits::ZERO).map(|_| meant)
}

/// Returns so many whole hits.
#[cfg(any(test, fuzzing))]
pub(crate) fn hits(whole: i64) -> Hits {
    Hits::from_thousandths(whole * 1000)
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_error_about_a_wrong_decimal_suggests_a_right_one() {
        for (text, meant) in [
            ("1,000", Some("1000")),
            ("1,000,000", Some("1000000")),
            ("1_000", Some("1000")),
            ("1'000", Some("1000")),
            ("0,5", Some("0.5")),
            ("1e6", Some("1000000")),
            ("1.5E+3", Some("1500")),
            ("10k", Some("10000")),
            ("1,00,0", None),
            ("1e30", None),
            ("e3", None),
            ("-1e3", None),
            ("inf", None),
            ("0e3", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(meant_by(text).as_deref(), meant, "{text}");
        }
    }

    use super::*;

    #[test]
    fn reads_plain_decimals() {
        for (text, thousandths) in [
            ("0", 0),
            ("5", 5_000),
            ("0.5", 500),
            ("007.25", 7_250),
            ("1.234", 1_234),
            ("1.2345", 1_235),
            ("1.23449999", 1_234),
            ("0.0004", 0),
            ("100000000000", 100_000_000_000_000),
        ] {
            assert_eq!(Hits::parse(text.as_bytes()), Ok(Hits(thousandths)), "{text}");
        }
    }

    #[test]
    fn refuses_anything_else() {
        for text in ["", ".", "5.", ".5", "-1", "+1", "1e3", "1,5", "1.2.3", "1.2345x", " 1", "x"] {
            assert_eq!(Hits::parse(text.as_bytes()), Err(ParseHitsError::NotADecimal), "{text}");
        }
        for text in ["140737488356", "99999999999999999999999999"] {
            assert_eq!(Hits::parse(text.as_bytes()), Err(ParseHitsError::TooLarge), "{text}");
        }
        assert_eq!(Hits::parse(b"99999999999999999999999999x"), Err(ParseHitsError::NotADecimal));
    }

    #[test]
    fn prints_without_trailing_zeros() {
        for (thousandths, text) in [
            (0, "0"),
            (5_000, "5"),
            (500, "0.5"),
            (1_050, "1.05"),
            (1_001, "1.001"),
            (-20, "-0.02"),
        ] {
            assert_eq!(Hits(thousandths).to_string(), text);
        }
    }

    #[test]
    fn sums_saturate() {
        assert_eq!(Hits::MAX.plus(Hits::ONE), Hits::MAX);
        assert_eq!(Hits::ZERO.minus(Hits::MAX).minus(Hits::MAX), Hits::MIN);
        assert!(Hits::MAX.whole() >= 100_000_000_000);
    }
}
