//! The counter table: one per zone, in memory that all workers of the node share.
//!
//! Counters are found and changed without a lock, by atomic operations on words of the counter's
//! own cache line; so a process may end, or be stopped, at any instruction, and the others go on.
//! The table knows nothing of nginx: it is given memory, and the time.
//!
//! From the bottom up:
//!
//! - [`word`], [`meta`]: the two kinds of words of a [`slot`], and why one compare-and-swap suffices;
//!   [`identity`]: what makes two hits count together
//! - [`layout`]: how the memory is divided; [`event_lines`], [`sync_line`], [`stats`]: counts of
//!   events
//! - [`counter_table`]: the table as one process sees it; [`counter`], [`admission`]: what it is asked, and
//!   what it answers; [`counter_ref`]: a counter that is found again
//! - [`columns`]: windows, and what turning one takes
//! - [`probe`], [`claim`], [`insertion`]: finding a counter's slot, and making room for a new one
//! - [`counting`]: what a request does, from top to bottom
//! - [`level`], [`leveling`]: the same for counters that are a level; [`log`], [`log_chain`], [`log_blocks`],
//!   [`log_counting`]: for those that are a log; [`reset`]: setting either to zero, [`counted_sizes`]: of which windows
//! - [`directory`], [`namespaces`]: namespaces and their entries; [`definitions`]: those that workers define; [`named`], [`store_state`], [`channel_lease`]: words that
//!   are found by a name, what a node knows of a store, and who listens to it; [`rejections`], [`sketch`], [`sketch_name`]: which keys were rejected most
//!
//! Outside of nginx: [`system`], [`mapping`], [`memory`], [`with_table`]: memory on the heap or of a file, what
//! borrows a table of it, the machine's clock and random numbers.
//!
//! Only synced counters, and their sync, need:
//!
//! - [`names`], [`naming`]: the bytes of keys; [`pushed`]: what the store has; [`owner`]: whose a slot is that holds some; [`dirty`], [`changes`], [`pending`], [`division`], [`part`]:
//!   which counters changed; [`near`], [`near_cell`], [`due`], [`bell`]: which are to be pushed at once, and how
//!   the sync hears of it; [`near_look`]: how near they are; [`own_share`]: what is admitted while the store is away
//! - [`sync_slot`], [`sync_slots`], [`sync_state`]: the words of a sync, which sync has them, and how a
//!   process sees it
//! - [`lease`], [`progress`], [`batches`], [`buffers`]: which worker syncs, what the node knows of the store,
//!   and what is on its way; [`node`]: which node this is to stores
//! - [`reserve`]: hits that a store has charged ahead

mod admission;
pub(crate) mod atomic;
mod batches;
mod bell;
#[cfg(all(test, not(loom)))]
mod bucket_tests;
mod buffers;
mod changes;
mod channel_lease;
mod claim;
mod columns;
mod counted_sizes;
mod counter;
mod counter_ref;
mod counter_table;
mod counting;
#[cfg(all(test, not(loom)))]
mod crash_tests;
mod definitions;
mod directory;
#[cfg(all(test, not(loom)))]
mod directory_tests;
mod dirty;
mod division;
mod due;
mod event_lines;
pub(crate) mod fail;
mod identity;
mod insertion;
mod layout;
mod lease;
mod level;
#[cfg(all(test, not(loom)))]
mod level_tests;
mod leveling;
mod log;
mod log_blocks;
mod log_chain;
mod log_counting;
mod log_search;
#[cfg(all(test, not(loom)))]
mod log_tests;
#[cfg(all(test, loom))]
pub(crate) mod loom_tests;
#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
mod memory;
#[cfg(all(test, not(loom)))]
mod memory_tests;
mod meta;
mod named;
mod names;
mod namespaces;
mod naming;
mod near;
mod near_cell;
mod near_look;
#[cfg(all(test, loom))]
mod near_loom_tests;
#[cfg(all(test, not(loom)))]
mod near_tests;
mod node;
mod own_share;
#[cfg(all(test, not(loom)))]
mod own_share_tests;
mod owner;
mod part;
mod pending;
mod probe;
mod progress;
mod pushed;
mod rejections;
mod reserve;
#[cfg(all(test, loom))]
mod reserve_loom_tests;
#[cfg(all(test, not(loom)))]
mod reserve_tests;
mod reset;
#[cfg(all(test, not(loom)))]
mod reset_tests;
mod sketch;
mod sketch_name;
#[cfg(all(test, not(loom)))]
mod sketch_tests;
mod slot;
mod stats;
mod store_state;
#[cfg(all(test, not(loom)))]
mod stress_tests;
mod sync_line;
mod sync_slot;
mod sync_slots;
mod sync_state;
#[cfg(all(test, not(loom)))]
mod sync_tests;
#[cfg(not(loom))]
pub mod system;
#[cfg(all(test, not(loom)))]
pub(crate) mod testing;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(loom))]
mod with_table;
mod word;

pub use admission::{Admission, AskedHit, Counted, Receipt};
pub use batches::{BatchName, BatchRecord};
pub use changes::{Change, WindowChange};
pub use channel_lease::{ChannelLease, HeldChannel};
pub use counted_sizes::CountedRate;
pub use counter::{Counter, Key};
pub use counter_ref::CounterRef;
pub use counter_table::CounterTable;
pub use definitions::{LateDefinition, LateError};
pub use identity::Identity;
pub use layout::{LayoutError, ZoneRoom};
pub use lease::{IsHeld, Lease, LeaseLost};
#[cfg(not(loom))]
pub use memory::{MemoryError, TableMemory};
pub use meta::NamespaceIndex;
pub use named::{NameKind, Named};
pub use near_cell::EarlyShare;
pub use near_look::NearCount;
pub use part::{HasKey, Part};
pub use pending::{LookedAt, Pending};
pub use progress::Repair;
pub use rejections::TopRejected;
pub use reserve::{Reserve, ReservedHits, Spent};
pub use sketch::RejectedKey;
pub use stats::{Evicted, Invalid, NamespaceStats, Outcome, SyncCycle, SyncStats, ZoneStats};
pub use store_state::{StoreState, StoreTransition};
pub use sync_state::{MonotonicMillis, SyncState};
#[cfg(not(loom))]
pub use with_table::{InTable, WithTable};
