//! See `src/fuzzing/operations.rs`.
#![no_main]

fuzz::target!(operations::run);
