//! The reader of the directives in a `ratelimit_namespace` block.

use core::time::Duration;

use super::NamespaceOptions;
use crate::policy::calendar::CalendarZone;
use crate::policy::namespace::{
    DEFAULT_TIMEOUT, MAX_TIMEOUT, NAME, OnError, OnLoss, SyncEarly, SyncMode,
};
use crate::policy::options::{
    Directive, DirectiveName, Directives as _, FLAG, OptionError, OptionWarning, Syntax,
    directives, shown, time,
};
use crate::policy::window::{WindowSize, parse_time, warn_of_months};

directives! {
    /// The directives of a namespace that were read so far.
    struct NamespaceDirectives {
        zone: Box<str> = NAME,
        store: Box<str> = NAME,
        sync_rate: SyncMode = SYNC_RATE,
        window_sizes: Vec<WindowSize> => window_sizes,
        on_error: OnError = ON_ERROR,
        timeout: Duration = TIMEOUT,
        reserve: bool = FLAG,
        sync_early: SyncEarly = SYNC_EARLY,
        on_loss: OnLoss = ON_LOSS,
    }
}

/// A reader of a namespace's directives, one by one, in any order.
#[derive(Debug, Default)]
pub struct NamespaceOptionsBuilder {
    read: NamespaceDirectives,
    /// Warnings about times in months.
    months: Vec<OptionWarning>,
}

const MAX_PERIOD: Duration = Duration::from_millis(WindowSize::MAX_MILLIS);

impl NamespaceOptionsBuilder {
    /// Reads the directive `name words...;`.
    ///
    /// # Errors
    ///
    /// If there is no such directive, it is duplicate, or its words are not accepted.
    pub fn set(&mut self, name: &[u8], words: &[&[u8]]) -> Result<(), OptionError> {
        let directive = Directive::new(name, words);
        if !self.read.set(&directive)? {
            return Err(directive.unknown(NamespaceDirectives::NAMES, &[]));
        }
        let with_times = ["sync_rate", "window_sizes"];
        if let Some(known) = with_times.into_iter().find(|known| directive.is(known)) {
            let warnings = words.iter().filter_map(|word| warn_of_months(word));
            self.months
                .extend(warnings.map(|message| OptionWarning { message, directive: known.into() }));
        }
        Ok(())
    }

    /// Returns warnings about directives without an effect, and about probable mistakes.
    pub fn warnings(&self) -> Vec<OptionWarning> {
        let mut warnings = self.months.clone();
        let mut warn = |directive: DirectiveName, message: String| {
            warnings.push(OptionWarning { message, directive });
        };
        if let (Some(store), None) = (&self.read.store, self.read.sync_rate) {
            let message = format!(
                "store \"{store}\" is not used without a sync_rate: add \"sync_rate time;\", or \
                 \"sync_rate 0;\", or \"sync_rate off;\" if that is meant"
            );
            warn("store".into(), message);
        }
        if self.read.sync_rate != Some(SyncMode::Synchronous) {
            for name in self.read.given().filter(|name| ["on_error", "timeout"].contains(name)) {
                warn(name.into(), format!("{name} has no effect without \"sync_rate 0;\""));
            }
        }
        warnings
    }

    /// Finishes the block.
    ///
    /// # Errors
    ///
    /// If `sync_rate` is not `off` and there is no store, or if an option is set that does not go with the sync mode.
    pub fn finish(self) -> Result<NamespaceOptions, OptionError> {
        let read = self.read;
        let sync = read.sync_rate.unwrap_or_default();
        if sync != SyncMode::Local && read.store.is_none() {
            return Err(OptionError::new(format!(
                "sync_rate {sync} needs a store: add \"store name;\", or set \"sync_rate off;\""
            ))
            .of("sync_rate"));
        }
        if read.reserve.is_some() && sync != SyncMode::Synchronous {
            return Err(OptionError::new(format!(
                "reserve needs \"sync_rate 0;\", and it is {sync}: hits are charged ahead only where each \
                 is asked for"
            ))
            .of("reserve"));
        }
        let of_periodic = read.given().find(|name| ["sync_early", "on_loss"].contains(name));
        if let (Some(name), SyncMode::Local | SyncMode::Synchronous) = (of_periodic, sync) {
            return Err(OptionError::new(format!(
                "{name} does not go with sync_rate {sync}: expected a sync_rate above 0, such as \
                 \"sync_rate 0.5;\", or no {name}"
            ))
            .of(name));
        }
        Ok(read.into())
    }
}

