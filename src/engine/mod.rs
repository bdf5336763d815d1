//! What the product does, for whoever calls it: nginx's requests, or the library's other users.
#![forbid(unsafe_code)]

pub mod api;
mod attempt;
#[cfg(all(test, not(loom)))]
mod crash_tests;
#[cfg(all(test, not(loom)))]
mod model_tests;
pub mod prometheus;
mod ratelimiting;
pub mod status;
mod sync;
#[cfg(all(test, not(loom)))]
mod sync_tests;
mod syncer;
mod synchronous;
#[cfg(all(test, not(loom)))]
mod synchronous_tests;

pub use attempt::{Attempt, BoundLimit, Charge, Charges, charge_late};
pub use ratelimiting::{Namespace, RateLimiting, RateLimitingError};
pub use sync::{Report, Surroundings, SyncError};
pub use syncer::Syncer;
pub use synchronous::{
    Answered, Asked, Asking, Deciders, Late, Refusals, conclude, late_questions, questions,
};
