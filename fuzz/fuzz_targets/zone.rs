//! See `src/fuzzing/zone.rs`.
#![no_main]

fuzz::target!(zone::run);
