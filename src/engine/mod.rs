//! The product's functions for its callers: nginx's requests, and users of the library.
//!
//! A folder uses only those above it in this list:
//!
//! - [`sync`]: the sync of a namespace with its datastore
//! - [`request`]: the decision on a request
//! - [`functions`]: the functions of the specification's library
//! - [`report`]: the state of a node
//! - `api`: the JSON API
//!
//! All of them use [`namespace`]. [`machine`] has the system's clocks.
#![forbid(unsafe_code)]

// Not with loom, for which the registry of stores is not compiled.
#[cfg(not(loom))]
pub mod api;
pub mod functions;
mod identity_map;
#[cfg(not(loom))]
mod machine;
mod namespace;
pub mod report;
mod request;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;

pub use functions::committed::{Committed, TellDecider};
pub use functions::limiter::{AskedHits, Incoming, Limiter};
pub use functions::ratelimiting::RateLimiting;
pub use functions::window_counters::{Increment, WindowCounters};
#[cfg(not(loom))]
pub use machine::Machine;
pub use namespace::{Namespace, RateLimitingError};
pub use request::ban::Ban;
pub use request::bound_limit::BoundLimit;
pub use request::charge::{Charge, Charges, Refund};
pub use request::deferred::{DeferredCharge, DeferredHits, deferred_charges, deferred_hits};
pub use request::evaluation::Evaluation;
pub use request::pending::{PendingDecision, fall_back};
pub use request::rejection_cache::RejectionCache;
pub use request::reserve_book::{PartQuestion, ReserveBook};
pub use request::spending::{Spending, SpentReserve, spend};
pub use request::synchronous::{
    Answered, Deciders, LimitCheck, StoreQuestion, conclude, questions, unsent_charges,
};
#[cfg(not(loom))]
pub use sync::driver::{SyncCommand, SyncDriver, SyncObserver, SyncResult, SyncTimes};
#[cfg(not(loom))]
pub use sync::last_push::LastPush;
#[cfg(not(loom))]
pub use sync::listener::{ChannelObserver, listen};
pub use sync::poll_schedule::PollSchedule;
pub use sync::shard_sync::{EarlyPush, Env};
pub use sync::subscriber::Subscriber;
pub use sync::sync_outcome::{Report, SyncError};
pub use sync::syncer::Syncer;
