//! The directives, in the order of the reference: their table, and those that are a word or two.
//!
//! What is wrong is one `[emerg]` line that names the word and says what is accepted. nginx counts
//! no arguments for us, since its message would not.

use core::ffi::{c_char, c_void};
use core::fmt;
use core::ptr;
use std::rc::Rc;

use nginx_sys::{
    NGX_CONF_ANY, NGX_CONF_BLOCK, NGX_HTTP_LOC_CONF, NGX_HTTP_LOC_CONF_OFFSET, NGX_HTTP_MAIN_CONF,
    NGX_HTTP_MAIN_CONF_OFFSET, NGX_HTTP_SRV_CONF, NGX_LOG_EMERG, NGX_LOG_ERR, NGX_LOG_INFO,
    NGX_LOG_NOTICE, NGX_LOG_WARN, ngx_command_t, ngx_conf_t, ngx_list_part_t,
    ngx_shared_memory_add, ngx_shm_zone_t, ngx_str_t, ngx_uint_t,
};
use ngx::core::{NGX_CONF_ERROR, NGX_CONF_OK};
use ngx::http::{
    HttpModule as _, HttpModuleLocationConf as _, HttpModuleMainConf as _, NgxHttpCoreModule,
};
use ngx::ngx_string;

use super::super::guard::guard;
use super::super::log;
use super::super::module::Module;
use super::super::request::bytes;
use super::super::zone::{MIN_PAGES, Zone};
use super::blocks::{RatelimitNamespace, RatelimitStore};
use super::location::{Content, Headers, LocationConf, Phase};
use super::ratelimit::Ratelimit;
use super::text::{WrittenText, str_of};
use super::{MainConf, Origin, ZoneConf};
use crate::policy::namespace::valid_name;
use crate::policy::options::{OptionError, parse_size, shown};
use crate::policy::window::parse_time;

/// The directives, for nginx.
pub(in super::super) static mut COMMANDS: [ngx_command_t; 15] = [
    in_http::<RatelimitZone>(ngx_string!("ratelimit_zone"), 0),
    in_http::<RatelimitStore>(ngx_string!("ratelimit_store"), NGX_CONF_BLOCK),
    in_http::<RatelimitNamespace>(ngx_string!("ratelimit_namespace"), NGX_CONF_BLOCK),
    anywhere::<RatelimitKey>(ngx_string!("ratelimit_key")),
    anywhere::<Ratelimit>(ngx_string!("ratelimit")),
    anywhere::<RatelimitCountRejected>(ngx_string!("ratelimit_count_rejected")),
    anywhere::<RatelimitStatus>(ngx_string!("ratelimit_status")),
    anywhere::<RatelimitDryRun>(ngx_string!("ratelimit_dry_run")),
    anywhere::<RatelimitLogLevel>(ngx_string!("ratelimit_log_level")),
    anywhere::<RatelimitHeaders>(ngx_string!("ratelimit_headers")),
    anywhere::<RatelimitRetryAfterJitter>(ngx_string!("ratelimit_retry_after_jitter")),
    anywhere::<RatelimitPhase>(ngx_string!("ratelimit_phase")),
    in_location::<RatelimitApi>(ngx_string!("ratelimit_api")),
    in_location::<RatelimitMetrics>(ngx_string!("ratelimit_metrics")),
    ngx_command_t::empty(),
];

/// A directive of `http`. The name ends with a NUL.
const fn in_http<D: Directive<MainConf>>(name: ngx_str_t, flags: u32) -> ngx_command_t {
    ngx_command_t {
        name,
        type_: (NGX_HTTP_MAIN_CONF | NGX_CONF_ANY | flags) as ngx_uint_t,
        set: Some(set::<MainConf, D>),
        conf: NGX_HTTP_MAIN_CONF_OFFSET,
        offset: 0,
        post: ptr::null_mut(),
    }
}

/// A directive of `http`, `server` and `location`. The name ends with a NUL.
const fn anywhere<D: Directive<LocationConf>>(name: ngx_str_t) -> ngx_command_t {
    const ANYWHERE: u32 = NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF;
    ngx_command_t {
        name,
        type_: (ANYWHERE | NGX_CONF_ANY) as ngx_uint_t,
        set: Some(set::<LocationConf, D>),
        conf: NGX_HTTP_LOC_CONF_OFFSET,
        offset: 0,
        post: ptr::null_mut(),
    }
}

/// A directive of `location`. The name ends with a NUL.
const fn in_location<D: Directive<LocationConf>>(name: ngx_str_t) -> ngx_command_t {
    ngx_command_t {
        type_: (NGX_HTTP_LOC_CONF | NGX_CONF_ANY) as ngx_uint_t,
        ..anywhere::<D>(name)
    }
}