/// Fills directives that were not read with their defaults.
impl From<NamespaceDirectives> for NamespaceOptions {
    fn from(read: NamespaceDirectives) -> Self {
        NamespaceOptions {
            zone: read.zone,
            store: read.store,
            sync: read.sync_rate.unwrap_or_default(),
            sync_early: read.sync_early.unwrap_or_default(),
            on_loss: read.on_loss.unwrap_or_default(),
            window_sizes: read.window_sizes.unwrap_or_default(),
            on_error: read.on_error.unwrap_or_default(),
            timeout: read.timeout.unwrap_or(DEFAULT_TIMEOUT),
            is_reserving: read.reserve.unwrap_or(false),
        }
    }
}

/// Returns the settings of an empty block.
impl Default for NamespaceOptions {
    fn default() -> Self {
        NamespaceDirectives::default().into()
    }
}

/// Returns the sizes of `window_sizes`, each once. `tz=name` is the zone of the windows of the calendar before it.
fn window_sizes(directive: &Directive<'_>) -> Result<Vec<WindowSize>, OptionError> {
    let mut all: Vec<WindowSize> = Vec::new();
    for word in directive.words(&WINDOW_WORD)? {
        let Some(name) = word.strip_prefix(b"tz=") else {
            all.push(directive.read(&word, &WINDOW_SIZE)?);
            continue;
        };
        let invalid = |expected: &str| directive.invalid(Some(&shown(&word)), expected);
        let zone = CalendarZone::named(name).map_err(|error| {
            let error = error.to_string();
            invalid(error.strip_prefix("expected ").unwrap_or(&error))
        })?;
        let before = all.clone();
        all.iter_mut().for_each(|size| *size = size.in_zone(zone));
        if all == before {
            return Err(invalid("hour, day, week or month before it, whose time zone it is"));
        }
    }
    let mut sizes = Vec::new();
    for size in all {
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    Ok(sizes)
}

const SYNC_RATE: Syntax<SyncMode> = Syntax::new(
    "off or a negative number, 0, or a time from 1ms to 366d, such as 500ms or 0.5",
    |word| match word {
        b"off" => Some(SyncMode::Local),
        [b'-', number @ ..] if is_zero(number) == Some(false) => Some(SyncMode::Local),
        word if is_zero(word) == Some(true) || parse_time(word) == Some(0) => {
            Some(SyncMode::Synchronous)
        }
        word => time(word, MAX_PERIOD).map(SyncMode::Periodic),
    },
);

/// Whether a decimal without a sign is zero, however many digits it has; `None` if `text` is no such decimal.
fn is_zero(text: &[u8]) -> Option<bool> {
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let is_number = parts.all(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit));
    is_number.then(|| text.iter().all(|byte| b"0.".contains(byte)))
}

const EXPECTED_SIZES: &str = "times from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or \
                              month, and tz=name behind these";

const WINDOW_SIZE: Syntax<WindowSize> =
    Syntax::new(EXPECTED_SIZES, |word| WindowSize::parse(word).ok());

/// Any word of `window_sizes`.
const WINDOW_WORD: Syntax<Box<[u8]>> = Syntax::new(EXPECTED_SIZES, |word| Some(word.into()));

const ON_ERROR: Syntax<OnError> = Syntax::new("local, allow or deny", |word| match word {
    b"local" => Some(OnError::Local),
    b"allow" => Some(OnError::Allow),
    b"deny" => Some(OnError::Deny),
    _ => None,
});

const SYNC_EARLY: Syntax<SyncEarly> =
    Syntax::new("off, or a share of the limit from 0.1% to 50%, such as 2%", SyncEarly::parse);

const ON_LOSS: Syntax<OnLoss> = Syntax::new("local or share", |word| match word {
    b"local" => Some(OnLoss::Local),
    b"share" => Some(OnLoss::Share),
    _ => None,
});

