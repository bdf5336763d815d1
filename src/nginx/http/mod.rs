//! Requests: the phase handlers, those that wait, headers and variables.
//!
//! - [`handler`]: the path of a request; [`evaluate`]: its keys, limits and costs; [`context`]: what is kept with it;
//!   [`deferred`]: hits that are charged at its end
//! - [`held`]: requests that nginx leaves for a while, and those that wait for a store
//! - [`synchronous`]: the path of a request that a store decides; [`reserves`]: of one that need not wait for it;
//!   [`delayed`]: of one that a rate holds back
//! - [`answer`], [`error_page`], [`grpc`], [`respond`]: logs and rejections; [`headers`], [`variables`]: what clients and
//!   logs are told
//! - [`api`]: the JSON API, and the page for Prometheus

mod answer;
pub(super) mod api;
pub(super) mod context;
mod deferred;
pub(super) mod delayed;
mod error_page;
mod evaluate;
mod grpc;
pub(super) mod handler;
pub(super) mod headers;
pub(super) mod held;
pub(super) mod reserves;
mod respond;
pub(super) mod synchronous;
pub(super) mod variables;
