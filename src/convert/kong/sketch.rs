//! A sketch of Kong's routing: servers, and what a location does besides limiting.

use super::entities::{KongEntities, KongRoute};
use super::maps::regex_of;
use super::text::{Remarks, indented, word};

/// A server, for the routes of a host.
#[derive(Default)]
pub(super) struct ServerSketch {
    pub(super) hosts: Vec<String>,
    /// The beginnings and the texts of the locations.
    pub(super) locations: Vec<(String, String)>,
    /// The locations that answer with messages.
    pub(super) pages: Vec<String>,
}

impl ServerSketch {
    /// Adds a route; returns false if another one has a location of it, which stays.
    pub(super) fn add(&mut self, locations: &[(String, String)], pages: &[String]) -> bool {
        let mut is_whole = true;
        for (location, text) in locations {
            match self.locations.iter().any(|(known, _)| known == location) {
                true => is_whole = false,
                false => self.locations.push((location.clone(), text.clone())),
            }
        }
        for page in pages {
            if !self.pages.contains(page) {
                self.pages.push(page.clone());
            }
        }
        is_whole
    }

    /// Returns whether another server differs in its hosts only.
    pub(super) fn serves_as(&self, other: &ServerSketch) -> bool {
        let is_default = |server: &ServerSketch| server.hosts.is_empty();
        !is_default(self)
            && !is_default(other)
            && (&self.locations, &self.pages) == (&other.locations, &other.pages)
    }

    /// Returns the server's block.
    pub(super) fn write(&self) -> String {
        let mut text = String::from("\nserver {\n    listen 8000;\n");
        if !self.hosts.is_empty() {
            let hosts: Vec<_> = self.hosts.iter().map(|host| word(host)).collect();
            text.push_str(&format!("    server_name {};\n", hosts.join(" ")));
        }
        for location in self.locations.iter().map(|(_, text)| text).chain(&self.pages) {
            text.push_str(&indented(location));
        }
        text.push_str("}\n");
        text
    }
}

/// Returns the beginning of a location, and adds where its requests go.
pub(super) fn location(
    entities: &KongEntities<'_>,
    route: &KongRoute,
    path: &str,
    lines: &mut Vec<String>,
    remarks: &mut Remarks,
) -> String {
    let service = route.service.and_then(|index| entities.services.get(index));
    let (path, is_regex) = match path.strip_prefix('~') {
        Some(regex) => (regex, true),
        None => (path, false),
    };
    // nginx compares decoded paths.
    let decoded = Some(path).filter(|_| !is_regex).and_then(decoded);
    if path.contains('%') && decoded.is_none() {
        let text = format!("route {}: a path with % is not decoded", route.name);
        remarks.add(route.line, text, true);
    }
    let path = decoded.as_deref().unwrap_or(path);
    let prefix = service.map_or("", |service| service.path.as_str());
    if is_regex && route.is_stripped {
        let text =
            format!("route {}: strip_path of a regular expression is not converted", route.name);
        remarks.add(route.line, text, true);
    } else if route.is_stripped && path != "/" {
        let escaped = regex_of(path.trim_end_matches('/'));
        lines.push(format!("rewrite {} {prefix}/$1 break;", word(&format!("^{escaped}/?(.*)$"))));
    } else if !prefix.is_empty() {
        lines.push(format!("rewrite ^(.*)$ {prefix}$1 break;"));
    }
    if !is_regex && path.contains(['(', '[', '*', '^', '$', '|', '\\']) {
        let text = format!(
            "route {}: a path that may be a regular expression of Kong 2 is taken as text",
            route.name
        );
        remarks.add(route.line, text, true);
    }
    match service.and_then(|service| service.url.as_ref()) {
        Some(url) => lines.push(format!("proxy_pass {url};")),
        None => {
            remarks.add(route.line, "a location has no known service: add proxy_pass".into(), true)
        }
    }
    if !route.others.is_empty() {
        let text = format!("route {}: {} are not converted", route.name, route.others.join(", "));
        remarks.add(route.line, text, true);
    }
    match is_regex {
        true => format!("location ~ {}", word(&format!("^{path}"))),
        false => format!("location {}", word(path)),
    }
}

/// Returns a path without the encoding of bytes that mean the same without it; `None` if it has other ones.
fn decoded(path: &str) -> Option<String> {
    let mut parts = path.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
        let is_reserved = byte.is_ascii_control() || b"/%?#".contains(&byte);
        bytes.push(Some(byte).filter(|_| !is_reserved)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}
