//! The options of a level that have one or two words, and the settings of a location.

use super::message::ConfError;
use super::parameter::{invalid, on_or_off, one_of, one_word, set_once};
use crate::policy::headers::{HeaderFormat, HeaderFormats};
use crate::policy::options::shown;
use crate::policy::window::parse_time;
use crate::table::Outcome;

/// Declares the options of a level: for each, the directive, the parser of its words, the field of [`Settings`], and
/// the default.
macro_rules! level_options {
    ($($(#[$doc:meta])* $directive:literal $parse:ident => $name:ident: $Type:ty = $default:expr,)*) => {
        /// The options that a level sets.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct LevelOptions {
            $($name: Option<$Type>,)*
        }

        /// The settings of a location.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Settings {
            $($(#[$doc])* pub $name: $Type,)*
        }

        impl LevelOptions {
            /// Reads `directive words`.
            pub(crate) fn set(&mut self, directive: &str, words: &[&[u8]]) -> Result<(), ConfError> {
                match directive {
                    $($directive => set_once(&mut self.$name, $parse(words)?),)*
                    _ => Err("unknown directive".into()),
                }
            }

            /// Inherits the options that this level does not set.
            pub(crate) fn inherit(&mut self, prev: &LevelOptions) {
                $(self.$name = self.$name.or(prev.$name);)*
            }

            /// Fills options that are not set with their defaults.
            pub(crate) fn settings(&self) -> Settings {
                Settings { $($name: self.$name.unwrap_or($default),)* }
            }
        }
    };
}

level_options! {
    /// Whether rejected requests are charged.
    "ratelimit_count_rejected" on_or_off => count_rejected: bool = false,
    /// The status of a rejection: 400 to 599.
    "ratelimit_status" status => status: isize = 429,
    /// The outcome of a rejected request; with a dry run, the request passes.
    "ratelimit_dry_run" dry_run => refusal: Outcome = Outcome::Rejected,
    /// The level at which rejections are logged.
    "ratelimit_log_level" log_level => log_level: LogLevel = LogLevel::Error,
    /// The formats of the headers that tell clients about limits.
    "ratelimit_headers" header_formats => headers: HeaderFormats
        = HeaderFormats::default().with(HeaderFormat::Ietf),
    /// The maximum random addition to `Retry-After`, in milliseconds.
    "ratelimit_retry_after_jitter" jitter => retry_after_jitter: u64 = 0,
    /// The phase in which a request is decided on.
    "ratelimit_phase" phase => phase: Phase = Phase::default(),
}

/// A level of the error log, with nginx's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LogLevel {
    /// `error`
    Error = 4,
    /// `warn`
    Warn = 5,
    /// `notice`
    Notice = 6,
    /// `info`
    Info = 7,
    /// `debug`, used for delays if rejections are logged with `info`.
    Debug = 8,
    /// No logging.
    Off = u32::MAX,
}

impl LogLevel {
    /// Returns the level at which delays are logged, where `self` is that of rejections.
    pub fn of_delays(self) -> LogLevel {
        match self {
            LogLevel::Error => LogLevel::Warn,
            LogLevel::Warn => LogLevel::Notice,
            LogLevel::Notice => LogLevel::Info,
            LogLevel::Info | LogLevel::Debug => LogLevel::Debug,
            LogLevel::Off => LogLevel::Off,
        }
    }
}

/// A phase in which requests are decided on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Before access control.
    #[default]
    Preaccess,
    /// After access control.
    Precontent,
}

impl Phase {
    /// Returns the name, as in `ratelimit_phase`.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Preaccess => "preaccess",
            Phase::Precontent => "precontent",
        }
    }
}

/// Content that this module sets for a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// `ratelimit_api`
    Api {
        /// Whether requests may change counters.
        may_write: bool,
    },
    /// `ratelimit_metrics`
    Metrics,
}

impl Content {
    /// Returns the name of the directive.
    pub(crate) fn directive(self) -> &'static str {
        match self {
            Content::Api { .. } => "ratelimit_api",
            Content::Metrics => "ratelimit_metrics",
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        LevelOptions::default().settings()
    }
}

/// The accepted statuses of rejections, as the end of a message.
pub(crate) const STATUS: &str = "expected a status from 400 to 599";

fn status(words: &[&[u8]]) -> Result<isize, ConfError> {
    let word = one_word(words, STATUS)?;
    parse_status(word).ok_or_else(|| invalid("status", word, STATUS))
}

/// Parses the status of a rejection; `None` if it is none.
pub(crate) fn parse_status(word: &[u8]) -> Option<isize> {
    let code = core::str::from_utf8(word).ok();
    let code = code.filter(|code| code.bytes().all(|byte| byte.is_ascii_digit()));
    let code = code.and_then(|code| code.parse().ok());
    code.filter(|code| (400..=599).contains(code))
}

fn dry_run(words: &[&[u8]]) -> Result<Outcome, ConfError> {
    one_of(words, [("on", Outcome::RejectedDryRun), ("off", Outcome::Rejected)])
}

fn log_level(words: &[&[u8]]) -> Result<LogLevel, ConfError> {
    let levels = [
        ("info", LogLevel::Info),
        ("notice", LogLevel::Notice),
        ("warn", LogLevel::Warn),
        ("error", LogLevel::Error),
        ("off", LogLevel::Off),
    ];
    one_of(words, levels)
}

fn jitter(words: &[&[u8]]) -> Result<u64, ConfError> {
    const DAY: u64 = 86_400_000;
    const EXPECTED: &str = "expected a time of at most 1d, such as 10s or 0.5";
    let word = one_word(words, EXPECTED)?;
    let time = parse_time(word).filter(|&millis| millis <= DAY);
    time.ok_or_else(|| invalid("time", word, EXPECTED))
}

fn phase(words: &[&[u8]]) -> Result<Phase, ConfError> {
    one_of(words, [("preaccess", Phase::Preaccess), ("precontent", Phase::Precontent)])
}

/// Parses the words of `ratelimit_headers`.
fn header_formats(words: &[&[u8]]) -> Result<HeaderFormats, ConfError> {
    let names = HeaderFormat::ALL.map(HeaderFormat::name);
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    let others = others.join(", ");
    let expected = format!("expected off, or one or more of {others} and {last}");
    let mut formats = HeaderFormats::default();
    for word in words {
        let mut known = HeaderFormat::ALL.into_iter();
        match known.find(|format| format.name().as_bytes() == *word) {
            Some(format) if formats.contains(format) => {
                let word = shown(word);
                return Err(format!("parameter \"{word}\" is duplicate: {expected}").into());
            }
            Some(format) => formats = formats.with(format),
            None if *word == b"off" && words.len() == 1 => {}
            None if *word == b"off" => {
                return Err(format!("\"off\" goes with nothing else: {expected}").into());
            }
            None => return Err(invalid("parameter", word, &expected)),
        }
    }
    match words {
        [] => Err(expected.into()),
        _ => Ok(formats),
    }
}
