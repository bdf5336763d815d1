//! C functions that count hits, read this node's counters, and sync.

use core::ffi::{c_char, c_int, c_void};

use super::call::{bytes, call, tell, weight as weight_of};
use super::define::no_place;
use super::question::TellBroker;
use super::types::{Handle, OK, RawResult};
use crate::engine::functions::arguments::{self, ArgumentError};
use crate::engine::{AskedHits, Increment};
use crate::nginx::conf::{FoundNamespace, LibraryError, MainConf};
use crate::nginx::event_loop::NgxClock;
use crate::nginx::sync as syncs;
use crate::policy::namespace::SyncMode;

/// `increment`
///
/// # Safety
///
/// The arguments are as `ngx_rate_limiting.h` requires. This holds for each function of this file.
pub(super) unsafe extern "C" fn increment(
    found: Handle,
    key: *const c_void,
    key_len: usize,
    window_size: f64,
    value: f64,
    weight: f64,
    rate: *mut f64,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: by the contract in the header.
    let (key, rate) = unsafe { (bytes(key, key_len), rate.as_mut()) };
    let count = |main: &'static MainConf| {
        let rate = rate.ok_or_else(|| no_place("rate"))?;
        let increment = Increment::new(key, window_size, value, weight_of(weight))?;
        let AskedHits { key, cost, weight, .. } = increment.asked;
        let hits = main.library().with_found(found, |found| {
            if found.synchronous.is_some() {
                return Err(is_synchronous(&found.name, "increment_async"));
            }
            found.with_windows(increment.size, |it| it.increment(key, cost, weight, &NgxClock))
        })?;
        *rate = hits.to_f64();
        Ok(OK)
    };
    // SAFETY: by the contract in the header.
    unsafe { call(error, error_size, count) }
}

/// `sliding_window`
pub(super) unsafe extern "C" fn sliding_window(
    found: Handle,
    key: *const c_void,
    key_len: usize,
    window_size: f64,
    cur_diff: *const f64,
    weight: f64,
    rate: *mut f64,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: by the contract in the header.
    let (key, diff, rate) =
        unsafe { (bytes(key, key_len), cur_diff.as_ref().copied(), rate.as_mut()) };
    let read = |main: &'static MainConf| {
        let rate = rate.ok_or_else(|| no_place("rate"))?;
        let key = arguments::key(key)?;
        let size = arguments::window_size("window_size", window_size)?;
        let diff = diff.map(|it| arguments::difference("cur_diff", it)).transpose()?;
        let weight = arguments::weight(weight_of(weight))?;
        let hits = main.library().with_found(found, |found| {
            found.with_windows(size, |windows| windows.sliding_window(key, diff, weight, &NgxClock))
        })?;
        *rate = hits.to_f64();
        Ok(OK)
    };
    // SAFETY: by the contract in the header.
    unsafe { call(error, error_size, read) }
}

/// `sync`
pub(super) unsafe extern "C" fn sync(
    found: Handle,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    let sync = |main: &'static MainConf| {
        main.library().with_found(found, |found| {
            let code = sync_now(found)?;
            syncs::start_timer(&found.name);
            Ok(code)
        })
    };
    // SAFETY: by the contract in the header.
    unsafe { call(error, error_size, sync) }
}

/// `fetch`
pub(super) unsafe extern "C" fn fetch(
    found: Handle,
    time: f64,
    timeout: f64,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    let fetch = |main: &'static MainConf| {
        for (name, seconds) in [("time", time), ("timeout", timeout)] {
            if !(0.0..=1e12).contains(&seconds) {
                let expected = "seconds from 0 to 1000000000000";
                return Err(ArgumentError::new(name, expected, seconds).into());
            }
        }
        main.library().with_found(found, sync_now)
    };
    // SAFETY: by the contract in the header.
    unsafe { call(error, error_size, fetch) }
}

/// Syncs a namespace, if it has a store.
fn sync_now(found: &FoundNamespace) -> Result<c_int, LibraryError> {
    if found.sync == SyncMode::Local || syncs::sync_now(&found.name) {
        return Ok(OK);
    }
    Err(LibraryError::Phase("this process syncs nothing: expected a worker"))
}

/// `incoming`
pub(super) unsafe extern "C" fn incoming(
    limiter: Handle,
    key: *const c_void,
    key_len: usize,
    cost: f64,
    commit: c_int,
    result: *mut RawResult,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: by the contract in the header.
    let (key, result) = unsafe { (bytes(key, key_len), result.as_mut()) };
    let ask = |main: &'static MainConf| {
        let result = result.ok_or_else(|| no_place("result"))?;
        let asked = AskedHits::new(key, cost, commit != 0)?;
        let limiter = main.library().limiter(limiter)?;
        if limiter.synchronous.is_some() {
            let namespace = limiter.limiter.bound().namespace();
            return Err(is_synchronous(namespace, "incoming_async"));
        }
        let (incoming, committed) = limiter.limiter.incoming(asked, &NgxClock);
        // Of requests that are under way, this worker's are known by key.
        if !limiter.limiter.is_of_concurrency() {
            limiter.remember(committed);
        }
        Ok(tell(&incoming, result))
    };
    // SAFETY: by the contract in the header.
    unsafe { call(error, error_size, ask) }
}

/// `uncommit`
pub(super) unsafe extern "C" fn uncommit(
    limiter: Handle,
    key: *const c_void,
    key_len: usize,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: by the contract in the header.
    let key = unsafe { bytes(key, key_len) };
    let refund = |main: &'static MainConf| {
        let key = arguments::key(key)?;
        let limiter = main.library().limiter(limiter)?;
        if limiter.limiter.is_of_concurrency() {
            return match limiter.limiter.leaving(key, &NgxClock) {
                true => Ok(OK),
                false => Err(LibraryError::Unknown(
                    "this worker has no request of the key under way".into(),
                )),
            };
        }
        let committed = limiter.take_committed(key);
        match committed.is_some_and(|it| it.give_back(Some(&TellBroker))) {
            true => Ok(OK),
            false => Err(LibraryError::Unknown(
                "this worker has no hits of the key to give back: they were not committed of late, or \
                 their window has ended"
                    .into(),
            )),
        }
    };
    // SAFETY: by the contract in the header.
    unsafe { call(error, error_size, refund) }
}

#[cold]
fn is_synchronous(namespace: &str, function: &str) -> LibraryError {
    let expected = format!("one that does not ask its store, or \"{function}\"");
    ArgumentError::new("namespace", &expected, format_args!("\"{namespace}\"")).into()
}