const TIMEOUT: Syntax<Duration> =
    Syntax::new("a time from 1ms to 1m, such as 50ms or 0.05", |word| time(word, MAX_TIMEOUT));

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the settings of a block with `lines`.
    fn parse(lines: &[&str]) -> Result<NamespaceOptions, String> {
        let mut builder = NamespaceOptionsBuilder::default();
        for line in lines {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let set = builder.set(words[0], &words[1..]);
            set.map_err(|error| error.to_string())?;
        }
        builder.finish().map_err(|error| error.to_string())
    }

    fn sizes(texts: &[&str]) -> Vec<WindowSize> {
        let parse = |text: &&str| WindowSize::parse(text.as_bytes()).unwrap();
        texts.iter().map(parse).collect()
    }

    #[test]
    fn an_empty_block_is_a_local_namespace() {
        let options = NamespaceOptions {
            zone: None,
            store: None,
            sync: SyncMode::Local,
            sync_early: SyncEarly::MilliPercent(2000),
            on_loss: OnLoss::Local,
            window_sizes: vec![],
            on_error: OnError::Local,
            timeout: Duration::from_millis(50),
            is_reserving: false,
        };
        assert_eq!(parse(&[]), Ok(options));
    }

    #[test]
    fn a_block_sets_everything() {
        let lines = [
            "timeout 1m",
            "on_error deny",
            "window_sizes 1h 1s 60m 1m 1",
            "sync_rate 0.5",
            "sync_early 5%",
            "on_loss share",
            "store main",
            "zone counters",
        ];
        let options = NamespaceOptions {
            zone: Some("counters".into()),
            store: Some("main".into()),
            sync: SyncMode::Periodic(Duration::from_millis(500)),
            sync_early: SyncEarly::MilliPercent(5000),
            on_loss: OnLoss::Share,
            window_sizes: sizes(&["1h", "1s", "1m"]),
            on_error: OnError::Deny,
            timeout: Duration::from_secs(60),
            is_reserving: false,
        };
        assert_eq!(parse(&lines), Ok(options));
    }

    #[test]
    fn hits_are_reserved_with_reserve_on() {
        for (lines, is_reserving) in [
            (&["store main", "sync_rate 0"][..], false),
            (&["store main", "sync_rate 0", "reserve on"], true),
            (&["reserve off", "store main", "sync_rate 0"], false),
        ] {
            let options = parse(lines);
            assert_eq!(options.map(|it| it.is_reserving), Ok(is_reserving));
        }
    }

    #[test]
    fn a_sync_rate_is_off_or_zero_or_a_time() {
        let periodic = |millis| SyncMode::Periodic(Duration::from_millis(millis));
        for (rate, sync, written) in [
            ("off", SyncMode::Local, "off"),
            ("-1", SyncMode::Local, "off"),
            ("-0.00001", SyncMode::Local, "off"),
            ("0", SyncMode::Synchronous, "0"),
            ("0s", SyncMode::Synchronous, "0"),
            ("0.0", SyncMode::Synchronous, "0"),
            ("0.00000", SyncMode::Synchronous, "0"),
            ("1ms", periodic(1), "0.001"),
            ("0.5", periodic(500), "0.5"),
            ("1m30s", periodic(90_000), "90"),
        ] {
            let options = parse(&["store main", &format!("sync_rate {rate}")]);
            assert_eq!(options.map(|options| options.sync), Ok(sync), "{rate}");
            assert_eq!(sync.to_string(), written);
        }
        for rate in ["", "on", "-", "-0", "-x", "0.0001", "0.", "+1", "367d", "1e3"] {
            assert_eq!(
                parse(&["store main", &format!("sync_rate {rate}")]),
                Err(format!(
                    "invalid sync_rate \"{rate}\": expected off or a negative number, 0, or a \
                     time from 1ms to 366d, such as 500ms or 0.5"
                ))
            );
        }
    }

    #[test]
    fn an_error_about_a_wrong_block_suggests_a_right_one() {
        for (lines, message) in [
            (
                &["zones a"][..],
                "unknown directive \"zones\": expected one of zone, store, sync_rate, \
                 window_sizes, on_error, timeout, reserve, sync_early, on_loss",
            ),
            (&["zone a", "zone a"], "\"zone\" is duplicate: expected it once"),
            (
                &["window_sizes 1s", "window_sizes 1m"],
                "\"window_sizes\" is duplicate: expected it once",
            ),
            (
                &["zone off"],
                "invalid zone \"off\": expected 1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\", and \
                 not \"off\"",
            ),
            (
                &["store a b"],
                "\"store\" takes one word, not 2: 1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\", \
                 and not \"off\"",
            ),
            (
                &["window_sizes 1s 0"],
                "invalid window_sizes \"0\": expected times from 1ms to 366d, such as 500ms, 10s, \
                 1m, 1h30m or 0.5, or hour, day, week or month, and tz=name behind these",
            ),
            (&["on_error off"], "invalid on_error \"off\": expected local, allow or deny"),
            (
                &["timeout 61s"],
                "invalid timeout \"61s\": expected a time from 1ms to 1m, such as 50ms or 0.05",
            ),
            (&["on_loss deny"], "invalid on_loss \"deny\": expected local or share"),
            (
                &["sync_rate 0", "on_loss local", "store main"],
                "on_loss does not go with sync_rate 0: expected a sync_rate above 0, such as \
                 \"sync_rate 0.5;\", or no on_loss",
            ),
            (
                &["sync_early 2"],
                "invalid sync_early \"2\": expected off, or a share of the limit from 0.1% to 50%, \
                 such as 2%",
            ),
            (
                &["sync_early 2%", "store main"],
                "sync_early does not go with sync_rate off: expected a sync_rate above 0, such as \
                 \"sync_rate 0.5;\", or no sync_early",
            ),
            (
                &["sync_rate 0", "sync_early off", "store main"],
                "sync_early does not go with sync_rate 0: expected a sync_rate above 0, such as \
                 \"sync_rate 0.5;\", or no sync_early",
            ),
            (
                &["sync_rate 500ms"],
                "sync_rate 0.5 needs a store: add \"store name;\", or set \"sync_rate off;\"",
            ),
            (
                &["sync_rate 0"],
                "sync_rate 0 needs a store: add \"store name;\", or set \"sync_rate off;\"",
            ),
            (
                &["sync_rate 0", "store main", "reserve yes"],
                "invalid reserve \"yes\": expected on or off",
            ),
            (
                &["sync_rate 1", "store main", "reserve on"],
                "reserve needs \"sync_rate 0;\", and it is 1: hits are charged ahead only where each \
                 is asked for",
            ),
            (
                &["reserve off"],
                "reserve needs \"sync_rate 0;\", and it is off: hits are charged ahead only where each \
                 is asked for",
            ),
        ] {
            assert_eq!(parse(lines), Err(message.into()));
        }
    }

    #[test]
    fn directives_without_effect_cause_warnings() {
        let unused = "store \"main\" is not used without a sync_rate: add \"sync_rate time;\", or \
                      \"sync_rate 0;\", or \"sync_rate off;\" if that is meant";
        let month = "in \"1M\", M is a month of 30 days: a minute is m, as in 1m";
        let on_error = "on_error has no effect without \"sync_rate 0;\"";
        let timeout = "timeout has no effect without \"sync_rate 0;\"";
        for (lines, warnings) in [
            (&["zone a"][..], &[][..]),
            (&["store main"], &[("store", unused)]),
            (&["store main", "sync_rate off"], &[]),
            (&["store main", "sync_rate 0", "on_error deny", "timeout 1s"], &[]),
            (
                &["store main", "sync_rate 1", "timeout 1s", "on_error deny"],
                &[("on_error", on_error), ("timeout", timeout)],
            ),
            (
                &["window_sizes 1m 1M", "on_error deny"],
                &[("window_sizes", month), ("on_error", on_error)],
            ),
        ] {
            let mut builder = NamespaceOptionsBuilder::default();
            for line in lines {
                let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
                builder.set(words[0], &words[1..]).unwrap();
            }
            let told = builder.warnings();
            let told: Vec<_> =
                told.iter().map(|warning| (warning.directive.name, &*warning.message)).collect();
            assert_eq!(told, warnings, "{lines:?}");
        }
    }
}
