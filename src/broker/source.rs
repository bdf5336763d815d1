//! Where a store's deciders come from.

use super::decide::Clerks;
use crate::store::registry::StoreSettings;

/// What connects to a store.
pub trait Source: Send + Sync {
    /// Has `clerks` serve with deciders of the store, which connect when they are used.
    fn connect(&self, clerks: Clerks<'_>);
}

impl Source for StoreSettings {
    fn connect(&self, clerks: Clerks<'_>) {
        self.visit(clerks);
    }
}
