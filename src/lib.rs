//! Cluster-wide rate limiting for nginx.
//!
//! A module imports only from those above it in this list:
//!
//! - [`policy`]: windows, limits, headers; pure functions of counts and time
//! - [`table`]: counters in memory that all workers share, by atomic operations
//! - [`store`]: datastores that the nodes of a cluster share
//! - [`conf`]: the configuration, from the words of a directive to what is served
//! - `convert`: the configuration of other limiters, written as ours; a program, and no part of the module
//! - [`broker`]: one thread asks a store for all workers: queues in shared memory, batching, breaker
//! - [`engine`]: the functions of the rate-limiting library, and the decision on a request
//! - [`library`]: the same functions for any Rust program: start there if you are one
//! - `nginx`: the shell; configuration, shared memory zones, phases, headers, variables
//! - `fuzzing`: the fuzz targets, which only `fuzz/` compiles
//!
//! # A request
//!
//! From top to bottom, with one limit and no store:
//!
//! 1. `nginx::http::handler::handle`: nginx's phase handler; `decide_here` charges one limit after the other
//! 2. `nginx::http::evaluate::each_limit`: the key (`nginx::conf::location`, `text`, `variable`), the hits and the cost
//!    of each rule (`nginx::conf::rules`)
//! 3. [`engine::Evaluation::charge`]: chooses by the kind of limit (`engine::request::bound_limit`)
//! 4. [`table::CounterTable::add_at_home`], in `table::count::counting`: hashes the key (`table::words::identity`), finds
//!    the slot (`table::slots::probe`), and reads the window (`table::slots::columns`)
//! 5. [`policy::algorithm`]: computes the rate from the counts of two windows, and compares it with the limit
//! 6. `table::count::counting::count_in`: adds the hits by a compare-and-swap of one word
//! 7. [`engine::Evaluation::finish`]: refunds what was charged if a limit refused, and counts the outcome
//!    (`engine::request::charge`, `table::zone::event_lines`)
//! 8. `nginx::http::context`: keeps the verdicts with the request; `nginx::http::answer` logs, and rejects
//! 9. `nginx::http::headers`: writes them into the response, by [`policy::headers`]
//!
//! # A sync cycle
//!
//! 1. `nginx::sync::tick`: a timer of each worker
//! 2. [`engine::SyncDriver::run`], a task of the worker's thread: begins a cycle if one is due, and when a caller asks
//! 3. [`engine::Syncer::sync`]: the shards of the namespace, a few side by side
//! 4. `engine::sync::cycle`: the cycle of a shard; reads from top to bottom: lease, changes, push and fetch, apply, release
//! 5. `table::sync::changes`, `table::sync::batches`: what changed, sealed under a number so that it is counted once
//! 6. [`store::contract::strategy::Strategy`]: one exchange with the store
//! 7. `table::sync::progress`: what the store has now, and how far its changes were seen
//! 8. `nginx::sync`: reads the report in the event loop, and logs
//!
//! # A synchronous request
//!
//! 1. `nginx::http::synchronous::decide`: evaluates the keys and costs as above
//! 2. `nginx::http::held::suspension`: suspends the request, and asks one store after the other;
//!    [`engine::PendingDecision`] has the next question, unless a limit refuses without a store
//! 3. `engine::request::synchronous::questions`: the questions to each store
//! 4. `nginx::sync::ask`, `broker::client`, `broker::shared::ring`: the questions of one turn of the event loop, to the broker
//! 5. `broker::serving::dispatcher`, `backlog`, `exchange`: the questions of all workers, in one exchange with the store
//! 6. [`store::contract::decision::Decider`]: the store decides
//! 7. `nginx::sync::woken`: takes the answers; `nginx::lifecycle` passes them to those who asked
//! 8. `nginx::http::synchronous::take_replies`: wakes the request; [`engine::PendingDecision`] concludes from the answers,
//!    or `on_error` decides

// The layouts of futures that wait for futures go deep: a sync's, in a test, in a store's.
#![recursion_limit = "256"]
// What a module says of its parts is for its readers, who have the source.
#![allow(rustdoc::private_intra_doc_links)]
// Each of these is there for the stores that use it.
#![cfg_attr(
    not(feature = "stores"),
    allow(dead_code, unreachable_code, unreachable_pub, unused_imports, unused_variables)
)]
#![cfg_attr(
    any(test, fuzzing),
    allow(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used,
        reason = "a test ends by panicking"
    )
)]

#[cfg(all(test, not(feature = "stores"), not(loom)))]
compile_error!("the tests need all stores: --features stores,conformance");

// To programs without nginx, the library is all that there is.
#[cfg_attr(all(doc, not(feature = "nginx")), doc(hidden))]
pub mod broker;
#[cfg(not(loom))]
#[cfg_attr(all(doc, not(feature = "nginx")), doc(hidden))]
pub mod conf;
#[cfg(all(feature = "convert", not(loom)))]
#[cfg_attr(all(doc, not(feature = "nginx")), doc(hidden))]
pub mod convert;
#[cfg_attr(all(doc, not(feature = "nginx")), doc(hidden))]
pub mod engine;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(not(loom))]
pub mod library;
#[cfg(all(feature = "nginx", not(test)))]
mod nginx;
#[cfg_attr(all(doc, not(feature = "nginx")), doc(hidden))]
pub mod policy;
#[cfg_attr(all(doc, not(feature = "nginx")), doc(hidden))]
pub mod store;
#[cfg_attr(all(doc, not(feature = "nginx")), doc(hidden))]
pub mod table;
pub mod testing;

/// The examples of README.md and docs/rust.md, which are run with those above.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/rust.md")]
mod pages {}
