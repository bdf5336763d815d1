//! A configuration that nginx is reading. Only this type holds nginx's pointer to it.

use core::ffi::{CStr, c_char, c_void};
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nginx_sys::{
    NGX_HTTP_MODULE, NGX_LOG_EMERG, NGX_LOG_WARN, ngx_array_push, ngx_array_t, ngx_command_t,
    ngx_conf_log_error, ngx_conf_t, ngx_hash_key_t, ngx_http_add_variable,
    ngx_http_get_variable_index, ngx_http_handler_pt, ngx_http_request_t, ngx_http_variable_t,
    ngx_int_t, ngx_list_part_t, ngx_module_t, ngx_pagesize, ngx_pstrdup, ngx_shared_memory_add,
    ngx_shm_zone_t, ngx_str_t, ngx_uint_t,
};
use ngx::core::{NGX_CONF_ERROR, NGX_CONF_OK};
use ngx::http::{
    HttpModule as _, HttpModuleConfExt, HttpModuleLocationConf as _, HttpModuleMainConf as _,
    NgxHttpCoreModule,
};

use crate::conf::words::message::{ConfError, Message, Origin};
use crate::conf::words::settings::Content;
use crate::nginx::log;
use crate::nginx::log::Log;
use crate::nginx::module::Module;
use crate::nginx::request::bytes;
use crate::nginx::zone::Zone;

/// nginx's callback for a phase of a request.
pub(crate) type PhaseHandler = unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t;

/// nginx's `ngx_conf_t`, for the time of the callback that nginx passed it to.
#[derive(Debug)]
pub(crate) struct Conf<'cf> {
    raw: *mut ngx_conf_t,
    callback: PhantomData<&'cf mut ngx_conf_t>,
}

impl<'cf> Conf<'cf> {
    /// Calls `callback` with a configuration that nginx is reading.
    ///
    /// # Safety
    ///
    /// nginx passed `raw` to a callback that has not returned, and `raw` has a cycle, a pool and a
    /// log. Nothing uses it meanwhile, except for nginx's functions that `callback` calls, and
    /// their callbacks.
    pub(crate) unsafe fn with<T>(
        raw: *mut ngx_conf_t,
        callback: impl FnOnce(&mut Conf<'_>) -> T,
    ) -> T {
        callback(&mut Conf { raw, callback: PhantomData })
    }

    /// Returns the pointer, for nginx's functions.
    pub(crate) fn as_ptr(&self) -> *mut ngx_conf_t {
        self.raw
    }

    fn raw(&self) -> &ngx_conf_t {
        // SAFETY: by the contract of `with`; no function of nginx is called while the result is
        // used.
        unsafe { &*self.raw }
    }

    /// Returns the words of the directive that nginx has just parsed, of which the first is its
    /// name.
    pub(super) fn words(&self) -> Vec<&'cf [u8]> {
        // SAFETY: `args` is an array of strings, which live in the cycle's pool and outlive the
        // callback.
        let words = unsafe { (*self.raw().args).as_slice::<ngx_str_t>() }.iter();
        // SAFETY: as above, the strings outlive the callback.
        words.map(|word| unsafe { bytes(word) }).collect()
    }

    /// Returns nginx's current position in the configuration.
    pub(super) fn origin(&self) -> Origin {
        // SAFETY: `conf_file` is the file that nginx is reading; it is null for `-g`.
        match unsafe { self.raw().conf_file.as_ref() } {
            Some(file) => Origin {
                file: String::from_utf8_lossy(file.file.name.as_bytes()).into(),
                line: file.line,
            },
            None => Origin::unknown(),
        }
    }

    /// Returns whether nginx reads the inside of `http`, so that the configuration has a level.
    pub(crate) fn is_in_http(&self) -> bool {
        self.raw().module_type == NGX_HTTP_MODULE as ngx_uint_t
    }

