//! A zone's memory: its regions, as one process sees them.
//!
//! - [`layout`]: where each region is; [`memory`], [`with_table`]: memory outside of nginx, and a table together with it
//! - [`counter_table`]: the table as one process sees it; [`counter`], [`counter_ref`]: a counter, asked for and found again
//! - [`events`]: the table of events; [`event_lines`], [`sync_line`]: counting them
//! - [`sketch`], [`sketch_name`]: keys that were rejected most
//! - [`directory`]: the places of namespaces; [`named`]: words that are found by a name; [`node`]: the node's identity
//! - [`sync_slot`], [`sync_state`], [`lease`], [`buffers`]: the words of a sync, and which worker may write them
//! - [`near_cell`]: cells of counters that are near their limits

pub(super) mod buffers;
pub(super) mod counter;
pub(super) mod counter_ref;
pub(super) mod counter_table;
pub(super) mod directory;
pub(super) mod event_lines;
pub(super) mod events;
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
