//! The library's functions in C, for other modules in this nginx, and for Lua: what
//! `src/api/ngx_rate_limiting.h` declares.
//!
//! - [`types`]: what the header declares; [`call`]: where raw pointers stop, and errors
//! - [`define`]: instances and namespaces; [`new_limiter`]: limiters
//! - [`count`]: what counts, and reads
//! - [`question`]: what a store is asked; [`answer`]: what is said of hits
//!
//! Each function makes references of the pointers that it is passed, once. What it is passed is used
//! until it returns; only `ready` and its `data` are kept, until they are called or forgotten.

mod answer;
mod call;
mod count;
mod define;
mod new_limiter;
mod question;
mod types;

use core::hint::black_box;

use types::RawApi;

pub(super) use question::{fail_all, take_replies};

/// Table of functions that dlsym finds.
#[unsafe(no_mangle)]
static ngx_rate_limiting_api: RawApi = RawApi {
    version: types::VERSION,
    size: size_of::<RawApi>() as u32,
    new_instance: define::new_instance,
    new_namespace: define::new_namespace,
    find: define::find,
    increment: count::increment,
    sliding_window: count::sliding_window,
    sync: count::sync,
    fetch: count::fetch,
    new_limiter: new_limiter::new_limiter,
    incoming: count::incoming,
    uncommit: count::uncommit,
    increment_async: question::increment_async,
    incoming_async: question::incoming_async,
    take: question::take,
    forget: question::forget,
};

pub(super) use call::end;

/// A configuration begins.
pub(super) fn begin() {
    call::forget_configuration();
    // A linker takes from a static library what something refers to.
    black_box(&raw const ngx_rate_limiting_api);
}