    /// Returns the log for messages about the configuration.
    pub(super) fn log(&self) -> Log<'cf> {
        // SAFETY: by the contract of `with`, there is a log; it lives as long as the cycle.
        unsafe { Log::new(self.raw().log) }
    }

    /// Logs an error at level `emerg`, unless nginx has logged it.
    pub(crate) fn refuse(&mut self, error: ConfError) {
        match error {
            ConfError::Wrong(message) => self.say(NGX_LOG_EMERG, message),
            ConfError::Logged => {}
        }
    }

    /// Logs the error of a result, and converts the result to nginx's return value.
    pub(crate) fn outcome(&mut self, result: Result<(), ConfError>) -> *mut c_char {
        match result {
            Ok(()) => NGX_CONF_OK,
            Err(error) => {
                self.refuse(error);
                NGX_CONF_ERROR
            }
        }
    }

    /// Logs a warning at level `warn`.
    pub(super) fn warn(&mut self, warning: Message) {
        self.say(NGX_LOG_WARN, warning);
    }

    fn say(&mut self, level: log::NgxLogLevel, message: Message) {
        match message {
            // SAFETY: nginx is reading a directive. The format takes a length and a pointer to that
            // many bytes, and gets those of the message.
            Message::Here(message) => unsafe {
                ngx_conf_log_error(
                    level as ngx_uint_t,
                    self.as_ptr(),
                    0,
                    c"%*s".as_ptr(),
                    message.len(),
                    message.as_ptr(),
                );
            },
            Message::At(origin, message) => {
                log::error(level, self.log(), format_args!("{message} in {origin}"));
            }
        }
    }

    /// Copies `text` to the cycle's pool, so that nginx may keep pointers to it. `None` without
    /// memory, which nginx has logged.
    pub(super) fn keep(&self, text: &[u8]) -> Option<ngx_str_t> {
        let len = text.len();
        let mut text = ngx_str_t { len, data: text.as_ptr().cast_mut() };
        // SAFETY: the pool is the cycle's, and nginx only reads `text`.
        let data = unsafe { ngx_pstrdup(self.raw().pool, &mut text) };
        (!data.is_null()).then_some(ngx_str_t { len, data })
    }

    /// Returns the directory of the configuration, to which its paths are relative.
    pub(super) fn prefix(&self) -> PathBuf {
        use std::os::unix::ffi::OsStrExt as _;
        // SAFETY: nginx passes the new cycle, whose prefix lives as long as the cycle.
        let prefix = unsafe { bytes(&(*self.raw().cycle).conf_prefix) };
        Path::new(std::ffi::OsStr::from_bytes(prefix)).into()
    }

    /// Returns the size of a memory page in bytes.
    pub(super) fn page_size(&self) -> usize {
        // SAFETY: nginx sets `ngx_pagesize` before it reads the configuration.
        unsafe { ngx_pagesize }
    }

    /// Returns whether a module with this name is loaded.
    pub(crate) fn has_module(&self, name: &CStr) -> bool {
        self.module(name).is_some()
    }

    /// Returns the module with this name; `None` if it is not loaded.
    pub(super) fn module(&self, name: &CStr) -> Option<*mut ngx_module_t> {
        let mut modules = self.modules().iter().copied();
        // SAFETY: each module has a NUL-terminated name.
        modules.find(|&it| unsafe { CStr::from_ptr((*it).name) } == name)
    }

    /// Returns whether a module is loaded.
    pub(super) fn has(&self, module: *const ngx_module_t) -> bool {
        self.modules().iter().any(|it| ptr::eq(*it, module))
    }

    /// Returns the loaded modules.
    pub(super) fn modules(&self) -> &[*mut ngx_module_t] {
        // SAFETY: nginx passes the new cycle, with `modules_n` modules.
        unsafe {
            let cycle = self.raw().cycle;
            core::slice::from_raw_parts((*cycle).modules, (*cycle).modules_n)
        }
    }

    /// Returns whether a module was loaded from a file other than nginx's and this module's.
    pub(super) fn has_foreign_module(&self) -> bool {
        let nginx = file_of((&raw const ngx_pagesize).cast());
        let ours = file_of(ptr::from_ref(Module::module()).cast());
        let mut files = self.modules().iter().map(|it| file_of(it.cast_const().cast()));
        files.any(|file| file != nginx && file != ours)
    }

    /// Returns whether any module has a directive with this name.
    pub(super) fn has_directive(&self, name: &[u8]) -> bool {
        let mut commands = self.modules().iter().copied().flat_map(commands_of);
        // SAFETY: a directive's name lives as long as its module.
        commands.any(|command| unsafe { (*command).name.as_bytes() } == name)
    }

    /// Returns whether there is a variable with this name. Names are compared in lower case, as
    /// nginx does.
    pub(super) fn has_variable(&self, name: &[u8]) -> bool {
        let name = name.to_ascii_lowercase();
        let Some(core) = NgxHttpCoreModule::main_conf(self) else {
            return false;
        };
        // SAFETY: while nginx reads `http`, `variables_keys` is an array of keys, and the other
        // arrays are of variables. The names live as long as the cycle.
        unsafe {
            let keys = core.variables_keys.as_ref();
            let keys = keys.map_or(&[][..], |keys| elements::<ngx_hash_key_t>(&keys.keys));
            let indexed = elements::<ngx_http_variable_t>(&core.variables);
            let families = elements::<ngx_http_variable_t>(&core.prefix_variables);
            keys.iter().any(|it| it.key.as_bytes() == name)
                || families.iter().any(|it| name.starts_with(it.name.as_bytes()))
                || indexed.iter().any(|it| it.get_handler.is_some() && it.name.as_bytes() == name)
        }
    }

    /// Returns whether any module has defined or used a shared memory zone with this name.
    pub(super) fn has_zone(&self, name: &str) -> bool {
        // SAFETY: nginx passes the new cycle, whose zones are a list of `ngx_shm_zone_t`.
        unsafe {
            let mut part: *const ngx_list_part_t =
                &raw const (*self.raw().cycle).shared_memory.part;
            while let Some(zones) = part.as_ref() {
                for index in 0..zones.nelts {
                    let zone = &*zones.elts.cast::<ngx_shm_zone_t>().add(index);
                    if zone.shm.name.as_bytes() == name.as_bytes() {
                        return true;
                    }
                }
                part = zones.next;
            }
        }
        false
    }

    /// Makes nginx map a zone, which lives as long as the cycle. `None` without memory, which nginx
    /// has logged.
    pub(super) fn add_zone(&mut self, zone: &Rc<Zone>) -> Option<()> {
        let mut name = self.keep(zone.name.as_bytes())?;
        let tag = ptr::from_ref(Module::module()).cast_mut().cast();
        // SAFETY: nginx is reading the configuration. The tag distinguishes this module's zones
        // from those of others. The name is in the cycle's pool.
        let shm_zone =
            unsafe { ngx_shared_memory_add(self.as_ptr(), &mut name, zone.size, tag).as_mut() }?;
        shm_zone.init = Some(Zone::init);
        shm_zone.data = Rc::as_ptr(zone).cast_mut().cast();
        Some(())
    }

    /// Adds a variable, whose name must end with a NUL. `None` without memory, which nginx has
    /// logged.
    pub(crate) fn add_variable(
        &mut self,
        mut name: ngx_str_t,
        flags: ngx_uint_t,
    ) -> Option<&mut ngx_http_variable_t> {
        // SAFETY: nginx is reading the configuration; it copies the name in lower case.
        unsafe { ngx_http_add_variable(self.as_ptr(), &mut name, flags).as_mut() }
    }

    /// Returns the index of the variable `name`, which may be defined later. `None` without memory,
    /// which nginx has logged.
    pub(crate) fn variable(&mut self, name: &[u8]) -> Option<ngx_uint_t> {
        let mut name = ngx_str_t { len: name.len(), data: name.as_ptr().cast_mut() };
        // SAFETY: as in `add_variable`.
        let index = unsafe { ngx_http_get_variable_index(self.as_ptr(), &mut name) };
        ngx_uint_t::try_from(index).ok()
    }

    /// Makes a phase call `handler` before the handlers that were added so far. `None` without
    /// memory.
    pub(crate) fn add_handler(&mut self, phase: u32, handler: PhaseHandler) -> Option<()> {
        let core = NgxHttpCoreModule::main_conf_mut(self)?;
        let phase = core.phases.get_mut(phase as usize)?;
        // SAFETY: the phase's array holds handlers.
        let place =
            unsafe { ngx_array_push(&mut phase.handlers).cast::<ngx_http_handler_pt>().as_mut() };
        *place? = Some(handler);
        Some(())
    }

    /// Sets the content handler of the location that is being read. Returns false if another module
    /// has set one. `None` outside a location.
    pub(super) fn answer_with(&mut self, handler: ContentHandler) -> Option<bool> {
        let core = NgxHttpCoreModule::location_conf_mut(self)?;
        if core.handler.is_some() {
            return Some(false);
        }
        core.handler = Some(handler);
        Some(true)
    }
}

