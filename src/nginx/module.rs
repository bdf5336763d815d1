//! The modules as nginx sees them, and what nginx calls at the turns of their life.
//!
//! There are two in one file: a phase handler wants a place before that of the realip module
//! (handlers run in reverse order), and a module there cannot install a header filter.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;

use nginx_sys::{
    NGX_ERROR, NGX_HTTP_MODULE, NGX_LOG_EMERG, NGX_LOG_ERR, NGX_OK, ngx_command_t, ngx_conf_t,
    ngx_core_conf_t, ngx_core_module, ngx_cycle_t, ngx_http_module_t, ngx_int_t, ngx_module_t,
    ngx_process, ngx_uint_t, ngx_worker,
};
use ngx::core::{NGX_CONF_ERROR, NGX_CONF_OK};
use ngx::http::{HttpModule, HttpModuleLocationConf, HttpModuleMainConf, NgxHttpCoreModule};

use super::conf::{COMMANDS, Conf, LocationConf, MainConf, handler_of};
use super::guard::guard;
use super::http::{context, handler, headers, variables};
use super::log;
use super::sync;

/// nginx's names of kinds of processes, which are macros.
const NGX_PROCESS_SINGLE: ngx_uint_t = 0;
const NGX_PROCESS_WORKER: ngx_uint_t = 3;

/// The module of the directives and the phase handler.
pub(super) struct Module;

impl HttpModule for Module {
    fn module() -> &'static ngx_module_t {
        let module = &raw const ngx_http_rate_limiting_module;
        // SAFETY: nginx changes it only while it loads modules, in the master's only thread.
        unsafe { &*module }
    }
}

// SAFETY: the type is that which `create_main_conf` makes for this module.
unsafe impl HttpModuleMainConf for Module {
    type MainConf = MainConf;
}

// SAFETY: the type is that which `create_loc_conf` makes for this module.
unsafe impl HttpModuleLocationConf for Module {
    type LocationConf = LocationConf;
}

static CONTEXT: ngx_http_module_t = ngx_http_module_t {
    preconfiguration: Some(preconfiguration),
    postconfiguration: Some(postconfiguration),
    create_main_conf: Some(Module::create_main_conf),
    init_main_conf: Some(init_main_conf),
    create_srv_conf: None,
    merge_srv_conf: None,
    create_loc_conf: Some(Module::create_loc_conf),
    merge_loc_conf: Some(merge_loc_conf),
};

/// The module of the directives and the phase handler.
#[unsafe(no_mangle)]
pub(super) static mut ngx_http_rate_limiting_module: ngx_module_t = ngx_module_t {
    ctx: (&raw const CONTEXT).cast_mut().cast(),
    commands: (&raw mut COMMANDS).cast(),
    type_: NGX_HTTP_MODULE as ngx_uint_t,
    init_module: Some(init_module),
    init_process: Some(init_process),
    exit_process: Some(exit_process),
    ..ngx_module_t::default()
};

static FILTER_CONTEXT: ngx_http_module_t = ngx_http_module_t {
    preconfiguration: None,
    postconfiguration: Some(filter_postconfiguration),
    create_main_conf: None,
    init_main_conf: None,
    create_srv_conf: None,
    merge_srv_conf: None,
    create_loc_conf: None,
    merge_loc_conf: None,
};

static mut NO_COMMANDS: [ngx_command_t; 1] = [ngx_command_t::empty()];

/// The module of the header filter.
#[unsafe(no_mangle)]
pub(super) static mut ngx_http_rate_limiting_filter_module: ngx_module_t = ngx_module_t {
    ctx: (&raw const FILTER_CONTEXT).cast_mut().cast(),
    commands: (&raw mut NO_COMMANDS).cast(),
    type_: NGX_HTTP_MODULE as ngx_uint_t,
    ..ngx_module_t::default()
};

