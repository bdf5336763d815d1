//! Slots: finding the slot of a counter, giving one to a new counter, and reading one.
//!
//! - [`probe`]: where a slot is; [`claim`], [`insertion`]: a slot for a new counter
//! - [`columns`]: windows; [`level`]: a level and its time; [`log`], [`log_chain`], [`log_blocks`], [`log_search`]: a log of
//!   hits
//! - [`admission`]: the condition on which hits are counted, and the result
//! - [`names`], [`naming`], [`owner`]: the key of a synced counter, in slots of its own
//! - [`dirty`]: which counters changed; [`pushed`]: how many of their hits the store has

pub(super) mod admission;
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
