//! What the product does, for its callers: nginx's requests, or the library's other users.
#![forbid(unsafe_code)]

// Not with loom, which has no registry of stores.
#[cfg(not(loom))]
pub mod api;
pub mod arguments;
mod bound_limit;
mod charge;
#[cfg(all(test, not(loom)))]
mod crash_tests;
mod evaluation;
#[cfg(all(test, not(loom)))]
mod evaluation_tests;
mod hearing;
mod identity_map;
#[cfg(not(loom))]
mod last_push;
mod limiter;
mod looks;
#[cfg(not(loom))]
mod machine;
#[cfg(all(test, not(loom)))]
mod model_tests;
mod namespace;
pub mod prometheus;
mod ratelimiting;
mod refusals;
mod reserve_book;
#[cfg(all(test, not(loom)))]
mod reserve_book_tests;
mod shard_sync;
mod side_by_side;
mod spending;
pub mod status;
mod sync;
mod sync_outcome;
mod sync_search;
#[cfg(all(test, not(loom)))]
mod sync_tests;
mod syncer;
mod synchronous;
#[cfg(all(test, not(loom)))]
mod synchronous_tests;
mod totals;
mod window_counters;

pub use bound_limit::BoundLimit;
pub use charge::{Charge, Charges, Refund};
pub use evaluation::{Evaluation, charge_deferred};
pub use hearing::Hearing;
#[cfg(not(loom))]
pub use last_push::LastPush;
pub use limiter::{AskedHits, Incoming, Limiter};
pub use looks::LookTimes;
#[cfg(not(loom))]
pub use machine::Machine;
pub use namespace::{Namespace, RateLimitingError};
pub use ratelimiting::RateLimiting;
pub use refusals::Refusals;
pub use reserve_book::{PartQuestion, ReserveBook};
pub use shard_sync::{EarlyPush, Surroundings};
pub use spending::{Spending, SpentReserve, spend};
pub use sync_outcome::{Report, SyncError};
pub use syncer::Syncer;
pub use synchronous::{
    Answered, Deciders, DeferredCharge, LimitCheck, StoreQuestion, conclude, deferred_charges,
    questions, unsent_charges,
};
pub use window_counters::WindowCounters;
