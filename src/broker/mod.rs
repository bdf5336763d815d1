//! One thread of a node asks its stores about requests, for all workers: what lies between them.
//!
//! - [`ring`]: an SPSC ring, from one process that writes to one that reads
//! - [`wakeup`]: when the one that reads is to be woken
//! - [`breaker`]: the circuit breaker of a store
//! - [`message`]: questions and answers, as words of a ring
//! - [`pace`]: the batching delay

mod breaker;
#[cfg(all(test, loom))]
mod loom_tests;
pub mod message;
mod pace;
mod ring;
mod wakeup;

pub use breaker::{Breaker, Circuit};
pub use pace::Pace;
pub use ring::{CACHE_LINE, Ring};
pub use wakeup::Wakeup;