/// A directive: what it does to the configuration of its level.
pub(super) trait Directive<C> {
    const NAME: &'static str;

    /// Applies the words that follow the name.
    fn apply(cf: &mut ngx_conf_t, conf: &mut C, words: &[Word]) -> Result<(), Failure>;
}

/// Why a configuration is wrong.
#[derive(Debug)]
pub(in super::super) enum Failure {
    /// The directive that is being read, and this is the message.
    Here(String),
    /// Something that was read before, which the message names.
    At(Origin, String),
    /// It was logged already.
    Logged,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Failure::Here(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Failure::Here(message.into())
    }
}

impl From<OptionError> for Failure {
    fn from(error: OptionError) -> Self {
        Failure::Here(error.to_string())
    }
}

impl Failure {
    /// Writes the `[emerg]` line.
    pub(in super::super) fn log(&self, cf: &mut ngx_conf_t, directive: impl fmt::Display) {
        match self {
            Failure::Here(message) => {
                log::conf_error(NGX_LOG_EMERG, cf, format_args!("{directive}: {message}"));
            }
            Failure::At(origin, message) => {
                log::error(NGX_LOG_EMERG, cf.log, format_args!("{message} in {origin}"));
            }
            Failure::Logged => {}
        }
    }
}

/// A word of the configuration: bytes that live as long as the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) &'static [u8]);

/// As messages show it: in one line, and so short that what is accepted has room after it.
impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(self.0))
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
        let words = words(cf);
        match D::apply(cf, conf, words.get(1..).unwrap_or_default()) {
            Ok(()) => NGX_CONF_OK,
            Err(failure) => {
                failure.log(cf, D::NAME);
                NGX_CONF_ERROR
            }
        }
    })
}

/// The directive that nginx has just read, with its name.
pub(super) fn words(cf: &ngx_conf_t) -> Vec<Word> {
    // SAFETY: `args` is an array of strings, which live in the cycle's pool.
    let words = unsafe { (*cf.args).as_slice::<ngx_str_t>() }.iter();
    // SAFETY: as above.
    words.map(|word| Word(unsafe { bytes(word) })).collect()
}

pub(super) fn duplicate() -> Failure {
    "is duplicate on this level".into()
}

/// `ratelimit_zone zone=name:size`
struct RatelimitZone;

impl Directive<MainConf> for RatelimitZone {
    const NAME: &'static str = "ratelimit_zone";

    fn apply(cf: &mut ngx_conf_t, conf: &mut MainConf, words: &[Word]) -> Result<(), Failure> {
        const EXPECTED: &str = "expected \"zone=name:size\", such as zone=counters:10m";
        let word = one_word(words, EXPECTED)?;
        let zone = word.0.strip_prefix(b"zone=");
        let zone = zone.ok_or_else(|| format!("invalid parameter \"{word}\": {EXPECTED}"))?;
        let mut parts = zone.splitn(2, |&byte| byte == b':');
        let name = valid_name("zone", parts.next().unwrap_or_default())?;
        let size = parts
            .next()
            .ok_or_else(|| format!("no size in \"{word}\": {EXPECTED}"))
            .and_then(|size| parse_size(size).ok_or_else(|| {
                format!("invalid size in \"{word}\": a size is a number of bytes, or of k, m or g, such as 10m")
            }))?;
        if size < Zone::min_size() {
            return Err(format!(
                "zone \"{name}\" is too small: at least {MIN_PAGES} pages, {}k",
                Zone::min_size() / 1024
            )
            .into());
        }
        if conf.zone(name).is_some() {
            return Err(format!("zone \"{name}\" is duplicate: expected another name").into());
        }
        if is_zone_of_other_module(cf, name) {
            return Err(format!(
                "zone \"{name}\" is already used by another module: expected another name"
            )
            .into());
        }

        let zone = Rc::new(Zone::new(name, size));
        // nginx keeps the string: it must live as long as the cycle, and the word does.
        let mut text = str_of(name.as_bytes());
        let tag = ptr::from_ref(Module::module()).cast_mut().cast();
        // SAFETY: nginx reads the configuration; the tag tells our zones from other modules'.
        let shm_zone = unsafe { ngx_shared_memory_add(cf, &mut text, size, tag).as_mut() };
        let shm_zone = shm_zone.ok_or(Failure::Logged)?;
        shm_zone.init = Some(Zone::init);
        shm_zone.data = Rc::as_ptr(&zone).cast_mut().cast();
        let origin = Origin::of(cf);
        conf.zones.push(ZoneConf { zone, origin });
        Ok(())
    }
}

