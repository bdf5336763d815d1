//! A configuration that nginx is reading: the one type that has nginx's pointer to it.

use core::ffi::{CStr, c_char, c_void};
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nginx_sys::{
    NGX_LOG_EMERG, NGX_LOG_WARN, ngx_array_push, ngx_array_t, ngx_command_t, ngx_conf_log_error,
    ngx_conf_t, ngx_hash_key_t, ngx_http_add_variable, ngx_http_get_variable_index,
    ngx_http_handler_pt, ngx_http_request_t, ngx_http_variable_t, ngx_int_t, ngx_list_part_t,
    ngx_module_t, ngx_pagesize, ngx_pstrdup, ngx_shared_memory_add, ngx_shm_zone_t, ngx_str_t,
    ngx_uint_t,
};
use ngx::core::{NGX_CONF_ERROR, NGX_CONF_OK};
use ngx::http::{
    HttpModule as _, HttpModuleConfExt, HttpModuleLocationConf as _, HttpModuleMainConf as _,
    NgxHttpCoreModule,
};

use super::content::ContentHandler;
use crate::conf::words::message::{ConfError, Message, Origin};
use crate::nginx::log;
use crate::nginx::log::Log;
use crate::nginx::module::Module;
use crate::nginx::request::bytes;
use crate::nginx::zone::Zone;

/// nginx's callback for a phase of a request.
pub(crate) type PhaseHandler = unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t;

