//! The directives, in the order of the reference: their table, and what each makes of its words.
//!
//! A wrong word is an `[emerg]` line that names it and says what is accepted.

use core::ffi::{c_char, c_void};
use core::fmt;
use core::ptr;
use std::rc::Rc;
use std::sync::Arc;

use nginx_sys::{
    NGX_CONF_1MORE, NGX_CONF_TAKE1, NGX_HTTP_LOC_CONF, NGX_HTTP_LOC_CONF_OFFSET,
    NGX_HTTP_MAIN_CONF, NGX_HTTP_MAIN_CONF_OFFSET, NGX_HTTP_SRV_CONF, NGX_OK, ngx_command_t,
    ngx_conf_t, ngx_http_compile_complex_value, ngx_http_compile_complex_value_t,
    ngx_http_complex_value, ngx_http_complex_value_t, ngx_http_get_flushed_variable,
    ngx_http_get_variable_index, ngx_http_request_t, ngx_int_t, ngx_parse_size,
    ngx_shared_memory_add, ngx_str_t, ngx_uint_t, ngx_variable_value_t,
};
use ngx::core::{NGX_CONF_ERROR, NGX_CONF_OK};
use ngx::http::{HttpModule as _, HttpModuleMainConf as _};
use ngx::ngx_string;

use super::super::guard::guard;
use super::super::log;
use super::super::module::Module;
use super::super::zone::{MIN_PAGES, Zone};
use super::{Headers, LocationConf, MainConf, Origin, Rule, RuleSet};
use crate::policy::limit::{Limit, Quota};
use crate::policy::namespace::{DEFAULT_NAMESPACE, is_valid_name};
use crate::policy::window::WindowType;

const ANYWHERE: u32 = NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF;

/// The directives, for nginx: names end with a NUL.
pub(in super::super) static mut COMMANDS: [ngx_command_t; 5] = [
    ngx_command_t {
        name: ngx_string!("ratelimit_zone"),
        type_: (NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE1) as ngx_uint_t,
        set: Some(set::<MainConf, RatelimitZone>),
        conf: NGX_HTTP_MAIN_CONF_OFFSET,
        offset: 0,
        post: ptr::null_mut(),
    },
    ngx_command_t {
        name: ngx_string!("ratelimit_key"),
        type_: (ANYWHERE | NGX_CONF_TAKE1) as ngx_uint_t,
        set: Some(set::<LocationConf, RatelimitKey>),
        conf: NGX_HTTP_LOC_CONF_OFFSET,
        offset: 0,
        post: ptr::null_mut(),
    },
    ngx_command_t {
        name: ngx_string!("ratelimit"),
        type_: (ANYWHERE | NGX_CONF_1MORE) as ngx_uint_t,
        set: Some(set::<LocationConf, Ratelimit>),
        conf: NGX_HTTP_LOC_CONF_OFFSET,
        offset: 0,
        post: ptr::null_mut(),
    },
    ngx_command_t {
        name: ngx_string!("ratelimit_headers"),
        type_: (ANYWHERE | NGX_CONF_1MORE) as ngx_uint_t,
        set: Some(set::<LocationConf, RatelimitHeaders>),
        conf: NGX_HTTP_LOC_CONF_OFFSET,
        offset: 0,
        post: ptr::null_mut(),
    },
    ngx_command_t::empty(),
];

/// A directive: what it does to the configuration of its level.
trait Directive<C> {
    const NAME: &'static str;

    /// Applies the words that follow the name; the error is the message for the `[emerg]` line.
    fn apply(cf: &mut ngx_conf_t, conf: &mut C, words: &[Word]) -> Result<(), String>;
}

/// A word of the configuration: bytes that live as long as the cycle.
#[derive(Clone, Copy)]
struct Word(&'static [u8]);

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(self.0).fmt(f)
    }
}

