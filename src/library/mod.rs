//! The rate-limiting library, for any Rust program: its functions, their arguments and defaults.
//!
//! An [`Instance`] has namespaces. Each counts in a [`Memory`], which belongs to this process or is
//! shared with other processes of the machine. A namespace may be synced with a [`Datastore`],
//! which nodes share.
//!
//! ```
//! use std::time::Duration;
//! use ngx_http_rate_limiting_module::library::{Memory, NewOptions, new_instance};
//!
//! let minute = Duration::from_secs(60);
//! let ratelimiting = new_instance("shop")?;
//! ratelimiting.new(&NewOptions::new(&Memory::heap(1 << 20)?).window_sizes([minute]))?;
//!
//! let rate = ratelimiting.increment("203.0.113.9", minute, 1.0, None, None)?;
//! assert!(rate <= 10.0, "too many requests");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The specification's functions
//!
//! | specification | here |
//! |---|---|
//! | `new_instance(name)` | [`new_instance`] |
//! | `new{ dict, sync_rate, strategy, strategy_opts, namespace, window_sizes }` | [`Instance::new`] with [`NewOptions`] |
//! | `increment(key, window_size, value, namespace?, weight?)` | [`Instance::increment`] |
//! | `sliding_window(key, window_size, cur_diff?, namespace?, weight?)` | [`Instance::sliding_window`] |
//! | `sync(premature, namespace?)` | [`Instance::sync`] |
//! | `fetch(premature, namespace, time, timeout?)` | [`Instance::fetch`] |
//! | `limiter{ namespace, limit, window, window_type, rate, burst }` | [`Instance::limiter`] with [`LimiterOptions`] |
//!
//! Arguments have the specification's order and meaning, with these types:
//!
//! - times are a [`Duration`](core::time::Duration), to the millisecond, where the specification has
//!   seconds with decimals; `time` is a [`SystemTime`](std::time::SystemTime);
//! - windows of the calendar are a time that [`calendar_window`] returns;
//! - hits are an `f64`, counted in thousandths;
//! - optional arguments are an [`Option`]; the default namespace is [`DEFAULT_NAMESPACE`];
//! - `weight` is the share of the previous window that counts: without it or with 1, the window
//!   slides; with 0, it is fixed;
//! - `sync_rate` is a time; leave it out instead of a negative number;
//! - `premature` is missing: only nginx's timers pass it.
//!
//! Invalid arguments are errors that name the argument; no function panics.
//!
//! # Waiting
//!
//! [`Instance::sync`] and [`Instance::fetch`] wait; with a `sync_rate` of zero,
//! [`Instance::increment`] and [`RateLimiter::incoming`] wait, too. Each has an `_async` variant,
//! whose future any executor can run. A thread of the instance exchanges with stores. It starts
//! with the first namespace that has a store.
#![forbid(unsafe_code)]

mod asking;
mod datastore;
mod definition;
mod error;
mod instance;
mod limiter;
mod memory;
mod options;
pub mod store;
mod store_tasks;
mod store_thread;
#[cfg(test)]
mod tests;

pub use self::datastore::Datastore;
pub use self::error::{CallError, NewError};
pub use self::instance::{Instance, new_instance};
pub use self::limiter::{Decision, LimiterOptions, RateLimiter, WindowType};
pub use self::memory::Memory;
pub use self::options::{NewOptions, calendar_window};
pub use crate::engine::functions::arguments::ArgumentError;
pub use crate::engine::{RateLimitingError, Report, SyncError};
pub use crate::policy::namespace::{DEFAULT_NAMESPACE, OnError};
pub use crate::policy::options::OptionError;
pub use crate::table::MemoryError;
