//! Where a store's deciders come from.

use super::exchange::DeciderTasks;
use crate::store::registry::StoreSettings;

/// What connects to a store.
pub trait DeciderSource: Send + Sync {
    /// Has `tasks` serve with deciders of the store, which connect when they are used.
    fn connect(&self, tasks: DeciderTasks<'_>);
}

impl DeciderSource for StoreSettings {
    fn connect(&self, tasks: DeciderTasks<'_>) {
        self.visit(tasks);
    }
}
