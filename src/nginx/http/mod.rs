//! Requests: the phase handler, what it leaves with the request, headers, variables.

mod context;
pub(super) mod handler;
pub(super) mod headers;
pub(super) mod variables;
