//! nginx's error log.

use core::fmt::Display;

use nginx_sys::{
    NGX_LOG_DEBUG_HTTP, ngx_conf_log_error, ngx_conf_t, ngx_log_error_core, ngx_log_t, ngx_uint_t,
};

/// A level of nginx's log: `NGX_LOG_EMERG` to `NGX_LOG_INFO`.
pub(super) type Level = u32;

/// The level of lines that no log takes.
pub(super) const OFF: Level = Level::MAX;

/// Writes a line to `log` if it takes lines of this level.
pub(super) fn error(level: Level, log: *mut ngx_log_t, message: impl Display) {
    // SAFETY: nginx's logs live as long as what they belong to, which is the caller's.
    if log.is_null() || unsafe { (*log).log_level } < level as ngx_uint_t {
        return;
    }
    write(level, log, message);
}

/// Writes a line to `log` if it takes debugging lines of HTTP; costs a comparison otherwise.
#[inline]
pub(super) fn debug<M: Display>(log: *mut ngx_log_t, message: impl FnOnce() -> M) {
    // SAFETY: as in `error`.
    if unsafe { (*log).log_level } & NGX_LOG_DEBUG_HTTP as ngx_uint_t != 0 {
        write(nginx_sys::NGX_LOG_DEBUG, log, message());
    }
}

#[cold]
fn write(level: Level, log: *mut ngx_log_t, message: impl Display) {
    let message = message.to_string();
    // SAFETY: the format takes a length and so many bytes, and those are what it is given.
    unsafe {
        ngx_log_error_core(
            level as ngx_uint_t,
            log,
            0,
            c"%*s".as_ptr(),
            message.len(),
            message.as_ptr(),
        );
    }
}

/// Writes a line that ends with the file and line of the directive being read.
pub(super) fn conf_error(level: Level, cf: *mut ngx_conf_t, message: impl Display) {
    let message = message.to_string();
    // SAFETY: `cf` is nginx's while it reads a directive; the format is as above.
    unsafe {
        ngx_conf_log_error(
            level as ngx_uint_t,
            cf,
            0,
            c"%*s".as_ptr(),
            message.len(),
            message.as_ptr(),
        );
    }
}