/// Before `http` is read.
unsafe extern "C" fn preconfiguration(cf: *mut ngx_conf_t) -> ngx_int_t {
    guard(NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx passes its configuration in the making, with all modules of the cycle.
        let modules = unsafe {
            let cycle = &*(*cf).cycle;
            core::slice::from_raw_parts(cycle.modules, cycle.modules_n)
        };
        // SAFETY: a loaded module has a name.
        let mut names = modules
            .iter()
            .map(|&module| unsafe { CStr::from_ptr((*module).name) });
        if names.any(|name| name == c"ngx_http_ratelimit_module") {
            log::conf_error(
                NGX_LOG_EMERG,
                cf,
                "ngx_http_rate_limiting_module and ngx_http_ratelimit_module have directives of \
                 the same names: load only one of them",
            );
            return NGX_ERROR as ngx_int_t;
        }
        // SAFETY: as above.
        let conf = Module::main_conf_mut(unsafe { &*cf });
        let slots = (context::add_slot(cf, false), context::add_slot(cf, true));
        match (conf, slots) {
            (Some(conf), (Some(context), Some(suspension))) => {
                conf.context_slot = context;
                conf.suspension_slot = suspension;
            }
            _ => return NGX_ERROR as ngx_int_t,
        }
        variables::add(cf)
    })
}

/// After `http` was read.
unsafe extern "C" fn init_main_conf(cf: *mut ngx_conf_t, conf: *mut c_void) -> *mut c_char {
    guard(NGX_CONF_ERROR, || {
        // SAFETY: nginx passes its configuration in the making, and what `create_main_conf` made.
        let (cf, conf) = unsafe { (Conf::new(cf), &mut *conf.cast::<MainConf>()) };
        let Some(mut cf) = cf else {
            return NGX_CONF_ERROR;
        };
        match conf.resolve(&mut cf) {
            Ok(()) => NGX_CONF_OK,
            Err(error) => {
                cf.refuse(error);
                NGX_CONF_ERROR
            }
        }
    })
}

unsafe extern "C" fn merge_loc_conf(
    cf: *mut ngx_conf_t,
    prev: *mut c_void,
    conf: *mut c_void,
) -> *mut c_char {
    guard(NGX_CONF_ERROR, || {
        // SAFETY: nginx passes its configuration in the making, and what `create_loc_conf` made for
        // two different levels.
        let (cf, prev, conf) = unsafe {
            (
                &*cf,
                &*prev.cast::<LocationConf>(),
                &mut *conf.cast::<LocationConf>(),
            )
        };
        match Module::main_conf(cf) {
            Some(main) => {
                inherit_content(cf, prev, conf);
                conf.inherit(prev, main.context_slot);
                main.note_level(conf);
                NGX_CONF_OK
            }
            None => NGX_CONF_ERROR,
        }
    })
}

/// Blocks within a location that are no locations (`if`, `limit_except`) answer as it does.
fn inherit_content(cf: &ngx_conf_t, prev: &LocationConf, conf: &mut LocationConf) {
    let core = NgxHttpCoreModule::location_conf_mut(cf);
    let core = core.filter(|core| core.noname() != 0 || core.lmt_excpt() != 0);
    if let (Some(core), Some(content)) = (core.filter(|it| it.handler.is_none()), prev.content()) {
        core.handler = Some(handler_of(content));
        conf.inherit_content(prev);
    }
}

/// After all levels were merged.
unsafe extern "C" fn postconfiguration(cf: *mut ngx_conf_t) -> ngx_int_t {
    guard(NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx passes its configuration in the making, with a log.
        let (conf, reading) = unsafe { (Module::main_conf(&*cf), Conf::new(cf)) };
        match conf.zip(reading) {
            // Without rules, requests need not pass us. Handlers are the configuration's own.
            Some((conf, mut reading)) if conf.has_rules() => {
                conf.warn_of_sharing(&mut reading);
                handler::install(cf, conf)
            }
            _ => NGX_OK as ngx_int_t,
        }
    })
}

/// Always installs the filter: the chain of filters is one for all configurations, and stays that of
/// the last one that was read, even if nginx then goes on with the one before.
unsafe extern "C" fn filter_postconfiguration(_cf: *mut ngx_conf_t) -> ngx_int_t {
    headers::install();
    NGX_OK as ngx_int_t
}

/// When the configuration is complete and its zones are mapped; in the master, and with `-t`.
unsafe extern "C" fn init_module(cycle: *mut ngx_cycle_t) -> ngx_int_t {
    guard(NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx passes the new cycle.
        let cycle = unsafe { &*cycle };
        // Without a block `http` there is no configuration.
        let Some(conf) = Module::main_conf(cycle) else {
            sync::end();
            return NGX_OK as ngx_int_t;
        };
        conf.attach(cycle.log);
        if let Err(error) = conf.share(workers(cycle)) {
            let message = format_args!("ratelimit: no store is asked about requests ({error})");
            log::error(NGX_LOG_ERR, cycle.log, message);
        }
        // SAFETY: nginx keeps the cycle before until the new one serves.
        if let Some(old) = unsafe { cycle.old_cycle.as_ref() }.and_then(conf_of_this_module) {
            conf.warn_of_new_starts(old, cycle.log);
        }
        // SAFETY: as in `init_process`. A process that is master and worker in one goes on without
        // being initialized anew; when it starts, it is.
        if unsafe { ngx_process } == NGX_PROCESS_SINGLE && sync::is_started() {
            start_sync(conf, cycle);
        }
        NGX_OK as ngx_int_t
    })
}

