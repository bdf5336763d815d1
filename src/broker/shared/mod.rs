//! Memory that the workers and the broker share.
//!
//! - [`ring`]: a queue from one process to another; [`doorbell`]: when its reader is to be woken; [`message`]: questions and
//!   answers as words of a ring; [`shared_queues`]: all of these in their region
//! - [`tenure`]: which worker's thread is the broker
//! - [`breaker`], [`store_clock`]: what is known of a store: whether it answers, and what time it is there

pub(super) mod breaker;
pub(super) mod doorbell;
pub mod message;
pub(super) mod ring;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "maps memory, and locks a file")]
pub(super) mod shared_queues;
#[cfg(not(loom))]
pub(super) mod store_clock;
pub(super) mod tenure;
