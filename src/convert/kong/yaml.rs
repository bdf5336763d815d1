//! A document of YAML as a tree whose nodes know their lines. Its size is bounded, with all aliases.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// The largest number of nodes, where each alias counts as what it stands for.
const MAX_NODES: usize = 200_000;
/// The deepest nesting.
const MAX_DEPTH: usize = 60;

/// A node of the document.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct YamlNode {
    /// The line, from 1.
    pub(super) line: usize,
    pub(super) value: YamlValue,
}

/// The content of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum YamlValue {
    Null,
    /// A scalar as written, without quotes.
    Text(String),
    List(Vec<YamlNode>),
    /// Keys and values, in the order of the document.
    Map(Vec<(String, YamlNode)>),
}

/// A wrong text: its line, and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct YamlError {
    pub(super) line: usize,
    pub(super) message: String,
}

impl YamlNode {
    /// Returns an error about this node; `what` names it.
    pub(super) fn error(&self, what: &str, expected: &str) -> YamlError {
        YamlError { line: self.line, message: format!("{what}: expected {expected}") }
    }

    /// Returns the keys and values of a map; those of null are none.
    pub(super) fn entries(&self, what: &str) -> Result<&[(String, YamlNode)], YamlError> {
        match &self.value {
            YamlValue::Map(entries) => Ok(entries),
            YamlValue::Null => Ok(&[]),
            _ => Err(self.error(what, "a map")),
        }
    }

    /// Returns the value of a key of a map, unless it is missing or null.
    pub(super) fn get(&self, key: &str) -> Option<&YamlNode> {
        let YamlValue::Map(entries) = &self.value else { return None };
        let (_, node) = entries.iter().find(|(name, _)| name == key)?;
        (node.value != YamlValue::Null).then_some(node)
    }

    /// Returns the items of a list; those of null are none.
    pub(super) fn items(&self, what: &str) -> Result<&[YamlNode], YamlError> {
        match &self.value {
            YamlValue::List(items) => Ok(items),
            YamlValue::Null => Ok(&[]),
            _ => Err(self.error(what, "a list")),
        }
    }

    /// Returns a scalar.
    pub(super) fn text(&self, what: &str) -> Result<&str, YamlError> {
        match &self.value {
            YamlValue::Text(text) => Ok(text),
            _ => Err(self.error(what, "a text")),
        }
    }

    /// Returns a boolean, in the words of YAML 1.1 and 1.2.
    pub(super) fn bool(&self, what: &str) -> Result<bool, YamlError> {
        match self.text(what)?.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Ok(true),
            "false" | "no" | "off" => Ok(false),
            _ => Err(self.error(what, "true or false")),
        }
    }

    /// Whether it is a feature that is turned off: `false`, or a map with `enabled: false`.
    pub(super) fn is_off(&self) -> bool {
        self.get("enabled").unwrap_or(self).bool("") == Ok(false)
    }

    /// Returns a number.
    pub(super) fn number(&self, what: &str) -> Result<f64, YamlError> {
        let number = self.text(what)?.parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| self.error(what, "a number"))
    }
}

/// Reads the only document of a text.
///
/// # Errors
///
/// If the text is not YAML, has duplicate keys, or is too large or too deep.
pub(super) fn read_document(text: &str) -> Result<YamlNode, YamlError> {
    let mut builder = TreeBuilder {
        open: Vec::new(),
        anchors: HashMap::new(),
        nodes: 0,
        root: None,
        has_root: false,
    };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| YamlError {
            line: error.marker().line(),
            message: error.info().to_owned(),
        })?;
        builder.add(event, span)?;
    }
    Ok(builder.root.unwrap_or(YamlNode { line: 1, value: YamlValue::Null }))
}

struct TreeBuilder {
    open: Vec<OpenNode>,
    /// Complete nodes by the number of their anchor, with the number of their nodes.
    anchors: HashMap<usize, (YamlNode, usize)>,
    nodes: usize,
    root: Option<YamlNode>,
    has_root: bool,
}

/// A list or map whose end was not read yet.
struct OpenNode {
    line: usize,
    anchor: usize,
    /// The number of nodes before it.
    before: usize,
    /// The key whose value is next.
    key: Option<String>,
    /// Entries of `<<`, which other entries override.
    merged: Vec<(String, YamlNode)>,
    value: YamlValue,
}

