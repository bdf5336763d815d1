//! Instances, namespaces and limiters: what is made once, and found by a handle then.

use core::ffi::{c_char, c_int, c_void};

use nginx_sys::NGX_LOG_WARN;

use super::super::conf::{
    Defined, FoundNamespace, LibraryError, LibraryLimiter, MainConf, Synchronous,
};
use super::super::cycle::Cycle;
use super::super::log;
use super::call::{bytes, call, list, text};
use super::types::{Handle, OK, RawLimit, RawOptions, WAIT};
use crate::conf::defined::NamespaceDefinition;
use crate::engine::Limiter;
use crate::engine::arguments::{self, ArgumentError};
use crate::policy::algorithm::{Algorithm, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::limit::{Burst, Limit};
use crate::policy::namespace::SyncMode;
use crate::policy::printable::Quoted;
use crate::policy::window::WindowSize;

/// `new_instance`
///
/// # Safety
///
/// As the header says: of all functions of this table.
pub(super) unsafe extern "C" fn new_instance(
    name: *const c_void,
    name_len: usize,
    instance: *mut Handle,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: as the header says.
    let (name, instance) = unsafe { (bytes(name, name_len), instance.as_mut()) };
    let make = |main: &'static MainConf| {
        let instance = instance.ok_or_else(|| no_place("instance"))?;
        if name.is_empty() || name.len() > MAX_INSTANCE_LEN {
            let given = format_args!("{} bytes", name.len());
            return Err(ArgumentError::new("instance_name", "1 to 256 bytes", given).into());
        }
        *instance = main.library().instance(name)?;
        Ok(OK)
    };
    // SAFETY: as above.
    unsafe { call(error, error_size, make) }
}

/// The longest name of an instance.
const MAX_INSTANCE_LEN: usize = 256;

/// The error that the caller has no place for what it asks for.
#[cold]
pub(super) fn no_place(name: &str) -> LibraryError {
    ArgumentError::new(name, "a pointer", "NULL").into()
}

/// `new_namespace`
pub(super) unsafe extern "C" fn new_namespace(
    instance: Handle,
    options: *const RawOptions,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: as the header says.
    let options = unsafe {
        options.as_ref().map(|raw| GivenOptions {
            size: raw.size,
            name: text(raw.name),
            dict: text(raw.dict),
            sync_rate: raw.sync_rate,
            has_store: raw.store.len > 0 || raw.strategy.len > 0,
            has_strategy: raw.strategy.len > 0,
            window_sizes: list(raw.window_sizes, raw.window_sizes_n),
        })
    };
    let make = |main: &'static MainConf| {
        let options = options.ok_or_else(|| no_place("options"))?;
        let definition = options.definition()?;
        match main.define(instance, &definition)? {
            Defined::Made => {}
            Defined::Before(place) => warn(&definition, &place),
        }
        Ok(OK)
    };
    // SAFETY: as above.
    unsafe { call(error, error_size, make) }
}

fn warn(definition: &NamespaceDefinition, place: &str) {
    let name = &definition.name;
    let message = format_args!(
        "ratelimit: namespace \"{name}\" is defined {place}, too: what that says is used"
    );
    Cycle::with_current(|cycle| log::error(NGX_LOG_WARN, cycle.log(), message));
}

/// What a caller says of a namespace.
struct GivenOptions<'a> {
    size: usize,
    name: &'a [u8],
    dict: &'a [u8],
    sync_rate: f64,
    has_store: bool,
    has_strategy: bool,
    window_sizes: &'a [f64],
}

