//! The entry of each C function: converts raw pointers, finds the configuration, and reports
//! errors.

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};

use ngx::http::{HttpModule as _, HttpModuleMainConf as _};

use super::types::{OK, REJECTED, RawResult, RawStr, SLIDING};
use crate::engine::Incoming;
use crate::nginx::conf::{LibraryError, MainConf};
use crate::nginx::cycle;
use crate::nginx::cycle::Cycle;
use crate::nginx::event_loop::{OfEventLoop, guard};
use crate::nginx::module::Module;

/// The address of the cycle of the last call, and its configuration, once its zones are mapped.
static KNOWN: OfEventLoop<Cell<(usize, Option<&'static MainConf>)>> =
    OfEventLoop(Cell::new((0, None)));

/// Calls `function` with the configuration that this process serves or reads. Returns its code, and
/// writes the text of its error to `error`.
///
/// # Safety
///
/// `error` is NULL, or points to `size` writable bytes that nothing else uses during the call.
#[inline]
pub(super) unsafe fn call(
    error: *mut c_char,
    size: usize,
    function: impl FnOnce(&'static MainConf) -> Result<c_int, LibraryError>,
) -> c_int {
    let result = guard(Err(LibraryError::Fault), || function(configuration()?));
    match result {
        Ok(code) => code,
        Err(reason) => {
            if !error.is_null() {
                // SAFETY: by the caller's contract.
                write_error(&reason, unsafe {
                    core::slice::from_raw_parts_mut(error.cast(), size.min(MAX_TEXT))
                });
            }
            reason.code()
        }
    }
}

/// The longest text of an error, in bytes.
const MAX_TEXT: usize = 1024;

#[cold]
fn write_error(reason: &LibraryError, place: &mut [u8]) {
    let text = reason.to_string();
    let Some((last, room)) = place.split_last_mut() else {
        return;
    };
    *last = 0;
    let ends = text.bytes().chain([0]);
    for (place, byte) in room.iter_mut().zip(ends) {
        *place = byte;
    }
}

/// Returns the configuration of nginx's current cycle.
#[inline]
fn configuration() -> Result<&'static MainConf, LibraryError> {
    let cycle = cycle::current_address();
    match KNOWN.0.get() {
        (known, Some(main)) if known == cycle => Ok(main),
        _ => find_configuration(cycle),
    }
}

#[cold]
fn find_configuration(address: usize) -> Result<&'static MainConf, LibraryError> {
    if HAS_ENDED.0.get() {
        return Err(LibraryError::Phase("this process has ended its work"));
    }
    let main = Cycle::with_current(|cycle| match cycle.has(Module::module()) {
        true => Module::main_conf(cycle),
        false => None,
    });
    let main = main.ok_or(LibraryError::TooEarly)?;
    if main.is_attached() {
        // The master process may be reading the next configuration while the current cycle is still
        // the old one.
        if cycle::is_master() {
            return Err(LibraryError::Phase(
                "the master serves nothing: expected a worker, or init_by_lua",
            ));
        }
        KNOWN.0.set((address, Some(main)));
    }
    Ok(main)
}

/// Whether this process has ended its service.
static HAS_ENDED: OfEventLoop<Cell<bool>> = OfEventLoop(Cell::new(false));

/// Marks that this process ends and pushes no more hits.
pub(crate) fn end() {
    HAS_ENDED.0.set(true);
    forget_configuration();
}

/// Clears the cached configuration, which may be freed when another one begins.
pub(super) fn forget_configuration() {
    KNOWN.0.set((0, None));
}

/// Returns the `len` bytes at `data`; an empty slice if it is NULL.
///
/// # Safety
///
/// `data` is NULL, or points to `len` bytes that do not change during `'a`.
#[inline]
pub(super) unsafe fn bytes<'a>(data: *const c_void, len: usize) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: by the caller's contract. The length of a slice must not exceed `isize::MAX`.
    unsafe { core::slice::from_raw_parts(data.cast(), len.min(isize::MAX.unsigned_abs())) }
}

/// Returns the bytes of a string.
///
/// # Safety
///
/// See [`bytes`].
pub(super) unsafe fn text<'a>(raw: RawStr) -> &'a [u8] {
    // SAFETY: by the caller's contract.
    unsafe { bytes(raw.data, raw.len) }
}

/// Returns the `len` values at `data`, at most 1000; an empty slice if it is NULL.
///
/// # Safety
///
/// `data` is NULL, or points to `len` values that do not change during `'a`.
pub(super) unsafe fn list<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: by the caller's contract.
    unsafe { core::slice::from_raw_parts(data, len.min(1000)) }
}

/// Writes a limiter's answer to `result`. Returns its code.
pub(super) fn tell(incoming: &Incoming, result: &mut RawResult) -> c_int {
    let seconds = |millis: u64| millis as f64 / 1000.0;
    *result = RawResult {
        rate: incoming.rate.to_f64(),
        remaining: incoming.remaining.to_f64(),
        delay: seconds(incoming.delay),
        retry_after: incoming.retry_after.map_or(-1.0, seconds),
    };
    match incoming.is_admitted {
        true => OK,
        false => REJECTED,
    }
}

/// Converts a weight: `NGX_RATE_LIMITING_SLIDING` stands for a sliding window's own weight.
#[inline]
pub(super) fn weight(given: f64) -> Option<f64> {
    (given != SLIDING).then_some(given)
}
