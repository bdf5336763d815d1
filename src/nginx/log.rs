//! nginx's error log. Messages may quote clients and stores, so non-printable bytes are escaped
//! here: nobody can forge a log line.

use core::fmt::{self, Display, Write as _};
use core::marker::PhantomData;

use nginx_sys::{NGX_LOG_DEBUG_HTTP, ngx_log_error_core, ngx_log_t, ngx_uint_t};

use crate::policy::printable::Printable;

/// A level of nginx's log, from `NGX_LOG_EMERG` to `NGX_LOG_INFO`.
pub(super) type NgxLogLevel = u32;

/// A log of nginx that lives as long as `'l`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log<'l> {
    raw: *mut ngx_log_t,
    life: PhantomData<&'l ngx_log_t>,
}

impl Log<'_> {
    /// # Safety
    ///
    /// `raw` is null, or points to a log that lives as long as `'l`.
    #[inline]
    pub(super) unsafe fn new(raw: *mut ngx_log_t) -> Self {
        let life = PhantomData;
        Log { raw, life }
    }

    /// Returns the pointer for nginx's structures, which must not outlive the log.
    pub(super) fn as_ptr(self) -> *mut ngx_log_t {
        self.raw
    }

    /// Returns the level of the log; `None` without a log.
    #[inline]
    fn level(self) -> Option<ngx_uint_t> {
        // SAFETY: by the contract of `new`.
        unsafe { self.raw.as_ref() }.map(|log| log.log_level)
    }
}

/// Longest message, in bytes. nginx cuts its lines, which also have a prefix, at the same length.
const MAX_LINE: usize = 2048;

/// Returns whether lines of this level are written to `log`.
pub(super) fn has(level: NgxLogLevel, log: Log<'_>) -> bool {
    log.level().is_some_and(|most| most >= level as ngx_uint_t)
}

/// Writes a line to `log` if its level includes `level`.
pub(super) fn error(level: NgxLogLevel, log: Log<'_>, message: impl Display) {
    if has(level, log) {
        write(level, log, message);
    }
}

/// Writes a line to `log` if it includes debug lines of HTTP. Otherwise costs one comparison.
#[inline]
pub(super) fn debug<M: Display>(log: Log<'_>, message: impl FnOnce() -> M) {
    // SAFETY: by the contract of `Log::new`; the log of a request is never null.
    let taken = unsafe { (*log.raw).log_level };
    if taken & NGX_LOG_DEBUG_HTTP as ngx_uint_t != 0 {
        write(nginx_sys::NGX_LOG_DEBUG, log, message());
    }
}

#[cold]
fn write(level: NgxLogLevel, log: Log<'_>, message: impl Display) {
    let mut line = Line { bytes: [0; MAX_LINE], len: 0 };
    // Fails if the line is full; then the message is cut, as nginx does.
    let _ = write!(line, "{message}");
    // SAFETY: the format takes a length and a pointer to that many bytes, and gets those of the
    // line.
    unsafe {
        ngx_log_error_core(
            level as ngx_uint_t,
            log.raw,
            0,
            c"%*s".as_ptr(),
            line.len,
            line.bytes.as_ptr(),
        );
    }
}

/// A message for the log. It is on the stack, so that logging needs no memory.
struct Line {
    bytes: [u8; MAX_LINE],
    len: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write!(Ascii(self), "{}", Printable(text.as_bytes()))
    }
}

/// Writes escaped text to the end of a line.
struct Ascii<'l>(&'l mut Line);

impl fmt::Write for Ascii<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let Line { bytes, len } = self.0;
        let room = bytes.get_mut(*len..).unwrap_or_default();
        let fits = text.len().min(room.len());
        let (text, rest) = text.as_bytes().split_at_checked(fits).unwrap_or_default();
        if let Some(room) = room.get_mut(..fits) {
            room.copy_from_slice(text);
            *len = len.saturating_add(fits);
        }
        if rest.is_empty() { Ok(()) } else { Err(fmt::Error) }
    }
}
