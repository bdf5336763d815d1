//! The counter table of a zone, in memory that all workers of the node share.
//!
//! Counters are found and changed without locks, by atomic operations on words that are mostly in
//! the counter's own cache line. A process may end or be stopped at any instruction; the others
//! continue. The table does not use nginx: callers pass memory and times.
//!
//! A folder uses only those above it in this list:
//!
//! - [`words`]: the words of shared memory and their bits
//! - [`zone`]: the regions of a zone's memory, and the table as one process sees it
//! - [`slots`]: finding a counter's slot, inserting a counter, and reading it
//! - [`sync`]: changes, batches, and the state of the store as a node knows it
//! - [`early`]: early pushes
//! - [`count`]: counting; start at [`count::counting`]
//!
//! Above the folders, [`namespaces`] manages the namespaces of a zone, and [`definitions`] those
//! that workers define.

mod count;
mod definitions;
mod early;
mod namespaces;
mod slots;
mod sync;
#[cfg(test)]
pub(crate) mod tests;
pub mod words;
mod zone;

pub use count::counted_sizes::CountedRate;
#[cfg(not(loom))]
pub use count::held_sweep::{HeldSweep, LOOK_EVERY};
pub use count::named_counters::NamedCounter;
pub use count::rejections::TopRejected;
pub use count::reserve::{Reserve, ReservedHits, Spent};
pub use definitions::{LateDefinition, LateError};
pub use early::due::POSTPONED_FOR;
pub use early::near_look::NearCount;
pub use slots::admission::{Admission, AskedHit, Counted, Receipt};
pub use sync::batches::{BatchName, BatchRecord};
pub use sync::changes::{Change, PushedHits, WindowChange};
pub use sync::channel_lease::{ChannelLease, HeldChannel};
pub use sync::exchange_budget::ExchangeBudget;
pub use sync::pending::{LookedAt, Pending};
pub use sync::progress::Repair;
pub use sync::store_state::{StoreMoment, StoreState, StoreTransition};
pub use words::identity::Identity;
pub use words::meta::NamespaceIndex;
pub use zone::counter::{Counter, HasKey, Key, Part};
pub use zone::counter_table::{CounterRef, CounterTable};
pub use zone::event_lines::{Evicted, Invalid, Outcome};
pub use zone::events::{NamespaceStats, SyncStats, ZoneStats};
pub use zone::layout::{LayoutError, ZoneRoom};
pub use zone::lease::{IsHeld, LastTerm, Lease, LeaseLost};
#[cfg(not(loom))]
pub use zone::memory::{MemoryError, TableMemory};
pub use zone::named::{NameKind, Named};
pub use zone::near_cell::EarlyShare;
pub use zone::sketch::RejectedKey;
pub use zone::sync_line::SyncCycle;
pub use zone::sync_state::{MonotonicMillis, SyncState};
#[cfg(not(loom))]
pub use zone::with_table::{InTable, WithTable};
