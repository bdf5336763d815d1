//! Watches directives of other modules that make this module's rules useless: `return` answers
//! before the rules run, and `auth_basic` sets the user after they run.
//!
//! A module's configuration is private to it. So while nginx reads `http`, the functions of these
//! directives are replaced by one that records the directive and then calls the original function.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use nginx_sys::{ngx_command_t, ngx_conf_t};
use ngx::core::NGX_CONF_ERROR;
use ngx::http::{HttpModule as _, HttpModuleLocationConf as _};

use super::reading::{Conf, commands_of};
use super::text::Text;
use crate::conf::level::{LevelConf, rewrite_ends};
use crate::nginx::event_loop::guard;
use crate::nginx::module::Module;

/// The watched directives, by module.
const WATCHED: [(&CStr, &[&[u8]]); 2] = [
    (c"ngx_http_rewrite_module", &[b"return", b"rewrite", b"break", b"if"]),
    (c"ngx_http_auth_basic_module", &[b"auth_basic"]),
];

/// nginx's function for a directive.
type SetFn = unsafe extern "C" fn(*mut ngx_conf_t, *mut ngx_command_t, *mut c_void) -> *mut c_char;

/// The original functions, by the address of their directive. Only the process that reads the
/// configuration uses them, in one thread. If reading fails, they stay replaced until the next
/// configuration was read.
static REPLACED: Mutex<Vec<(usize, SetFn)>> = Mutex::new(Vec::new());

/// The number of directives that end the rewrite phase, such as `break`. As an `if` may contain one, it is compared before
/// and after that.
static ENDINGS: AtomicUsize = AtomicUsize::new(0);

/// Starts to watch.
pub(crate) fn begin(conf: &Conf<'_>) {
    let mut replaced = REPLACED.lock().unwrap_or_else(PoisonError::into_inner);
    for command in watched_of(conf) {
        let is_replaced = replaced.iter().any(|(it, _)| *it == command.addr());
        // SAFETY: nginx has loaded the module and reads the configuration in this only thread, so
        // nothing else uses the directive meanwhile. The directives of an `ngx_module_t` are
        // mutable.
        unsafe {
            if let (false, Some(set)) = (is_replaced, (*command).set) {
                replaced.push((command.addr(), set));
                (*command).set = Some(watch);
            }
        }
    }
}

/// Stops watching, after all of `http` was read.
pub(crate) fn end(conf: &Conf<'_>) {
    let mut replaced = REPLACED.lock().unwrap_or_else(PoisonError::into_inner);
    for command in watched_of(conf) {
        let known = replaced.iter().position(|(it, _)| *it == command.addr());
        if let Some((_, set)) = known.map(|index| replaced.swap_remove(index)) {
            // SAFETY: as in `begin`.
            unsafe { (*command).set = Some(set) };
        }
    }
}

/// Returns the watched directives of the loaded modules.
fn watched_of(conf: &Conf<'_>) -> Vec<*mut ngx_command_t> {
    let modules = WATCHED.iter();
    let modules = modules.filter_map(|(name, names)| Some((conf.module(name)?, names)));
    let commands = modules.flat_map(|(module, names)| {
        // SAFETY: a directive's name lives as long as its module.
        commands_of(module).filter(|&it| names.contains(&unsafe { (*it).name.as_bytes() }))
    });
    commands.collect()
}

/// nginx's callback for a watched directive.
unsafe extern "C" fn watch(
    cf: *mut ngx_conf_t,
    command: *mut ngx_command_t,
    level: *mut c_void,
) -> *mut c_char {
    let replaced = guard(None, || {
        // SAFETY: nginx passes the configuration that it is reading.
        unsafe { Conf::with(cf, note) };
        let replaced = REPLACED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = replaced.iter();
        let known = all.find(|(it, _)| *it == command.addr());
        known.map(|(_, set)| *set)
    });
    let Some(set) = replaced else {
        return NGX_CONF_ERROR;
    };
    let endings = ENDINGS.load(Relaxed);
    // SAFETY: `set` is the directive's original function, and gets nginx's arguments.
    let read = unsafe { set(cf, command, level) };
    // SAFETY: a directive's name lives as long as its module.
    if endings != ENDINGS.load(Relaxed) && unsafe { (*command).name.as_bytes() } == b"if" {
        // SAFETY: nginx passes the configuration that it is reading, now again the level of the `if`.
        guard((), || unsafe { Conf::with(cf, |conf| record(conf, |it| it.record_rewrite(false))) });
    }
    read
}

/// Records the directive that nginx has just parsed on its level.
fn note(conf: &mut Conf<'_>) {
    let words = conf.words();
    let ends = rewrite_ends(&words);
    if ends == Some(false) {
        ENDINGS.fetch_add(1, Relaxed);
    }
    let basic_auth = match words.as_slice() {
        [b"auth_basic", realm, ..] => Some(*realm != b"off"),
        _ => None,
    };
    record(conf, |level| {
        if let Some(is_return) = ends {
            level.record_rewrite(is_return);
        }
        if let Some(is_on) = basic_auth {
            level.record_basic_auth(is_on);
        }
    });
}

/// Calls `record` with the level that nginx is reading, if it has one of this module.
fn record(conf: &mut Conf<'_>, record: impl FnOnce(&mut LevelConf<Text>)) {
    // The functions may still be replaced when a configuration without this module follows a failed
    // one.
    if !conf.has(Module::module()) {
        return;
    }
    if let Some(level) = Module::location_conf_mut(conf) {
        record(level.level_mut());
    }
}