/// Whether another module has a zone of this name: nginx would say so with a line of its own.
fn is_zone_of_other_module(cf: &ngx_conf_t, name: &str) -> bool {
    // SAFETY: nginx passes its cycle in the making, whose zones are a list of `ngx_shm_zone_t`.
    unsafe {
        let mut part: *const ngx_list_part_t = &raw const (*cf.cycle).shared_memory.part;
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

/// `ratelimit_key string`
struct RatelimitKey;

impl Directive<LocationConf> for RatelimitKey {
    const NAME: &'static str = "ratelimit_key";

    fn apply(cf: &mut ngx_conf_t, conf: &mut LocationConf, words: &[Word]) -> Result<(), Failure> {
        let word = one_word(words, "expected one string, such as $remote_addr")?;
        set_once(&mut conf.key, Rc::new(WrittenText::compile(cf, word)?))
    }
}

/// `ratelimit_count_rejected on | off`
struct RatelimitCountRejected;

impl Directive<LocationConf> for RatelimitCountRejected {
    const NAME: &'static str = "ratelimit_count_rejected";

    fn apply(_: &mut ngx_conf_t, conf: &mut LocationConf, words: &[Word]) -> Result<(), Failure> {
        set_once(&mut conf.options.count_rejected, on_or_off(words)?)
    }
}

/// `ratelimit_status code`
struct RatelimitStatus;

impl Directive<LocationConf> for RatelimitStatus {
    const NAME: &'static str = "ratelimit_status";

    fn apply(_: &mut ngx_conf_t, conf: &mut LocationConf, words: &[Word]) -> Result<(), Failure> {
        const EXPECTED: &str = "expected a status from 400 to 599";
        let word = one_word(words, EXPECTED)?;
        let code = core::str::from_utf8(word.0).ok();
        let code = code.filter(|code| code.bytes().all(|byte| byte.is_ascii_digit()));
        let code = code.and_then(|code| code.parse().ok());
        let code = code.filter(|code| (400..=599).contains(code));
        let code = code.ok_or_else(|| format!("invalid status \"{word}\": {EXPECTED}"))?;
        set_once(&mut conf.options.status, code)
    }
}

/// `ratelimit_dry_run on | off`
struct RatelimitDryRun;

impl Directive<LocationConf> for RatelimitDryRun {
    const NAME: &'static str = "ratelimit_dry_run";

    fn apply(_: &mut ngx_conf_t, conf: &mut LocationConf, words: &[Word]) -> Result<(), Failure> {
        set_once(&mut conf.options.dry_run, on_or_off(words)?)
    }
}

/// `ratelimit_log_level info | notice | warn | error | off`
struct RatelimitLogLevel;

impl Directive<LocationConf> for RatelimitLogLevel {
    const NAME: &'static str = "ratelimit_log_level";

    fn apply(_: &mut ngx_conf_t, conf: &mut LocationConf, words: &[Word]) -> Result<(), Failure> {
        let levels = [
            ("info", NGX_LOG_INFO),
            ("notice", NGX_LOG_NOTICE),
            ("warn", NGX_LOG_WARN),
            ("error", NGX_LOG_ERR),
            ("off", log::OFF),
        ];
        set_once(&mut conf.options.log_level, one_of(words, levels)?)
    }
}

/// `ratelimit_headers off | [ietf] [draft03] [legacy]`
struct RatelimitHeaders;

impl Directive<LocationConf> for RatelimitHeaders {
    const NAME: &'static str = "ratelimit_headers";

    fn apply(_: &mut ngx_conf_t, conf: &mut LocationConf, words: &[Word]) -> Result<(), Failure> {
        const EXPECTED: &str = "expected off, or one or more of ietf, draft03 and legacy";
        let mut headers = Headers::default();
        for word in words {
            let flag = match word.0 {
                b"ietf" => &mut headers.ietf,
                b"draft03" => &mut headers.draft03,
                b"legacy" => &mut headers.legacy,
                b"off" if words.len() == 1 => break,
                b"off" => return Err(format!("\"off\" goes with nothing else: {EXPECTED}").into()),
                _ => return Err(format!("invalid parameter \"{word}\": {EXPECTED}").into()),
            };
            if core::mem::replace(flag, true) {
                return Err(format!("parameter \"{word}\" is duplicate: {EXPECTED}").into());
            }
        }
        if words.is_empty() {
            return Err(EXPECTED.into());
        }
        set_once(&mut conf.options.headers, headers)
    }
}

/// `ratelimit_retry_after_jitter time`
struct RatelimitRetryAfterJitter;

impl Directive<LocationConf> for RatelimitRetryAfterJitter {
    const NAME: &'static str = "ratelimit_retry_after_jitter";

    fn apply(_: &mut ngx_conf_t, conf: &mut LocationConf, words: &[Word]) -> Result<(), Failure> {
        const DAY: u64 = 86_400_000;
        const EXPECTED: &str = "expected a time of at most 1d, such as 10s or 0.5";
        let word = one_word(words, EXPECTED)?;
        let time = parse_time(word.0).filter(|&millis| millis <= DAY);
        let time = time.ok_or_else(|| format!("invalid time \"{word}\": {EXPECTED}"))?;
        set_once(&mut conf.options.retry_after_jitter, time)
    }
}

/// `ratelimit_phase preaccess | precontent`
struct RatelimitPhase;

impl Directive<LocationConf> for RatelimitPhase {
    const NAME: &'static str = "ratelimit_phase";

    fn apply(cf: &mut ngx_conf_t, conf: &mut LocationConf, words: &[Word]) -> Result<(), Failure> {
        let phases = [
            ("preaccess", Phase::Preaccess),
            ("precontent", Phase::Precontent),
        ];
        let phase = one_of(words, phases)?;
        if let Some(main) = Module::main_conf_mut(cf) {
            main.has_precontent |= phase == Phase::Precontent;
        }
        set_once(&mut conf.options.phase, phase)
    }
}

/// `ratelimit_api [write=on | off]`
struct RatelimitApi;

impl Directive<LocationConf> for RatelimitApi {
    const NAME: &'static str = "ratelimit_api";

    fn apply(cf: &mut ngx_conf_t, conf: &mut LocationConf, words: &[Word]) -> Result<(), Failure> {
        const EXPECTED: &str = "expected write=on, write=off or nothing";
        let may_write = match words {
            [] | [Word(b"write=off")] => false,
            [Word(b"write=on")] => true,
            [word] => return Err(format!("invalid parameter \"{word}\": {EXPECTED}").into()),
            [_, more, ..] => {
                return Err(format!("one parameter too many, \"{more}\": {EXPECTED}").into());
            }
        };
        set_content(cf, conf, Content::Api { may_write })
    }
}

/// `ratelimit_metrics`
struct RatelimitMetrics;

impl Directive<LocationConf> for RatelimitMetrics {
    const NAME: &'static str = "ratelimit_metrics";

    fn apply(cf: &mut ngx_conf_t, conf: &mut LocationConf, words: &[Word]) -> Result<(), Failure> {
        if let [word, ..] = words {
            return Err(format!("invalid parameter \"{word}\": expected none").into());
        }
        set_content(cf, conf, Content::Metrics)
    }
}

/// Makes a location answer by itself.
fn set_content(
    cf: &mut ngx_conf_t,
    conf: &mut LocationConf,
    content: Content,
) -> Result<(), Failure> {
    set_once(&mut conf.content, content)?;
    let core = NgxHttpCoreModule::location_conf_mut(cf).ok_or("no location")?;
    core.handler = Some(content.handler());
    Ok(())
}

/// The only word of a directive.
pub(super) fn one_word(words: &[Word], expected: &str) -> Result<Word, Failure> {
    match words {
        [word] => Ok(*word),
        [] => Err(format!("no parameter: {expected}").into()),
        [_, more, ..] => Err(format!("one parameter too many, \"{more}\": {expected}").into()),
    }
}

/// The value of the only word of a directive, which is one of a few.
fn one_of<T: Copy, const N: usize>(words: &[Word], values: [(&str, T); N]) -> Result<T, Failure> {
    let names = values.map(|(name, _)| name);
    let expected = match names.split_last() {
        Some((last, others)) => format!("expected {} or {last}", others.join(", ")),
        None => String::new(),
    };
    let word = one_word(words, &expected)?;
    let value = values.iter().find(|(name, _)| name.as_bytes() == word.0);
    match value {
        Some((_, value)) => Ok(*value),
        None => Err(format!("invalid parameter \"{word}\": {expected}").into()),
    }
}

fn on_or_off(words: &[Word]) -> Result<bool, Failure> {
    one_of(words, [("on", true), ("off", false)])
}

fn set_once<T>(place: &mut Option<T>, value: T) -> Result<(), Failure> {
    match place {
        Some(_) => Err(duplicate()),
        None => {
            *place = Some(value);
            Ok(())
        }
    }
}
