//! `ratelimit_api`: zones, namespaces and counters, in JSON.

use nginx_sys::{
    NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_OK, ngx_http_core_loc_conf_t, ngx_http_request_t,
    ngx_int_t,
};
use ngx::http::{HttpModuleLocationConf as _, HttpModuleMainConf as _, NgxHttpCoreModule};

use super::super::conf::{Content, LocationConf, MainConf, bytes};
use super::super::guard::guard;
use super::super::hold::measured;
use super::super::module::Module;
use super::super::time::NgxClock;
use super::headers::put;
use super::{pages, respond};
use crate::engine::api::{self, ApiError, Call, MEDIA_TYPE, Overview, Request};

const SERVER_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;

/// nginx's callback for the content of a location.
pub(in super::super) unsafe extern "C" fn handle(request: *mut ngx_http_request_t) -> ngx_int_t {
    guard(SERVER_ERROR, || {
        // SAFETY: nginx passes a request that has not ended, with the configurations of its cycle
        // and of its location.
        let (main, location, core) = unsafe {
            (
                Module::main_conf(&*request),
                Module::location_conf(&*request),
                NgxHttpCoreModule::location_conf(&*request),
            )
        };
        let (Some(main), Some(location), Some(core)) = (main, location, core) else {
            return SERVER_ERROR;
        };
        let table = main.any_table();
        let answer = measured(table, || {
            let call = read(request, location, core).call()?;
            answer(main, &call)
        });
        match answer {
            Ok(Some(body)) => {
                let status = NGX_HTTP_OK as ngx_int_t;
                respond::with_body(request, status, MEDIA_TYPE, body.as_bytes())
            }
            Ok(None) => {
                let steps = pages::of_status(main.look(false), Overview::new);
                pages::answer(request, table, MEDIA_TYPE, steps)
            }
            Err(error) => refuse(request, &error),
        }
    })
}

/// The request, as the API reads it.
fn read(
    request: *mut ngx_http_request_t,
    location: &LocationConf,
    core: &ngx_http_core_loc_conf_t,
) -> Request<'static> {
    // SAFETY: nginx passes a request that has not ended; its strings, and the name of its location,
    // live as long.
    let (method, uri, unparsed, query, name) = unsafe {
        let request = &*request;
        (
            bytes(&request.method_name),
            bytes(&request.uri),
            bytes(&request.unparsed_uri),
            bytes(&request.args),
            bytes(&core.name),
        )
    };
    // The name of a location that is a regular expression is none that a path begins with: there,
    // the API's own part tells where it begins.
    let name = name.strip_suffix(b"/").unwrap_or(name);
    let start = if core.regex.is_null() {
        if uri.starts_with(name) {
            name.len()
        } else {
            uri.len()
        }
    } else {
        const PART: &[u8] = b"/namespaces/";
        let start = uri.windows(PART.len()).position(|part| part == PART);
        start.unwrap_or(uri.len())
    };
    let (prefix, path) = uri.split_at_checked(start).unwrap_or((uri, b""));
    let mut raw = unparsed.split(|byte| b"?#".contains(byte));
    Request {
        method,
        path,
        raw_path: raw.next().unwrap_or_default(),
        prefix,
        query,
        may_write: location.content == Some(Content::Api { may_write: true }),
    }
}

/// The body of the answer; `None`: that is an overview, which may be long.
fn answer(main: &MainConf, call: &Call) -> Result<Option<String>, ApiError> {
    let body = match call {
        Call::Overview => return Ok(None),
        Call::Namespace(name) => {
            let namespace = main.status_of(name);
            Ok(namespace.map(|(status, sizes)| api::namespace(&status, &sizes)))
        }
        Call::Key(call) => main
            .with_namespace(&call.namespace, |namespace, sizes, is_open| {
                api::key(call, namespace, sizes, is_open, &NgxClock)
            })
            .transpose(),
    };
    body?.map(Some).ok_or_else(api::no_namespace)
}

/// Answers what cannot be done.
fn refuse(request: *mut ngx_http_request_t, error: &ApiError) -> ngx_int_t {
    if let Some(allow) = error.allow {
        if put(request, "Allow", allow.as_bytes()).is_none() {
            return SERVER_ERROR;
        }
    }
    let body = error.to_json();
    respond::with_body(
        request,
        ngx_int_t::try_from(error.status).unwrap_or(SERVER_ERROR),
        MEDIA_TYPE,
        body.as_bytes(),
    )
}
