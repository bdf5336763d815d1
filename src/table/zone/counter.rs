//! Counters: the hits of a key in windows of one size, in a namespace.

use super::near_cell::EarlyShare;
use crate::policy::algorithm::StoredKind;
use crate::policy::window::WindowSize;
use crate::table::words::identity::{Identity, KeyHash, Mask};
use crate::table::words::meta::{Meta, NamespaceIndex};
use crate::table::words::word::Generation;

/// All counters of one namespace, kind and window size, or rate: what [`CounterTable`](crate::table::CounterTable) needs beside the key.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    pub(crate) mask: Mask,
    pub(crate) namespace: NamespaceIndex,
    pub(crate) size: WindowSize,
    pub(crate) kind: StoredKind,
    /// All ones, or zero for what is no window: what a number of a window becomes a stamp by.
    pub(crate) number_mask: u64,
    pub(crate) is_synced: bool,
    /// Share that is kept from the store, if the counter is synced.
    pub(crate) early: EarlyShare,
    /// Whether a key's first hits are counted as its slot is claimed: in windows that are not synced.
    pub(crate) begins_with_hits: bool,
    /// Meta of its slots, but for the generation.
    pub(crate) meta: Meta,
    /// Index of the namespace's first line of event counters.
    pub(crate) lines: usize,
}

/// A key: any bytes, hashed for one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'k> {
    pub(crate) bytes: &'k [u8],
    pub(crate) hash: KeyHash,
}

impl Counter {
    /// The size of the windows.
    pub fn size(&self) -> WindowSize {
        self.size
    }

    /// The identity of the counter of a key: equal for equal counters only.
    #[inline]
    pub fn identity(&self, key: Key<'_>) -> Identity {
        self.mask.identity(key.hash)
    }

    /// Whether `other`, of the same table, are the same counters: of one namespace, kind and size, or rate.
    pub fn is_same(&self, other: &Counter) -> bool {
        self.mask == other.mask
    }

    /// Whether `other`, of the same table, are of the same namespace and kind.
    pub fn has_namespace_and_kind_of(&self, other: &Counter) -> bool {
        let parts = |it: &Counter| (it.namespace, it.kind.wire_id());
        parts(self) == parts(other)
    }

    /// Returns the kind of stored state.
    #[inline]
    pub fn kind(&self) -> StoredKind {
        self.kind
    }

    /// Returns the counters, synced if `is_synced`: then they keep the bytes of their keys, and
    /// [`CounterTable::take_changes`](crate::table::CounterTable::take_changes) finds changes of
    /// them. Only windows can be synced.
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

    /// Returns the counters with the share of a limit that a node may keep from the store for a
    /// while.
    pub fn pushed_early(&self, early: EarlyShare) -> Counter {
        Counter { early, ..*self }
    }

    pub(crate) fn meta(&self, generation: Generation) -> Meta {
        self.meta.of_generation(generation)
    }

    /// The namespace that is counted in.
    pub fn namespace(&self) -> NamespaceIndex {
        self.namespace
    }
}

impl<'k> Key<'k> {
    /// The key itself.
    pub fn bytes(&self) -> &'k [u8] {
        self.bytes
    }
}