/// nginx's `ngx_conf_t`, as long as the callback lasts to which nginx passed it.
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
    /// nginx passed `raw` to a callback that has not returned, and it has a cycle, a pool and a log. What
    /// else uses it meanwhile is only what is called by nginx, which is called by this.
    pub(crate) unsafe fn with<T>(
        raw: *mut ngx_conf_t,
        callback: impl FnOnce(&mut Conf<'_>) -> T,
    ) -> T {
        callback(&mut Conf { raw, callback: PhantomData })
    }

    /// The pointer, for nginx's own functions.
    pub(crate) fn as_ptr(&self) -> *mut ngx_conf_t {
        self.raw
    }

    fn raw(&self) -> &ngx_conf_t {
        // SAFETY: as `with` says; nginx is not called while the result is used.
        unsafe { &*self.raw }
    }

    /// The directive that nginx has just read: its name and its words.
    pub(super) fn words(&self) -> Vec<&'cf [u8]> {
        // SAFETY: `args` is an array of strings, which live in the cycle's pool: longer than the
        // callback.
        let words = unsafe { (*self.raw().args).as_slice::<ngx_str_t>() }.iter();
        // SAFETY: as above.
        words.map(|word| unsafe { bytes(word) }).collect()
    }

    /// Returns nginx's present place in the configuration.
    pub(super) fn origin(&self) -> Origin {
        // SAFETY: while nginx reads a file, `conf_file` tells which; it is null for `-g`.
        match unsafe { self.raw().conf_file.as_ref() } {
            Some(file) => Origin {
                file: String::from_utf8_lossy(file.file.name.as_bytes()).into(),
                line: file.line,
            },
            None => Origin::unknown(),
        }
    }

    /// The log of what is said of the configuration.
    pub(super) fn log(&self) -> Log<'cf> {
        // SAFETY: as `with` says, it has one; it lives as long as the cycle.
        unsafe { Log::new(self.raw().log) }
    }

    /// Writes the `[emerg]` line of what is wrong, unless nginx has.
    pub(crate) fn refuse(&mut self, error: ConfError) {
        match error {
            ConfError::Wrong(message) => self.say(NGX_LOG_EMERG, message),
            ConfError::Logged => {}
        }
    }

    /// Returns a callback's result to nginx; writes the line of an error.
    pub(crate) fn outcome(&mut self, result: Result<(), ConfError>) -> *mut c_char {
        match result {
            Ok(()) => NGX_CONF_OK,
            Err(error) => {
                self.refuse(error);
                NGX_CONF_ERROR
            }
        }
    }

    /// Writes a `[warn]` line.
    pub(super) fn warn(&mut self, warning: Message) {
        self.say(NGX_LOG_WARN, warning);
    }

    fn say(&mut self, level: log::NgxLogLevel, message: Message) {
        match message {
            // SAFETY: nginx reads a directive; the format takes a length and so many bytes, and those
            // are what it is given: words of the configuration, as they are.
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

    /// `text` in the cycle's pool, where nginx may keep pointers to it. `None`: no memory; nginx has
    /// logged it.
    pub(super) fn keep(&self, text: &[u8]) -> Option<ngx_str_t> {
        let len = text.len();
        let mut text = ngx_str_t { len, data: text.as_ptr().cast_mut() };
        // SAFETY: the pool is the cycle's; nginx only reads the text.
        let data = unsafe { ngx_pstrdup(self.raw().pool, &mut text) };
        (!data.is_null()).then_some(ngx_str_t { len, data })
    }

    /// The directory of the configuration, to which the paths in it are relative.
    pub(super) fn prefix(&self) -> PathBuf {
        use std::os::unix::ffi::OsStrExt as _;
        // SAFETY: nginx passes its cycle in the making, which has a path that lives as long.
        let prefix = unsafe { bytes(&(*self.raw().cycle).conf_prefix) };
        Path::new(std::ffi::OsStr::from_bytes(prefix)).into()
    }

    /// The size of a page of memory.
    pub(super) fn page_size(&self) -> usize {
        // SAFETY: nginx sets its page size before it reads any configuration.
        unsafe { ngx_pagesize }
    }

    /// Whether a module of this name was loaded.
    pub(crate) fn has_module(&self, name: &CStr) -> bool {
        self.module(name).is_some()
    }

    /// Returns the module of this name, if it was loaded.
    pub(super) fn module(&self, name: &CStr) -> Option<*mut ngx_module_t> {
        let mut modules = self.modules().iter().copied();
        // SAFETY: modules have names.
        modules.find(|&it| unsafe { CStr::from_ptr((*it).name) } == name)
    }

    /// Whether a module was loaded.
    pub(super) fn has(&self, module: *const ngx_module_t) -> bool {
        self.modules().iter().any(|it| ptr::eq(*it, module))
    }

    /// The modules that were loaded.
    pub(super) fn modules(&self) -> &[*mut ngx_module_t] {
        // SAFETY: nginx passes its cycle in the making, with all modules, which it counts.
        unsafe {
            let cycle = self.raw().cycle;
            core::slice::from_raw_parts((*cycle).modules, (*cycle).modules_n)
        }
    }

    /// Whether a module is there that is neither nginx's own nor ours: one that was loaded from another file.
    pub(super) fn has_foreign_module(&self) -> bool {
        let nginx = file_of((&raw const ngx_pagesize).cast());
        let ours = file_of(ptr::from_ref(Module::module()).cast());
        let mut files = self.modules().iter().map(|it| file_of(it.cast_const().cast()));
        files.any(|file| file != nginx && file != ours)
    }

    /// Whether a module has a directive of this name.
    pub(super) fn has_directive(&self, name: &[u8]) -> bool {
        let mut commands = self.modules().iter().copied().flat_map(commands_of);
        // SAFETY: names of directives live as long as their modules.
        commands.any(|command| unsafe { (*command).name.as_bytes() } == name)
    }

    /// Whether there is a variable of this name, as nginx looks for those of the configuration once it was read: in lower
    /// case.
    pub(super) fn has_variable(&self, name: &[u8]) -> bool {
        let name = name.to_ascii_lowercase();
        let Some(core) = NgxHttpCoreModule::main_conf(self) else {
            return false;
        };
        // SAFETY: while nginx reads `http`, `variables_keys` is an array of keys; the other arrays are of variables.
        // Names live as long as the cycle.
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

    /// Whether any module has a zone of this name, or uses one that is still to be defined.
    pub(super) fn has_zone(&self, name: &str) -> bool {
        // SAFETY: nginx passes its cycle in the making, whose zones are a list of `ngx_shm_zone_t`.
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

    /// Has nginx map a zone, which lives as long as the cycle. `None`: no memory; nginx has logged it.
    pub(super) fn add_zone(&mut self, zone: &Rc<Zone>) -> Option<()> {
        let mut name = self.keep(zone.name.as_bytes())?;
        let tag = ptr::from_ref(Module::module()).cast_mut().cast();
        // SAFETY: nginx reads the configuration; the tag tells our zones from other modules'. The name
        // is in the cycle's pool.
        let shm_zone =
            unsafe { ngx_shared_memory_add(self.as_ptr(), &mut name, zone.size, tag).as_mut() }?;
        shm_zone.init = Some(Zone::init);
        shm_zone.data = Rc::as_ptr(zone).cast_mut().cast();
        Some(())
    }

    /// Adds a variable, whose name ends with a NUL. `None`: no memory; nginx has logged it.
    pub(crate) fn add_variable(
        &mut self,
        mut name: ngx_str_t,
        flags: ngx_uint_t,
    ) -> Option<&mut ngx_http_variable_t> {
        // SAFETY: nginx reads the configuration; it copies the name, in lower case.
        unsafe { ngx_http_add_variable(self.as_ptr(), &mut name, flags).as_mut() }
    }

    /// The number of the variable `name`, which need not be there yet. `None`: no memory; nginx has
    /// logged it.
    pub(crate) fn variable(&mut self, name: &[u8]) -> Option<ngx_uint_t> {
        let mut name = ngx_str_t { len: name.len(), data: name.as_ptr().cast_mut() };
        // SAFETY: as above.
        let index = unsafe { ngx_http_get_variable_index(self.as_ptr(), &mut name) };
        ngx_uint_t::try_from(index).ok()
    }

    /// Has a phase call `handler`, before those that were added so far. `None`: no memory.
    pub(crate) fn add_handler(&mut self, phase: u32, handler: PhaseHandler) -> Option<()> {
        let core = NgxHttpCoreModule::main_conf_mut(self)?;
        let phase = core.phases.get_mut(phase as usize)?;
        // SAFETY: the phase's array is one of handlers.
        let place =
            unsafe { ngx_array_push(&mut phase.handlers).cast::<ngx_http_handler_pt>().as_mut() };
        *place? = Some(handler);
        Some(())
    }

    /// Has the location that is being read answer so, and returns whether it does: not if another module says what it
    /// answers with. `None`: there is no location.
    pub(super) fn answer_with(&mut self, handler: ContentHandler) -> Option<bool> {
        let core = NgxHttpCoreModule::location_conf_mut(self)?;
        if core.handler.is_some() {
            return Some(false);
        }
        core.handler = Some(handler);
        Some(true)
    }
}

/// Returns where the file begins in memory that something is of: the program, or a library.
fn file_of(address: *const c_void) -> Option<usize> {
    // SAFETY: all-zero is a valid value of this plain structure of C.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: the function looks the address up, and does not read there.
    let is_found = unsafe { libc::dladdr(address, &mut info) } != 0;
    is_found.then(|| info.dli_fbase.addr())
}

/// Returns the directives of a module.
pub(super) fn commands_of(module: *mut ngx_module_t) -> impl Iterator<Item = *mut ngx_command_t> {
    // SAFETY: nginx has loaded the module, whose directives end with one that has no name, or that has none.
    let first = unsafe { (*module).commands };
    let count = if first.is_null() { 0 } else { usize::MAX };
    // SAFETY: as above: none after the last is looked at.
    let all = (0..count).map(move |index| unsafe { first.add(index) });
    // SAFETY: as above.
    all.take_while(|&command| unsafe { (*command).name.len } > 0)
}

/// # Safety
///
/// The array is one of `T`, and lives as long as the result is used.
unsafe fn elements<T>(array: &ngx_array_t) -> &[T] {
    if array.nelts == 0 {
        return &[];
    }
    // SAFETY: an array of nginx's that is not empty has so many elements.
    unsafe { core::slice::from_raw_parts(array.elts.cast(), array.nelts) }
}

impl HttpModuleConfExt for Conf<'_> {
    unsafe fn http_main_conf_unchecked<T>(&self, module: &ngx_module_t) -> Option<NonNull<T>> {
        // SAFETY: nginx reads the block `http`; the type is the caller's promise.
        unsafe { self.raw().http_main_conf_unchecked(module) }
    }

    unsafe fn http_location_conf_unchecked<T>(&self, module: &ngx_module_t) -> Option<NonNull<T>> {
        // SAFETY: as above, some level of it.
        unsafe { self.raw().http_location_conf_unchecked(module) }
    }
}