/// nginx's callback for a directive.
unsafe extern "C" fn set<C, D: Directive<C>>(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    guard(NGX_CONF_ERROR, || {
        // SAFETY: nginx passes itself in `cf`, and in `conf` what `create_*_conf` made for this
        // level, as the table says: a `C`, which nobody else uses meanwhile.
        let (cf, conf) = unsafe { (&mut *cf, &mut *conf.cast::<C>()) };
        // SAFETY: `args` is an array of strings, which live in the cycle's pool.
        let words: Vec<Word> = unsafe { (*cf.args).as_slice::<ngx_str_t>() }
            .iter()
            .skip(1)
            // SAFETY: as above.
            .map(|word| Word(unsafe { bytes(word) }))
            .collect();
        match D::apply(cf, conf, &words) {
            Ok(()) => NGX_CONF_OK,
            Err(message) => {
                log::conf_error(cf, format_args!("{}: {message}", D::NAME));
                NGX_CONF_ERROR
            }
        }
    })
}

/// # Safety
///
/// The string lives as long as the cycle.
pub(super) unsafe fn bytes(text: &ngx_str_t) -> &'static [u8] {
    if text.is_empty() {
        return &[];
    }
    // SAFETY: a string of nginx's that is not empty points to so many bytes.
    unsafe { core::slice::from_raw_parts(text.data, text.len) }
}

fn duplicate() -> String {
    "is duplicate on this level".into()
}

/// `ratelimit_zone zone=name:size`
struct RatelimitZone;

impl Directive<MainConf> for RatelimitZone {
    const NAME: &'static str = "ratelimit_zone";

    fn apply(cf: &mut ngx_conf_t, conf: &mut MainConf, words: &[Word]) -> Result<(), String> {
        const EXPECTED: &str = "expected \"zone=name:size\", such as zone=counters:10m";
        let &[word] = words else {
            return Err(EXPECTED.into());
        };
        let zone = word.0.strip_prefix(b"zone=");
        let zone = zone.ok_or_else(|| format!("invalid parameter \"{word}\": {EXPECTED}"))?;
        let mut parts = zone.splitn(2, |&byte| byte == b':');
        let name = valid_name("zone", parts.next().unwrap_or_default())?;
        let size = parts
            .next()
            .ok_or_else(|| format!("no size in \"{word}\": {EXPECTED}"))
            .and_then(|size| parse_size(size).ok_or_else(|| {
                format!("invalid size in \"{word}\": a size is a number of bytes, or of k or m, such as 10m")
            }))?;
        if size < Zone::min_size() {
            return Err(format!(
                "zone \"{name}\" is too small: at least {MIN_PAGES} pages, {}k",
                Zone::min_size() / 1024
            ));
        }
        if conf.zones.iter().any(|known| *known.name == *name) {
            return Err(format!("zone \"{name}\" is duplicate"));
        }

        let zone = Arc::new(Zone::new(name));
        // nginx keeps the string: it must live as long as the cycle, and the word does.
        let mut text = ngx_str_t {
            len: name.len(),
            data: name.as_ptr().cast_mut(),
        };
        let tag = ptr::from_ref(Module::module()).cast_mut().cast();
        // SAFETY: nginx reads the configuration; the tag tells our zones from other modules'.
        let shm_zone = unsafe { ngx_shared_memory_add(cf, &mut text, size, tag).as_mut() };
        let shm_zone =
            shm_zone.ok_or_else(|| format!("zone \"{name}\" is known with another size or use"))?;
        shm_zone.init = Some(Zone::init);
        shm_zone.data = Arc::as_ptr(&zone).cast_mut().cast();
        conf.zones.push(zone);
        Ok(())
    }
}

/// `ratelimit_key string`
struct RatelimitKey;

impl Directive<LocationConf> for RatelimitKey {
    const NAME: &'static str = "ratelimit_key";

    fn apply(cf: &mut ngx_conf_t, conf: &mut LocationConf, words: &[Word]) -> Result<(), String> {
        if conf.key.is_some() {
            return Err(duplicate());
        }
        let &[word] = words else {
            return Err("expected one string".into());
        };
        conf.key = Some(Rc::new(Text::compile(cf, word.0)?));
        Ok(())
    }
}

/// `ratelimit [namespace] limit=hits/window ... [parameters]` and `ratelimit off`
struct Ratelimit;

impl Directive<LocationConf> for Ratelimit {
    const NAME: &'static str = "ratelimit";

