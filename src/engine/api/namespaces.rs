//! The answer to a request for the names of all namespaces.

use super::json::json;

/// The answer to [`ApiCall::Namespaces`](super::ApiCall::Namespaces), in pieces that take a bounded time to write.
#[derive(Debug)]
pub struct Namespaces<I> {
    names: I,
    next: NamesPiece,
}

/// The next piece of the names.
#[derive(Clone, Copy, Debug)]
enum NamesPiece {
    /// The piece before the names.
    Start,
    /// The first names.
    First,
    /// Further names, or the end of the list if none are left.
    Further,
    /// Nothing.
    End,
}

impl<I> Namespaces<I> {
    /// The number of names in a piece.
    const NAMES: usize = 64;

    /// Creates the answer with these names.
    pub fn new(names: I) -> Namespaces<I> {
        Namespaces { names, next: NamesPiece::Start }
    }
}

impl<'n, I: Iterator<Item = &'n str>> Iterator for Namespaces<I> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let is_first = match self.next {
            NamesPiece::Start => {
                self.next = NamesPiece::First;
                return Some("{\"namespaces\":[".to_owned());
            }
            NamesPiece::First => true,
            NamesPiece::Further => false,
            NamesPiece::End => return None,
        };
        let names = self.names.by_ref().take(Self::NAMES);
        let names: Vec<_> = names.map(|name| json(&name)).collect();
        if names.is_empty() {
            self.next = NamesPiece::End;
            return Some("]}".to_owned());
        }
        self.next = NamesPiece::Further;
        let names = names.join(",");
        Some(match is_first {
            true => names,
            false => format!(",{names}"),
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
