//! `ratelimit_api`: zones, namespaces and counters as JSON, and the live page for browsers.

pub(crate) mod awaited;
pub(crate) mod pages;

use core::time::Duration;

use nginx_sys::{
    NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_OK, ngx_http_core_loc_conf_t, ngx_http_request_t,
    ngx_int_t,
};
use ngx::http::{HttpModuleLocationConf as _, HttpModuleMainConf as _, NgxHttpCoreModule};

use crate::engine::api::{
    self, ApiCall, ApiError, Health, MEDIA_TYPE, Overview, OverviewCall, OverviewDetail, PAGE,
    PAGE_HEADERS, PAGE_TYPE, Sender, StoreCall,
};
use crate::nginx::conf::{Content, LocationConf, MainConf, Synchronous};
use crate::nginx::event_loop::{NgxClock, guard, measured};
use crate::nginx::http::respond::{self, refuse, with_json};
use crate::nginx::module::Module;
use crate::nginx::request::{Request, bytes};
use crate::nginx::sync;
use crate::policy::window::Clock as _;
use pages::Steps;

const SERVER_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;

/// nginx's callback for the content of a location.
pub(crate) unsafe extern "C" fn handle(request: *mut ngx_http_request_t) -> ngx_int_t {
    guard(SERVER_ERROR, || {
        // SAFETY: nginx passes a live request, and `respond_to` does not end it.
        unsafe { Request::with(request, respond_to) }
    })
}