    fn apply(cf: &mut ngx_conf_t, conf: &mut LocationConf, words: &[Word]) -> Result<(), String> {
        let is_off = matches!(words, [Word(b"off")]);
        if let Some(rules) = &conf.rules {
            if is_off || rules.rules.is_empty() {
                return Err("\"off\" goes with no other \"ratelimit\" on its level".into());
            }
        }
        if is_off {
            conf.rules = Some(Arc::default());
            return Ok(());
        }

        let (name, parameters) = match words {
            [name, parameters @ ..] if !name.0.contains(&b'=') => {
                (valid_name("namespace", name.0)?, parameters)
            }
            parameters => (DEFAULT_NAMESPACE, parameters),
        };
        let mut quotas = Vec::new();
        let mut window_type = None;
        for word in parameters {
            let mut parts = word.0.splitn(2, |&byte| byte == b'=');
            match (parts.next().unwrap_or_default(), parts.next()) {
                (b"limit", Some(text)) => {
                    let quota = Quota::parse(text)
                        .map_err(|error| format!("invalid parameter \"{word}\": {error}"))?;
                    quotas.push(quota);
                }
                (b"window", Some(_)) if window_type.is_some() => {
                    return Err(format!("parameter \"{word}\" is duplicate"));
                }
                (b"window", Some(b"sliding")) => window_type = Some(WindowType::Sliding),
                (b"window", Some(b"fixed")) => window_type = Some(WindowType::Fixed),
                (b"window", Some(_)) => {
                    return Err(format!(
                        "invalid parameter \"{word}\": a window is sliding or fixed"
                    ));
                }
                _ => {
                    return Err(format!(
                        "invalid parameter \"{word}\": expected limit=hits/window or \
                         window=sliding|fixed"
                    ));
                }
            }
        }
        if quotas.is_empty() {
            return Err("no limit: expected at least one \"limit=hits/window\"".into());
        }

        let origin = Origin::of(cf);
        let main = Module::main_conf_mut(cf).ok_or("no configuration of http")?;
        let limits = quotas.into_iter().map(|quota| Limit {
            name: format!("{name}-{}", Word(quota.window)).into(),
            hits: quota.hits,
            size: quota.size,
            window_type: window_type.unwrap_or_default(),
        });
        let rule = Rule {
            namespace: main.namespace(name, origin),
            limits: limits.collect(),
        };
        // Nobody else has the set before levels are merged, when all directives were read.
        if let Some(rules) = Arc::get_mut(conf.rules.get_or_insert_with(Arc::<RuleSet>::default)) {
            rules.push(rule);
        }
        Ok(())
    }
}

/// `ratelimit_headers off | ietf`
struct RatelimitHeaders;

impl Directive<LocationConf> for RatelimitHeaders {
    const NAME: &'static str = "ratelimit_headers";

    fn apply(_: &mut ngx_conf_t, conf: &mut LocationConf, words: &[Word]) -> Result<(), String> {
        if conf.headers.is_some() {
            return Err(duplicate());
        }
        conf.headers = Some(match words {
            [Word(b"off")] => Headers::Off,
            [Word(b"ietf")] => Headers::Ietf,
            words => {
                let known = |word: &&Word| !matches!(word.0, b"off" | b"ietf");
                let wrong = words.iter().find(known).or(words.last());
                return Err(format!(
                    "invalid parameter \"{}\": expected off or ietf",
                    wrong.copied().unwrap_or(Word(b""))
                ));
            }
        });
        Ok(())
    }
}

fn valid_name(what: &str, name: &'static [u8]) -> Result<&'static str, String> {
    let text = core::str::from_utf8(name)
        .ok()
        .filter(|_| is_valid_name(name));
    text.ok_or_else(|| {
        format!(
            "invalid name \"{}\" of a {what}: 1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\", and \
             not \"off\"",
            Word(name)
        )
    })
}

/// A size in nginx's notation, in bytes.
fn parse_size(text: &'static [u8]) -> Option<usize> {
    let mut text = ngx_str_t {
        len: text.len(),
        data: text.as_ptr().cast_mut(),
    };
    // SAFETY: it is only read.
    usize::try_from(unsafe { ngx_parse_size(&mut text) }).ok()
}

/// Text and variables, evaluated for each request.
pub(in super::super) enum Text {
    /// A single variable, by its index: what most keys are, at a fraction of the cost.
    Variable(ngx_uint_t),
    /// Anything else.
    Complex(ngx_http_complex_value_t),
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Text::Variable(_) => "Variable",
            Text::Complex(_) => "Complex",
        })
    }
}

