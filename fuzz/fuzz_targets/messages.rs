//! See `src/fuzzing/messages.rs`.
#![no_main]

fuzz::target!(messages::run);
