//! The broker: one thread of a node, which asks the stores about the requests of all workers; and
//! the queues between them.
//!
//! A file or folder uses only those above it in this list:
//!
//! - [`wake`]: how one thread or process wakes another
//! - [`shared`]: rings and other words that the workers share
//! - `serving`: the broker
//!
//! A worker asks through its `client`, and stores those who wait for an answer in `waiters`.
//!
//! Unsafe code is only in the files that call the system: [`shared::shared_queues`] and [`wake`].
#![deny(unsafe_code)]

#[cfg(not(loom))]
mod client;
mod serving;
pub mod shared;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(loom))]
mod waiters;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "calls the system")]
mod wake;

#[cfg(not(loom))]
pub use client::Client;
#[cfg(not(loom))]
pub use serving::backlog::{Backlog, Gathered, ReplyTo};
pub use serving::batching::BatchingDelay;
#[cfg(not(loom))]
pub use serving::exchange::DecidedNamespace;
#[cfg(not(loom))]
pub use serving::serve::{Broker, DeciderSource, DeciderTasks, DecidingStore};
#[cfg(not(loom))]
pub use serving::store_event::{Observer, Severity, StoreEvent, StoreWatch, WatchedStore};
pub use shared::breaker::{Breaker, Circuit};
pub use shared::ring::{CACHE_LINE, Doorbell, Ring};
#[cfg(not(loom))]
pub use shared::shared_queues::SharedQueues;
#[cfg(not(loom))]
pub use shared::store_clock::StoreClock;
pub use shared::tenure::{FencedWord, Replaced, Tenure, TenureLooks, Term};
#[cfg(not(loom))]
pub use waiters::{Asker, KINDS, Waiters};
#[cfg(not(loom))]
pub use wake::{Bells, EventFd, EventLoopQueue};
