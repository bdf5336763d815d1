//! The addresses of a datastore's servers.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// A port of a host.
    Tcp {
        /// A name in lower case, or an IP address. IPv6 has no brackets.
        host: Box<str>,
        /// The port, above zero.
        port: u16,
    },
    /// An absolute path: of a socket, or for Postgres of the socket's directory.
    Unix(PathBuf),
}

#[cfg(test)]
impl ServerAddress {
    pub(crate) fn tcp(host: &str, port: u16) -> ServerAddress {
        let host = host.into();
        ServerAddress::Tcp { host, port }
    }
}

/// A server in a configuration, whose port may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerName {
    /// A port of a host; `None` for the default port.
    Tcp { host: Box<str>, port: Option<u16> },
    /// The path of a socket: see [`ServerAddress::Unix`].
    Unix(PathBuf),
}

impl ServerName {
    /// Parses `host[:port]`, `[v6][:port]` or `unix:/path`; `None` for anything else.
    pub(crate) fn parse(text: &[u8]) -> Option<ServerName> {
        if let Some(path) = text.strip_prefix(b"unix:") {
            let path = Path::new(OsStr::from_bytes(path));
            return path.is_absolute().then(|| ServerName::Unix(path.into()));
        }
        let text = core::str::from_utf8(text).ok()?;
        // An IPv6 address also contains colons.
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(host) => host.parse::<Ipv6Addr>().ok()?.to_string(),
            None if is_host(host) => host.to_ascii_lowercase(),
            None => return None,
        };
        let port = match port {
            Some(port) => Some(parse_port(port)?),
            None => None,
        };
        let host = host.into();
        Some(ServerName::Tcp { host, port })
    }

    /// Returns the address, with `usual_port` as the default port.
    pub(crate) fn at(&self, usual_port: u16) -> ServerAddress {
        match self {
            ServerName::Tcp { host, port } => {
                ServerAddress::Tcp { host: host.clone(), port: port.unwrap_or(usual_port) }
            }
            ServerName::Unix(path) => ServerAddress::Unix(path.clone()),
        }
    }
}

/// Returns the server of a URL, or `Some(None)` for a URL that may contain a password; `None` if
/// `text` is not a URL.
#[cfg(not(loom))]
pub(crate) fn server_of_url(text: &[u8]) -> Option<Option<ServerName>> {
    let text = core::str::from_utf8(text).ok()?;
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme =
        scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let server = rest.split('/').next().filter(|_| !rest.contains(['@', '?', '=']));
    is_scheme.then(|| server.and_then(|server| ServerName::parse(server.as_bytes())))
}

fn parse_port(text: &str) -> Option<u16> {
    // The standard library would also accept a sign.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&port| is_number && port > 0)
}

/// Formats the address as in a configuration.
impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            ServerAddress::Tcp { host, port } => write!(f, "{host}:{port}"),
            ServerAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerName::Tcp { host, port: None } if host.contains(':') => write!(f, "[{host}]"),
            ServerName::Tcp { host, port: None } => f.write_str(host),
            // The port is explicit, so the default does not matter.
            named => named.at(0).fmt(f),
        }
    }
}

/// Returns whether `text` is an IPv4 address or a host name: labels of letters, digits, `-` and
/// `_`, of which the last is not a number.
pub(crate) fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (1..=63).contains(&label.len()) && label.bytes().all(is_part)
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse::<Ipv4Addr>().is_ok();
    }
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_perhaps_a_port_or_a_path() {
        let tcp = ServerAddress::tcp;
        for (text, address, written) in [
            ("127.0.0.1:6379", tcp("127.0.0.1", 6379), "127.0.0.1:6379"),
            ("redis-1.Example.:1", tcp("redis-1.example.", 1), "redis-1.example.:1"),
            ("my_redis:65535", tcp("my_redis", 65535), "my_redis:65535"),
            ("10.0.0.1.example:80", tcp("10.0.0.1.example", 80), "10.0.0.1.example:80"),
            ("[::1]:5432", tcp("::1", 5432), "[::1]:5432"),
            ("[2001:DB8:0::1]:5432", tcp("2001:db8::1", 5432), "[2001:db8::1]:5432"),
            (
                "unix:/run/redis.sock",
                ServerAddress::Unix("/run/redis.sock".into()),
                "unix:/run/redis.sock",
            ),
            ("unix:/", ServerAddress::Unix("/".into()), "unix:/"),
            ("127.0.0.1", tcp("127.0.0.1", 7), "127.0.0.1:7"),
            ("Redis", tcp("redis", 7), "redis:7"),
            ("[::1]", tcp("::1", 7), "[::1]:7"),
        ] {
            let name = ServerName::parse(text.as_bytes());
            assert_eq!(name.map(|it| it.at(7)), Some(address.clone()), "{text}");
            assert_eq!(address.to_string(), written);
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            ":",
            ":6379",
            "256.0.0.1",
            "127.0.0.1:",
            "127.0.0.1:0",
            "127.0.0.1:65536",
            "127.0.0.1:+1",
            "127.0.0.1:x",
            "127.0.0.1 :1",
            "256.0.0.1:1",
            "127.1:1",
            "127.0.0.1.:1",
            "1:1",
            "::1:6379",
            "::1",
            "[]",
            "[::1]:",
            "[::1]6379",
            "[::1:6379",
            "[127.0.0.1]:1",
            "[fe80::1%eth0]:1",
            "a..b:1",
            ".:1",
            "bücher.example:1",
            "redis://localhost:6379",
            "unix:",
            "unix:run/redis.sock",
            &format!("{}:1", "x".repeat(64)),
            &format!("{}:1", "x.".repeat(128)),
        ] {
            assert_eq!(ServerName::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(ServerName::parse(b"\xff:1"), None);
    }
}
