//! The nginx modules, and the callbacks at the stages of their life.
//!
//! There are two modules in one file: the phase handler's module must come before the realip
//! module, since handlers run in reverse order, and a module at that place cannot install a header
//! filter.

use core::ffi::{c_char, c_void};
use core::ptr;

use nginx_sys::{
    NGX_ERROR, NGX_HTTP_MODULE, NGX_LOG_ERR, NGX_OK, ngx_command_t, ngx_conf_t, ngx_cycle_t,
    ngx_http_module_t, ngx_int_t, ngx_module_t, ngx_uint_t,
};
use ngx::core::{NGX_CONF_ERROR, NGX_CONF_OK};
use ngx::http::{
    HttpModule as _, HttpModuleLocationConf as _, HttpModuleMainConf as _, NgxHttpCoreModule,
};

use super::conf::{COMMANDS, Conf, ContentHandlers, LocationConf, MainConf, watched};
use super::cycle::{self, Cycle};
use super::event_loop::guard;
use super::http::api::{awaited, pages};
use super::http::held::suspension;
use super::http::{api, context, delayed, handler, headers, reserves, synchronous, variables};
use super::log::{self, Log};
use super::module::Module;
use super::{capi, holds, sync};
use crate::broker::Asker;
use crate::broker::shared::message::Reply;
use crate::conf::words::message::ConfError;

static CONTEXT: ngx_http_module_t = ngx_http_module_t {
    preconfiguration: Some(preconfiguration),
    postconfiguration: Some(postconfiguration),
    create_main_conf: Some(Module::create_main_conf),
    init_main_conf: Some(init_main_conf),
    create_srv_conf: None,
    merge_srv_conf: None,
    create_loc_conf: Some(create_loc_conf),
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

/// Runs before `http` is read.
unsafe extern "C" fn preconfiguration(cf: *mut ngx_conf_t) -> ngx_int_t {
    guard(NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx passes the configuration that it is reading.
        status_of(unsafe { Conf::with(cf, prepare) })
    })
}

/// Converts a callback's result to nginx's; `None` is an error that was logged.
fn status_of(result: Option<()>) -> ngx_int_t {
    match result {
        Some(()) => NGX_OK as ngx_int_t,
        None => NGX_ERROR as ngx_int_t,
    }
}

/// Prepares for reading `http`. `None` is an error that was logged.
fn prepare(conf: &mut Conf<'_>) -> Option<()> {
    if conf.has_module(c"ngx_http_ratelimit_module") {
        conf.refuse(
            "ngx_http_rate_limiting_module and ngx_http_ratelimit_module have directives of the same \
             names: load only one of them"
                .into(),
        );
        return None;
    }
    let main = Module::main_conf_mut(conf)?;
    main.context_slot = context::add_slot(conf)?;
    main.suspension_slot = suspension::add_slot(conf)?;
    main.delay_slot = delayed::add_slot(conf)?;
    main.content_handlers =
        Some(ContentHandlers { api: api::handle, metrics: pages::handle_metrics });
    watched::begin(conf);
    variables::add(conf)
}

/// Runs after `http` was read.
unsafe extern "C" fn init_main_conf(cf: *mut ngx_conf_t, conf: *mut c_void) -> *mut c_char {
    guard(NGX_CONF_ERROR, || {
        // SAFETY: nginx passes the configuration that it is reading, and the value of
        // `create_main_conf`.
        unsafe {
            let main = &mut *conf.cast::<MainConf>();
            Conf::with(cf, |conf| {
                watched::end(conf);
                let result = main.resolve(conf).and_then(|()| find_windows(conf));
                conf.outcome(result)
            })
        }
    })
}

/// Runs when nginx begins to read `http`, or a level within another one.
unsafe extern "C" fn create_loc_conf(cf: *mut ngx_conf_t) -> *mut c_void {
    guard(ptr::null_mut(), || {
        // SAFETY: nginx passes the configuration that it is reading. The result is a new value of
        // this type, or null if there is no memory.
        unsafe {
            let created = Module::create_loc_conf(cf);
            if let Some(level) = created.cast::<LocationConf>().as_mut() {
                Conf::with(cf, |conf| {
                    // nginx creates a level while it is still in the level around it.
                    let around = conf.is_in_http().then(|| Module::location_conf(conf));
                    level.begin_within(around.flatten());
                });
            }
            created
        }
    })
}

