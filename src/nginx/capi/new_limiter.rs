//! The C function that creates a limiter, with the checks of nginx.conf.

use core::ffi::{c_char, c_int};

use super::call::{call, text};
use super::define::{check_size, code_of, no_place};
use super::types::{Handle, RawLimit};
use crate::engine::Limiter;
use crate::engine::functions::arguments::{self, ArgumentError};
use crate::nginx::conf::{FoundNamespace, LibraryError, LibraryLimiter, MainConf};
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::limit::Limit;
use crate::policy::namespace::SyncMode;
use crate::policy::printable::Quoted;

/// `new_limiter`
///
/// # Safety
///
/// The arguments are as `ngx_rate_limiting.h` requires.
pub(super) unsafe extern "C" fn new_limiter(
    instance: Handle,
    limit: *const RawLimit,
    limiter: *mut Handle,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: by the contract in the header.
    let (given, limiter) = unsafe {
        let given = limit.as_ref().map(|raw| GivenLimit {
            size: raw.size,
            name: text(raw.name),
            limit: raw.limit,
            window: raw.window,
            window_type: text(raw.window_type),
            rate: raw.rate,
            burst: raw.burst,
        });
        (given, limiter.as_mut())
    };
    let make = |main: &'static MainConf| {
        let given = given.ok_or_else(|| no_place("limit"))?;
        let place = limiter.ok_or_else(|| no_place("limiter"))?;
        check_size("limit", given.size, size_of::<RawLimit>())?;
        let found = main.find(instance, arguments::namespace(given.name)?)?;
        let library = main.library();
        let limiter = library.with_found(found, |found| given.limiter(found))?;
        let code = code_of(limiter.synchronous);
        *place = library.keep_limiter(limiter)?;
        Ok(code)
    };
    // SAFETY: by the contract in the header.
    unsafe { call(error, error_size, make) }
}

/// A caller's options for a limiter.
struct GivenLimit<'a> {
    size: usize,
    name: &'a [u8],
    limit: f64,
    window: f64,
    window_type: &'a [u8],
    rate: f64,
    burst: f64,
}

impl GivenLimit<'_> {
    fn limiter(&self, found: &FoundNamespace) -> Result<LibraryLimiter, LibraryError> {
        let (limit, hits) = match self.rate == 0.0 {
            true => self.of_window(found)?,
            false => self.of_rate(found)?,
        };
        check_algorithm(limit.algorithm, found)?;
        Ok(LibraryLimiter::new(Limiter::new(found.namespace, limit, hits), found.synchronous))
    }

    fn of_window(&self, found: &FoundNamespace) -> Result<(Limit, Hits), LibraryError> {
        let algorithm = match self.window_type {
            [] => Algorithm::default(),
            name => Algorithm::parse(name).map_err(|error| {
                let error = error.to_string();
                let expected = error.strip_prefix("expected ").unwrap_or(&error);
                let given = format_args!("\"{}\"", Quoted(name.get(..100).unwrap_or(name)));
                ArgumentError::new("window_type", expected, given)
            })?,
        };
        let made = arguments::window_limit(found.counted(), self.limit, self.window, algorithm)?;
        if self.burst != 0.0 {
            return Err(ArgumentError::new("burst", "0 without \"rate\"", self.burst).into());
        }
        Ok(made)
    }

    fn of_rate(&self, found: &FoundNamespace) -> Result<(Limit, Hits), LibraryError> {
        let rate = arguments::some_hits("rate", self.rate)?;
        let burst = arguments::hits("burst", self.burst)?;
        for (name, given) in [("limit", self.limit), ("window", self.window)] {
            if given != 0.0 {
                return Err(ArgumentError::new(name, "0 with \"rate\"", given).into());
            }
        }
        if !self.window_type.is_empty() {
            let given = format_args!("\"{}\"", Quoted(self.window_type));
            return Err(ArgumentError::new("window_type", "none with \"rate\"", given).into());
        }
        Ok((Limit::per_second(&found.name, rate, burst), rate))
    }
}

/// Checks that a namespace supports this algorithm, as nginx.conf does.
fn check_algorithm(algorithm: Algorithm, found: &FoundNamespace) -> Result<(), LibraryError> {
    let decides = || found.store.is_some_and(|store| store.decides_by(algorithm));
    if found.sync.goes_with(algorithm, decides) {
        return Ok(());
    }
    let (argument, given) = arguments::algorithm_argument(algorithm);
    let FoundNamespace { name, sync, .. } = found;
    match found.store.filter(|_| *sync == SyncMode::Synchronous) {
        Some(store) => Err(LibraryError::NotHere(format!(
            "invalid argument \"{argument}\": expected something else in namespace \"{name}\": this build \
             has it not with sync_rate 0 and strategy {}",
            store.name()
        ))),
        None => {
            let expected =
                format!("something else in namespace \"{name}\", which has sync_rate {sync}");
            Err(ArgumentError::new(argument, &expected, given).into())
        }
    }
}
