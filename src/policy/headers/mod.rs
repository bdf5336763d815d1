//! Header formats, a file each, and `Retry-After`.

mod draft03;
pub mod ietf;
mod legacy;
pub mod retry_after;
#[cfg(test)]
mod tests;
pub mod text;

pub use text::{HeaderSink, HeaderText, ToldLimits};

/// A format of the headers that tell clients about limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFormat {
    /// `RateLimit-Policy` and `RateLimit`.
    Ietf,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`.
    Draft03,
    /// `X-RateLimit-Limit-...` and `X-RateLimit-Remaining-...`.
    Legacy,
}

/// A set of formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderFormats(u8);

impl HeaderFormat {
    /// All formats, in the order in which they are added to a response.
    pub const ALL: [HeaderFormat; 3] =
        [HeaderFormat::Ietf, HeaderFormat::Draft03, HeaderFormat::Legacy];

    /// Returns the name in `ratelimit_headers`.
    pub fn name(self) -> &'static str {
        match self {
            HeaderFormat::Ietf => "ietf",
            HeaderFormat::Draft03 => "draft03",
            HeaderFormat::Legacy => "legacy",
        }
    }

    /// Adds the headers of the format. Returns `None` without memory.
    #[inline]
    fn add<'r>(self, told: &impl ToldLimits<'r>, response: &impl HeaderSink<'r>) -> Option<()> {
        match self {
            HeaderFormat::Ietf => ietf::add(told, response),
            HeaderFormat::Draft03 => draft03::add(told, response),
            HeaderFormat::Legacy => legacy::add(told, response),
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl HeaderFormats {
    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set contains `format`.
    #[inline]
    pub fn contains(self, format: HeaderFormat) -> bool {
        self.0 & format.bit() != 0
    }

    /// Returns the set with `format` added.
    #[must_use]
    pub fn with(self, format: HeaderFormat) -> HeaderFormats {
        HeaderFormats(self.0 | format.bit())
    }

    /// Adds the headers of all formats in the set. Returns `None` without memory.
    #[inline]
    pub fn add<'r>(self, told: &impl ToldLimits<'r>, response: &impl HeaderSink<'r>) -> Option<()> {
        for format in HeaderFormat::ALL {
            if self.contains(format) {
                format.add(told, response)?;
            }
        }
        Some(())
    }
}
