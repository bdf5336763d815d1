//! The C function that creates a limiter, with the checks of nginx.conf.

use core::ffi::{c_char, c_int};
use core::mem::offset_of;

use super::call::{call, text};
use super::define::{check_size, code_of, no_place};
use super::types::{Handle, RawLimit};
use crate::engine::Limiter;
use crate::engine::functions::arguments::{self, ArgumentError};
use crate::nginx::conf::{FoundNamespace, LibraryError, LibraryLimiter, MainConf};
use crate::nginx::holds;
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
        // No reference: an older structure is smaller. It has at least the first field.
        let given = (!limit.is_null()).then(|| {
            let size = (&raw const (*limit).size).read();
            match size {
                OLDEST.. => GivenLimit {
                    size,
                    name: text((&raw const (*limit).name).read()),
                    limit: (&raw const (*limit).limit).read(),
                    window: (&raw const (*limit).window).read(),
                    window_type: text((&raw const (*limit).window_type).read()),
                    rate: (&raw const (*limit).rate).read(),
                    burst: (&raw const (*limit).burst).read(),
                    concurrent: match size >= size_of::<RawLimit>() {
                        true => (&raw const (*limit).concurrent).read(),
                        false => 0.0,
                    },
                },
                // Reported below.
                _ => GivenLimit { size, ..GivenLimit::default() },
            }
        });
        (given, limiter.as_mut())
    };
    let make = |main: &'static MainConf| {
        let given = given.ok_or_else(|| no_place("limit"))?;
        let place = limiter.ok_or_else(|| no_place("limiter"))?;
        check_size("limit", given.size, OLDEST)?;
        let found = main.find(instance, arguments::namespace(given.name)?)?;
        let library = main.library();
        let limiter = library.with_found(found, |found| given.limiter(found))?;
        if limiter.limiter.is_of_concurrency() {
            main.expect_holds();
            holds::start_if_serving(main);
        }
        let code = code_of(limiter.synchronous);
        *place = library.keep_limiter(limiter)?;
        Ok(code)
    };
    // SAFETY: by the contract in the header.
    unsafe { call(error, error_size, make) }
}

/// Size of the structure in the oldest header.
const OLDEST: usize = offset_of!(RawLimit, concurrent);

/// A caller's options for a limiter.
#[derive(Default)]
struct GivenLimit<'a> {
    size: usize,
    name: &'a [u8],
    limit: f64,
    window: f64,
    window_type: &'a [u8],
    rate: f64,
    burst: f64,
    concurrent: f64,
}

impl GivenLimit<'_> {
    fn limiter(&self, found: &FoundNamespace) -> Result<LibraryLimiter, LibraryError> {
        let (limit, hits) = match (self.concurrent == 0.0, self.rate == 0.0) {
            (false, _) => self.of_concurrency(found)?,
            (true, true) => self.of_window(found)?,
            (true, false) => self.of_rate(found)?,
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

    fn of_concurrency(&self, found: &FoundNamespace) -> Result<(Limit, Hits), LibraryError> {
        let others = [
            ("limit", self.limit),
            ("window", self.window),
            ("rate", self.rate),
            ("burst", self.burst),
        ];
        for (name, given) in others {
            if given != 0.0 {
                return Err(ArgumentError::new(name, "0 with \"concurrent\"", given).into());
            }
        }
        if !self.window_type.is_empty() {
            let given = format_args!("\"{}\"", Quoted(self.window_type));
            return Err(ArgumentError::new("window_type", "none with \"concurrent\"", given).into());
        }
        let made = arguments::concurrent_limit(&found.name, self.concurrent)?;
        if matches!(found.sync, SyncMode::Periodic(_)) && found.namespace.told_counter().is_none() {
            let expected = format!(
                "none in namespace \"{}\", which is synced and has no rule with concurrent= in nginx.conf",
                found.name
            );
            return Err(ArgumentError::new("concurrent", &expected, self.concurrent).into());
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
