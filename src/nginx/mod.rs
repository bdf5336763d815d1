//! The shell: everything that talks to nginx, and the only part that reads a clock.
//!
//! - [`module`]: the modules as nginx sees them, and its calls at the turns of their life
//! - [`conf`]: directives, and the configuration they make
//! - [`zone`]: shared memory
//! - [`sync`]: synced namespaces, by a timer and a thread
//! - [`time`], [`random`], [`log`], [`guard`], [`hold`]: nginx's clock, random numbers, its log,
//!   panics, and how long nginx waits for us
//! - `http`: requests

mod conf;
mod guard;
mod hold;
mod http;
mod log;
mod module;
mod random;
mod sync;
mod time;
mod zone;
