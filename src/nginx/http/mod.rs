//! Requests: the phase handlers, what they leave with the request, headers, variables.

pub(super) mod api;
pub(super) mod context;
mod grpc;
pub(super) mod handler;
pub(super) mod headers;
pub(super) mod metrics;
mod respond;
pub(super) mod variables;
