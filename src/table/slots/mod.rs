//! Slots: finding the slot of a counter, inserting a new counter, and reading one.
//!
//! - [`probe`]: finds a slot; [`claim`], [`insertion`]: a slot for a new counter
//! - [`columns`]: windows; [`level`]: levels; [`log`], [`log_chain`], [`log_blocks`],
//!   [`log_search`]: logs
//! - [`cells`], [`cell_blocks`]: holds, by process; [`told`]: their number for other nodes
//! - [`admission`]: the condition under which hits are counted, and the result
//! - [`names`], [`naming`], [`owner`]: the key of a synced counter, in slots of its own
//! - [`dirty`]: marks changed counters; [`pushed`]: the hits that the store has

pub(super) mod admission;
pub(super) mod cell_blocks;
pub(super) mod cells;
pub(super) mod claim;
pub(super) mod columns;
pub(super) mod dirty;
pub(super) mod insertion;
pub(super) mod level;
pub(super) mod log;
pub(super) mod log_blocks;
pub(super) mod log_chain;
pub(super) mod log_search;
pub(super) mod names;
pub(super) mod naming;
pub(super) mod owner;
pub(super) mod probe;
pub(super) mod pushed;
pub(super) mod told;
