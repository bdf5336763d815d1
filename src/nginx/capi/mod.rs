//! The library's functions in C, for other modules of this nginx, and for Lua, as declared in
//! `src/api/ngx_rate_limiting.h`.
//!
//! - [`types`]: the declarations of the header; [`call`]: conversion of pointers, results and errors
//! - [`define`]: instances and namespaces; [`new_limiter`]: limiters
//! - [`count`]: counting and reading; [`question`]: questions to stores
//!
//! Each function converts its pointers to references once, and uses them only until it returns. It
//! keeps only `ready` and its `data`, until `ready` is called or the ticket is forgotten.

mod call;
mod count;
mod define;
mod new_limiter;
mod question;
mod types;

use core::hint::black_box;

use types::RawApi;

pub(super) use question::{fail_all, take_replies};

/// Table of functions, which callers find with dlsym.
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
    window: define::window,
};

pub(super) use call::end;

/// Starts the C interface with a new configuration.
pub(super) fn begin() {
    call::forget_configuration();
    // A reference, so that the linker does not drop the table from a static library.
    black_box(&raw const ngx_rate_limiting_api);
}