unsafe extern "C" fn merge_loc_conf(
    cf: *mut ngx_conf_t,
    prev: *mut c_void,
    conf: *mut c_void,
) -> *mut c_char {
    guard(NGX_CONF_ERROR, || {
        // SAFETY: nginx passes the configuration that it is reading, and the values that
        // `create_loc_conf` created for two different levels.
        let merged = unsafe {
            let (prev, level) = (&*prev.cast::<LocationConf>(), &mut *conf.cast());
            Conf::with(cf, |conf| merge(conf, prev, level))
        };
        match merged {
            Some(()) => NGX_CONF_OK,
            None => NGX_CONF_ERROR,
        }
    })
}

/// Merges a level with the level above. `None` is an error that was logged, or there is no
/// configuration.
fn merge(conf: &mut Conf<'_>, prev: &LocationConf, level: &mut LocationConf) -> Option<()> {
    if let Some(handlers) = Module::main_conf(conf)?.content_handlers {
        if has_other_content(conf, handlers, level) {
            conf.refuse(level.other_content());
            return None;
        }
        inherit_content(conf, handlers, prev, level);
    }
    let main = Module::main_conf(conf)?;
    if let Err(error) = level.find_windows(main.configuration()) {
        conf.refuse(error);
        return None;
    }
    level.inherit(prev, main.context_slot);
    main.record_level(level);
    Some(())
}

/// Gives rules of `http` with a list of limits the windows of their namespaces.
fn find_windows(conf: &mut Conf<'_>) -> Result<(), ConfError> {
    let main = Module::main_conf(conf);
    match (main, Module::location_conf_mut(conf)) {
        (Some(main), Some(level)) => level.find_windows(main.configuration()),
        _ => Ok(()),
    }
}

/// Returns whether another module has replaced the content handler of a location of this module.
fn has_other_content(conf: &Conf<'_>, handlers: ContentHandlers, level: &LocationConf) -> bool {
    let core = NgxHttpCoreModule::location_conf(conf);
    let (Some(content), Some(handler)) = (level.content(), core.and_then(|core| core.handler))
    else {
        return false;
    };
    !ptr::fn_addr_eq(handler, handlers.of(content))
}

/// Makes blocks in a location, such as `if` and `limit_except`, use the location's content handler.
fn inherit_content(
    conf: &Conf<'_>,
    handlers: ContentHandlers,
    prev: &LocationConf,
    level: &mut LocationConf,
) {
    let core = NgxHttpCoreModule::location_conf_mut(conf);
    let core = core.filter(|core| core.noname() != 0 || core.lmt_excpt() != 0);
    if let (Some(core), Some(content)) = (core.filter(|it| it.handler.is_none()), prev.content()) {
        core.handler = Some(handlers.of(content));
        level.inherit_content(prev);
    }
}

/// Runs after all levels were merged.
unsafe extern "C" fn postconfiguration(cf: *mut ngx_conf_t) -> ngx_int_t {
    guard(NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx passes the configuration that it is reading.
        status_of(unsafe { Conf::with(cf, install) })
    })
}

/// Installs the phase handlers if there are rules. Handlers belong to one configuration. `None`
/// without memory.
fn install(conf: &mut Conf<'_>) -> Option<()> {
    match Module::main_conf(conf) {
        Some(main) => {
            main.list_applied(conf);
            match main.has_rules() {
                true => handler::install(conf, main),
                false => Some(()),
            }
        }
        None => Some(()),
    }
}

/// Installs the header filter in any case. All configurations share one chain of filters, which
/// stays that of the configuration read last, even if nginx continues with the one before.
unsafe extern "C" fn filter_postconfiguration(_cf: *mut ngx_conf_t) -> ngx_int_t {
    headers::install();
    NGX_OK as ngx_int_t
}

/// Runs when the configuration is complete and its zones are mapped, in the master and with `-t`.
unsafe extern "C" fn init_module(cycle: *mut ngx_cycle_t) -> ngx_int_t {
    guard(NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx passes the new cycle.
        unsafe { Cycle::with(cycle, begin) };
        NGX_OK as ngx_int_t
    })
}

/// Prepares a configuration, which nginx may still abandon.
fn begin(cycle: &Cycle<'_>) {
    capi::begin();
    // Without an `http` block there is no configuration.
    let Some(conf) = Module::main_conf(cycle) else {
        return end_sync();
    };
    let before = cycle.before().filter(|it| it.has(Module::module()));
    conf.attach(before.and_then(Module::main_conf), cycle.log());
    if let Err(error) = conf.share(cycle.workers()) {
        let message = format_args!(
            "ratelimit: no store is asked about requests, and nothing is pushed early ({error})"
        );
        log::error(NGX_LOG_ERR, cycle.log(), message);
    }
    // A process that is both master and worker switches to the new configuration here.
    // `init_process` runs only when it starts.
    if cycle::is_single() && sync::is_started() {
        start_sync(conf, cycle);
    }
}

