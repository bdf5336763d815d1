//! Access to a cycle through its raw pointer, and facts about this process.

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

/// nginx's kinds of processes, which are macros in C.
const NGX_PROCESS_SINGLE: ngx_uint_t = 0;
const NGX_PROCESS_MASTER: ngx_uint_t = 1;
const NGX_PROCESS_WORKER: ngx_uint_t = 3;

/// A configuration that nginx has read, with the resources that it opened for it, for the time of a
/// callback. `'c` is the lifetime of the cycle.
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
    /// The configuration of the cycle was read, and the cycle lives until `callback` has returned,
    /// as one that nginx passes to a callback does.
    pub(super) unsafe fn with<T>(
        cycle: *mut ngx_cycle_t,
        callback: impl FnOnce(&Cycle<'_>) -> T,
    ) -> T {
        // SAFETY: by the caller's contract. The type is transparent, and the cell allows changes to
        // the cycle.
        callback(unsafe { &*cycle.cast::<Cycle<'_>>() })
    }

    /// Calls `callback` with the cycle that this process serves or is about to replace.
    pub(super) fn with_current<T>(callback: impl FnOnce(&Cycle<'_>) -> T) -> T {
        // SAFETY: nginx sets `ngx_cycle` before it reads any configuration.
        unsafe { Cycle::with(ngx_cycle, callback) }
    }

    fn raw(&self) -> *mut ngx_cycle_t {
        self.raw.get()
    }

    /// Returns the log for messages that are not about a request.
    pub(super) fn log(&self) -> Log<'c> {
        // SAFETY: a cycle has a log, which lives as long as the cycle.
        unsafe { Log::new((*self.raw()).log) }
    }

    /// Returns the directory of the configuration, to which its paths are relative.
    pub(super) fn prefix(&self) -> PathBuf {
        // SAFETY: a cycle has a prefix of `len` bytes, which lives as long as the cycle.
        let prefix = unsafe {
            let prefix = (*self.raw()).conf_prefix;
            core::slice::from_raw_parts(prefix.data, prefix.len)
        };
        Path::new(OsStr::from_bytes(prefix)).into()
    }

    /// Returns the previous cycle, which nginx keeps until this one serves.
    pub(super) fn before(&self) -> Option<&Cycle<'c>> {
        // SAFETY: by nginx's contract above, the previous cycle is null or live.
        unsafe { (*self.raw()).old_cycle.cast::<Cycle<'c>>().as_ref() }
    }

    /// Returns whether the cycle uses this module. A module that was loaded again from another file
    /// counts as another one. The cycle before the first configuration has no modules.
    pub(super) fn has(&self, module: &ngx_module_t) -> bool {
        let cycle = self.raw();
        // SAFETY: a cycle with modules has `modules_n` of them.
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
        // SAFETY: a cycle whose configuration was read has the configuration of nginx's core
        // module.
        let processes = unsafe {
            let conf = *(*self.raw()).conf_ctx.add(ngx_core_module.index);
            (*conf.cast::<ngx_core_conf_t>()).worker_processes
        };
        usize::try_from(processes).unwrap_or(1)
    }
}

impl HttpModuleConfExt for Cycle<'_> {
    unsafe fn http_main_conf_unchecked<T>(&self, module: &ngx_module_t) -> Option<NonNull<T>> {
        // SAFETY: the configuration was read; the caller vouches for the type.
        unsafe { (*self.raw()).http_main_conf_unchecked(module) }
    }
}

/// Returns the address of the cycle that this process serves or is about to replace, for comparison
/// only.
#[inline]
pub(super) fn current_address() -> usize {
    // SAFETY: only nginx's thread changes this variable, and it is this thread.
    unsafe { ngx_cycle as usize }
}

/// Returns the number of this worker; 0 in a process that is both master and worker.
pub(super) fn worker() -> usize {
    // SAFETY: nginx sets `ngx_worker` before the worker starts, and never again.
    unsafe { ngx_worker }
}

/// Returns whether this process is both master and worker.
pub(super) fn is_single() -> bool {
    // SAFETY: nginx sets `ngx_process` before it reads any configuration.
    unsafe { ngx_process == NGX_PROCESS_SINGLE }
}

/// Returns whether this process serves requests.
pub(super) fn is_serving() -> bool {
    // SAFETY: as above.
    is_single() || unsafe { ngx_process == NGX_PROCESS_WORKER }
}

/// Returns whether this process is the master of worker processes.
pub(super) fn is_master() -> bool {
    // SAFETY: as above.
    unsafe { ngx_process == NGX_PROCESS_MASTER }
}

/// Returns whether this process performs a fast shutdown.
pub(super) fn is_terminated() -> bool {
    // SAFETY: a flag of nginx, which its signal handler sets.
    unsafe { ngx_terminate != 0 }
}
