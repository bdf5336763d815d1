//! The trait that connects the broker to a store.

use super::exchange::DeciderTasks;
use crate::store::registry::StoreSettings;

/// A source of a store's deciders.
pub trait DeciderSource: Send + Sync {
    /// Has `tasks` serve with deciders of the store, which connect when they are used.
    fn connect(&self, tasks: DeciderTasks<'_>);
}

impl DeciderSource for StoreSettings {
    fn connect(&self, tasks: DeciderTasks<'_>) {
        self.visit(tasks);
    }
}
