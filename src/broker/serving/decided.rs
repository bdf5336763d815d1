//! Namespaces that a store decides. Not part of `source`, since exchanges need them and `source`
//! needs exchanges.

use core::any::Any;
use core::fmt;
use std::sync::Arc;

use crate::table::{CounterTable, NamespaceIndex, SyncState};

/// A namespace that a store decides.
#[derive(Clone)]
pub struct DecidedNamespace {
    /// The name.
    pub name: Arc<str>,
    /// The table with its counters.
    pub table: &'static CounterTable<'static>,
    /// The namespace's index in the table's directory.
    pub index: NamespaceIndex,
    /// Sync states of its shards, if hits are reserved; otherwise empty.
    pub granted: Vec<SyncState<'static>>,
    /// Keeps the mapped table alive.
    pub lent: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for DecidedNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DecidedNamespace").field(&self.name).finish()
    }
}