/// Returns the base address of the program or library that `address` belongs to.
fn file_of(address: *const c_void) -> Option<usize> {
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: `dladdr` looks the address up and does not read from it.
    let is_found = unsafe { libc::dladdr(address, &mut info) } != 0;
    is_found.then(|| info.dli_fbase.addr())
}

/// Returns the directives of a module.
pub(super) fn commands_of(module: *mut ngx_module_t) -> impl Iterator<Item = *mut ngx_command_t> {
    // SAFETY: nginx has loaded the module. Its directives end with an empty name, or the pointer is
    // null.
    let first = unsafe { (*module).commands };
    let count = if first.is_null() { 0 } else { usize::MAX };
    // SAFETY: `take_while` below stops at the last directive, so the pointer stays within the
    // array.
    let all = (0..count).map(move |index| unsafe { first.add(index) });
    // SAFETY: as above, the directive is in the array.
    all.take_while(|&command| unsafe { (*command).name.len } > 0)
}

/// # Safety
///
/// `array` holds values of type `T`, and lives as long as the result.
unsafe fn elements<T>(array: &ngx_array_t) -> &[T] {
    if array.nelts == 0 {
        return &[];
    }
    // SAFETY: a non-empty `ngx_array_t` has `nelts` elements.
    unsafe { core::slice::from_raw_parts(array.elts.cast(), array.nelts) }
}

impl HttpModuleConfExt for Conf<'_> {
    unsafe fn http_main_conf_unchecked<T>(&self, module: &ngx_module_t) -> Option<NonNull<T>> {
        // SAFETY: nginx is reading the `http` block; the caller vouches for the type.
        unsafe { self.raw().http_main_conf_unchecked(module) }
    }

    unsafe fn http_location_conf_unchecked<T>(&self, module: &ngx_module_t) -> Option<NonNull<T>> {
        // SAFETY: nginx is reading a level of the `http` block; the caller vouches for the type.
        unsafe { self.raw().http_location_conf_unchecked(module) }
    }
}

/// nginx's callback for a location's content.
pub(crate) type ContentHandler = unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t;

/// The content handlers, which are set before the configuration is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentHandlers {
    pub(crate) api: ContentHandler,
    pub(crate) metrics: ContentHandler,
}

impl ContentHandlers {
    /// Returns the handler of `content`.
    pub(crate) fn of(self, content: Content) -> ContentHandler {
        match content {
            Content::Api { .. } => self.api,
            Content::Metrics => self.metrics,
        }
    }
}
