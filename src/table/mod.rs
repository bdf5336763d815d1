//! The counter table: one per zone, in memory that all workers of the node share.
//!
//! Counters are found and changed without a lock, by atomic operations on words of the counter's
//! own cache line; so a process may end, or be stopped, at any instruction, and the others go on.
//! The table knows nothing of nginx: it is given memory, and the time.
//!
//! - [`layout`]: how the memory is divided
//! - [`identity`]: what makes two hits count together
//! - [`meta`], [`word`]: the two kinds of words of a slot, and why one compare-and-swap suffices
//! - [`places`], [`claim`]: finding a counter's slot, and making room for a new one
//! - [`names`], [`changes`], [`division`], [`sync_state`], [`buffers`]: what only synced counters and
//!   their sync need
//! - [`counting`], [`columns`]: counting; windows, and what turning one takes
//! - [`directory`], [`stats`]: namespaces and their places; counts of events
//! - [`named`], [`store_state`]: words that are found by a name; what a node knows of a store
//! - this file: what users see

mod admission;
pub(crate) mod atomic;
mod batches;
mod buffers;
mod changes;
mod claim;
mod columns;
mod counter;
mod counter_table;
mod counting;
#[cfg(all(test, not(loom)))]
mod crash_tests;
mod directory;
#[cfg(all(test, not(loom)))]
mod directory_tests;
mod division;
pub(crate) mod fail;
mod identity;
mod insertion;
mod layout;
mod lease;
#[cfg(all(test, loom))]
pub(crate) mod loom_tests;
mod meta;
mod named;
mod names;
mod naming;
mod node;
mod part;
mod probe;
mod progress;
mod slot;
mod stats;
mod store_state;
#[cfg(all(test, not(loom)))]
mod stress_tests;
mod sync_slot;
mod sync_slots;
mod sync_state;
#[cfg(all(test, not(loom)))]
mod sync_tests;
#[cfg(all(test, not(loom)))]
pub(crate) mod testing;
#[cfg(all(test, not(loom)))]
mod tests;
mod word;

pub use admission::{Admission, Counted, Receipt};
pub use batches::{BatchName, BatchRecord};
pub use changes::{Change, CounterRef, LookedAt, Pending, WindowChange};
pub use counter::{Counter, Key};
pub use counter_table::CounterTable;
pub use identity::Identity;
pub use layout::{LayoutError, ZoneRoom};
pub use lease::{Lease, LeaseLost};
pub use meta::NamespaceIndex;
pub use named::{NameKind, Named};
pub use part::{HasKey, Part};
pub use progress::Repair;
pub use stats::{Cycle, Evicted, Invalid, NamespaceStats, Outcome, SyncStats, ZoneStats};
pub use store_state::{StoreState, StoreTransition};
pub use sync_state::{MonotonicMillis, SyncState};
