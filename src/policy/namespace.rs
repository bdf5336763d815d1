//! Namespaces: the rules for their names, and their modes of sync.

use core::fmt;
use core::time::Duration;

use super::algorithm::{Algorithm, StoredKind};
use super::hits::Hits;
use super::options::{OptionError, Syntax, shown, text};

/// The namespace of a rule that names none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The default of the longest wait for a synchronous store.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);
/// The maximum of the longest wait.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// The maximum length of the name of a zone, store or namespace, in bytes.
pub const MAX_NAME_LEN: usize = 64;

/// Whether `name` may name a zone, a store or a namespace: `[A-Za-z0-9_.-]{1,64}` and not `off`.
pub fn is_valid_name(name: &[u8]) -> bool {
    (1..=MAX_NAME_LEN).contains(&name.len())
        && name != b"off"
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(byte))
}

/// The syntax of the name of a zone, a store or a namespace.
pub const NAME: Syntax<Box<str>> =
    Syntax::new("1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\", and not \"off\"", |word| {
        text(word).filter(|_| is_valid_name(word))
    });

/// Checks the name of a zone, store, namespace or counter; `what` says which, for the message.
///
/// # Errors
///
/// If the name is invalid.
pub fn valid_name<'a>(what: &str, name: &'a [u8]) -> Result<&'a str, OptionError> {
    let text = core::str::from_utf8(name).ok().filter(|_| is_valid_name(name));
    text.ok_or_else(|| {
        let (name, expected) = (shown(name), NAME.expected);
        OptionError::new(format!("invalid name \"{name}\" of a {what}: expected {expected}"))
    })
}

/// A namespace's mode of sync with its datastore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// No sync.
    #[default]
    Local,
    /// A sync once per period, of 1 ms to 366 days.
    Periodic(Duration),
    /// A decision by the store for each request.
    Synchronous,
}

impl SyncMode {
    /// Whether hits may be counted by `algorithm`. With periodic sync, only windows can be summed up across nodes. With
    /// synchronous decisions, the store has to support the algorithm, as `decides` reports.
    pub fn goes_with(self, algorithm: Algorithm, decides: impl FnOnce() -> bool) -> bool {
        match self {
            SyncMode::Local => true,
            // Nodes tell each other how many requests are under way.
            SyncMode::Periodic(_) => {
                matches!(algorithm.kind(), StoredKind::Windows | StoredKind::Holds)
            }
            SyncMode::Synchronous => decides(),
        }
    }
}

/// The fallback for a request when a synchronous datastore does not answer in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// The node decides by its own counts.
    #[default]
    Local,
    /// The request is admitted.
    Allow,
    /// The request is rejected.
    Deny,
}

/// The limit that a node applies while a periodically synced store is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// The full limit, by the counts that the node knows.
    #[default]
    Local,
    /// The node's share of each limit.
    Share,
}

/// The share of a limit that all nodes together may leave unpushed until their next sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncEarly {
    /// The whole limit: nothing is pushed early.
    Off,
    /// A share in thousandths of a percent: 100 to 50,000.
    MilliPercent(u32),
}

/// Returns 2 %.
impl Default for SyncEarly {
    fn default() -> Self {
        SyncEarly::MilliPercent(2000)
    }
}

impl SyncEarly {
    /// Parses `off`, or a percentage with at most three decimals, such as `0.5%`.
    pub fn parse(word: &[u8]) -> Option<SyncEarly> {
        let [number @ .., b'%'] = word else {
            return (word == b"off").then_some(SyncEarly::Off);
        };
        let percent = Hits::parse(number).ok()?.thousandths();
        let share = u32::try_from(percent).ok()?;
        // `Hits` rounds further decimals, so they are rejected here.
        let decimals = number.iter().rev().position(|&byte| byte == b'.');
        let is_share = (100..=50_000).contains(&share) && decimals.is_none_or(|it| it <= 3);
        is_share.then_some(SyncEarly::MilliPercent(share))
    }
}

/// Writes the mode in the syntax of `sync_rate`: `off`, `0`, or seconds, such as `0.5`.
impl fmt::Display for SyncMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncMode::Local => f.write_str("off"),
            SyncMode::Periodic(period) => period.as_secs_f64().fmt(f),
            SyncMode::Synchronous => f.write_str("0"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage() {
        for (word, share) in [("2%", 2000), ("0.1%", 100), ("12.345%", 12_345), ("50%", 50_000)] {
            let parsed = SyncEarly::parse(word.as_bytes());
            assert_eq!(parsed, Some(SyncEarly::MilliPercent(share)), "{word}");
        }
        assert_eq!(SyncEarly::parse(b"off"), Some(SyncEarly::Off));
        for word in [
            "", "%", "0%", "0.099%", "50.001%", "200%", "2", "0.02", "-2%", "2 %", "1.0004%", "on",
            "2%%",
        ] {
            assert_eq!(SyncEarly::parse(word.as_bytes()), None, "{word}");
        }
    }

    #[test]
    fn names_are_short_and_plain() {
        for name in ["default", "a", "A-1_b.c", &"x".repeat(64)] {
            assert!(is_valid_name(name.as_bytes()), "{name}");
        }
        for name in ["", "off", "a b", "a:b", "ä", "a/b", &"x".repeat(65)] {
            assert!(!is_valid_name(name.as_bytes()), "{name}");
        }
    }
}
