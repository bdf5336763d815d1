//! A cycle, where its raw pointer stops, and this process in it.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nginx_sys::{
    ngx_core_conf_t, ngx_core_module, ngx_cycle, ngx_cycle_t, ngx_module_t, ngx_process,
    ngx_terminate, ngx_uint_t, ngx_worker,
};
use ngx::http::HttpModuleConfExt;

use super::log::Log;

/// nginx's names of kinds of processes, which are macros.
const NGX_PROCESS_SINGLE: ngx_uint_t = 0;
const NGX_PROCESS_MASTER: ngx_uint_t = 1;
const NGX_PROCESS_WORKER: ngx_uint_t = 3;

/// A configuration that nginx has read, and all that it opened for it, for as long as a callback of
/// nginx's runs. What lives as long as the cycle has the lifetime `'c`.
#[repr(transparent)]
pub(super) struct Cycle<'c> {
    raw: UnsafeCell<ngx_cycle_t>,
    memory: PhantomData<&'c ngx_cycle_t>,
}

impl<'c> Cycle<'c> {
    /// Calls `callback` with a cycle.
    ///
    /// # Safety
    ///
    /// The configuration of the cycle was read, and it lives until `callback` has returned: as one
    /// that nginx passes to a callback.
    pub(super) unsafe fn with<T>(
        cycle: *mut ngx_cycle_t,
        callback: impl FnOnce(&Cycle<'_>) -> T,
    ) -> T {
        // SAFETY: the caller's promise. The type is transparent, and all in it may be changed.
        callback(unsafe { &*cycle.cast::<Cycle<'_>>() })
    }

    /// Calls `callback` with the cycle that this process is serving, or is about to replace.
    pub(super) fn with_current<T>(callback: impl FnOnce(&Cycle<'_>) -> T) -> T {
        // SAFETY: nginx has one before it reads any configuration.
        unsafe { Cycle::with(ngx_cycle, callback) }
    }

    fn raw(&self) -> *mut ngx_cycle_t {
        self.raw.get()
    }

    /// Returns the log for messages that are not about a request.
    pub(super) fn log(&self) -> Log<'c> {
        // SAFETY: a cycle has a log, which lives as long.
        unsafe { Log::new((*self.raw()).log) }
    }

    /// The directory of the configuration, to which the paths in it are relative.
    pub(super) fn prefix(&self) -> PathBuf {
        // SAFETY: a cycle has a path, of so many bytes, that lives as long.
        let prefix = unsafe {
            let prefix = (*self.raw()).conf_prefix;
            core::slice::from_raw_parts(prefix.data, prefix.len)
        };
        Path::new(OsStr::from_bytes(prefix)).into()
    }

    /// The cycle before this one, which nginx keeps until this one serves.
    pub(super) fn before(&self) -> Option<&Cycle<'c>> {
        // SAFETY: as is said.
        unsafe { (*self.raw()).old_cycle.cast::<Cycle<'c>>().as_ref() }
    }

    /// Whether it has that very module: one that was loaded from another file since is another one. A
    /// cycle before the first one has none.
    pub(super) fn has(&self, module: &ngx_module_t) -> bool {
        let cycle = self.raw();
        // SAFETY: a cycle that has modules has so many.
        let modules = unsafe {
            if (*cycle).conf_ctx.is_null() || (*cycle).modules.is_null() {
                return false;
            }
            core::slice::from_raw_parts((*cycle).modules, (*cycle).modules_n)
        };
        modules.iter().any(|&it| ptr::eq(it, module))
    }

    /// Returns the number of workers.
    pub(super) fn workers(&self) -> usize {
        // SAFETY: a cycle whose configuration was read has that of nginx's core module.
        let processes = unsafe {
            let conf = *(*self.raw()).conf_ctx.add(ngx_core_module.index);
            (*conf.cast::<ngx_core_conf_t>()).worker_processes
        };
        usize::try_from(processes).unwrap_or(1)
    }
}

impl HttpModuleConfExt for Cycle<'_> {
    unsafe fn http_main_conf_unchecked<T>(&self, module: &ngx_module_t) -> Option<NonNull<T>> {
        // SAFETY: the configuration was read; the type is the caller's promise.
        unsafe { (*self.raw()).http_main_conf_unchecked(module) }
    }
}

/// Returns the address of the cycle that this process serves, or is about to replace: to be
/// compared.
#[inline]
pub(super) fn current_address() -> usize {
    // SAFETY: nginx's own variable, in its own thread.
    unsafe { ngx_cycle as usize }
}

/// The number of this worker; 0 in a process that is master and worker in one.
pub(super) fn worker() -> usize {
    // SAFETY: nginx numbers its workers before it makes them, and never again.
    unsafe { ngx_worker }
}

/// Whether this process is master and worker in one.
pub(super) fn is_single() -> bool {
    // SAFETY: nginx sets it before it reads any configuration.
    unsafe { ngx_process == NGX_PROCESS_SINGLE }
}

/// Whether this process serves requests.
pub(super) fn is_serving() -> bool {
    // SAFETY: as above.
    is_single() || unsafe { ngx_process == NGX_PROCESS_WORKER }
}

/// Whether this process is the master of others.
pub(super) fn is_master() -> bool {
    // SAFETY: as above.
    unsafe { ngx_process == NGX_PROCESS_MASTER }
}

/// Whether this process is to end at once.
pub(super) fn is_terminated() -> bool {
    // SAFETY: nginx's own flag, which a signal handler sets.
    unsafe { ngx_terminate != 0 }
}
