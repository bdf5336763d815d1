//! The variables: what was decided, what the tightest limit said, and the client's network.

use core::fmt::{self, Write as _};
use core::net::{Ipv4Addr, Ipv6Addr};

use nginx_sys::{
    NGX_ERROR, NGX_HTTP_VAR_NOCACHEABLE, NGX_OK, ngx_conf_t, ngx_http_add_variable,
    ngx_http_request_t, ngx_int_t, ngx_str_t, ngx_uint_t, ngx_variable_value_t,
};
use ngx::ngx_string;

use super::super::guard::guard;
use super::context::{self, Context};
use super::headers::PoolText;
use crate::engine::Charge;
use crate::policy::headers;
use crate::table::Outcome;

type Request = *mut ngx_http_request_t;

/// A variable's name, which ends with a NUL, and its value for a request.
struct Variable(ngx_str_t, fn(Request) -> Result<Value, NoValue>);

/// It lives as long as the request.
type Value = &'static [u8];

/// Why there is none.
enum NoValue {
    /// It is empty.
    Empty,
    /// A variable without a value might be a key: the request fails.
    NoMemory,
}

// SAFETY: the pointers are to literals.
unsafe impl Sync for Variable {}

static VARIABLES: [Variable; 11] = [
    Variable(ngx_string!("ratelimit_status"), status),
    Variable(ngx_string!("ratelimit_namespace"), |request| {
        text(request, tightest(request)?.bound().namespace())
    }),
    Variable(ngx_string!("ratelimit_limit"), |request| {
        text(request, tightest(request)?.verdict().hits)
    }),
    Variable(ngx_string!("ratelimit_window"), |request| {
        seconds(request, tightest(request)?.verdict().limit.size.millis())
    }),
    Variable(ngx_string!("ratelimit_rate"), |request| {
        text(request, tightest(request)?.verdict().rate())
    }),
    Variable(ngx_string!("ratelimit_remaining"), |request| {
        text(request, tightest(request)?.verdict().remaining().whole())
    }),
    Variable(ngx_string!("ratelimit_reset"), |request| {
        let verdict = tightest(request)?.verdict();
        let reset = verdict.reset(verdict.remaining());
        seconds(request, reset.ok_or(NoValue::Empty)?)
    }),
    Variable(ngx_string!("ratelimit_retry_after"), |request| {
        let wait = tightest(request)?.verdict().retry_after();
        let wait = wait.ok_or(NoValue::Empty)?;
        let jitter = decision(request)?.jitter;
        seconds(request, wait.saturating_add(jitter))
    }),
    Variable(ngx_string!("ratelimit_policy"), |request| {
        let limit = tightest(request)?.verdict().limit;
        Ok(limit.name.as_bytes())
    }),
    Variable(ngx_string!("ratelimit_key"), |request| {
        Ok(decision(request)?.key_of(tightest(request)?))
    }),
    Variable(ngx_string!("ratelimit_net"), net),
];

/// Adds the variables to the configuration.
pub(in super::super) fn add(cf: *mut ngx_conf_t) -> ngx_int_t {
    for (index, Variable(name, _)) in VARIABLES.iter().enumerate() {
        let mut name = *name;
        // Not cacheable: they change when the request is decided on, and when realip has its turn.
        let flags = NGX_HTTP_VAR_NOCACHEABLE as ngx_uint_t;
        // SAFETY: nginx reads the configuration.
        let Some(variable) = (unsafe { ngx_http_add_variable(cf, &mut name, flags).as_mut() })
        else {
            return NGX_ERROR as ngx_int_t;
        };
        variable.get_handler = Some(get);
        variable.data = index;
    }
    NGX_OK as ngx_int_t
}

/// nginx's callback for a variable: `data` is its place in the table.
unsafe extern "C" fn get(
    request: Request,
    value: *mut ngx_variable_value_t,
    data: usize,
) -> ngx_int_t {
    guard(NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx passes the value to be set.
        let value = unsafe { &mut *value };
        let bytes = match VARIABLES.get(data).map(|Variable(_, of)| of(request)) {
            Some(Ok(bytes)) => bytes,
            Some(Err(NoValue::Empty)) | None => b"",
            Some(Err(NoValue::NoMemory)) => return NGX_ERROR as ngx_int_t,
        };
        value.set_len(bytes.len() as u32);
        value.set_valid(1);
        value.set_no_cacheable(0);
        value.set_not_found(0);
        value.data = bytes.as_ptr().cast_mut();
        NGX_OK as ngx_int_t
    })
}

/// Empty where no rule applied.
fn status(request: Request) -> Result<Value, NoValue> {
    let context = decision(request)?;
    if !context.is_accounted() && context.outcome != Outcome::Error {
        return Err(NoValue::Empty);
    }
    Ok(match context.outcome {
        Outcome::Passed => b"PASSED",
        Outcome::Rejected => b"REJECTED",
        Outcome::RejectedDryRun => b"REJECTED_DRY_RUN",
        Outcome::Error => b"ERROR",
    })
}

fn decision(request: Request) -> Result<&'static Context, NoValue> {
    context::of(request).ok_or(NoValue::Empty)
}

fn tightest(request: Request) -> Result<&'static Charge<'static, 'static>, NoValue> {
    decision(request)?.tightest().ok_or(NoValue::Empty)
}

/// The client's address, or the /64 that it is in, which is what one client has of IPv6. Nothing
/// for a Unix socket.
fn net(request: Request) -> Result<Value, NoValue> {
    // SAFETY: a request has a connection, which has the client's address (realip's, if it has
    // changed it): it is at least as long as its family says, and need not be aligned.
    unsafe {
        let address = (*(*request).connection).sockaddr;
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                let address = Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr));
                text(request, address)
            }
            libc::AF_INET6 => {
                let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                let address = Ipv6Addr::from(address.sin6_addr.s6_addr);
                if let Some(address) = address.to_ipv4_mapped() {
                    return text(request, address);
                }
                let net = Ipv6Addr::from_bits(address.to_bits() >> 64 << 64);
                text(request, format_args!("{net}/64"))
            }
            _ => Err(NoValue::Empty),
        }
    }
}

/// A value as text in the request's memory.
fn text(request: Request, value: impl fmt::Display) -> Result<Value, NoValue> {
    // The longest is the name of a namespace.
    let text = PoolText::new(request, crate::policy::namespace::MAX_NAME_LEN);
    let mut text = text.ok_or(NoValue::NoMemory)?;
    // What it takes has room.
    let _ = write!(text, "{value}");
    Ok(text.into_static())
}

/// A time as text, in seconds with up to three decimals.
fn seconds(request: Request, millis: u64) -> Result<Value, NoValue> {
    let mut text = PoolText::new(request, 24).ok_or(NoValue::NoMemory)?;
    headers::seconds(millis, &mut |part| text.put(part));
    Ok(text.into_static())
}
