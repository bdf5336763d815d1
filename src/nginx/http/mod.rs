//! Requests: the phase handlers, those that wait, what they leave with the request, headers, variables.

mod answer;
pub(super) mod api;
pub(super) mod context;
mod evaluate;
mod grpc;
pub(super) mod handler;
pub(super) mod headers;
mod held;
mod late;
pub(super) mod metrics;
mod pages;
mod respond;
mod suspension;
mod suspensions;
pub(super) mod synchronous;
pub(super) mod variables;
