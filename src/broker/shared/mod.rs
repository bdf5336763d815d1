//! Memory that the workers and the broker share.
//!
//! - [`ring`]: a queue between two processes, and when to wake its reader; [`message`]:
//!   questions and answers as words of a ring; [`shared_queues`]: the memory with all of these
//! - [`tenure`]: which worker's thread is the broker
//! - [`breaker`], [`store_clock`]: whether a store answers, and its time

pub(super) mod breaker;
pub mod message;
pub(super) mod ring;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "maps memory, and locks a file")]
pub(super) mod shared_queues;
#[cfg(not(loom))]
pub(super) mod store_clock;
pub(super) mod tenure;
