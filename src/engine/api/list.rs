//! An answer with a list, in pieces that take a bounded time to write.

/// The answer `{"name":[...]}`, to which other members may be added. Items are JSON texts; those that are `None` are left out.
#[derive(Debug)]
pub struct ListBody<I> {
    items: I,
    /// The text before the next item.
    before: String,
    /// The text after the list.
    after: String,
    is_complete: bool,
}

impl<I> ListBody<I> {
    /// The number of items that are looked at for a piece.
    const ITEMS: usize = 64;

    /// Creates the list with this name.
    pub fn new(name: &str, items: I) -> ListBody<I> {
        let before = format!("{{\"{name}\":[");
        ListBody { items, before, after: "]}".to_owned(), is_complete: false }
    }

    /// Adds members after the list: the JSON object `more`.
    pub fn and(self, more: &str) -> ListBody<I> {
        let members = more.strip_prefix('{').unwrap_or(more);
        ListBody { after: format!("],{members}"), ..self }
    }
}

impl<I: Iterator<Item = Option<String>>> Iterator for ListBody<I> {
    type Item = String;

    /// Returns the next piece, which may be empty.
    fn next(&mut self) -> Option<String> {
        if self.is_complete {
            return None;
        }
        let (mut piece, mut looked) = (String::new(), 0_usize);
        for item in self.items.by_ref().take(Self::ITEMS) {
            looked = looked.saturating_add(1);
            if let Some(item) = item {
                piece += &core::mem::replace(&mut self.before, ",".to_owned());
                piece += &item;
            }
        }
        if looked < Self::ITEMS {
            self.is_complete = true;
            if self.before != "," {
                piece += &self.before;
            }
            piece += &self.after;
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_a_list() {
        let text = |items: &[Option<u32>]| {
            let items = items.iter().map(|item| item.map(|item| item.to_string()));
            ListBody::new("numbers", items).collect::<String>()
        };
        let more = ListBody::new("texts", [Some("\"a\"".into())].into_iter()).and(r#"{"more":1}"#);
        assert_eq!(more.collect::<String>(), r#"{"texts":["a"],"more":1}"#);
        assert_eq!(text(&[]), r#"{"numbers":[]}"#);
        assert_eq!(text(&[None, None]), r#"{"numbers":[]}"#);
        assert_eq!(text(&[None, Some(1), None, Some(2)]), r#"{"numbers":[1,2]}"#);
        for count in [63, 64, 65, 128, 200] {
            let items: Vec<_> = (0..count).map(|n| (n % 3 > 0).then_some(n)).collect();
            let value: serde_json::Value = serde_json::from_str(&text(&items)).unwrap();
            let kept: Vec<_> = items.iter().flatten().collect();
            assert_eq!(value["numbers"], serde_json::json!(kept), "{count}");
        }
    }
}