impl GivenOptions<'_> {
    fn definition(&self) -> Result<NamespaceDefinition, LibraryError> {
        check_size("options", self.size, size_of::<RawOptions>())?;
        let name = arguments::namespace(self.name)?;
        let zone = match self.dict {
            [] => None,
            dict => Some(arguments::name("dict", dict)?.into()),
        };
        let sync = arguments::sync_rate(self.sync_rate)?;
        let sizes = self.window_sizes.iter();
        let sizes = sizes.map(|size| arguments::window_size("window_sizes", *size));
        let mut window_sizes = sizes.collect::<Result<Vec<WindowSize>, _>>()?;
        window_sizes.sort_unstable();
        window_sizes.dedup();
        match (sync, self.has_store) {
            (SyncMode::Local, _) | (_, true) => {}
            (_, false) => {
                let expected = "a negative number without \"strategy\" or \"store\"";
                return Err(ArgumentError::new("sync_rate", expected, self.sync_rate).into());
            }
        }
        if self.has_strategy && sync != SyncMode::Local {
            return Err(LibraryError::NotHere(
                "this build takes no \"strategy\": expected a \"ratelimit_store\" in nginx.conf"
                    .into(),
            ));
        }
        Ok(NamespaceDefinition {
            name: name.into(),
            zone,
            sync,
            window_sizes,
        })
    }
}

/// Checks the size of a structure: a caller that was compiled with another one has other fields.
fn check_size(name: &str, given: usize, expected: usize) -> Result<(), ArgumentError> {
    if given >= expected {
        return Ok(());
    }
    let expected = format!("a structure of {expected} bytes");
    let given = format_args!("one of {given}");
    Err(ArgumentError::new(name, &expected, given))
}

/// `find`
pub(super) unsafe extern "C" fn find(
    instance: Handle,
    name: *const c_void,
    name_len: usize,
    found: *mut Handle,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: as the header says.
    let (name, found) = unsafe { (bytes(name, name_len), found.as_mut()) };
    let find = |main: &'static MainConf| {
        let found = found.ok_or_else(|| no_place("found"))?;
        let handle = main.find(instance, arguments::namespace(name)?)?;
        *found = handle;
        let library = main.library();
        library.with_found(handle, |found| Ok(code_of(found.synchronous)))
    };
    // SAFETY: as above.
    unsafe { call(error, error_size, find) }
}

/// What is said of something that was found: whether its store decides.
fn code_of(synchronous: Option<Synchronous>) -> c_int {
    match synchronous {
        Some(_) => WAIT,
        None => OK,
    }
}

/// `new_limiter`
pub(super) unsafe extern "C" fn new_limiter(
    instance: Handle,
    limit: *const RawLimit,
    limiter: *mut Handle,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: as the header says.
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
    // SAFETY: as above.
    unsafe { call(error, error_size, make) }
}

/// What a caller says of a limiter.
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
        Ok(LibraryLimiter::new(
            Limiter::new(found.namespace(), limit, hits),
            found.synchronous,
        ))
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
        let hits = arguments::some_hits("limit", self.limit)?;
        let size = arguments::window_size("window", self.window)?;
        found.check_size("window", size)?;
        if self.burst != 0.0 {
            return Err(ArgumentError::new("burst", "0 without \"rate\"", self.burst).into());
        }
        let limit = Limit {
            name: format!("{}-{size}", found.name).into(),
            size,
            algorithm,
            burst: Burst::default(),
        };
        Ok((limit, hits))
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
        let limit = Limit {
            name: format!("{}-rate", found.name).into(),
            size: SECOND,
            algorithm: Algorithm::Bucket,
            burst: Burst {
                hits: burst,
                delay: Some(Hits::ZERO),
            },
        };
        Ok((limit, rate))
    }
}

/// What rates are told for.
const SECOND: WindowSize = match WindowSize::from_millis(1000) {
    Some(second) => second,
    None => WindowSize::MIN,
};

/// Checks that a namespace counts so, as nginx.conf does.
fn check_algorithm(algorithm: Algorithm, found: &FoundNamespace) -> Result<(), LibraryError> {
    let is_wrong = match found.sync {
        SyncMode::Local => false,
        SyncMode::Periodic(_) => algorithm.kind() != StoredKind::Windows,
        SyncMode::Synchronous => algorithm == Algorithm::Bucket,
    };
    if !is_wrong {
        return Ok(());
    }
    let (argument, given) = match algorithm {
        Algorithm::Bucket => ("rate", "a number".into()),
        _ => ("window_type", format!("\"{}\"", algorithm.name())),
    };
    let expected = format!(
        "something else in namespace \"{}\", which has sync_rate {}",
        found.name, found.sync
    );
    Err(ArgumentError::new(argument, &expected, given).into())
}
