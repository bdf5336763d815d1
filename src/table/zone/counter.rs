//! Counters: the hits of a key in windows of one size, in a namespace; and the counters of a sync.

use super::near_cell::EarlyShare;
use crate::policy::algorithm::StoredKind;
use crate::policy::window::WindowSize;
use crate::table::words::identity::{Identity, KeyHash, Mask};
use crate::table::words::meta::{Meta, NamespaceIndex};
use crate::table::words::word::Generation;

/// All counters of one namespace, kind and window size (or rate): what
/// [`CounterTable`](crate::table::CounterTable) needs in addition to the key.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    pub(crate) mask: Mask,
    pub(crate) namespace: NamespaceIndex,
    pub(crate) size: WindowSize,
    pub(crate) kind: StoredKind,
    /// All ones; zero for counters without windows. A window's number is masked with it before the
    /// stamp is computed.
    pub(crate) number_mask: u64,
    pub(crate) is_synced: bool,
    /// Share of a limit that is kept from the store, if the counter is synced.
    pub(crate) early: EarlyShare,
    /// Whether a key's first hits are counted when its slot is claimed, as in windows that are not
    /// synced.
    pub(crate) begins_with_hits: bool,
    /// Meta of the counters' slots, without the generation.
    pub(crate) meta: Meta,
    /// Index of the namespace's first line of event counters.
    pub(crate) lines: usize,
}

/// A key, which can be any bytes, hashed for one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'k> {
    pub(crate) bytes: &'k [u8],
    pub(crate) hash: KeyHash,
}

impl Counter {
    /// Returns the size of the windows.
    pub fn size(&self) -> WindowSize {
        self.size
    }

    /// Returns the identity of a key's counter. Different counters have different identities.
    #[inline]
    pub fn identity(&self, key: Key<'_>) -> Identity {
        self.mask.identity(key.hash)
    }

    /// Returns whether `other`, of the same table, has the same namespace, kind and size (or rate).
    pub fn is_same(&self, other: &Counter) -> bool {
        self.mask == other.mask
    }

    /// Returns whether `other`, of the same table, has the same namespace and kind.
    pub fn has_namespace_and_kind_of(&self, other: &Counter) -> bool {
        let parts = |it: &Counter| (it.namespace, it.kind.wire_id());
        parts(self) == parts(other)
    }

    /// Returns the kind of the stored state.
    #[inline]
    pub fn kind(&self) -> StoredKind {
        self.kind
    }

    /// Returns these counters as synced ones, or not. Synced counters store the bytes of their
    /// keys, and [`CounterTable::take_changes`](crate::table::CounterTable::take_changes) finds
    /// their changes. Only windows can be synced.
    pub fn synced(self, is_synced: bool) -> Counter {
        if self.kind != StoredKind::Windows {
            return self;
        }
        Counter {
            is_synced,
            begins_with_hits: !is_synced,
            meta: self.meta.with_synced(is_synced),
            ..self
        }
    }

    /// Returns these counters with the share of a limit that a node may keep from the store for a
    /// while.
    pub fn pushed_early(&self, early: EarlyShare) -> Counter {
        Counter { early, ..*self }
    }

    pub(crate) fn meta(&self, generation: Generation) -> Meta {
        self.meta.of_generation(generation)
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> NamespaceIndex {
        self.namespace
    }
}

impl<'k> Key<'k> {
    /// Returns the key's bytes.
    pub fn bytes(&self) -> &'k [u8] {
        self.bytes
    }
}

/// Returns whether a key is selected.
pub type HasKey<'p> = &'p dyn Fn(&[u8]) -> bool;

/// The counters of a sync: all of a namespace, or those of one shard. The table does not know shards; a predicate
/// selects their keys.
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
