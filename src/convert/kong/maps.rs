//! The maps of a configuration: keys with a fallback, and costs in response headers.

use super::text::{block, word};

/// A map of nginx.
struct NginxMap {
    source: String,
    variable: String,
    lines: Vec<String>,
}

/// The maps, none twice.
#[derive(Default)]
pub(super) struct KongMaps(Vec<NginxMap>);

/// The entry for requests that lack what they are to be counted by: Kong counts them by address.
const FALLBACK: &str = r#""" $remote_addr;"#;

impl KongMaps {
    /// Returns the variable with the authenticated user, or the address.
    pub(super) fn consumer(&mut self) -> String {
        let lines = vec![FALLBACK.to_owned(), "default $remote_user;".into()];
        self.add("$remote_user", "kong_consumer", lines)
    }

    /// Returns the variable with a request header, or the address.
    pub(super) fn header(&mut self, header: &str) -> String {
        let name = variable_of(header);
        let lines = vec![FALLBACK.to_owned(), format!("default $http_{name};")];
        self.add(&format!("$http_{name}"), &format!("kong_{name}"), lines)
    }

    /// Returns the variable that is the same for all requests of a path, or else the address.
    pub(super) fn path(&mut self, path: &str) -> String {
        let pattern = word(&format!("~^{}(\\?|$)", regex_of(path)));
        let lines = vec![format!("{pattern} path;"), "default $remote_addr;".into()];
        self.add("$request_uri", "kong_path", lines)
    }

    /// Returns the variable with the cost of a name in a response header.
    pub(super) fn charge(&mut self, header: &str, name: &str) -> String {
        let header = variable_of(header);
        let capture = format!("kong_cost_{}", variable_of(name));
        let lines = vec![
            "default 0;".to_owned(),
            format!(r#""~(?:^|[ ,]){name}=(?<{capture}>\d+)" ${capture};"#),
        ];
        self.add(&format!("$upstream_http_{header}"), &format!("kong_{}", variable_of(name)), lines)
    }

    /// Returns the directives.
    pub(super) fn write(&self) -> String {
        let maps = self.0.iter();
        maps.map(|map| block(&format!("map {} ${}", map.source, map.variable), &map.lines))
            .collect()
    }

    /// Adds a map unless it is there; returns its variable.
    fn add(&mut self, source: &str, base: &str, lines: Vec<String>) -> String {
        if let Some(map) = self.0.iter().find(|map| map.source == source && map.lines == lines) {
            return map.variable.clone();
        }
        let mut variable = base.to_owned();
        let mut number = 2_usize;
        while self.0.iter().any(|map| map.variable == variable) {
            variable = format!("{base}_{number}");
            number = number.saturating_add(1);
        }
        self.0.push(NginxMap { source: source.to_owned(), variable: variable.clone(), lines });
        variable
    }
}

/// Returns the part of a variable's name that stands for a header.
fn variable_of(header: &str) -> String {
    let byte = |byte: u8| {
        if byte.is_ascii_alphanumeric() { char::from(byte.to_ascii_lowercase()) } else { '_' }
    };
    header.bytes().map(byte).collect()
}

/// Returns a regular expression that matches a text.
pub(super) fn regex_of(text: &str) -> String {
    let mut regex = String::new();
    for char in text.chars() {
        if char.is_ascii() && !char.is_ascii_alphanumeric() && !"/-_".contains(char) {
            regex.push('\\');
        }
        regex.push(char);
    }
    regex
}
