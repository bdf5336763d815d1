//! `ratelimit_metrics`: this node's metrics for Prometheus.

use nginx_sys::{
    NGX_HTTP_GET, NGX_HTTP_HEAD, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_NOT_ALLOWED,
    ngx_http_request_t, ngx_int_t, ngx_uint_t,
};
use ngx::http::HttpModuleMainConf as _;

use super::pages;
use crate::engine::report::prometheus::{MEDIA_TYPE, Page};
use crate::nginx::guard::guard;
use crate::nginx::http::respond::put;
use crate::nginx::module::Module;
use crate::nginx::request::Request;

const SERVER_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;

/// nginx's callback for the content of a location.
pub(crate) unsafe extern "C" fn handle(request: *mut ngx_http_request_t) -> ngx_int_t {
    guard(SERVER_ERROR, || {
        // SAFETY: nginx passes a live request, and `answer` does not end it.
        unsafe { Request::with(request, answer) }
    })
}

fn answer(request: &Request<'_>) -> ngx_int_t {
    if request.method() & (NGX_HTTP_GET | NGX_HTTP_HEAD) as ngx_uint_t == 0 {
        return match put(request, "Allow", b"GET, HEAD") {
            Some(()) => NGX_HTTP_NOT_ALLOWED as ngx_int_t,
            None => SERVER_ERROR,
        };
    }
    let Some(conf) = Module::main_conf(request) else {
        return SERVER_ERROR;
    };
    let steps = pages::of_status(conf.look(true), Page::new);
    pages::answer(request, conf.any_table(), MEDIA_TYPE, steps)
}
