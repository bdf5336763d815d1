//! The module's directives as nginx commands. Each callback of nginx becomes one call of
//! [`ConfReader::apply`].
//!
//! nginx does not check the number of arguments, since its message would not say which ones are
//! accepted.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nginx_sys::{
    NGX_CONF_ANY, NGX_CONF_BLOCK, NGX_HTTP_LOC_CONF, NGX_HTTP_LOC_CONF_OFFSET, NGX_HTTP_MAIN_CONF,
    NGX_HTTP_SRV_CONF, ngx_command_t, ngx_conf_t, ngx_str_t, ngx_uint_t,
};
use ngx::core::NGX_CONF_ERROR;
use ngx::http::HttpModuleMainConf as _;

use super::blocks;
use super::location::LocationConf;
use super::reading::{Conf, ContentHandlers};
use super::text::Text;
use crate::conf::level::OTHER_CONTENT;
use crate::conf::reader::{ConfDirective, ConfReader, DIRECTIVES, DirectiveContext};
use crate::conf::words::block::Block;
use crate::conf::words::message::{ConfError, Message, Origin};
use crate::conf::words::nginx::{Files, Nginx};
use crate::conf::words::settings::Content;
use crate::nginx::event_loop::guard;
use crate::nginx::module::Module;
use crate::nginx::zone::Zone;
use crate::store::contract::options::TlsOptions;
use crate::store::net::tls::{TlsClient, TlsError};

/// nginx's array of the directives, which ends with an empty one.
pub(crate) static mut COMMANDS: [ngx_command_t; DIRECTIVES.len() + 1] = commands();

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "the compiler runs it"
)]
const fn commands() -> [ngx_command_t; DIRECTIVES.len() + 1] {
    let mut commands = [const { ngx_command_t::empty() }; DIRECTIVES.len() + 1];
    let mut index = 0;
    while index < DIRECTIVES.len() {
        commands[index] = command(&DIRECTIVES[index]);
        index += 1;
    }
    commands
}

const fn command(directive: &ConfDirective) -> ngx_command_t {
    let context = match directive.context {
        DirectiveContext::Http => NGX_HTTP_MAIN_CONF,
        DirectiveContext::Anywhere => NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF,
        DirectiveContext::Location => NGX_HTTP_LOC_CONF,
    };
    let block = match directive.is_block {
        true => NGX_CONF_BLOCK,
        false => 0,
    };
    ngx_command_t {
        name: str_of(directive.name),
        type_: (context | block | NGX_CONF_ANY) as ngx_uint_t,
        set: Some(set),
        conf: NGX_HTTP_LOC_CONF_OFFSET,
        offset: 0,
        post: ptr::null_mut(),
    }
}

/// Makes an nginx string of a name. nginx only reads it, and requires the NUL at its end.
const fn str_of(name: &'static CStr) -> ngx_str_t {
    ngx_str_t { len: name.count_bytes(), data: name.as_ptr().cast_mut().cast() }
}

/// nginx's callback for a directive.
unsafe extern "C" fn set(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    level: *mut c_void,
) -> *mut c_char {
    guard(NGX_CONF_ERROR, || {
        // SAFETY: nginx passes its `ngx_conf_t` as `cf`, and as `level` the value that
        // `create_loc_conf` created for the current level, which nothing else uses meanwhile.
        unsafe {
            let level = &mut *level.cast::<LocationConf>();
            Conf::with(cf, |conf| {
                let result = apply(conf, level);
                conf.outcome(result)
            })
        }
    })
}

/// Applies the directive that nginx has just parsed.
fn apply(conf: &mut Conf<'_>, level: &mut LocationConf) -> Result<(), ConfError> {
    let words = conf.words();
    let main = Module::main_conf_mut(conf);
    let (Some((name, words)), Some(main)) = (words.split_first(), main) else {
        return Err("no configuration of http".into());
    };
    let handlers = main.content_handlers;
    let (http, zones) = main.reading();
    let mut reader =
        ConfReader { nginx: &mut Host { conf, zones, handlers }, http, level: level.level_mut() };
    // The name is in `DIRECTIVES`, so it is ASCII.
    reader.apply(core::str::from_utf8(name).unwrap_or_default(), words)
}

/// nginx, and the zones that it is to map.
#[derive(Debug)]
pub(super) struct Host<'h, 'cf> {
    pub(super) conf: &'h mut Conf<'cf>,
    pub(super) zones: &'h mut Vec<Rc<Zone>>,
    pub(super) handlers: Option<ContentHandlers>,
}

impl Nginx for Host<'_, '_> {
    type Text = Text;
    type Files = ConfFiles;

    fn origin(&self) -> Origin {
        self.conf.origin()
    }

    fn directory(&self) -> PathBuf {
        self.conf.prefix()
    }

    fn warn(&mut self, warning: Message) {
        self.conf.warn(warning);
    }

    fn compile(&mut self, text: &[u8]) -> Result<Text, ConfError> {
        Text::compile(self.conf, text)
    }

    fn has_variable(&self, name: &[u8]) -> bool {
        self.conf.has_variable(name)
    }

    fn has_directive(&self, name: &[u8]) -> bool {
        self.conf.has_directive(name)
    }

    fn has_callers(&self) -> bool {
        self.conf.has_module(c"ngx_http_lua_module") || self.conf.has_foreign_module()
    }

    fn page_size(&self) -> usize {
        self.conf.page_size()
    }

    fn has_zone(&self, name: &str) -> bool {
        self.conf.has_zone(name)
    }

    fn add_zone(&mut self, name: &str, size: usize) -> Result<(), ConfError> {
        let zone = Rc::new(Zone::new(name, size));
        self.conf.add_zone(&zone).ok_or(ConfError::Logged)?;
        self.zones.push(zone);
        Ok(())
    }

    fn answer_with(&mut self, content: Content) -> Result<(), ConfError> {
        let handler = self.handlers.map(|handlers| handlers.of(content));
        let handler = handler.ok_or_else(|| ConfError::from("no location"))?;
        match self.conf.answer_with(handler) {
            Some(true) => Ok(()),
            Some(false) => Err(OTHER_CONTENT.into()),
            None => Err("no location".into()),
        }
    }

    fn read_block(&mut self, block: &mut Block<'_>) -> Result<(), ConfError> {
        blocks::read(self.conf, block)
    }

    fn files(&self) -> ConfFiles {
        let prefix = self.directory();
        ConfFiles { prefix }
    }
}

/// Reads files, with paths relative to a directory.
#[derive(Debug)]
pub(crate) struct ConfFiles {
    pub(crate) prefix: PathBuf,
}

impl Files for ConfFiles {
    fn path(&self, written: &Path) -> PathBuf {
        self.prefix.join(written)
    }

    /// The length is limited, since a device may have no end.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        const MOST: u64 = 1 << 20;
        let mut content = Vec::new();
        let len = File::open(path)?.take(MOST).read_to_end(&mut content)?;
        if len as u64 == MOST {
            return Err(io::Error::other("larger than 1 MiB"));
        }
        Ok(content)
    }

    fn check_tls(&self, tls: &TlsOptions) -> Result<(), TlsError> {
        TlsClient::new(tls).map(|_| ())
    }
}
