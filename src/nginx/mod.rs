//! The shell: everything that calls nginx or is called by it. Only the shell reads clocks.
//!
//! - [`lifecycle`]: the callbacks at the stages of the module's life; [`module`]: its identity
//! - [`conf`]: directives and the configuration
//! - [`zone`]: shared memory
//! - [`sync`]: synced namespaces, with a thread
//! - [`holds`]: what ended workers held
//! - `http`: requests; [`capi`]: the library's functions for other modules, and for Lua; [`store_wait`]:
//!   their waits for a store's answer
//! - [`request`], [`cycle`], [`conf::Conf`]: wrappers of raw pointers; [`memory`], [`slot`]: data
//!   that a request stores
//! - [`event_loop`]: nginx's event loop, its clock, and callbacks that panic or take long; [`log`]
//!
//! A callback converts nginx's pointer once, to a [`request::Request`], a [`cycle::Cycle`] or a
//! [`conf::Conf`], and its SAFETY comment says why it may. All other functions borrow these.
//!
//! # Out of memory
//!
//! Allocations from a request's pool (context, keys, suspension, headers, bodies, values of
//! variables) are checked: if one fails, the request is answered with 500, or its connection is
//! closed if the response has begun. Log lines need no memory. Rust's own allocations cannot be
//! checked: if `Vec`, `Box`, `Arc` or a map gets no memory, the process aborts, and nginx starts
//! another worker. Path 1 has no such allocation, unless a rule has `charge=`, or a response has
//! several limits or `legacy` headers. Other allocations of this kind: the questions and the
//! waiting parts of synchronous requests, the text of the API and the metrics, the digest of keys
//! above 200 bytes, everything that reads a configuration, and the sync thread.

mod capi;
mod conf;
mod cycle;
mod event_loop;
mod holds;
mod http;
mod lifecycle;
mod log;
mod memory;
mod module;
mod request;
mod slot;
mod store_wait;
mod sync;
mod zone;
