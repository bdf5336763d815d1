//! `ratelimit_store name { ... }` and `ratelimit_namespace name { ... }`

use core::ffi::{c_char, c_void};
use core::ptr;
use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use nginx_sys::{ngx_command_t, ngx_conf_include, ngx_conf_parse, ngx_conf_t};
use ngx::core::{NGX_CONF_ERROR, NGX_CONF_OK};

use super::super::guard::guard;
use super::super::request::bytes;
use super::directives::{Directive, Failure, Word, one_word, words};
use super::{Definition, MainConf, Origin, Places, StoreConf};
use crate::conf::namespace::NamespaceOptions;
use crate::policy::namespace::valid_name;
use crate::policy::options::{DirectiveName, OptionError};
use crate::store::registry::StoreSettings;
use crate::store::tls::TlsClient;

/// `ratelimit_store name { ... }`
pub(super) struct RatelimitStore;

impl Directive<MainConf> for RatelimitStore {
    const NAME: &'static str = "ratelimit_store";

    fn apply(cf: &mut ngx_conf_t, conf: &mut MainConf, words: &[Word]) -> Result<(), Failure> {
        let (name, origin) = (block_name("store", words)?, Origin::of(cf));
        if let Some(known) = conf.stores.iter().find(|store| &*store.name == name) {
            return Err(is_defined("store", name, &known.origin));
        }
        // SAFETY: nginx passes its cycle in the making.
        let conf_prefix = path_of(unsafe { bytes(&(*cf.cycle).conf_prefix) });
        let read_file = |path: &Path| read_small(&conf_prefix.join(path));
        let mut builder = StoreSettings::builder(read_file);
        let title = format!("{} \"{name}\"", Self::NAME);
        let places = read_block(cf, &title, &mut |name, words| builder.set(name, words))?;

        let at = |directive: Option<DirectiveName>, message: &dyn core::fmt::Display| {
            let place = directive.and_then(|directive| places.of(directive));
            let place = place.unwrap_or(&origin).clone();
            Failure::At(place, format!("{title}: {message}"))
        };
        let options = builder.finish();
        let mut options = options.map_err(|error| at(error.directive(), &error))?;
        for (directive, file) in options.common.files_mut() {
            file.path = conf_prefix.join(&file.path);
            let content = read_small(&file.path).map_err(|error| {
                let message = format_args!(
                    "cannot read the file \"{}\" of {directive} ({error})",
                    file.path.display()
                );
                at(Some(directive.into()), &message)
            })?;
            file.content = content.into();
        }
        if let Some(tls) = &options.common.tls {
            // Workers make the same of it: what they could not do is said now.
            TlsClient::new(tls).map_err(|error| at(Some(error.directive().into()), &error))?;
        }
        conf.stores.push(StoreConf {
            name: name.into(),
            origin,
            options,
            watched: OnceCell::new(),
        });
        Ok(())
    }
}

/// `ratelimit_namespace name { ... }`
pub(super) struct RatelimitNamespace;

impl Directive<MainConf> for RatelimitNamespace {
    const NAME: &'static str = "ratelimit_namespace";

    fn apply(cf: &mut ngx_conf_t, conf: &mut MainConf, words: &[Word]) -> Result<(), Failure> {
        let (name, origin) = (block_name("namespace", words)?, Origin::of(cf));
        let namespace = conf.namespace(name);
        if let Some(known) = namespace.definition.get() {
            return Err(is_defined("namespace", name, &known.origin));
        }
        let mut builder = NamespaceOptions::builder();
        let title = format!("{} \"{name}\"", Self::NAME);
        let places = read_block(cf, &title, &mut |name, words| builder.set(name, words))?;
        let warnings = builder.warnings();
        let options = builder.finish().map_err(|error| {
            let place = error.directive().and_then(|directive| places.of(directive));
            let place = place.unwrap_or(&origin).clone();
            Failure::At(place, format!("{title}: {error}"))
        })?;
        let definition = Definition {
            origin,
            places,
            options,
        };
        for warning in warnings {
            definition.warn(&title, &warning, cf.log);
        }
        // Not set before: see above.
        let _ = namespace.definition.set(definition);
        Ok(())
    }
}

