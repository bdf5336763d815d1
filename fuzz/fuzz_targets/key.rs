//! See `src/fuzzing/key.rs`.
#![no_main]

fuzz::target!(key::run);
