//! Parts of stores that only read and write values of keys, such as etcd: this side computes the values, and writes
//! them if nobody else has written meanwhile.
//!
//! - [`name`]: the names of counters and levels; [`value`]: totals and levels as text
//! - [`change`]: the log, a value for each change; [`decide`]: decisions

pub(super) mod change;
pub(super) mod decide;
pub(super) mod name;
pub(super) mod value;
