//! Tests of the engine.

mod bans;
mod crash;
mod estimates;
mod evaluation;
mod model;
mod pending;
mod reserve_book;
mod sync;
mod synchronous;
mod trials;
