//! The decision on a request.
//!
//! - [`evaluation`]: charges limit after limit, and refunds; start here
//! - [`bound_limit`], [`charge`]: a limit with its counters, and the result of one charge
//! - [`pending`]: a request whose datastore decides, question after question; [`synchronous`]: the questions, and the
//!   conclusion from the answers; [`rejection_cache`]: counters that were full a moment ago
//! - [`spending`], [`reserve_book`]: a request that is decided by what the node has in reserve

pub(super) mod bound_limit;
pub(super) mod charge;
pub(super) mod evaluation;
pub(super) mod pending;
pub(super) mod rejection_cache;
pub(super) mod reserve_book;
pub(super) mod spending;
pub(super) mod synchronous;
