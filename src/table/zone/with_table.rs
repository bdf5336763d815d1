//! A value that borrows a table, together with the table's memory.

use core::fmt;
use std::sync::Arc;

use super::counter_table::CounterTable;
use super::memory::TableMemory;

/// A type that borrows a table, for any time.
pub trait InTable {
    /// It, for the time `'m`.
    type Of<'m>: 'm;

    /// Shortens the time for which the table is borrowed: an implementation returns `of`, which
    /// shows the compiler that this is valid.
    fn shorten<'a, 'm: 'a>(of: &'a Self::Of<'m>) -> &'a Self::Of<'a>;
}

/// A value that borrows a table, and the table.
pub struct WithTable<F: InTable> {
    /// Dropped before the table.
    value: F::Of<'static>,
    memory: Arc<TableMemory>,
}

impl<F: InTable> WithTable<F> {
    /// Calls `make` with the table, and keeps the result.
    ///
    /// # Errors
    ///
    /// What `make` returns.
    pub fn new<E>(
        memory: Arc<TableMemory>,
        make: impl for<'m> FnOnce(&'m CounterTable<'m>) -> Result<F::Of<'m>, E>,
    ) -> Result<WithTable<F>, E> {
        let borrowed: &CounterTable<'_> = memory.table();
        let borrowed = core::ptr::from_ref(borrowed).cast::<CounterTable<'static>>();
        // SAFETY: the table stays where it is, valid, while `memory` is kept, in an `Arc`.
        // The value that borrows it is dropped before that, and only lent for a time in which it is not.
        // `make` cannot keep the reference elsewhere, since it has to do for any time.
        let value = make(unsafe { &*borrowed })?;
        Ok(WithTable { value, memory })
    }

    /// The value.
    pub fn get(&self) -> &F::Of<'_> {
        F::shorten(&self.value)
    }

    /// The table's memory.
    pub fn memory(&self) -> &Arc<TableMemory> {
        &self.memory
    }
}

impl<F: InTable> fmt::Debug for WithTable<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithTable").finish_non_exhaustive()
    }
}
