//! Places of a main request, which last as long as it does, whatever location it comes to.
//!
//! Each is the value of a variable that no configuration can name: unlike the contexts of modules,
//! variables survive internal redirects. A subrequest finds them by its main request: it may have variables of its
//! own, empty or copied, as Lua's `ngx.location.capture` makes them.

use core::cell::Cell;

use nginx_sys::{
    NGX_OK, ngx_http_request_t, ngx_int_t, ngx_str_t, ngx_uint_t, ngx_variable_value_t,
};

use super::conf::Conf;
use super::request::Request;

/// A place of a main request: empty when it begins.
pub(super) type RequestSlot<'r, T> = &'r Cell<Option<&'r T>>;

/// Adds a place to the requests of the configuration being read; returns its number. The name has a
/// blank, which none that a configuration can name has, and a NUL behind it. `None`: no memory.
pub(super) fn add(conf: &mut Conf<'_>, name: ngx_str_t) -> Option<ngx_uint_t> {
    conf.add_variable(name, 0)?.get_handler = Some(no_value);
    conf.variable(name.as_bytes())
}

/// nginx's callback for such a variable: it has no value.
unsafe extern "C" fn no_value(
    _request: *mut ngx_http_request_t,
    value: *mut ngx_variable_value_t,
    _data: usize,
) -> ngx_int_t {
    // SAFETY: nginx passes the value to be set.
    unsafe { (*value).set_not_found(1) };
    NGX_OK as ngx_int_t
}

impl<'r> Request<'r> {
    /// Returns the place of this number, of a main request.
    ///
    /// # Safety
    ///
    /// [`add`] returned the number, for the configuration that the request is served by; and the place
    /// is one of `T` for all users of it.
    #[inline]
    pub(super) unsafe fn slot<T>(&self, number: ngx_uint_t) -> RequestSlot<'r, T> {
        // SAFETY: the caller's promise. Values are zeroed when the request begins, which is `None`, and live as
        // long as its memory. A subrequest's own ones are zeroed too, or copied from those of another request with
        // the same memory.
        unsafe {
            let data = &raw mut (*self.variable(number)).data;
            &*data.cast::<Cell<Option<&'r T>>>()
        }
    }
}
