//! The answer to a request for the names of all namespaces.

use super::json::json;

/// The answer to [`ApiCall::Namespaces`](super::ApiCall::Namespaces), in pieces that take a bounded time to write.
#[derive(Debug)]
pub struct Namespaces<I> {
    names: I,
    /// The text before the next names; `None` after the last piece.
    before: Option<&'static str>,
}

impl<I> Namespaces<I> {
    /// The number of names in a piece.
    const NAMES: usize = 64;

    /// Creates the answer with these names.
    pub fn new(names: I) -> Namespaces<I> {
        Namespaces { names, before: Some("{\"namespaces\":[") }
    }
}

impl<'n, I: Iterator<Item = &'n str>> Iterator for Namespaces<I> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let before = self.before?;
        let names = self.names.by_ref().take(Self::NAMES);
        let names: Vec<_> = names.map(|name| json(&name)).collect();
        self.before = (!names.is_empty()).then_some(",");
        Some(match (before, &*names.join(",")) {
            (",", "") => "]}".to_owned(),
            (_, "") => format!("{before}]}}"),
            (_, names) => format!("{before}{names}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_a_list() {
        let text = |names: &[String]| {
            let names = names.iter().map(|name| &**name);
            Namespaces::new(names).collect::<String>()
        };
        assert_eq!(text(&[]), r#"{"namespaces":[]}"#);
        let names = ["a", "b.c"].map(str::to_owned);
        assert_eq!(text(&names), r#"{"namespaces":["a","b.c"]}"#);
        let names: Vec<_> = (0..129).map(|n| n.to_string()).collect();
        let value: serde_json::Value = serde_json::from_str(&text(&names)).unwrap();
        assert_eq!(value["namespaces"], serde_json::json!(names));
    }
}
