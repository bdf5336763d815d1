//! Directives of other modules that decide whether our rules do what they say: `return` answers before them, and
//! `auth_basic` verifies users after them.
//!
//! Modules keep what they read in structures of their own, which nobody else can read. So while nginx reads `http`, the
//! functions of these directives are replaced by one that notes the directive, and then calls the module's own.

use core::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, PoisonError};

use nginx_sys::{ngx_command_t, ngx_conf_t};
use ngx::core::NGX_CONF_ERROR;
use ngx::http::{HttpModule as _, HttpModuleLocationConf as _};

use super::reading::{Conf, commands_of};
use crate::nginx::guard::guard;
use crate::nginx::module::Module;

/// The modules and their directives.
const WATCHED: [(&CStr, &[&[u8]]); 2] = [
    (c"ngx_http_rewrite_module", &[b"return", b"rewrite", b"break", b"if"]),
    (c"ngx_http_auth_basic_module", &[b"auth_basic"]),
];

/// nginx's function for a directive.
type SetFn = unsafe extern "C" fn(*mut ngx_conf_t, *mut ngx_command_t, *mut c_void) -> *mut c_char;

/// The functions that were replaced, each with the address of its directive. Only the process that reads the
/// configuration uses them, in one thread. If it fails, they stay replaced until the next one was read.
static REPLACED: Mutex<Vec<(usize, SetFn)>> = Mutex::new(Vec::new());

/// Begins to watch.
pub(crate) fn begin(conf: &Conf<'_>) {
    let mut replaced = REPLACED.lock().unwrap_or_else(PoisonError::into_inner);
    for command in watched_of(conf) {
        let is_replaced = replaced.iter().any(|(it, _)| *it == command.addr());
        // SAFETY: nginx has loaded the module, and reads the configuration in this thread alone: nobody else looks at
        // the directive meanwhile. Modules' directives are not constant, as `ngx_module_t` says.
        unsafe {
            if let (false, Some(set)) = (is_replaced, (*command).set) {
                replaced.push((command.addr(), set));
                (*command).set = Some(watch);
            }
        }
    }
}

/// Ends to watch, once all of `http` was read.
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

/// Returns the directives that are watched, of the modules that are loaded.
fn watched_of(conf: &Conf<'_>) -> Vec<*mut ngx_command_t> {
    let modules = WATCHED.iter();
    let modules = modules.filter_map(|(name, names)| Some((conf.module(name)?, names)));
    let commands = modules.flat_map(|(module, names)| {
        // SAFETY: names of directives live as long as their modules.
        commands_of(module).filter(|&it| names.contains(&unsafe { (*it).name.as_bytes() }))
    });
    commands.collect()
}

/// nginx's callback for a directive that is watched.
unsafe extern "C" fn watch(
    cf: *mut ngx_conf_t,
    command: *mut ngx_command_t,
    level: *mut c_void,
) -> *mut c_char {
    let replaced = guard(None, || {
        // SAFETY: nginx passes its configuration in the making.
        unsafe { Conf::with(cf, note) };
        let replaced = REPLACED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = replaced.iter();
        let known = all.find(|(it, _)| *it == command.addr());
        known.map(|(_, set)| *set)
    });
    match replaced {
        // SAFETY: the function is the directive's own, and gets what nginx passes it.
        Some(set) => unsafe { set(cf, command, level) },
        None => NGX_CONF_ERROR,
    }
}

/// Notes the directive that nginx has just read on its level.
fn note(conf: &mut Conf<'_>) {
    // A configuration without this module may follow one that could not be read.
    if !conf.has(Module::module()) {
        return;
    }
    let words = conf.words();
    let Some(level) = Module::location_conf_mut(conf) else {
        return;
    };
    let level = level.level_mut();
    match words.as_slice() {
        [b"auth_basic", realm, ..] => level.record_basic_auth(*realm != b"off"),
        [name, ..] => level.record_rewrite(*name == b"return"),
        [] => {}
    }
}
