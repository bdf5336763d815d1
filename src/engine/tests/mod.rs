//! Tests of the engine.

mod crash;
mod evaluation;
mod model;
mod pending;
mod reserve_book;
mod sync;
mod synchronous;
mod trials;
