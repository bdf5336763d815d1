//! Tests of parts that all kinds of datastores share.

mod block_errors;
pub(super) mod blocks;
mod tls;
