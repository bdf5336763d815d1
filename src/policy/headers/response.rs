//! The traits of a header format's arguments: limits, and a response to write to.

use super::text;
use crate::policy::limit::Verdict;

/// The limits that applied to a request, of which a response tells. There is at least one.
pub trait ToldLimits<'r> {
    /// Returns the verdicts, in the order of the configuration.
    fn verdicts(&self) -> impl Iterator<Item = Verdict<'r>> + Clone;
    /// Returns the number of limits.
    fn count(&self) -> usize;
    /// Returns the text that [`policy`](super::ietf::policy) writes, if it does not depend on the
    /// request.
    fn policy(&self) -> Option<&'r [u8]>;
}

/// A response that headers are added to.
pub trait HeaderSink<'r> {
    /// A text in the response's memory.
    type Text: HeaderText<'r>;

    /// An empty text, to which at most `capacity` bytes are going to be written. `None`: no memory.
    fn text(&self, capacity: usize) -> Option<Self::Text>;
    /// Adds a header, in place of those of the same name. `None`: no memory.
    fn put(&self, name: &'r str, value: &'r [u8]) -> Option<()>;
    /// Removes the headers of that name, such as an upstream's.
    fn remove(&self, name: &str);

    /// Adds a header that is a number. `None`: no memory.
    fn put_number(&self, name: &'r str, number: u64) -> Option<()> {
        let mut value = self.text(text::MAX_DIGITS)?;
        text::number(number, &mut |part| value.put(part));
        self.put(name, value.into_bytes())
    }
}

/// A text that is being written.
pub trait HeaderText<'r> {
    /// Appends `part`.
    fn put(&mut self, part: &[u8]);
    /// The text.
    fn into_bytes(self) -> &'r [u8];
}
