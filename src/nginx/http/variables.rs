//! The variables.

use nginx_sys::{
    NGX_ERROR, NGX_HTTP_VAR_NOCACHEABLE, NGX_OK, ngx_conf_t, ngx_http_add_variable,
    ngx_http_request_t, ngx_int_t, ngx_str_t, ngx_uint_t, ngx_variable_value_t,
};
use ngx::ngx_string;

use super::super::guard::guard;
use super::context;

/// Adds the variables to the configuration.
pub(in super::super) fn add(cf: *mut ngx_conf_t) -> ngx_int_t {
    let mut name: ngx_str_t = ngx_string!("ratelimit_status");
    // Not cacheable: it changes when the request is decided on.
    let flags = NGX_HTTP_VAR_NOCACHEABLE as ngx_uint_t;
    // SAFETY: nginx reads the configuration.
    match unsafe { ngx_http_add_variable(cf, &mut name, flags).as_mut() } {
        Some(variable) => {
            variable.get_handler = Some(status);
            NGX_OK as ngx_int_t
        }
        None => NGX_ERROR as ngx_int_t,
    }
}

/// `$ratelimit_status`: empty where no rule applied.
unsafe extern "C" fn status(
    request: *mut ngx_http_request_t,
    value: *mut ngx_variable_value_t,
    _data: usize,
) -> ngx_int_t {
    guard(NGX_ERROR as ngx_int_t, || {
        let status = match context::of(request) {
            Some(context) if context.charges.is_empty() => "",
            Some(context) if context.admitted => "PASSED",
            Some(_) => "REJECTED",
            None => "",
        };
        // SAFETY: nginx passes the value to be set.
        let value = unsafe { &mut *value };
        value.set_len(status.len() as u32);
        value.set_valid(1);
        value.set_no_cacheable(0);
        value.set_not_found(0);
        value.data = status.as_ptr().cast_mut();
        NGX_OK as ngx_int_t
    })
}
