//! Requests: the phase handlers, those that wait, what they leave with the request, headers, variables.
//!
//! - [`handler`]: the path of a request; [`evaluate`]: its keys, limits and costs; [`answer`]: its log and
//!   its rejection ([`grpc`]); [`deferred`]: what is charged at its end; [`context`]: what is kept of it
//! - [`synchronous`]: the path of one that waits for a store; [`suspension`], [`suspensions`]: what it
//!   waits for, and how it is found again; [`held`]: how it waits and goes on
//! - [`reserves`]: those that need not wait, since the store has charged hits before
//! - [`delayed`]: those that a rate holds back when they are decided on
//! - [`waiting`]: what a request waits with, found by a number
//! - [`headers`], [`variables`]: what is told of the decision
//! - [`error_page`]: rejections that nginx's pages for errors answer, though nginx takes their status for something else
//! - [`respond`], [`pages`]: other responses than nginx's; [`api`], [`metrics`] have such; [`json`]: those of the
//!   API; [`awaited`]: requests to it that wait for a store

mod answer;
pub(super) mod api;
pub(super) mod awaited;
pub(super) mod context;
mod deferred;
pub(super) mod delayed;
mod error_page;
mod evaluate;
mod grpc;
pub(super) mod handler;
pub(super) mod headers;
mod held;
mod json;
pub(super) mod metrics;
mod pages;
pub(super) mod reserves;
mod respond;
mod suspension;
pub(super) mod suspensions;
pub(super) mod synchronous;
pub(super) mod variables;
mod waiting;
