//! Namespaces that a store decides about. Beside `source`, since exchanges need them, and a source needs exchanges.

use core::any::Any;
use core::fmt;
use std::sync::Arc;

use crate::table::{CounterTable, NamespaceIndex, SyncState};

/// A namespace that a store decides about.
#[derive(Clone)]
pub struct DecidedNamespace {
    /// The name.
    pub name: Arc<str>,
    /// Table with the counters, and the namespace's place in it.
    pub table: &'static CounterTable<'static>,
    /// The namespace's place in the table's directory.
    pub index: NamespaceIndex,
    /// State of each shard of the namespace, if hits are charged ahead.
    pub granted: Vec<SyncState<'static>>,
    /// Owner of the mapped table.
    pub lent: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for DecidedNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DecidedNamespace").field(&self.name).finish()
    }
}