impl TreeBuilder {
    fn add(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
        let line = span.start.line();
        let fail = |message: String| Err(YamlError { line, message });
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_null = style == ScalarStyle::Plain
                    && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let value = match is_null {
                    true => YamlValue::Null,
                    false => YamlValue::Text(text.into_owned()),
                };
                self.count(1, line)?;
                self.complete(YamlNode { line, value }, anchor, 1)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                None => fail("an alias of a node that is not complete".into()),
                Some((_, nodes)) => {
                    self.count(*nodes, line)?;
                    match self.anchors.get(&anchor).cloned() {
                        Some((node, nodes)) => self.complete(node, 0, nodes),
                        None => Ok(()),
                    }
                }
            },
            Event::SequenceStart(anchor, _) => self.begin(line, anchor, YamlValue::List(vec![])),
            Event::MappingStart(anchor, _) => self.begin(line, anchor, YamlValue::Map(vec![])),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                None => Ok(()),
                Some(mut open) => {
                    if let YamlValue::Map(entries) = &mut open.value {
                        let is_new = |key: &str| !entries.iter().any(|(name, _)| name == key);
                        open.merged.retain(|(key, _)| is_new(key));
                        entries.append(&mut open.merged);
                    }
                    let nodes = self.nodes.saturating_sub(open.before);
                    let node = YamlNode { line: open.line, value: open.value };
                    self.complete(node, open.anchor, nodes)
                }
            },
            Event::DocumentStart(_) if self.has_root => fail("a second document".into()),
            Event::DocumentStart(_) => {
                self.has_root = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn count(&mut self, nodes: usize, line: usize) -> Result<(), YamlError> {
        self.nodes = self.nodes.saturating_add(nodes);
        match self.nodes > MAX_NODES {
            true => Err(YamlError { line, message: format!("more than {MAX_NODES} values") }),
            false => Ok(()),
        }
    }

    fn begin(&mut self, line: usize, anchor: usize, value: YamlValue) -> Result<(), YamlError> {
        if self.open.len() >= MAX_DEPTH {
            let message = format!("nested deeper than {MAX_DEPTH}");
            return Err(YamlError { line, message });
        }
        let before = self.nodes;
        self.count(1, line)?;
        self.open.push(OpenNode { line, anchor, before, key: None, merged: vec![], value });
        Ok(())
    }

    /// Adds a complete node to the list or map that contains it.
    fn complete(&mut self, node: YamlNode, anchor: usize, nodes: usize) -> Result<(), YamlError> {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), nodes));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match (&mut open.value, open.key.take()) {
            (YamlValue::List(items), _) => items.push(node),
            (YamlValue::Map(entries), Some(key)) if key == "<<" => {
                // Of several maps, the first one with a key has its value.
                let maps = match &node.value {
                    YamlValue::List(maps) => maps.as_slice(),
                    _ => core::slice::from_ref(&node),
                };
                for map in maps {
                    for (key, value) in map.entries("<<")? {
                        if !open.merged.iter().any(|(known, _)| known == key) {
                            open.merged.push((key.clone(), value.clone()));
                        }
                    }
                }
            }
            (YamlValue::Map(entries), Some(key)) => {
                if entries.iter().any(|(name, _)| *name == key) {
                    return Err(node.error(&key, "the key once, it is duplicate"));
                }
                entries.push((key, node));
            }
            (_, None) => match node.value {
                YamlValue::Text(key) => open.key = Some(key),
                YamlValue::Null => open.key = Some(String::new()),
                _ => return Err(node.error("a key", "a text")),
            },
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_values_with_their_lines() {
        let node = read_document("a: 1\nb:\n- x: [yes, \"null\", ~]\n- 2.5e1\n").unwrap();
        assert_eq!(node.get("a").unwrap().number("a"), Ok(1.0));
        let b = node.get("b").unwrap().items("b").unwrap();
        assert_eq!((b[0].line, b[1].line), (3, 4));
        assert_eq!(b[1].number("b"), Ok(25.0));
        let x = b[0].get("x").unwrap().items("x").unwrap();
        assert_eq!(x[0].bool("x"), Ok(true));
        assert_eq!(x[1].value, YamlValue::Text("null".into()));
        assert_eq!(x[2].value, YamlValue::Null);
        assert_eq!(read_document("").unwrap().value, YamlValue::Null);
        assert_eq!(read_document("{\"a\": {\"b\": [1]}}").unwrap().get("a").unwrap().line, 1);
    }

    #[test]
    fn follows_aliases_and_merges() {
        let node = read_document("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\ne: *x\n").unwrap();
        let d = node.get("d").unwrap();
        assert_eq!(d.get("b").unwrap().number("b"), Ok(1.0));
        assert_eq!(d.get("c").unwrap().number("c"), Ok(3.0));
        assert_eq!(node.get("e"), node.get("a"));
    }

    #[test]
    fn refuses_what_is_wrong_or_endless() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..30 {
            let before = format!("*a{}, ", level - 1).repeat(10);
            bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
        }
        for (text, line, message) in [
            ("a: [", 2, "while parsing"),
            ("a: b: c", 1, ""),
            ("a: 1\na: 2\n", 2, "duplicate"),
            ("a: *b\n", 1, ""),
            ("a: &a [*a]\n", 1, "not complete"),
            ("a: 1\n---\nb: 2\n", 2, "a second document"),
            ("? [a]\n: b\n", 1, "a key: expected a text"),
            (&bomb, 6, "more than 200000 values"),
            (&"[".repeat(10_000), 1, ""),
            (&"- ".repeat(10_000), 1, "nested deeper than 60"),
            (&"{a: ".repeat(200), 1, "nested deeper than 60"),
        ] {
            let error = read_document(text).expect_err(text);
            assert!(error.message.contains(message), "{text}: {error:?}");
            assert!(error.line.abs_diff(line) <= 1, "{text}: {error:?}");
        }
    }
}