/// The answer to a request.
enum ApiAnswer {
    /// The live page.
    Page,
    /// A status and a body.
    Body(u16, String),
    /// A body that may be long, written in steps.
    Steps(Steps),
    /// The answer follows a sync of this namespace, or the end of this time.
    Synced(&'static str, Duration),
    /// The answer needs the store's decision. A reset also syncs this namespace within this time.
    Asked(Box<StoreCall<'static, 'static>>, Synchronous, (&'static str, Duration)),
}

fn respond_to(request: &Request<'_>) -> ngx_int_t {
    let (Some(main), Some(location), Some(core)) = (
        Module::main_conf(request),
        Module::location_conf(request),
        NgxHttpCoreModule::location_conf(request),
    ) else {
        return SERVER_ERROR;
    };
    // Before anything is counted: a body that nginx refuses is an error.
    if let Err(status) = respond::discard_body(request) {
        return status;
    }
    let table = main.any_table();
    let answer = measured(table, || {
        let call = read(request, location, core).call()?;
        answer(main, &call)
    });
    match answer {
        Ok(ApiAnswer::Page) => with_page(request),
        Ok(ApiAnswer::Body(status, body)) => with_json(request, status, &body),
        Ok(ApiAnswer::Steps(steps)) => pages::answer(request, table, MEDIA_TYPE, steps),
        Ok(ApiAnswer::Synced(namespace, timeout)) => {
            awaited::answer_synced(request, namespace, timeout)
        }
        Ok(ApiAnswer::Asked(call, synchronous, sync)) => {
            awaited::answer_asked(request, call, synchronous, sync)
        }
        Err(error) => refuse(request, &error),
    }
}

/// Sends the live page, whose bytes are never copied. Returns the content handler's return value.
fn with_page(request: &Request<'_>) -> ngx_int_t {
    for (name, value) in &*PAGE_HEADERS {
        if respond::put(request, name, value.as_bytes()).is_none() {
            return SERVER_ERROR;
        }
    }
    respond::with_pieces(request, NGX_HTTP_OK as ngx_int_t, PAGE_TYPE, &PAGE)
}

/// Returns whether a location's name is a prefix of paths: an nginx without PCRE has no other ones.
#[cfg(ngx_feature = "pcre")]
fn is_prefix(core: &ngx_http_core_loc_conf_t) -> bool {
    core.regex.is_null()
}

#[cfg(not(ngx_feature = "pcre"))]
fn is_prefix(_: &ngx_http_core_loc_conf_t) -> bool {
    true
}

/// Reads nginx's request as a request to the API.
fn read<'r>(
    request: &Request<'r>,
    location: &LocationConf,
    core: &'static ngx_http_core_loc_conf_t,
) -> api::ApiRequest<'r> {
    let uri = request.uri();
    // SAFETY: a location's name lives as long as its configuration.
    let name: &[u8] = unsafe { bytes(&core.name) };
    // The name of a regular-expression location is not a prefix of the path. The API's part of the
    // path shows where it begins.
    let name = name.strip_suffix(b"/").unwrap_or(name);
    let start = if is_prefix(core) {
        if uri.starts_with(name) { name.len() } else { uri.len() }
    } else {
        start_of_call(uri)
    };
    let (prefix, path) = uri.split_at_checked(start).unwrap_or((uri, b""));
    let mut raw = request.unparsed_uri().split(|byte| b"?#".contains(byte));
    api::ApiRequest {
        method: request.method_name(),
        path,
        raw_path: raw.next().unwrap_or_default(),
        prefix,
        query: request.args(),
        accept: request.header("Accept"),
        may_write: location.content() == Some(Content::Api { may_write: true }),
        sender: Sender {
            host: request.host(),
            origin: request.header("Origin"),
            fetch_site: request.header("Sec-Fetch-Site"),
        },
    }
}

/// Returns the index in `uri` at which the API's part begins, without knowing the location's
/// prefix. Returns the length of `uri` if the API's part is empty.
fn start_of_call(uri: &[u8]) -> usize {
    const PART: &[u8] = b"/namespaces/";
    let start = uri.windows(PART.len()).position(|part| part == PART);
    start.unwrap_or_else(|| {
        let path = uri.strip_suffix(b"/").unwrap_or(uri);
        let ends = [&b"/namespaces"[..], b"/health"];
        let end = ends.into_iter().find_map(|end| path.strip_suffix(end));
        end.map_or(uri.len(), <[u8]>::len)
    })
}

fn answer(main: &'static MainConf, call: &ApiCall) -> Result<ApiAnswer, ApiError> {
    let counting_in = |name: &[u8]| main.counting_in(name).ok_or_else(api::no_namespace);
    let body = match call {
        ApiCall::Page => return Ok(ApiAnswer::Page),
        &ApiCall::Overview(OverviewCall { has_all, may_write }) => {
            let steps = pages::of_status(main.look(has_all), move |status| {
                let detail = OverviewDetail { now: NgxClock.now(), may_write };
                Overview::new(status, has_all.then_some(detail))
            });
            return Ok(ApiAnswer::Steps(steps));
        }
        ApiCall::Namespaces => {
            let steps = api::namespaces(main.namespace_names());
            return Ok(ApiAnswer::Steps(Box::new(steps)));
        }
        ApiCall::Rules(name) => {
            let rules = main.rules_of(name).ok_or_else(api::no_namespace)?;
            return Ok(ApiAnswer::Steps(Box::new(api::rules(rules))));
        }
        ApiCall::Explain(explain) => {
            let (namespace, _) = counting_in(&explain.namespace)?;
            let rules = main.rules_of(&explain.namespace).ok_or_else(api::no_namespace)?;
            let steps = api::explain(explain.clone(), namespace, rules, &NgxClock)?;
            return Ok(ApiAnswer::Steps(Box::new(steps)));
        }
        ApiCall::Health => {
            let Health { status, body } = api::health(&main.stores_that_are_down());
            return Ok(ApiAnswer::Body(status, body));
        }
        ApiCall::Namespace(name) => {
            let status = main.status_of(name).ok_or_else(api::no_namespace)?;
            api::namespace(&status)
        }
        ApiCall::Key(key) => {
            let (namespace, counting) = counting_in(&key.namespace)?;
            match StoreCall::new(call, namespace, &counting)? {
                Some(asked) => return of_store(main, asked, &key.namespace),
                None => api::key(key, namespace, &counting, &NgxClock)?,
            }
        }
        ApiCall::Reset(reset) => {
            let (namespace, counting) = counting_in(&reset.read.namespace)?;
            match StoreCall::new(call, namespace, &counting)? {
                Some(asked) => return of_store(main, asked, &reset.read.namespace),
                None => {
                    let body = api::reset(reset, namespace, &counting, &NgxClock)?;
                    if let Some((name, _)) = main.synced_of(&reset.read.namespace) {
                        // The answer does not wait for the push, which a slow store would delay.
                        sync::sync_now(name);
                    }
                    body
                }
            }
        }
        ApiCall::Counters(counters) => {
            let (namespace, counting) = counting_in(&counters.read.namespace)?;
            api::counters(counters, namespace, &counting, &NgxClock)?
        }
        ApiCall::Bans(name, limit) => {
            let (namespace, _) = counting_in(name)?;
            let rules = main.rules_of(name).ok_or_else(api::no_namespace)?;
            let steps = api::bans(namespace, *limit, rules, &NgxClock);
            return Ok(ApiAnswer::Steps(Box::new(steps)));
        }
        ApiCall::Lift(name, key) => {
            let (namespace, _) = counting_in(name)?;
            let rules = main.rules_of(name).ok_or_else(api::no_namespace)?;
            let body = api::lift(key, namespace, rules, &NgxClock)?;
            if let Some((name, _)) = main.synced_of(name) {
                sync::sync_now(name);
            }
            body
        }
        ApiCall::Top(name, limit) => {
            let (namespace, _) = counting_in(name)?;
            let rules = main.rules_of(name).ok_or_else(api::no_namespace)?;
            let steps = api::top(namespace, *limit, rules, &NgxClock);
            return Ok(ApiAnswer::Steps(Box::new(steps)));
        }
        ApiCall::Sync(name) => {
            counting_in(name)?;
            let (namespace, timeout) = main.synced_of(name).ok_or_else(api::no_store)?;
            return Ok(ApiAnswer::Synced(namespace, timeout));
        }
    };
    Ok(ApiAnswer::Body(200, body))
}

/// Answers a call that the store of namespace `name` decides.
fn of_store(
    main: &'static MainConf,
    asked: StoreCall<'static, 'static>,
    name: &[u8],
) -> Result<ApiAnswer, ApiError> {
    let how = main.synchronous_of(name).zip(main.synced_of(name));
    let (synchronous, sync) = how.ok_or_else(api::no_store)?;
    Ok(ApiAnswer::Asked(Box::new(asked), synchronous, sync))
}
