//! A call of the C interface: where its raw pointers stop, the configuration that it is about, and the
//! error that it ends with.

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};

use ngx::http::{HttpModule as _, HttpModuleMainConf as _};

use super::types::RawStr;
use crate::nginx::conf::{LibraryError, MainConf};
use crate::nginx::cycle;
use crate::nginx::cycle::Cycle;
use crate::nginx::event_loop::OfEventLoop;
use crate::nginx::guard::guard;
use crate::nginx::module::Module;

/// The configuration that was found last, once its zones are mapped, and the address of its cycle.
static KNOWN: OfEventLoop<Cell<(usize, Option<&'static MainConf>)>> =
    OfEventLoop(Cell::new((0, None)));

/// Calls `function` with the configuration that this process serves, or reads; writes the text of its
/// error to `error`, and returns its code.
///
/// # Safety
///
/// `error` is NULL, or a place of `size` bytes that nobody else uses meanwhile.
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
                // SAFETY: the caller's promise.
                tell(&reason, unsafe {
                    core::slice::from_raw_parts_mut(error.cast(), size.min(MAX_TEXT))
                });
            }
            reason.code()
        }
    }
}

/// The longest text of an error.
const MAX_TEXT: usize = 1024;

#[cold]
fn tell(reason: &LibraryError, place: &mut [u8]) {
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

/// The configuration of nginx's present cycle.
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
        // Where the next configuration is being read, and nginx's present cycle is still the last one.
        if cycle::is_master() {
            return Err(LibraryError::Phase(
                "the master serves nothing: expected a worker, or init_by_lua",
            ));
        }
        KNOWN.0.set((address, Some(main)));
    }
    Ok(main)
}

/// Whether nothing is served any more.
static HAS_ENDED: OfEventLoop<Cell<bool>> = OfEventLoop(Cell::new(false));

/// This process ends, and pushes nothing more.
pub(crate) fn end() {
    HAS_ENDED.0.set(true);
    forget_configuration();
}

/// Forgets the cached configuration, which may end when another one begins.
pub(super) fn forget_configuration() {
    KNOWN.0.set((0, None));
}

/// Returns the `len` bytes at `data`; none if it is NULL.
///
/// # Safety
///
/// `data` is NULL, or points to `len` bytes, which do not change during `'a`.
#[inline]
pub(super) unsafe fn bytes<'a>(data: *const c_void, len: usize) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise. Nothing is longer than `isize` tells, whatever a wrong length says.
    unsafe { core::slice::from_raw_parts(data.cast(), len.min(isize::MAX.unsigned_abs())) }
}

/// Returns the text of a structure.
///
/// # Safety
///
/// As of [`bytes`].
pub(super) unsafe fn text<'a>(raw: RawStr) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { bytes(raw.data, raw.len) }
}

/// Returns the `len` values at `data`, at most a thousand; none if it is NULL.
///
/// # Safety
///
/// `data` is NULL, or points to `len` values, which do not change during `'a`.
pub(super) unsafe fn list<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(data, len.min(1000)) }
}
