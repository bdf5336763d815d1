//! The arguments of a header format as traits: limits, and a response to write to.

use super::text;
use crate::policy::limit::Verdict;

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
    fn put_number(&self, name: &'r str, number: u64) -> Option<()> {
        let mut value = self.text(text::MAX_DIGITS)?;
        text::number(number, &mut |part| value.put(part));
        self.put(name, value.into_bytes())
    }
}

/// A text under construction.
pub trait HeaderText<'r> {
    /// Appends `part`.
    fn put(&mut self, part: &[u8]);
    /// Returns the text.
    fn into_bytes(self) -> &'r [u8];
}
