//! nginx's error log. No line of ours can be forged: whatever a message quotes, be it of a client or
//! of a store, what is not printable in it is escaped here.

use core::fmt::{self, Display, Write as _};
use core::marker::PhantomData;

use nginx_sys::{NGX_LOG_DEBUG_HTTP, ngx_log_error_core, ngx_log_t, ngx_uint_t};

use crate::policy::printable::Printable;

/// A level of nginx's log: `NGX_LOG_EMERG` to `NGX_LOG_INFO`.
pub(super) type NgxLogLevel = u32;

/// A log of nginx's, which lives as long as `'l`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log<'l> {
    raw: *mut ngx_log_t,
    life: PhantomData<&'l ngx_log_t>,
}

impl Log<'_> {
    /// # Safety
    ///
    /// It is null, or a log that lives as long as is said.
    #[inline]
    pub(super) unsafe fn new(raw: *mut ngx_log_t) -> Self {
        let life = PhantomData;
        Log { raw, life }
    }

    /// For nginx's own structures, which must not live longer.
    pub(super) fn as_ptr(self) -> *mut ngx_log_t {
        self.raw
    }

    /// Returns the level of the lines that it takes; `None`: it takes none.
    #[inline]
    fn level(self) -> Option<ngx_uint_t> {
        // SAFETY: as `new` was promised.
        unsafe { self.raw.as_ref() }.map(|log| log.log_level)
    }
}

/// Bytes that fit into a line of nginx's, before which it writes more.
const MAX_LINE: usize = 2048;

/// Writes a line to `log` if it takes lines of this level.
pub(super) fn error(level: NgxLogLevel, log: Log<'_>, message: impl Display) {
    if log.level().is_some_and(|most| most >= level as ngx_uint_t) {
        write(level, log, message);
    }
}

/// Writes a line to `log` if it takes debugging lines of HTTP; costs a comparison otherwise.
#[inline]
pub(super) fn debug<M: Display>(log: Log<'_>, message: impl FnOnce() -> M) {
    // SAFETY: as `Log::new` was promised; only what is no request's may have no log.
    let taken = unsafe { (*log.raw).log_level };
    if taken & NGX_LOG_DEBUG_HTTP as ngx_uint_t != 0 {
        write(nginx_sys::NGX_LOG_DEBUG, log, message());
    }
}

#[cold]
fn write(level: NgxLogLevel, log: Log<'_>, message: impl Display) {
    let mut line = Line { bytes: [0; MAX_LINE], len: 0 };
    // It fails where the line is full: nginx cuts lines, too.
    let _ = write!(line, "{message}");
    // SAFETY: the format takes a length and so many bytes, and those are what it is given.
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

/// A message, as it is written to the log. It takes no memory that could be lacking.
struct Line {
    bytes: [u8; MAX_LINE],
    len: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write!(Ascii(self), "{}", Printable(text.as_bytes()))
    }
}

/// The end of a line, for what was escaped.
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
