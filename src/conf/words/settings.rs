//! The options of a level that have one or two words, and the settings of a location.

use super::message::ConfError;
use super::parse::{invalid, on_or_off, one_of, one_word, set_once};
use crate::policy::headers::{HeaderFormat, HeaderFormats};
use crate::policy::options::shown;
use crate::policy::window::parse_time;
use crate::table::Outcome;

/// The options that a level sets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LevelOptions {
    count_rejected: Option<bool>,
    status: Option<isize>,
    dry_run: Option<bool>,
    log_level: Option<LogLevel>,
    headers: Option<HeaderFormats>,
    retry_after_jitter: Option<u64>,
    phase: Option<Phase>,
}

/// The settings of a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether rejected requests are charged.
    pub count_rejected: bool,
    /// The status of a rejection: 400 to 599.
    pub status: isize,
    /// The outcome of a rejected request; with a dry run, the request passes.
    pub refusal: Outcome,
    /// The level at which rejections are logged.
    pub log_level: LogLevel,
    /// The formats of the headers that tell clients about limits.
    pub headers: HeaderFormats,
    /// The maximum random addition to `Retry-After`, in milliseconds.
    pub retry_after_jitter: u64,
    /// The phase in which a request is decided on.
    pub phase: Phase,
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

impl LevelOptions {
    /// Reads `ratelimit_count_rejected on | off`.
    pub(crate) fn set_count_rejected(&mut self, words: &[&[u8]]) -> Result<(), ConfError> {
        set_once(&mut self.count_rejected, on_or_off(words)?)
    }

    /// Reads `ratelimit_status code`.
    pub(crate) fn set_status(&mut self, words: &[&[u8]]) -> Result<(), ConfError> {
        const EXPECTED: &str = "expected a status from 400 to 599";
        let word = one_word(words, EXPECTED)?;
        let code = core::str::from_utf8(word).ok();
        let code = code.filter(|code| code.bytes().all(|byte| byte.is_ascii_digit()));
        let code = code.and_then(|code| code.parse().ok());
        let code = code.filter(|code| (400..=599).contains(code));
        let code = code.ok_or_else(|| invalid("status", word, EXPECTED))?;
        set_once(&mut self.status, code)
    }

    /// Reads `ratelimit_dry_run on | off`.
    pub(crate) fn set_dry_run(&mut self, words: &[&[u8]]) -> Result<(), ConfError> {
        set_once(&mut self.dry_run, on_or_off(words)?)
    }

    /// Reads `ratelimit_log_level info | notice | warn | error | off`.
    pub(crate) fn set_log_level(&mut self, words: &[&[u8]]) -> Result<(), ConfError> {
        let levels = [
            ("info", LogLevel::Info),
            ("notice", LogLevel::Notice),
            ("warn", LogLevel::Warn),
            ("error", LogLevel::Error),
            ("off", LogLevel::Off),
        ];
        set_once(&mut self.log_level, one_of(words, levels)?)
    }

    /// Reads `ratelimit_headers off | [ietf] [draft03] [legacy]`.
    pub(crate) fn set_headers(&mut self, words: &[&[u8]]) -> Result<(), ConfError> {
        set_once(&mut self.headers, header_formats(words)?)
    }

    /// Reads `ratelimit_retry_after_jitter time`.
    pub(crate) fn set_retry_after_jitter(&mut self, words: &[&[u8]]) -> Result<(), ConfError> {
        const DAY: u64 = 86_400_000;
        const EXPECTED: &str = "expected a time of at most 1d, such as 10s or 0.5";
        let word = one_word(words, EXPECTED)?;
        let time = parse_time(word).filter(|&millis| millis <= DAY);
        let time = time.ok_or_else(|| invalid("time", word, EXPECTED))?;
        set_once(&mut self.retry_after_jitter, time)
    }

    /// Reads `ratelimit_phase preaccess | precontent`.
    pub(crate) fn set_phase(&mut self, words: &[&[u8]]) -> Result<Phase, ConfError> {
        let phases = [("preaccess", Phase::Preaccess), ("precontent", Phase::Precontent)];
        let phase = one_of(words, phases)?;
        set_once(&mut self.phase, phase).map(|()| phase)
    }

    /// Inherits the options that this level does not set.
    pub(crate) fn inherit(&mut self, prev: &LevelOptions) {
        self.count_rejected = self.count_rejected.or(prev.count_rejected);
        self.status = self.status.or(prev.status);
        self.dry_run = self.dry_run.or(prev.dry_run);
        self.log_level = self.log_level.or(prev.log_level);
        self.headers = self.headers.or(prev.headers);
        self.retry_after_jitter = self.retry_after_jitter.or(prev.retry_after_jitter);
        self.phase = self.phase.or(prev.phase);
    }
}

impl Settings {
    /// Fills options that are not set with their defaults.
    pub(crate) fn of(options: &LevelOptions) -> Settings {
        Settings {
            count_rejected: options.count_rejected.unwrap_or(false),
            status: options.status.unwrap_or(429),
            refusal: match options.dry_run {
                Some(true) => Outcome::RejectedDryRun,
                _ => Outcome::Rejected,
            },
            log_level: options.log_level.unwrap_or(LogLevel::Error),
            headers: options.headers.unwrap_or(HeaderFormats::default().with(HeaderFormat::Ietf)),
            retry_after_jitter: options.retry_after_jitter.unwrap_or(0),
            phase: options.phase.unwrap_or_default(),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings::of(&LevelOptions::default())
    }
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
