//! See `src/fuzzing/stores.rs`.
#![no_main]

fuzz::target!(stores::memcached);
