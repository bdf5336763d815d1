//! A zone's memory: its regions, as one process sees them.
//!
//! - [`layout`]: the regions; [`memory`], [`with_table`]: memory outside of nginx, and values that
//!   borrow a table
//! - [`counter_table`]: the table as one process sees it; [`counter`]: counters
//! - [`events`]: the table of events; [`event_lines`], [`sync_line`]: counting them
//! - [`sketch`], [`sketch_name`]: the most rejected keys
//! - [`directory`]: the namespaces' entries; [`named`]: words with names; [`node`]: the node's
//!   identity
//! - [`holders`]: the processes that hold requests
//! - [`sync_slot`], [`sync_state`], [`lease`], [`buffers`]: the words of a sync, and the right to
//!   write them
//! - [`near_cell`]: cells of counters near their limits

pub(super) mod buffers;
pub(super) mod counter;
pub(super) mod counter_table;
pub(super) mod directory;
pub(super) mod event_lines;
pub(super) mod events;
pub(super) mod holders;
pub(super) mod layout;
pub(super) mod lease;
#[cfg(not(loom))]
pub(super) mod memory;
pub(super) mod named;
pub(super) mod near_cell;
pub(super) mod node;
pub(super) mod sketch;
pub(super) mod sketch_name;
pub(super) mod sync_line;
pub(super) mod sync_slot;
pub(super) mod sync_state;
#[cfg(not(loom))]
pub(super) mod with_table;
