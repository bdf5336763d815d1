//! Variables: the outcome, the tightest limit's values, and the client's network.

use core::fmt::{self, Write as _};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nginx_sys::{
    NGX_ERROR, NGX_HTTP_VAR_NOCACHEABLE, NGX_OK, ngx_http_request_t, ngx_int_t, ngx_str_t,
    ngx_uint_t, ngx_variable_value_t,
};
use ngx::ngx_string;

use super::context::{self, Context};
use crate::engine::Charge;
use crate::nginx::conf::Conf;
use crate::nginx::event_loop::guard;
use crate::nginx::memory::PoolText;
use crate::nginx::request::Request;
use crate::policy::headers;
use crate::table::Outcome;

/// A variable's NUL-terminated name, and the function that returns its value for a request.
struct OwnVariable(ngx_str_t, for<'r> fn(&Request<'r>) -> Value<'r>);

type Value<'r> = Result<&'r [u8], NoValue>;

/// The reason why a variable has no value.
enum NoValue {
    /// No rule applied.
    NotFound,
    /// The value is empty.
    Empty,
    /// No memory. The request fails, since the variable may be the key of a rule.
    NoMemory,
}

// SAFETY: the pointers are to literals.
unsafe impl Sync for OwnVariable {}

static VARIABLES: [OwnVariable; 12] = [
    OwnVariable(ngx_string!("ratelimit_status"), status),
    OwnVariable(ngx_string!("ratelimit_namespace"), |request| {
        text(request, tightest(request)?.bound().namespace())
    }),
    OwnVariable(ngx_string!("ratelimit_limit"), |request| {
        text(request, tightest(request)?.verdict().hits)
    }),
    OwnVariable(ngx_string!("ratelimit_window"), |request| {
        let verdict = tightest(request)?.verdict();
        if let Some((unit, _)) = verdict.limit.told_size().calendar() {
            return Ok(unit.name().as_bytes());
        }
        let window = verdict.window();
        seconds(request, window.ok_or(NoValue::Empty)?)
    }),
    OwnVariable(ngx_string!("ratelimit_rate"), |request| {
        text(request, tightest(request)?.verdict().rate())
    }),
    OwnVariable(ngx_string!("ratelimit_remaining"), |request| {
        text(request, tightest(request)?.verdict().remaining().whole())
    }),
    OwnVariable(ngx_string!("ratelimit_reset"), |request| {
        let verdict = tightest(request)?.verdict();
        let reset = verdict.reset(verdict.remaining());
        seconds(request, reset.ok_or(NoValue::Empty)?)
    }),
    OwnVariable(ngx_string!("ratelimit_retry_after"), |request| {
        let wait = tightest(request)?.verdict().retry_after();
        let wait = wait.ok_or(NoValue::Empty)?;
        let added = decision(request)?.added_wait.get();
        seconds(request, wait.saturating_add(added))
    }),
    OwnVariable(ngx_string!("ratelimit_policy"), |request| {
        let limit = tightest(request)?.verdict().limit;
        Ok(limit.name.as_bytes())
    }),
    OwnVariable(ngx_string!("ratelimit_key"), |request| {
        Ok(decision(request)?.key_of(tightest(request)?))
    }),
    OwnVariable(ngx_string!("ratelimit_rule"), |request| {
        let place = decision(request)?.place_of(tightest(request)?);
        Ok(place.ok_or(NoValue::Empty)?.as_bytes())
    }),
    OwnVariable(ngx_string!("ratelimit_net"), net),
];

/// Adds the variables to the configuration. `None` without memory, which nginx has logged.
pub(crate) fn add(conf: &mut Conf<'_>) -> Option<()> {
    for (index, OwnVariable(name, _)) in VARIABLES.iter().enumerate() {
        // Not cacheable: the decision changes the values, and so does the realip module.
        let flags = NGX_HTTP_VAR_NOCACHEABLE as ngx_uint_t;
        let variable = conf.add_variable(*name, flags)?;
        variable.get_handler = Some(get);
        variable.data = index;
    }
    Some(())
}

