//! The counters of a sync: those of a namespace, or of one shard of it. The table knows no shards:
//! a function tells their keys.

use super::meta::NamespaceIndex;

/// Tells which keys are meant.
pub type HasKey<'p> = &'p dyn Fn(&[u8]) -> bool;

/// The counters that a sync is about.
#[derive(Clone, Copy)]
pub struct Part<'p> {
    /// Namespace of the counters.
    pub namespace: NamespaceIndex,
    /// Predicate of their keys; `None`: all keys.
    pub has_key: Option<HasKey<'p>>,
}

/// All of a namespace.
impl From<NamespaceIndex> for Part<'_> {
    fn from(namespace: NamespaceIndex) -> Self {
        Part { namespace, has_key: None }
    }
}

impl Part<'_> {
    /// Whether the counter of `key` in `namespace` is one of them.
    pub(crate) fn has(&self, namespace: NamespaceIndex, key: &[u8]) -> bool {
        namespace == self.namespace && self.has_key.is_none_or(|has| has(key))
    }
}
