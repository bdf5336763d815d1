//! Requests: the phase handler, what it leaves with the request, headers, variables.

pub(super) mod context;
pub(super) mod handler;
pub(super) mod headers;
pub(super) mod variables;
