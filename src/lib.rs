//! Cluster-wide rate limiting for nginx.
//!
//! A module imports only from those above it in this list:
//!
//! - [`policy`]: windows, limits, headers; pure functions of counts and time
//! - [`table`]: counters in memory that all workers share, by atomic operations
//! - [`store`]: datastores that the nodes of a cluster share
//! - [`conf`]: the configuration, from the words of a directive to what is served
//! - [`broker`]: one thread asks a store for all workers: queues in shared memory, batching, breaker
//! - [`engine`]: the functions of the rate-limiting library, and the decision on a request
//! - [`library`]: the same functions for any Rust program: start there if you are one
//! - `nginx`: the shell; configuration, shared memory zones, phases, headers, variables
//!
//! # A request
//!
//! `nginx::http::handler` evaluates the key and hands it to [`engine::Evaluation`], which charges one
//! limit after the other in the counter table ([`table::CounterTable::add_at_home`], as a rule) and gives back what
//! it charged if one of them refuses. The verdicts stay with the request, where the header filter
//! and the variables find them.
//!
//! # A sync cycle
//!
//! A timer of `nginx::sync` has the worker's thread call [`engine::Syncer::sync`]: the worker that gets the lease seals
//! batches of what changed, pushes them, and notes in the table what others have counted.
//!
//! # A synchronous request
//!
//! `nginx::http::synchronous` suspends the request and asks the [`broker`], which sends what waits at the same time to the
//! store, in one exchange. [`engine::conclude`] decides by the answer, or `on_error` does.

// The layouts of futures that wait for futures go deep: a sync's, in a test, in a store's.
#![recursion_limit = "256"]
// What a module says of its parts is for its readers, who have the source.
#![allow(rustdoc::private_intra_doc_links)]
// Each of these is there for the stores that use it.
#![cfg_attr(
    not(feature = "stores"),
    allow(
        dead_code,
        unreachable_code,
        unreachable_pub,
        unused_imports,
        unused_variables
    )
)]
#![cfg_attr(
    test,
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
#[cfg_attr(all(doc, not(feature = "nginx")), doc(hidden))]
pub mod engine;
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

/// The examples of README.md and docs/rust.md, which are run with those above.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/rust.md")]
mod pages {}
