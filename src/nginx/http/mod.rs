//! HTTP requests: the phase handlers, suspended requests, headers and variables.
//!
//! - [`handler`]: the path of a request; [`evaluate`]: keys, limits and costs; [`context`]: the
//!   stored decision; [`deferred`]: hits that are charged at the end
//! - [`held`]: requests that resume in a later turn of the event loop
//! - [`synchronous`]: requests that wait for a store's decision; [`reserves`]: requests that are
//!   decided from this node's reserve; [`delayed`]: requests that a rate delays
//! - [`answer`], [`error_page`], [`respond`]: log lines and rejections; [`headers`],
//!   [`variables`]: the decision for clients and logs
//! - [`api`]: the JSON API and the Prometheus page

mod answer;
pub(super) mod api;
pub(super) mod context;
mod deferred;
pub(super) mod delayed;
mod error_page;
mod evaluate;
pub(super) mod handler;
pub(super) mod headers;
pub(super) mod held;
mod request_bits;
pub(super) mod reserves;
mod respond;
pub(super) mod synchronous;
pub(super) mod variables;