/// nginx's callback for a variable. `data` is the variable's index in `VARIABLES`.
unsafe extern "C" fn get(
    request: *mut ngx_http_request_t,
    value: *mut ngx_variable_value_t,
    data: usize,
) -> ngx_int_t {
    guard(NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx passes the value to set.
        let value = unsafe { &mut *value };
        // SAFETY: nginx passes a live request, and `set` does not end it.
        let set = unsafe { Request::with(request, |request| set(request, value, data)) };
        set.map_or(NGX_ERROR as ngx_int_t, |()| NGX_OK as ngx_int_t)
    })
}

/// Sets a variable's value for a request. `None` without memory.
fn set(request: &Request<'_>, value: &mut ngx_variable_value_t, variable: usize) -> Option<()> {
    let OwnVariable(_, value_of) = VARIABLES.get(variable)?;
    let (bytes, is_found): (&[u8], _) = match value_of(request) {
        Ok(bytes) => (bytes, true),
        Err(NoValue::Empty) => (b"", true),
        Err(NoValue::NotFound) => (b"", false),
        Err(NoValue::NoMemory) => return None,
    };
    value.set_len(bytes.len() as u32);
    value.set_valid(is_found.into());
    value.set_no_cacheable(0);
    value.set_not_found((!is_found).into());
    value.data = bytes.as_ptr().cast_mut();
    Some(())
}

/// Returns the outcome's name.
fn status<'r>(request: &Request<'r>) -> Value<'r> {
    let context = decision(request)?;
    if !context.is_accounted() && context.outcome != Outcome::Error {
        return Err(NoValue::NotFound);
    }
    Ok(match context.outcome {
        Outcome::Passed => match context.delay() {
            None => b"PASSED",
            Some(delay) if delay.is_dry_run => b"DELAYED_DRY_RUN",
            Some(_) => b"DELAYED",
        },
        Outcome::Rejected => b"REJECTED",
        Outcome::RejectedDryRun => b"REJECTED_DRY_RUN",
        Outcome::Error => b"ERROR",
    })
}

fn decision<'r>(request: &Request<'r>) -> Result<&'r Context<'r>, NoValue> {
    context::of(request).ok_or(NoValue::NotFound)
}

fn tightest<'r>(request: &Request<'r>) -> Result<&'r Charge<'r, 'static>, NoValue> {
    decision(request)?.tightest().ok_or(NoValue::NotFound)
}

/// Returns the client's IPv4 address, or the /64 network of its IPv6 address, since one client
/// usually has a whole /64. An IPv4 address embedded in an IPv6 address is returned as IPv4. Empty
/// for a Unix socket.
fn net<'r>(request: &Request<'r>) -> Value<'r> {
    match request.client_address().ok_or(NoValue::Empty)? {
        IpAddr::V4(address) => text(request, address),
        IpAddr::V6(address) => match ipv4_in(address) {
            Some(address) => text(request, address),
            None => {
                let net = Ipv6Addr::from_bits(address.to_bits() >> 64 << 64);
                text(request, format_args!("{net}/64"))
            }
        },
    }
}

/// Returns the IPv4 address in an IPv4-mapped address, or in an address with the well-known NAT64
/// prefix (RFC 6052).
fn ipv4_in(address: Ipv6Addr) -> Option<Ipv4Addr> {
    const NAT64: u128 = 0x0064_ff9b << 96;
    let bits = address.to_bits();
    let is_of_nat64 = bits >> 32 == NAT64 >> 32;
    // Both kinds embed the IPv4 address in the last 32 bits.
    let has_one = is_of_nat64 || address.to_ipv4_mapped().is_some();
    has_one.then_some(Ipv4Addr::from_bits(bits as u32))
}

/// Formats a value in the request's memory.
fn text<'r>(request: &Request<'r>, value: impl fmt::Display) -> Value<'r> {
    // The longest value is a namespace's name.
    let text = PoolText::new(request, crate::policy::namespace::MAX_NAME_LEN);
    let mut text = text.ok_or(NoValue::NoMemory)?;
    // Writing to a `PoolText` never fails, and each value has room.
    let _ = write!(text, "{value}");
    Ok(text.into_bytes())
}

/// Formats a time in seconds, with up to three decimals.
fn seconds<'r>(request: &Request<'r>, millis: u64) -> Value<'r> {
    let mut text = PoolText::new(request, 24).ok_or(NoValue::NoMemory)?;
    headers::text::seconds(millis, &mut |part| text.put(part));
    Ok(text.into_bytes())
}
