//! Values that are stored with a main request for its whole life, across all its locations. A file
//! of its own, since it needs both requests and configurations, which need requests.
//!
//! Each is the value of a variable that no configuration can name: unlike the contexts of modules,
//! variables survive internal redirects. A subrequest finds the value by its main request, because
//! its own variables may be empty or copied, as in Lua's `ngx.location.capture`.

use core::cell::Cell;

use nginx_sys::{
    NGX_OK, ngx_http_request_t, ngx_int_t, ngx_str_t, ngx_uint_t, ngx_variable_value_t,
};

use super::conf::Conf;
use super::request::Request;

/// The place of such a value. It is empty when the request begins.
pub(super) type RequestSlot<'r, T> = &'r Cell<Option<&'r T>>;

/// Adds a place to each request of the configuration being read. Returns its number; `None` without
/// memory. The name contains a space, so that no configuration can name the variable, and ends with
/// a NUL.
pub(super) fn add(conf: &mut Conf<'_>, name: ngx_str_t) -> Option<ngx_uint_t> {
    conf.add_variable(name, 0)?.get_handler = Some(no_value);
    conf.variable(name.as_bytes())
}

/// nginx's callback for such a variable, which has no value in configurations.
unsafe extern "C" fn no_value(
    _request: *mut ngx_http_request_t,
    value: *mut ngx_variable_value_t,
    _data: usize,
) -> ngx_int_t {
    // SAFETY: nginx passes the value to set.
    unsafe { (*value).set_not_found(1) };
    NGX_OK as ngx_int_t
}

impl<'r> Request<'r> {
    /// Returns the place with this number.
    ///
    /// # Safety
    ///
    /// [`add`] returned `number` for the configuration that serves this main request, and all users
    /// of the place use it with the same `T`.
    #[inline]
    pub(super) unsafe fn slot<T>(&self, number: ngx_uint_t) -> RequestSlot<'r, T> {
        // SAFETY: by the caller's contract. Values are zeroed when the request begins, which is
        // `None`, and live as long as the pool. A subrequest's own values are zeroed too, or copied
        // from a request that shares the pool.
        unsafe {
            let data = &raw mut (*self.variable(number)).data;
            &*data.cast::<Cell<Option<&'r T>>>()
        }
    }
}
