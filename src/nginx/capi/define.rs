//! C functions that define or find instances and namespaces, and return handles to them.

use core::ffi::{c_char, c_int, c_void};

use nginx_sys::NGX_LOG_WARN;

use super::call::{bytes, call, list, text};
use super::types::{Handle, OK, RawOptions, WAIT};
use crate::conf::defined::{DefineError, DefinedStore, NamespaceDefinition};
use crate::conf::store_options::store_of_options;
use crate::engine::functions::arguments::{self, ArgumentError};
use crate::nginx::conf::{ConfFiles, Defined, LibraryError, MainConf, Synchronous};
use crate::nginx::cycle::Cycle;
use crate::nginx::log;
use crate::nginx::sync as syncs;
use crate::policy::namespace::SyncMode;
use crate::policy::options::{DirectiveName, OptionError};
use crate::policy::printable::Quoted;

/// `new_instance`
///
/// # Safety
///
/// The arguments are as `ngx_rate_limiting.h` requires. This holds for each function of this file.
pub(super) unsafe extern "C" fn new_instance(
    name: *const c_void,
    name_len: usize,
    instance: *mut Handle,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: by the contract in the header.
    let (name, instance) = unsafe { (bytes(name, name_len), instance.as_mut()) };
    let make = |main: &'static MainConf| {
        let instance = instance.ok_or_else(|| no_place("instance"))?;
        arguments::instance(name)?;
        *instance = main.library().instance(name)?;
        Ok(OK)
    };
    // SAFETY: by the contract in the header.
    unsafe { call(error, error_size, make) }
}

/// `window`
pub(super) unsafe extern "C" fn window(
    text: *const c_void,
    text_len: usize,
    window_size: *mut f64,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: by the contract in the header.
    let (text, window_size) = unsafe { (bytes(text, text_len), window_size.as_mut()) };
    let find = |_: &'static MainConf| {
        let window_size = window_size.ok_or_else(|| no_place("window_size"))?;
        *window_size = arguments::calendar_window("window", text)?;
        Ok(OK)
    };
    // SAFETY: by the contract in the header.
    unsafe { call(error, error_size, find) }
}

/// Returns the error of a NULL pointer for the result.
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
    // SAFETY: by the contract in the header.
    let options = unsafe {
        options.as_ref().map(|raw| GivenOptions {
            size: raw.size,
            name: text(raw.name),
            dict: text(raw.dict),
            sync_rate: raw.sync_rate,
            store: text(raw.store),
            strategy: text(raw.strategy),
            strategy_opts: list(raw.strategy_opts, raw.strategy_opts_n)
                .iter()
                .map(|it| text(*it))
                .collect(),
            window_sizes: list(raw.window_sizes, raw.window_sizes_n),
        })
    };
    let make = |main: &'static MainConf| {
        let options = options.ok_or_else(|| no_place("options"))?;
        let definition = options.definition()?;
        match main.define(instance, &definition)? {
            Defined::Made(late) => late.into_iter().for_each(|it| syncs::add(*it)),
            Defined::Before(place) => warn(&definition, &place),
        }
        Ok(OK)
    };
    // SAFETY: by the contract in the header.
    unsafe { call(error, error_size, make) }
}

fn warn(definition: &NamespaceDefinition, place: &str) {
    let name = &definition.name;
    let message = format_args!(
        "ratelimit: namespace \"{name}\" is defined {place}, too: what that says is used"
    );
    Cycle::with_current(|cycle| log::error(NGX_LOG_WARN, cycle.log(), message));
}

/// A caller's options for a namespace.
struct GivenOptions<'a> {
    size: usize,
    name: &'a [u8],
    dict: &'a [u8],
    sync_rate: f64,
    store: &'a [u8],
    strategy: &'a [u8],
    strategy_opts: Vec<&'a [u8]>,
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
        let window_sizes = arguments::window_sizes(self.window_sizes.iter().copied())?;
        let store = self.store()?;
        if sync != SyncMode::Local && store.is_none() {
            let expected = "a negative number without \"strategy\" or \"store\"";
            return Err(ArgumentError::new("sync_rate", expected, self.sync_rate).into());
        }
        if sync != SyncMode::Local && window_sizes.is_empty() {
            let expected = "some, of a namespace with a store";
            return Err(ArgumentError::new("window_sizes", expected, "none").into());
        }
        Ok(NamespaceDefinition { name: name.into(), zone, sync, store, window_sizes })
    }

    fn store(&self) -> Result<Option<DefinedStore>, LibraryError> {
        let mut pairs = self.strategy_opts.chunks_exact(2);
        let options = pairs.by_ref().filter_map(|pair| match pair {
            [name, word] => Some((*name, *word)),
            _ => None,
        });
        let options: Vec<_> = options.collect();
        if !pairs.remainder().is_empty() {
            let given = self.strategy_opts.len();
            return Err(ArgumentError::new("strategy_opts", "pairs", given).into());
        }
        match (self.store, self.strategy) {
            ([], []) if options.is_empty() => Ok(None),
            ([], []) => {
                let expected = "none without \"strategy\"";
                Err(ArgumentError::new("strategy_opts", expected, options.len()).into())
            }
            (name, []) if options.is_empty() => {
                let name = arguments::name("store", name)?;
                Ok(Some(DefinedStore::Named(name.into())))
            }
            ([], strategy) => {
                let files = ConfFiles { prefix: Cycle::with_current(|cycle| cycle.prefix()) };
                let settings = store_of_options(strategy, &options, &files);
                let settings = settings.map_err(|error| wrong_store(&error))?;
                Ok(Some(DefinedStore::Own(settings.into())))
            }
            (name, _) => {
                let expected = "none with \"strategy\" or its options";
                let given = format_args!("\"{}\"", Quoted(name.get(..100).unwrap_or(name)));
                Err(ArgumentError::new("store", expected, given).into())
            }
        }
    }
}

/// Returns the error of an invalid store in the caller's options.
#[cold]
fn wrong_store(error: &OptionError) -> LibraryError {
    let argument = match error.directive() {
        Some(DirectiveName { name: "strategy", .. }) => "strategy",
        _ => "strategy_opts",
    };
    DefineError::Wrong(format!("invalid argument \"{argument}\": {error}")).into()
}

/// Checks the size of a structure. A caller that was compiled with another header has other fields.
pub(super) fn check_size(name: &str, given: usize, expected: usize) -> Result<(), ArgumentError> {
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
    // SAFETY: by the contract in the header.
    let (name, found) = unsafe { (bytes(name, name_len), found.as_mut()) };
    let find = |main: &'static MainConf| {
        let found = found.ok_or_else(|| no_place("found"))?;
        let handle = main.find(instance, arguments::namespace(name)?)?;
        *found = handle;
        let library = main.library();
        library.with_found(handle, |found| Ok(code_of(found.synchronous)))
    };
    // SAFETY: by the contract in the header.
    unsafe { call(error, error_size, find) }
}

/// Returns the code that says whether the namespace's store decides.
pub(super) fn code_of(synchronous: Option<Synchronous>) -> c_int {
    match synchronous {
        Some(_) => WAIT,
        None => OK,
    }
}
