//! The counters of a sync: all of a namespace, or those of one shard. The table does not know
//! shards; a predicate selects their keys.

use super::meta::NamespaceIndex;

/// Returns whether a key is selected.
pub type HasKey<'p> = &'p dyn Fn(&[u8]) -> bool;

/// The counters of a sync.
#[derive(Clone, Copy)]
pub struct Part<'p> {
    /// Namespace of the counters.
    pub namespace: NamespaceIndex,
    /// Predicate of their keys; `None`: all keys.
    pub has_key: Option<HasKey<'p>>,
}

/// All counters of the namespace.
impl From<NamespaceIndex> for Part<'_> {
    fn from(namespace: NamespaceIndex) -> Self {
        Part { namespace, has_key: None }
    }
}

impl Part<'_> {
    /// Returns whether the counter of `key` in `namespace` is in this part.
    pub(crate) fn has(&self, namespace: NamespaceIndex, key: &[u8]) -> bool {
        namespace == self.namespace && self.has_key.is_none_or(|has| has(key))
    }
}