/// Runs when a worker starts.
unsafe extern "C" fn init_process(cycle: *mut ngx_cycle_t) -> ngx_int_t {
    guard(NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx passes the cycle that it serves.
        unsafe { Cycle::with(cycle, serve) };
        NGX_OK as ngx_int_t
    })
}

/// Starts to serve a configuration in a worker.
fn serve(cycle: &Cycle<'_>) {
    if let Some(conf) = Module::main_conf(cycle) {
        conf.set_worker(cycle::worker());
        // The cache manager and the cache loader come here too, but never call `exit_process`.
        if cycle::is_serving() {
            conf.forget_late_losses();
            start_sync(conf, cycle);
        }
    }
}

/// Starts to sync and to look after holds for this configuration, after the syncs of any other one have ended.
fn start_sync(conf: &'static MainConf, cycle: &Cycle<'_>) {
    end_sync();
    // SAFETY: all that uses the log ends before the cycle does: here, and in `begin`.
    let log = unsafe { Log::new(cycle.log().as_ptr()) };
    let (namespaces, stores) = (conf.synced(), conf.deciding());
    let shared = (conf.shared_queues(), conf.bells());
    sync::start(namespaces, stores, shared, conf.late(), pass_replies, log);
    if conf.has_holds() {
        holds::start(conf, log);
    }
}

/// Ends all syncs of this process, and the look after holds.
fn end_sync() {
    holds::end();
    if sync::is_started() {
        end_replies();
    }
    sync::end();
}

/// Runs when a worker ends.
unsafe extern "C" fn exit_process(_cycle: *mut ngx_cycle_t) {
    guard((), || {
        holds::end();
        capi::end();
        // The last push includes the hits that are given back here.
        reserves::end();
        sync::stop();
    });
}

/// Symbols that nginx looks up in a module's file. When nginx builds the module itself, its
/// configure script generates them.
#[cfg(feature = "export-modules")]
mod exports {
    use super::*;

    // nginx finds the modules by the tables below, so that a `.so` need not export them, too.
    core::arch::global_asm!(
        ".globl ngx_http_rate_limiting_module, ngx_http_rate_limiting_filter_module",
        ".hidden ngx_http_rate_limiting_module, ngx_http_rate_limiting_filter_module",
    );

    /// Array of C strings.
    #[repr(transparent)]
    pub(super) struct Names<const N: usize>([*const c_char; N]);

    // SAFETY: the pointers are to literals.
    unsafe impl<const N: usize> Sync for Names<N> {}

    /// The modules of this file.
    #[unsafe(no_mangle)]
    pub(super) static mut ngx_modules: [*mut ngx_module_t; 3] = [
        &raw mut ngx_http_rate_limiting_module,
        &raw mut ngx_http_rate_limiting_filter_module,
        ptr::null_mut(),
    ];

    /// The names of the modules.
    #[unsafe(no_mangle)]
    pub(super) static ngx_module_names: Names<3> = Names([
        c"ngx_http_rate_limiting_module".as_ptr(),
        c"ngx_http_rate_limiting_filter_module".as_ptr(),
        ptr::null(),
    ]);

    /// The order of the modules: each goes before the first of the names that follow it here.
    /// Handlers run in reverse order, so this module's run after those of realip, which sets the
    /// client's address. Filters do, too: this module's runs before the headers filter, so that
    /// `add_header` and `expires` can change its headers.
    #[unsafe(no_mangle)]
    pub(super) static ngx_module_order: Names<5> = Names([
        c"ngx_http_rate_limiting_module".as_ptr(),
        c"ngx_http_realip_module".as_ptr(),
        c"ngx_http_rate_limiting_filter_module".as_ptr(),
        c"ngx_http_copy_filter_module".as_ptr(),
        ptr::null(),
    ]);
}

/// Passes replies to callers of the library, requests, API requests, and reserves. Keeps their
/// order, in runs of one kind, since a later reply about a counter is newer.
fn pass_replies(replies: Vec<Reply>) {
    let mut replies = replies.into_iter().peekable();
    while let Some(first) = replies.next() {
        let asker = Asker::of(first.0);
        let mut run = vec![first];
        while let Some(next) = replies.next_if(|(id, _)| Asker::of(*id) == asker) {
            run.push(next);
        }
        match asker {
            Asker::Caller => capi::take_replies(run),
            Asker::Api => awaited::take_replies(run),
            Asker::Request => synchronous::take_replies(run),
            Asker::Reserve => run.into_iter().for_each(reserves::take),
        }
    }
}

/// Ends all waits without an answer, since no answers will come any more.
fn end_replies() {
    sync::end_questions();
    synchronous::fail_all();
    capi::fail_all();
    awaited::fail_all();
    reserves::end();
}