/// A text could not be evaluated; nginx has logged why.
#[derive(Debug)]
pub(in super::super) struct EvaluationError;

impl Text {
    pub(in super::super) fn compile(
        cf: &mut ngx_conf_t,
        text: &'static [u8],
    ) -> Result<Text, String> {
        let mut value = ngx_str_t {
            len: text.len(),
            data: text.as_ptr().cast_mut(),
        };
        let name = text.strip_prefix(b"$").unwrap_or_default();
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        // Captures ($1) are for the compiler of complex values.
        if name.first().is_some_and(|byte| !byte.is_ascii_digit()) && name.iter().all(is_name) {
            let mut name = ngx_str_t {
                len: name.len(),
                data: name.as_ptr().cast_mut(),
            };
            // SAFETY: nginx reads the configuration; it keeps no reference to `name` itself.
            let index = unsafe { ngx_http_get_variable_index(cf, &mut name) };
            return match ngx_uint_t::try_from(index) {
                Ok(index) => Ok(Text::Variable(index)),
                Err(_) => Err(format!("invalid variable \"{}\"", Word(text))),
            };
        }

        // SAFETY: all-zero is a valid value of these plain structures of C.
        let mut complex: ngx_http_complex_value_t = unsafe { core::mem::zeroed() };
        // SAFETY: as above.
        let mut compile: ngx_http_compile_complex_value_t = unsafe { core::mem::zeroed() };
        compile.cf = cf;
        compile.value = &mut value;
        compile.complex_value = &mut complex;
        // SAFETY: the pointers are valid during the call; what `complex` points to afterwards is
        // in the cycle's pool, as the text itself.
        if unsafe { ngx_http_compile_complex_value(&mut compile) } != NGX_OK as ngx_int_t {
            return Err(format!("invalid text \"{}\"", Word(text)));
        }
        Ok(Text::Complex(complex))
    }

    /// The value for `request`, which lives as long as the request. A variable that does not
    /// exist is empty.
    #[inline]
    pub(in super::super) fn evaluate(
        &self,
        request: *mut ngx_http_request_t,
    ) -> Result<&'static [u8], EvaluationError> {
        match self {
            Text::Variable(index) => {
                // SAFETY: `request` is alive, and the index is of this configuration.
                let value = unsafe { ngx_http_get_flushed_variable(request, *index).as_ref() };
                match value {
                    Some(value) => Ok(value_bytes(value)),
                    None => Err(EvaluationError),
                }
            }
            Text::Complex(complex) => {
                let mut value = ngx_str_t::empty();
                let complex = ptr::from_ref(complex).cast_mut();
                // SAFETY: as above; nginx does not change a complex value when it evaluates it.
                let status = unsafe { ngx_http_complex_value(request, complex, &mut value) };
                if status == NGX_OK as ngx_int_t {
                    // SAFETY: the value is in the request's pool.
                    Ok(unsafe { bytes(&value) })
                } else {
                    Err(EvaluationError)
                }
            }
        }
    }
}

/// The bytes of a variable's value; none if it was not found.
///
/// The generated accessors of these bit fields look at one bit after the other: 100 instructions
/// for what is two here.
#[inline]
fn value_bytes(value: &'static ngx_variable_value_t) -> &'static [u8] {
    /// `unsigned len:28, valid:1, no_cacheable:1, not_found:1, escape:1`
    const LEN: u32 = (1 << 28) - 1;
    const NOT_FOUND: u32 = 1 << 30;
    const {
        assert!(
            cfg!(target_endian = "little"),
            "bit fields start at the lowest bit"
        )
    };

    // SAFETY: the structure starts with an `unsigned` that holds the bit fields.
    let bits = unsafe { ptr::from_ref(value).cast::<u32>().read() };
    if bits & NOT_FOUND != 0 || bits & LEN == 0 {
        return &[];
    }
    // SAFETY: a value that is found points to so many bytes.
    unsafe { core::slice::from_raw_parts(value.data, (bits & LEN) as usize) }
}
