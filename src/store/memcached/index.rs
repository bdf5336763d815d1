//! The index of a window: pages with the keys of its counters, since memcached does not tell which items it has.

use crate::policy::window::WindowSize;
use crate::store::keyed::change::{numbers, put_numbers};

/// Most keys of a page, and most bytes of them, but for a longer one.
const PAGE_KEYS: usize = 128;
const PAGE_BYTES: usize = 8 << 10;

/// Keys of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexPage(pub(super) Vec<Vec<u8>>);

impl IndexPage {
    /// Parses a page; `None` if somebody else wrote it.
    pub(super) fn parse(mut value: &[u8]) -> Option<IndexPage> {
        let mut keys = Vec::new();
        let [count] = numbers(&mut value)?;
        for _ in 0..count {
            let [length] = numbers(&mut value)?;
            keys.push(value.split_off(..usize::try_from(length).ok()?)?.into());
        }
        value.is_empty().then_some(IndexPage(keys))
    }

    pub(super) fn to_value(&self) -> Vec<u8> {
        let mut value = Vec::new();
        put_numbers(&mut value, [self.0.len() as u64]);
        for key in &self.0 {
            put_numbers(&mut value, [key.len() as u64]);
            value.extend(key);
        }
        value
    }

    pub(super) fn is_full(&self) -> bool {
        let bytes: usize = self.0.iter().map(Vec::len).sum();
        self.0.len() >= PAGE_KEYS || bytes >= PAGE_BYTES
    }
}

/// Returns the name of a page.
pub(super) fn page_name(size: WindowSize, window: u64, page: u64) -> Vec<u8> {
    format!("i/{}/{window}/{page}", size.bits()).into()
}
