//! Numbers and times in the syntax of headers, and the traits of a format's arguments: limits, and a response to write
//! to.

use crate::policy::hits::Hits;
use crate::policy::limit::Verdict;

/// The maximum number of digits of a number.
pub const MAX_DIGITS: usize = 20;

/// Returns the integer part of a number of hits.
pub fn whole(hits: Hits) -> u64 {
    hits.whole().unsigned_abs()
}

/// Returns the last digit of `number`.
fn digit(number: u64) -> u8 {
    b'0' | (number % 10) as u8
}

/// Writes `number` in decimal.
pub fn number(mut number: u64, put: &mut impl FnMut(&[u8])) {
    let mut digits = [0; MAX_DIGITS];
    let mut start = digits.len();
    for place in digits.iter_mut().rev() {
        *place = digit(number);
        start = start.saturating_sub(1);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    put(digits.get(start..).unwrap_or_default());
}

/// Writes `millis` as seconds with up to three decimals: `60`, `0.5`.
pub fn seconds(millis: u64, put: &mut impl FnMut(&[u8])) {
    number(millis / 1000, put);
    let rest = millis % 1000;
    if rest != 0 {
        let decimals = [b'.', digit(rest / 100), digit(rest / 10), digit(rest)];
        let zeros = decimals.iter().rev().take_while(|&&digit| digit == b'0');
        let len = decimals.len().saturating_sub(zeros.count());
        put(decimals.get(..len).unwrap_or_default());
    }
}

/// The limits that applied to a request, at least one, which its response reports.
pub trait ToldLimits<'r> {
    /// Returns the verdicts, in the order of the configuration.
    fn verdicts(&self) -> impl Iterator<Item = Verdict<'r>> + Clone;
    /// Returns the number of limits.
    fn count(&self) -> usize;
    /// Returns the value written by [`policy`](super::ietf::policy), if it is the same for each request.
    fn policy(&self) -> Option<&'r [u8]>;
}

/// A response that headers are added to.
pub trait HeaderSink<'r> {
    /// A text in the response's memory.
    type Text: HeaderText<'r>;

    /// Creates an empty text with room for `capacity` bytes. Returns `None` without memory.
    fn text(&self, capacity: usize) -> Option<Self::Text>;
    /// Sets a header, replacing others of the same name. Returns `None` without memory.
    fn put(&self, name: &'r str, value: &'r [u8]) -> Option<()>;
    /// Removes the headers with this name, such as an upstream's.
    fn remove(&self, name: &str);

    /// Sets a header to a number. Returns `None` without memory.
    fn put_number(&self, name: &'r str, value: u64) -> Option<()> {
        let mut text = self.text(MAX_DIGITS)?;
        number(value, &mut |part| text.put(part));
        self.put(name, text.into_bytes())
    }
}

/// A text under construction.
pub trait HeaderText<'r> {
    /// Appends `part`.
    fn put(&mut self, part: &[u8]);
    /// Returns the text.
    fn into_bytes(self) -> &'r [u8];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for value in [0, 7, 10, 123, u64::MAX] {
            let mut written = Vec::new();
            number(value, &mut |part| written.extend_from_slice(part));
            assert_eq!(written, value.to_string().as_bytes());
        }
    }
}