fn block_name(what: &str, words: &[Word]) -> Result<&'static str, Failure> {
    let expected = format!("expected one name and a block: ratelimit_{what} name {{ ... }}");
    Ok(valid_name(what, one_word(words, &expected)?.0)?)
}

fn is_defined(what: &str, name: &str, origin: &Origin) -> Failure {
    format!("{what} \"{name}\" is duplicate: expected another name than in {origin}").into()
}

/// What a block does with a directive in it.
type Set<'a> = &'a mut dyn FnMut(&[u8], &[&[u8]]) -> Result<(), OptionError>;

/// The block that nginx is reading.
struct Block<'a> {
    title: &'a str,
    set: Set<'a>,
    places: Places,
}

/// Reads the block that follows: every directive is passed to `set`, name and words. Returns where
/// they stand.
fn read_block(cf: &mut ngx_conf_t, title: &str, set: Set<'_>) -> Result<Places, Failure> {
    let mut block = Block {
        title,
        set,
        places: Places::default(),
    };
    let (handler, handler_conf) = (cf.handler, cf.handler_conf);
    cf.handler = Some(in_block);
    cf.handler_conf = (&raw mut block).cast();
    // SAFETY: nginx reads a file, and the block until this call returns, with the handler above.
    let result = unsafe { ngx_conf_parse(cf, ptr::null_mut()) };
    (cf.handler, cf.handler_conf) = (handler, handler_conf);
    if result == NGX_CONF_OK {
        Ok(block.places)
    } else {
        Err(Failure::Logged)
    }
}

/// nginx's callback for a directive in a block.
unsafe extern "C" fn in_block(
    cf: *mut ngx_conf_t,
    command: *mut ngx_command_t,
    block: *mut c_void,
) -> *mut c_char {
    guard(NGX_CONF_ERROR, || {
        // SAFETY: nginx passes itself, and what `read_block` told it to, which waits meanwhile.
        let (cf, block) = unsafe { (&mut *cf, &mut *block.cast::<Block<'_>>()) };
        let words = words(cf);
        let Some((name, words)) = words.split_first() else {
            return NGX_CONF_OK;
        };
        if name.0 == b"include" {
            if words.len() != 1 {
                // No more than their number: what follows a missing ";" may be a password.
                let message = format!("\"include\" takes one word, not {}: a file", words.len());
                Failure::Here(message).log(cf, block.title);
                return NGX_CONF_ERROR;
            }
            // SAFETY: as nginx itself does with its own blocks; it calls this function in turn.
            return unsafe { ngx_conf_include(cf, command, ptr::null_mut()) };
        }
        let words: Vec<&[u8]> = words.iter().map(|word| word.0).collect();
        match (block.set)(name.0, &words) {
            Ok(()) => {
                block.places.0.push((name.0.into(), Origin::of(cf)));
                NGX_CONF_OK
            }
            Err(error) => {
                // What contradicts a directive that was read before may be said of that one.
                let place = error.directive().and_then(|it| block.places.of(it));
                let failure = match place {
                    Some(place) => Failure::At(place.clone(), format!("{}: {error}", block.title)),
                    None => Failure::Here(error.to_string()),
                };
                failure.log(cf, block.title);
                NGX_CONF_ERROR
            }
        }
    })
}

/// Reads a file of a few lines: a device may have no end.
fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    const MOST: u64 = 1 << 20;
    let mut content = Vec::new();
    let len = File::open(path)?.take(MOST).read_to_end(&mut content)?;
    if len as u64 == MOST {
        return Err(io::Error::other("larger than 1 MiB"));
    }
    Ok(content)
}

fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(std::ffi::OsStr::from_bytes(bytes)).into()
}
