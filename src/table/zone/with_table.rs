//! A value that borrows a table, and the table's memory.

use core::fmt;
use std::sync::Arc;

use super::counter_table::CounterTable;
use super::memory::TableMemory;

/// A type that borrows a table for any lifetime.
pub trait InTable {
    /// The type for the lifetime `'m`.
    type Of<'m>: 'm;

    /// Shortens the lifetime of the borrowed table. An implementation returns `of`, which proves to
    /// the compiler that the type is covariant.
    fn shorten<'a, 'm: 'a>(of: &'a Self::Of<'m>) -> &'a Self::Of<'a>;
}

/// A value that borrows a table, and the table.
pub struct WithTable<F: InTable> {
    /// Dropped before the table.
    value: F::Of<'static>,
    memory: Arc<TableMemory>,
}

impl<F: InTable> WithTable<F> {
    /// Calls `make` with the table, and stores the result.
    ///
    /// # Errors
    ///
    /// The error of `make`.
    pub fn new<E>(
        memory: Arc<TableMemory>,
        make: impl for<'m> FnOnce(&'m CounterTable<'m>) -> Result<F::Of<'m>, E>,
    ) -> Result<WithTable<F>, E> {
        let borrowed: &CounterTable<'_> = memory.table();
        let borrowed = core::ptr::from_ref(borrowed).cast::<CounterTable<'static>>();
        // SAFETY: the `Arc` keeps the table in place while `memory` lives. The borrowing value is
        // dropped before it, and lent only for shorter lifetimes. `make` must accept any lifetime,
        // so it cannot store the reference elsewhere.
        let value = make(unsafe { &*borrowed })?;
        Ok(WithTable { value, memory })
    }

    /// Returns the value.
    pub fn get(&self) -> &F::Of<'_> {
        F::shorten(&self.value)
    }

    /// Returns the table's memory.
    pub fn memory(&self) -> &Arc<TableMemory> {
        &self.memory
    }
}

impl<F: InTable> fmt::Debug for WithTable<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithTable").finish_non_exhaustive()
    }
}
