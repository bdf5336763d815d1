//! Syntax of the words of a `ratelimit_store` block, and options that exclude each other.

use core::net::Ipv6Addr;
use core::num::NonZeroU32;
use core::time::Duration;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::policy::options::{Directive, OptionError, Syntax, text, time};
use crate::store::contract::options::Secret;
use crate::store::contract::server::{ServerName, is_host};

pub(super) const SERVER: Syntax<ServerName> = Syntax::new(
    "host[:port], [v6][:port] or unix:/path, such as 127.0.0.1:6379",
    ServerName::parse,
);

pub(crate) const USERNAME: Syntax<Secret> = Syntax {
    expected: "a name of at least one character, in UTF-8",
    is_secret: true,
    read: Secret::parse,
};

pub(crate) const PASSWORD: Syntax<Secret> = Syntax {
    expected: "a password of at least one character, in UTF-8",
    is_secret: true,
    read: Secret::parse,
};

/// Secret, since it may be a password that was meant for another directive.
pub(super) const PASSWORD_FILE: Syntax<PathBuf> = Syntax { is_secret: true, ..FILE };

pub(super) const FILE: Syntax<PathBuf> = Syntax::new("the path of a file", |word| {
    (!word.is_empty()).then(|| OsStr::from_bytes(word).into())
});

pub(super) const DATABASE: Syntax<Box<str>> =
    Syntax::new("the number of a Redis database or the name of a Postgres database", text);

const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) const TIMEOUT: Syntax<Duration> =
    Syntax::new("a time from 1ms to 1d, such as 250ms or 0.25", |word| time(word, MAX_TIMEOUT));

/// Most exchanges in a second that can be set.
const MAX_EXCHANGES: u32 = 1_000_000;

pub(super) const EXCHANGES: Syntax<NonZeroU32> =
    Syntax::new("a number from 1 to 1000000", |word| {
        let number = str::from_utf8(word).ok()?.parse().ok()?;
        (number <= MAX_EXCHANGES).then(|| NonZeroU32::new(number)).flatten()
    });

pub(super) const TLS_NAME: Syntax<Box<str>> =
    Syntax::new("a host's name or an IP address", |word| {
        text(word).filter(|name| is_host(name) || name.parse::<Ipv6Addr>().is_ok())
    });

/// A prefix of the keys in a store.
pub(crate) const PREFIX: Syntax<Box<str>> = Syntax::new(
    "1 to 64 printable ASCII characters without blanks and braces, such as rl",
    |word| {
        // Braces would change the hash tag, by which a Redis Cluster assigns keys.
        let is_part = |byte: &u8| byte.is_ascii_graphic() && !b"{}".contains(byte);
        text(word).filter(|_| word.len() <= 64 && word.iter().all(is_part))
    },
);

/// The error that an option excludes another.
pub(crate) fn exclusive(name: &str, other: &str, expected: &str) -> OptionError {
    OptionError::new(format!("\"{name}\" goes with no {other}: expected {expected}"))
}

/// The error that an option lacks another.
pub(crate) fn needs(name: &'static str, needed: &str) -> OptionError {
    let message = format!("\"{name}\" needs another option: add \"{needed};\"");
    OptionError::new(message).of(name)
}

/// Parses `word` as that of a directive that was read before, or `default` if it was not given.
pub(crate) fn parse_read<T>(
    directive: &'static str,
    word: Option<&str>,
    default: &str,
    syntax: &Syntax<T>,
) -> Result<T, OptionError> {
    Directive::new(directive.as_bytes(), &[word.unwrap_or(default).as_bytes()])
        .word(syntax)
        .map_err(|error| error.of(directive))
}

/// Whether `text` is an identifier of SQL or CQL of at most `max_len` bytes: `[A-Za-z_][A-Za-z0-9_]*`.
pub(crate) fn is_identifier(text: &str, max_len: usize) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=max_len).contains(&text.len())
        && text.bytes().all(is_part)
        && !text.starts_with(|first: char| first.is_ascii_digit())
}
