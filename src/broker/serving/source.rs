//! The interface by which the broker connects to a store.

use super::exchange::DeciderTasks;
use crate::store::registry::StoreSettings;

/// A source of a store's deciders.
pub trait DeciderSource: Send + Sync {
    /// Starts `tasks` with deciders of the store, which connect at their first use.
    fn connect(&self, tasks: DeciderTasks<'_>);
}

impl DeciderSource for StoreSettings {
    fn connect(&self, tasks: DeciderTasks<'_>) {
        self.visit(tasks);
    }
}
