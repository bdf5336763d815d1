//! The declarations of `src/api/ngx_rate_limiting.h` in Rust.

use core::ffi::{c_char, c_int, c_void};

/// `NGX_RATE_LIMITING_API_VERSION`
pub(super) const VERSION: u32 = 1;

/// Return values of the functions.
pub(super) const OK: c_int = 0;
pub(super) const REJECTED: c_int = 1;
pub(super) const WAIT: c_int = 2;

/// `NGX_RATE_LIMITING_SLIDING`
pub(super) const SLIDING: f64 = -1.0;

/// `ngx_rate_limiting_str_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawStr {
    pub(super) len: usize,
    pub(super) data: *const c_void,
}

/// `ngx_rate_limiting_options_t`
#[repr(C)]
pub(super) struct RawOptions {
    pub(super) size: usize,
    pub(super) name: RawStr,
    pub(super) dict: RawStr,
    pub(super) sync_rate: f64,
    pub(super) store: RawStr,
    pub(super) strategy: RawStr,
    pub(super) strategy_opts: *const RawStr,
    pub(super) strategy_opts_n: usize,
    pub(super) window_sizes: *const f64,
    pub(super) window_sizes_n: usize,
}

/// `ngx_rate_limiting_limit_t`
#[repr(C)]
pub(super) struct RawLimit {
    pub(super) size: usize,
    pub(super) name: RawStr,
    pub(super) limit: f64,
    pub(super) window: f64,
    pub(super) window_type: RawStr,
    pub(super) rate: f64,
    pub(super) burst: f64,
    /// Absent in the structure of callers that were compiled with an older header.
    pub(super) concurrent: f64,
}

/// `ngx_rate_limiting_result_t`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RawResult {
    pub(super) rate: f64,
    pub(super) remaining: f64,
    pub(super) delay: f64,
    pub(super) retry_after: f64,
}

/// `ngx_rate_limiting_ready_pt`
pub(super) type RawReady = Option<unsafe extern "C" fn(*mut c_void, c_int) -> c_int>;

/// `ngx_rate_limiting_wait_t`
#[repr(C)]
pub(super) struct RawWait {
    pub(super) ready: RawReady,
    pub(super) data: *mut c_void,
    pub(super) ticket: u64,
}

/// `ngx_rate_limiting_handle_t`
pub(super) type Handle = u32;

/// `ngx_rate_limiting_api_t`
#[repr(C)]
pub(super) struct RawApi {
    pub(super) version: u32,
    pub(super) size: u32,
    pub(super) new_instance:
        unsafe extern "C" fn(*const c_void, usize, *mut Handle, *mut c_char, usize) -> c_int,
    pub(super) new_namespace:
        unsafe extern "C" fn(Handle, *const RawOptions, *mut c_char, usize) -> c_int,
    pub(super) find: unsafe extern "C" fn(
        Handle,
        *const c_void,
        usize,
        *mut Handle,
        *mut c_char,
        usize,
    ) -> c_int,
    pub(super) increment: unsafe extern "C" fn(
        Handle,
        *const c_void,
        usize,
        f64,
        f64,
        f64,
        *mut f64,
        *mut c_char,
        usize,
    ) -> c_int,
    pub(super) sliding_window: unsafe extern "C" fn(
        Handle,
        *const c_void,
        usize,
        f64,
        *const f64,
        f64,
        *mut f64,
        *mut c_char,
        usize,
    ) -> c_int,
    pub(super) sync: unsafe extern "C" fn(Handle, *mut c_char, usize) -> c_int,
    pub(super) fetch: unsafe extern "C" fn(Handle, f64, f64, *mut c_char, usize) -> c_int,
    pub(super) new_limiter:
        unsafe extern "C" fn(Handle, *const RawLimit, *mut Handle, *mut c_char, usize) -> c_int,
    pub(super) incoming: unsafe extern "C" fn(
        Handle,
        *const c_void,
        usize,
        f64,
        c_int,
        *mut RawResult,
        *mut c_char,
        usize,
    ) -> c_int,
    pub(super) uncommit:
        unsafe extern "C" fn(Handle, *const c_void, usize, *mut c_char, usize) -> c_int,
    pub(super) increment_async: unsafe extern "C" fn(
        Handle,
        *const c_void,
        usize,
        f64,
        f64,
        f64,
        *mut RawWait,
        *mut RawResult,
        *mut c_char,
        usize,
    ) -> c_int,
    pub(super) incoming_async: unsafe extern "C" fn(
        Handle,
        *const c_void,
        usize,
        f64,
        c_int,
        *mut RawWait,
        *mut RawResult,
        *mut c_char,
        usize,
    ) -> c_int,
    pub(super) take: unsafe extern "C" fn(u64, *mut RawResult, *mut c_char, usize) -> c_int,
    pub(super) forget: unsafe extern "C" fn(u64),
    pub(super) window:
        unsafe extern "C" fn(*const c_void, usize, *mut f64, *mut c_char, usize) -> c_int,
}
