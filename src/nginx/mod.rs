//! The shell: everything that talks to nginx, and the only part that reads a clock.
//!
//! - [`module`]: the modules as nginx sees them, and its calls at the turns of their life
//! - [`conf`]: directives, and the configuration they make
//! - [`zone`]: shared memory
//! - [`sync`]: synced namespaces, by a timer and a thread
//! - [`time`], [`random`], [`log`], [`guard`], [`hold`]: nginx's clock, random numbers, its log,
//!   panics, and how long nginx waits for us
//! - `http`: requests
//!
//! # Without memory
//!
//! What nginx allocates for a request (its context and keys, what it is suspended for, headers, bodies,
//! values of variables) is looked at: without it the request is answered with 500, or its connection is
//! closed where the response has begun. A line of the log takes none. What Rust allocates cannot be
//! looked at: `Vec`, `Box`, `Arc` and maps end the process if there is none, and nginx starts another
//! worker. Path 1 has none of it, unless a rule has `charge=` or a response several limits or `legacy`
//! headers; a synchronous request has some (its questions, and who waits), as have the API and the metrics
//! (their text), keys above 200 bytes (their digest), all that reads a configuration, and the thread that
//! syncs.

mod conf;
mod event_loop;
mod guard;
mod hold;
mod http;
mod log;
mod memory;
mod module;
mod random;
mod request;
mod sync;
mod time;
mod waiters;
mod zone;
