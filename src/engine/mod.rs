//! The functions of the product for its callers: nginx's requests, or the library's other users.
//!
//! A folder uses only those above it in this list:
//!
//! - [`sync`]: the sync of a namespace with its datastore
//! - [`request`]: the decision on a request
//! - [`functions`]: the functions of the specification's library
//! - [`report`]: how a node is doing
//! - `api`: the JSON API
//!
//! All of them need [`namespace`]; [`totals`] writes down what a store has counted, [`machine`] has the system's clocks.
#![forbid(unsafe_code)]

// Not with loom, which has no registry of stores.
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
mod totals;

pub use functions::limiter::{AskedHits, Incoming, Limiter};
pub use functions::ratelimiting::RateLimiting;
pub use functions::window_counters::WindowCounters;
#[cfg(not(loom))]
pub use machine::Machine;
pub use namespace::{Namespace, RateLimitingError};
pub use request::bound_limit::BoundLimit;
pub use request::charge::{Charge, Charges, Refund};
pub use request::evaluation::{Evaluation, charge_deferred};
pub use request::rejection_cache::RejectionCache;
pub use request::reserve_book::{PartQuestion, ReserveBook};
pub use request::spending::{Spending, SpentReserve, spend};
pub use request::synchronous::{
    Answered, Deciders, DeferredCharge, LimitCheck, StoreQuestion, conclude, deferred_charges,
    questions, unsent_charges,
};
#[cfg(not(loom))]
pub use sync::last_push::LastPush;
pub use sync::poll_schedule::PollSchedule;
pub use sync::shard_sync::{EarlyPush, Env};
pub use sync::subscriber::Subscriber;
pub use sync::sync_outcome::{Report, SyncError};
pub use sync::syncer::Syncer;
