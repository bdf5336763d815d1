//! A variable and its value for a request. Cached values and arguments are found without calling
//! nginx.

use core::ptr;
use std::cell::OnceCell;

use nginx_sys::{
    ngx_array_t, ngx_http_get_flushed_variable, ngx_http_variable_t, ngx_uint_t,
    ngx_variable_value_t,
};
use ngx::http::{HttpModuleMainConf as _, NgxHttpCoreModule};

use super::reading::Conf;
use crate::nginx::request::{Request, bytes};
use crate::policy::query::argument;

/// A variable of the configuration.
pub(crate) struct Variable {
    index: ngx_uint_t,
    /// Name of the argument, for an `arg_` variable; otherwise empty. Set by the first request.
    argument: OnceCell<&'static [u8]>,
}

impl Variable {
    /// Returns the variable `name`. `None` without memory, which nginx has logged.
    pub(super) fn named(conf: &mut Conf<'_>, name: &[u8]) -> Option<Variable> {
        Some(Variable { index: conf.variable(name)?, argument: OnceCell::new() })
    }

    /// Returns the value that `ngx_http_get_flushed_variable` returns, which lives as long as the
    /// request. `None` without memory or for a cycle of variables; nginx has logged it.
    #[inline]
    pub(super) fn evaluate<'r>(&self, request: &Request<'r>) -> Option<&'r [u8]> {
        // SAFETY: the index belongs to the request's configuration, as all of this does.
        let value = unsafe { &*request.variable(self.index) };
        let bits = Bits::of(value);
        if bits.is_cached() {
            // SAFETY: the value is the request's.
            return Some(unsafe { bits.value(value) });
        }
        match self.argument.get() {
            Some(name) if !name.is_empty() => {
                Some(argument(request.args(), name).unwrap_or_default())
            }
            _ => self.evaluate_by_nginx(request),
        }
    }

    /// Evaluates the variable by nginx, and finds out whether it is an argument.
    // Not inlined: then what finds an argument need not save registers.
    #[inline(never)]
    fn evaluate_by_nginx<'r>(&self, request: &Request<'r>) -> Option<&'r [u8]> {
        self.argument.get_or_init(|| argument_of(request, self.index));
        // SAFETY: the request is live, and the index belongs to its configuration. The value is the
        // request's.
        unsafe {
            let value = ngx_http_get_flushed_variable(request.as_ptr(), self.index).as_ref()?;
            Some(Bits::of(value).value(value))
        }
    }
}

/// Returns the name of the argument that nginx looks up for variable number `index` if it has no
/// cached value; empty if the variable is no argument.
///
/// A configuration can define a variable with any name by `map`, `geo` or a capture. nginx knows
/// all of them when the configuration is complete, and only then gives the `arg_` prefix handler to
/// the variables without a handler. (`set` leaves that handler, but caches a value.)
#[cold]
fn argument_of(request: &Request<'_>, index: ngx_uint_t) -> &'static [u8] {
    const PREFIX: &[u8] = b"arg_";
    let find = || {
        let core = NgxHttpCoreModule::main_conf(request)?;
        // SAFETY: both arrays hold variables, and live as long as the configuration.
        let (all, prefixes) =
            unsafe { (variables(&core.variables), variables(&core.prefix_variables)) };
        let variable = all.get(index)?;
        // SAFETY: names are in the cycle's pool.
        let name_of = |variable: &ngx_http_variable_t| unsafe { bytes(&variable.name) };
        let arguments = prefixes.iter().find(|it| name_of(it) == PREFIX)?;
        let is_argument = ptr::fn_addr_eq(variable.get_handler?, arguments.get_handler?);
        name_of(variable).strip_prefix(PREFIX).filter(|_| is_argument)
    };
    find().unwrap_or_default()
}

/// # Safety
///
/// `array` holds variables, and lives as long as the result.
unsafe fn variables(array: &ngx_array_t) -> &'static [ngx_http_variable_t] {
    if array.nelts == 0 {
        return &[];
    }
    // SAFETY: a non-empty `ngx_array_t` has `nelts` elements.
    unsafe { core::slice::from_raw_parts(array.elts.cast(), array.nelts) }
}

/// The bit fields of a variable's value: `unsigned len:28, valid:1, no_cacheable:1, not_found:1,
/// escape:1`.
///
/// The generated accessors test one bit after another: 100 instructions instead of two.
#[derive(Clone, Copy)]
struct Bits(u32);

impl Bits {
    const LEN: u32 = (1 << 28) - 1;
    const VALID: u32 = 1 << 28;
    const NO_CACHEABLE: u32 = 1 << 29;
    const NOT_FOUND: u32 = 1 << 30;

    #[inline]
    fn of(value: &ngx_variable_value_t) -> Bits {
        const { assert!(cfg!(target_endian = "little"), "bit fields start at the lowest bit") };
        // SAFETY: the structure starts with an `unsigned` that holds the bit fields.
        Bits(unsafe { ptr::from_ref(value).cast::<u32>().read() })
    }

    /// Returns whether the value was evaluated and can be used again.
    #[inline]
    fn is_cached(self) -> bool {
        self.0 & (Self::VALID | Self::NOT_FOUND) != 0 && self.0 & Self::NO_CACHEABLE == 0
    }

    /// Returns the bytes of `value`, whose bit fields `self` must be; empty if it was not found.
    ///
    /// # Safety
    ///
    /// `value` belongs to a request whose memory lives as long as `'r`.
    #[inline]
    unsafe fn value<'r>(self, value: &ngx_variable_value_t) -> &'r [u8] {
        if self.0 & Self::NOT_FOUND != 0 || self.0 & Self::LEN == 0 {
            return &[];
        }
        // SAFETY: a value that is found points to `len` bytes, which live as long as the request.
        unsafe { core::slice::from_raw_parts(value.data, (self.0 & Self::LEN) as usize) }
    }
}
