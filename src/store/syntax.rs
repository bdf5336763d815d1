//! What the words of a `ratelimit_store` block may be.

use core::net::Ipv6Addr;
use core::time::Duration;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::options::{Secret, TableName};
use super::server::{ServerName, is_host};
use crate::policy::options::{Syntax, text, time};

/// A strategy of this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Redis,
    Postgres,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Redis => "redis",
            Kind::Postgres => "postgres",
        }
    }
}

pub(super) const STRATEGY: Syntax<Kind> = Syntax {
    expected: "redis or postgres",
    is_secret: false,
    read: |word| match word {
        b"redis" => Some(Kind::Redis),
        b"postgres" => Some(Kind::Postgres),
        _ => None,
    },
};

pub(super) const SERVER: Syntax<ServerName> = Syntax {
    expected: ServerName::EXPECTED,
    is_secret: false,
    read: ServerName::parse,
};

pub(super) const SENTINEL_MASTER: Syntax<Box<str>> = Syntax {
    expected: "the name by which the sentinels know the primary, such as mymaster",
    is_secret: false,
    read: text,
};

pub(super) const USERNAME: Syntax<Secret> = Syntax {
    expected: "a name of at least one character, in UTF-8",
    is_secret: true,
    read: Secret::parse,
};

pub(super) const PASSWORD: Syntax<Secret> = Syntax {
    expected: "a password of at least one character, in UTF-8",
    is_secret: true,
    read: Secret::parse,
};

/// Secret, since it may be a password that was meant for another directive.
pub(super) const PASSWORD_FILE: Syntax<PathBuf> = Syntax {
    is_secret: true,
    ..FILE
};

pub(super) const FILE: Syntax<PathBuf> = Syntax {
    expected: "the path of a file",
    is_secret: false,
    read: |word| (!word.is_empty()).then(|| OsStr::from_bytes(word).into()),
};

pub(super) const DATABASE: Syntax<Box<str>> = Syntax {
    expected: "the number of a Redis database or the name of a Postgres database",
    is_secret: false,
    read: text,
};

pub(super) const REDIS_DATABASE: Syntax<u32> = Syntax {
    expected: "the number of a Redis database, such as 0",
    is_secret: false,
    read: |word| {
        // The standard library would take a sign, too.
        let digits = text(word).filter(|_| word.iter().all(u8::is_ascii_digit))?;
        digits.parse().ok()
    },
};

pub(super) const PREFIX: Syntax<Box<str>> = Syntax {
    expected: "1 to 64 printable ASCII characters without blanks and braces, such as rl",
    is_secret: false,
    read: |word| {
        // Braces would decide where a Redis Cluster puts a key.
        let is_part = |byte: &u8| byte.is_ascii_graphic() && !b"{}".contains(byte);
        text(word).filter(|_| word.len() <= 64 && word.iter().all(is_part))
    },
};

pub(super) const TABLE: Syntax<TableName> = Syntax {
    expected: "name or schema.name, of A-Z, a-z, 0-9, \"_\", no digit first: a schema of 1 to 63, a name of 1 to 55",
    is_secret: false,
    read: |word| {
        let text = text(word)?;
        let (schema, name) = match text.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, &*text),
        };
        // Other tables have names that begin with this one, and all end at 63.
        let is_legal = is_identifier(name) && name.len() <= 55 && schema.is_none_or(is_identifier);
        is_legal.then(|| TableName {
            schema: schema.map(Into::into),
            name: name.into(),
        })
    },
};

fn is_identifier(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=63).contains(&text.len())
        && text.bytes().all(is_part)
        && !text.starts_with(|first: char| first.is_ascii_digit())
}

const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) const TIMEOUT: Syntax<Duration> = Syntax {
    expected: "a time from 1ms to 1d, such as 250ms or 0.25",
    is_secret: false,
    read: |word| time(word, MAX_TIMEOUT),
};

pub(super) const TLS_NAME: Syntax<Box<str>> = Syntax {
    expected: "a host's name or an IP address",
    is_secret: false,
    read: |word| text(word).filter(|name| is_host(name) || name.parse::<Ipv6Addr>().is_ok()),
};
