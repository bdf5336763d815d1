//! See `src/fuzzing/api.rs`.
#![no_main]

fuzz::target!(api::run);
