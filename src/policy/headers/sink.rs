//! What a format tells of, and where it puts its headers.

use super::text::{HeaderText, number};

/// What headers tell of: a request that limits applied to.
#[derive(Clone, Copy, Debug)]
pub struct Told<'t, V> {
    /// What the limits said, in their order.
    pub verdicts: V,
    /// How many there are.
    pub count: usize,
    /// The value of `RateLimit-Policy`, if it was written before.
    pub policy: Option<&'t [u8]>,
}

/// The headers of a response. A header takes the place of those of its name. `None`: there is no memory.
pub trait HeaderSink<'t> {
    /// A text that is being written.
    type Text: HeaderText;

    /// An empty text of at most so many bytes.
    fn text(&mut self, capacity: usize) -> Option<Self::Text>;
    /// Adds a header.
    fn put(&mut self, name: &'static str, value: Self::Text) -> Option<()>;
    /// Adds a header whose value was written before.
    fn put_written(&mut self, name: &'static str, value: &'t [u8]) -> Option<()>;
    /// Adds a header whose name was written, too: in ASCII.
    fn put_named(&mut self, name: Self::Text, value: Self::Text) -> Option<()>;
    /// Removes a header.
    fn remove(&mut self, name: &'static str);

    /// Adds a header that is a number.
    fn put_number(&mut self, name: &'static str, value: u64) -> Option<()> {
        let mut text = self.text(20)?;
        number(value, &mut text);
        self.put(name, text)
    }
}
