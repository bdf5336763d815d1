//! The broker: one thread of a node that asks its stores about requests, for all workers; and the queues
//! between them.
//!
//! - [`ring`]: an SPSC ring, from one process that writes to one that reads
//! - [`doorbell`]: when the one that reads is to be woken; [`eventfd`]: how
//! - [`breaker`]: the circuit breaker of a store
//! - [`message`]: questions and answers, as words of a ring
//! - [`shared_queues`]: all of these in memory that the workers share
//! - [`batching`]: the batching delay; [`timer`]: what it is measured with
//! - [`tenure`]: which worker's thread is the broker, and how a former one is kept from writing; [`turn`]: how the others
//!   wait to be it
//! - [`client`]: through which a worker asks; [`serve`]: the broker, which asks the stores for all workers,
//!   with deciders that come from a [`source`], about [`decided`] namespaces; its [`dispatcher`], and for each decider the [`backlog`] and
//!   the task of its [`exchange`]s
//! - [`bells`]: what wakes the threads of workers that are to push before the time
//! - [`unsent`]: hits that were counted while a store was away, to be charged when it is back
//! - [`store_event`]: what the log says of stores
//! - [`event_loop_queue`]: how the thread hands things to the event loop of its worker; [`waiters`]: what waits there
//!
//! Unsafe code is where the system is called: in [`shared_queues`], [`eventfd`] and [`timer`].
#![deny(unsafe_code)]

#[cfg(not(loom))]
mod backlog;
mod batching;
#[cfg(not(loom))]
mod bells;
mod breaker;
#[cfg(not(loom))]
mod client;
#[cfg(not(loom))]
mod decided;
#[cfg(not(loom))]
mod dispatcher;
mod doorbell;
#[cfg(not(loom))]
mod event_loop_queue;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "calls the system")]
mod eventfd;
#[cfg(not(loom))]
mod exchange;
#[cfg(all(test, loom))]
mod loom_tests;
pub mod message;
mod ring;
#[cfg(not(loom))]
mod serve;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "maps memory, and locks a file")]
mod shared_queues;
#[cfg(not(loom))]
mod source;
#[cfg(not(loom))]
mod store_clock;
#[cfg(not(loom))]
mod store_event;
mod tenure;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "calls the system")]
mod timer;
#[cfg(not(loom))]
mod turn;
#[cfg(not(loom))]
mod unsent;
#[cfg(not(loom))]
mod waiters;

pub use batching::BatchingDelay;
#[cfg(not(loom))]
pub use bells::Bells;
pub use breaker::{Breaker, Circuit};
#[cfg(not(loom))]
pub use client::Client;
#[cfg(not(loom))]
pub use decided::DecidedNamespace;
pub use doorbell::Doorbell;
#[cfg(not(loom))]
pub use event_loop_queue::EventLoopQueue;
#[cfg(not(loom))]
pub use eventfd::EventFd;
#[cfg(not(loom))]
pub use exchange::DeciderTasks;
pub use ring::{CACHE_LINE, Ring};
#[cfg(not(loom))]
pub use serve::{Broker, DecidingStore};
#[cfg(not(loom))]
pub use shared_queues::SharedQueues;
#[cfg(not(loom))]
pub use source::DeciderSource;
#[cfg(not(loom))]
pub use store_clock::StoreClock;
#[cfg(not(loom))]
pub use store_event::{KnownBefore, Observer, Severity, StoreEvent, WatchedStore};
pub use tenure::{FencedWord, Replaced, Tenure, TenureLooks, Term};
#[cfg(not(loom))]
pub use unsent::UnsentHits;
#[cfg(not(loom))]
pub use waiters::{Asker, KINDS, Waiters};
