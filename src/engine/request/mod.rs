//! The decision on a request.
//!
//! - [`evaluation`]: charges limit after limit, and refunds; start here
//! - [`bound_limit`], [`charge`]: a limit with its counters, and the result of one charge
//! - [`pending`]: requests that datastores decide, one question after another; [`synchronous`]: the
//!   questions, and the conclusion from the answers; [`rejection_cache`]: counters that were over a
//!   limit a moment ago
//! - [`ban`]: keys that are rejected for a time after rejections
//! - [`deferred`]: hits that are known only with the response
//! - [`spending`], [`reserve_book`]: requests that are decided from the node's reserve

pub(super) mod ban;
pub(super) mod bound_limit;
pub(super) mod charge;
pub(super) mod deferred;
pub(super) mod evaluation;
pub(super) mod pending;
pub(super) mod rejection_cache;
pub(super) mod reserve_book;
pub(super) mod spending;
pub(super) mod synchronous;
