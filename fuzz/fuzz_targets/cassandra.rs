//! See `src/fuzzing/stores.rs`.
#![no_main]

// The driver reserves as much memory as an answer's header or a number of columns says, and uses none of it.
fuzz::target!(stores::cassandra, fuzz::memory::but_for_reserves);
