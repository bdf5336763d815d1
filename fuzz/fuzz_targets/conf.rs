//! See `src/fuzzing/conf.rs`.
#![no_main]

fuzz::target!(conf::run);
