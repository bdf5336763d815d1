//! Tests of what all kinds of datastores have in common.

mod block_errors;
pub(super) mod blocks;
mod tls;