/// How many workers a configuration has.
fn workers(cycle: &ngx_cycle_t) -> usize {
    // SAFETY: a cycle whose configuration was read has that of nginx's core module.
    let processes = unsafe {
        let conf = *cycle.conf_ctx.add(ngx_core_module.index);
        (*conf.cast::<ngx_core_conf_t>()).worker_processes
    };
    usize::try_from(processes).unwrap_or(1)
}

/// Starts to sync in this process.
fn start_sync(conf: &'static MainConf, cycle: &ngx_cycle_t) {
    // SAFETY: nginx numbered its workers before it made this one; a process that is master and worker
    // in one has number 0.
    let worker = unsafe { ngx_worker };
    let (namespaces, stores) = (conf.synced(), conf.deciding());
    sync::start(worker, namespaces, stores, conf.shared_queues(), cycle.log);
}

/// The configuration that a cycle has of this very module: one that was loaded from another file
/// since may have made it otherwise.
fn conf_of_this_module(cycle: &ngx_cycle_t) -> Option<&MainConf> {
    if cycle.conf_ctx.is_null() || cycle.modules.is_null() {
        return None;
    }
    // SAFETY: a cycle that has modules has so many.
    let modules = unsafe { core::slice::from_raw_parts(cycle.modules, cycle.modules_n) };
    let is_there = modules
        .iter()
        .any(|&module| ptr::eq(module, Module::module()));
    is_there.then(|| Module::main_conf(cycle)).flatten()
}

/// When a worker starts.
unsafe extern "C" fn init_process(cycle: *mut ngx_cycle_t) -> ngx_int_t {
    guard(NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx passes the cycle, and numbered its workers before it made this one.
        let (cycle, worker) = unsafe { (&*cycle, ngx_worker) };
        if let Some(conf) = Module::main_conf(cycle) {
            conf.set_worker(worker);
            // The cache manager and loader come here too, and leave without a word.
            // SAFETY: nginx sets it before it calls.
            let process = unsafe { ngx_process };
            if process == NGX_PROCESS_WORKER || process == NGX_PROCESS_SINGLE {
                start_sync(conf, cycle);
            }
        }
        NGX_OK as ngx_int_t
    })
}

/// When a worker ends.
unsafe extern "C" fn exit_process(_cycle: *mut ngx_cycle_t) {
    guard((), sync::stop);
}

/// What nginx looks up in a module's file. nginx's own configure generates it where it builds us.
#[cfg(feature = "export-modules")]
mod exports {
    use super::*;

    /// Strings for nginx.
    #[repr(transparent)]
    pub(super) struct Names<const N: usize>([*const c_char; N]);

    // SAFETY: the pointers are to literals.
    unsafe impl<const N: usize> Sync for Names<N> {}

    /// The modules.
    #[unsafe(no_mangle)]
    pub(super) static mut ngx_modules: [*mut ngx_module_t; 3] = [
        &raw mut ngx_http_rate_limiting_module,
        &raw mut ngx_http_rate_limiting_filter_module,
        ptr::null_mut(),
    ];

    /// Their names.
    #[unsafe(no_mangle)]
    pub(super) static ngx_module_names: Names<3> = Names([
        c"ngx_http_rate_limiting_module".as_ptr(),
        c"ngx_http_rate_limiting_filter_module".as_ptr(),
        ptr::null(),
    ]);

    /// Their order: each goes before the first of those that follow it here. Handlers run in
    /// reverse order: ours after that of realip, which sets the client's address. Filters too:
    /// ours before that of headers, which `add_header` and `expires` change.
    #[unsafe(no_mangle)]
    pub(super) static ngx_module_order: Names<5> = Names([
        c"ngx_http_rate_limiting_module".as_ptr(),
        c"ngx_http_realip_module".as_ptr(),
        c"ngx_http_rate_limiting_filter_module".as_ptr(),
        c"ngx_http_copy_filter_module".as_ptr(),
        ptr::null(),
    ]);
}
