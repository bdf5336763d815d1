//! One thread of a node asks its stores about requests, for all workers: what lies between them.
//!
//! - [`ring`]: an SPSC ring, from one process that writes to one that reads
//! - [`doorbell`]: when the one that reads is to be woken; [`eventfd`]: how
//! - [`breaker`]: the circuit breaker of a store
//! - [`message`]: questions and answers, as words of a ring
//! - [`shared_queues`]: all of these in memory that the workers share
//! - [`batching`]: the batching delay; [`timer`]: what it is measured with
//! - [`client`]: through which a worker asks; [`decide`]: the thread that asks the stores for all of them, with
//!   deciders that come from a [`source`]; its [`dispatcher`], and for each decider the [`backlog`] and
//!   the task of its [`exchange`]s
//! - [`news`]: what the log tells of stores
//! - [`inbox`]: how a thread hands things to the event loop of its worker
//!
//! Unsafe code is where the system is called: in [`shared_queues`], [`eventfd`] and [`timer`].
#![deny(unsafe_code)]

#[cfg(not(loom))]
mod backlog;
mod batching;
mod breaker;
#[cfg(not(loom))]
mod client;
#[cfg(not(loom))]
mod decide;
#[cfg(not(loom))]
mod dispatcher;
mod doorbell;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "calls the system")]
mod eventfd;
#[cfg(not(loom))]
mod exchange;
#[cfg(not(loom))]
mod inbox;
#[cfg(all(test, loom))]
mod loom_tests;
pub mod message;
#[cfg(not(loom))]
mod news;
mod ring;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "maps memory, and locks a file")]
mod shared_queues;
#[cfg(not(loom))]
mod source;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "calls the system")]
mod timer;

pub use batching::BatchingDelay;
pub use breaker::{Breaker, Circuit};
#[cfg(not(loom))]
pub use client::Client;
#[cfg(not(loom))]
pub use decide::{Asking, DecidingStore};
pub use doorbell::Doorbell;
#[cfg(not(loom))]
pub use eventfd::EventFd;
#[cfg(not(loom))]
pub use exchange::DeciderTasks;
#[cfg(not(loom))]
pub use inbox::Inbox;
#[cfg(not(loom))]
pub use news::{Finder, Level, News, Watched};
pub use ring::{CACHE_LINE, Ring};
#[cfg(not(loom))]
pub use shared_queues::SharedQueues;
#[cfg(not(loom))]
pub use source::Source;
