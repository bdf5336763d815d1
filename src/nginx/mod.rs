//! The shell: everything that talks to nginx, and the only part that reads a clock.
//!
//! - [`lifecycle`]: what nginx calls at the turns of the module's life; [`module`]: its number
//! - [`conf`]: directives, and the configuration they make
//! - [`zone`]: shared memory
//! - [`sync`]: synced namespaces, by a timer and a thread
//! - `http`: requests; [`capi`]: the library's functions for other modules, and for Lua
//! - [`request`], [`cycle`], [`conf::Conf`]: where raw pointers stop; [`memory`], [`slot`]: what a
//!   request keeps
//! - [`event_loop`]: nginx's event loop
//! - [`time`], [`random`], [`log`], [`guard`], [`hold`]: nginx's clock, random numbers, its log,
//!   panics, and how long nginx waits for us
//!
//! A callback makes a [`request::Request`], a [`cycle::Cycle`] or a [`conf::Conf`] of the pointer that
//! nginx passes, once, and says why it may. All others borrow it.
//!
//! # Without memory
//!
//! What nginx allocates for a request (its context and keys, what it is suspended for, headers, bodies,
//! values of variables) is looked at: without it the request is answered with 500, or its connection is
//! closed where the response has begun. A line of the log takes none. What Rust allocates cannot be
//! looked at: `Vec`, `Box`, `Arc` and maps end the process if there is none, and nginx starts another
//! worker. Path 1 has none of it, unless a rule has `charge=` or a response several limits or `legacy`
//! headers; a synchronous request has some (its questions, and the requests that wait), as have the API
//! and the metrics (their text), keys above 200 bytes (their digest), all that reads a configuration, and
//! the thread that syncs.

mod capi;
mod conf;
mod cycle;
mod event_loop;
mod guard;
mod hold;
mod http;
mod lifecycle;
mod log;
mod memory;
mod module;
mod random;
mod request;
mod slot;
mod sync;
mod time;
mod zone;
