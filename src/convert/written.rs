//! Text of nginx.conf as it is written: words with the quotes that they need, valid names, and changes to a text that otherwise stays
//! as it is.

use core::ops::Range;
use std::collections::{HashMap, HashSet};

use crate::policy::namespace::{MAX_NAME_LEN, is_valid_name};

/// Returns a word as nginx reads it back, in quotes if it needs them.
pub(super) fn nginx_word(value: &[u8]) -> Vec<u8> {
    let is_plain =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"_.$/:=@,+-%&|!^~*()[]<>?".contains(byte);
    if !value.is_empty() && without_braces(value).iter().all(is_plain) {
        return value.to_vec();
    }
    let mut word = vec![b'"'];
    for byte in value {
        if matches!(byte, b'"' | b'\\') {
            word.push(b'\\');
        }
        word.push(*byte);
    }
    word.push(b'"');
    word
}

/// Returns a text without the braces of its `${variables}`, which need no quotes.
fn without_braces(value: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(value.len());
    let mut rest = value;
    loop {
        rest = match rest {
            [] => return plain,
            [b'$', b'{', after @ ..] => {
                let end = after.iter().position(|byte| *byte == b'}');
                let (name, after) = after.split_at(end.unwrap_or(0));
                plain.extend(name);
                match (end, after) {
                    (Some(_), [_, after @ ..]) => after,
                    // It is not closed: the brace makes the word quoted.
                    _ => {
                        plain.push(b'{');
                        after
                    }
                }
            }
            [byte, after @ ..] => {
                plain.push(*byte);
                after
            }
        };
    }
}

/// Names of zones, namespaces and counters, none twice.
#[derive(Debug, Default)]
pub(super) struct UniqueNames {
    taken: HashSet<String>,
    /// The next number of each name that was wanted before.
    next: HashMap<String, usize>,
}

impl UniqueNames {
    /// Takes a name.
    pub(super) fn take(&mut self, name: &str) {
        self.taken.insert(name.to_owned());
    }

    /// Takes and returns a valid name that nobody has: `name` itself if possible.
    pub(super) fn valid(&mut self, name: &[u8]) -> String {
        let valid = |byte: &u8| match byte {
            byte if byte.is_ascii_alphanumeric() || b"_.-".contains(byte) => char::from(*byte),
            _ => '_',
        };
        let mut base: String = name.iter().map(valid).collect();
        base.truncate(MAX_NAME_LEN);
        if !is_valid_name(base.as_bytes()) {
            base.push('_');
        }
        let mut found = base.clone();
        while !self.taken.insert(found.clone()) {
            let number = self.next.entry(base.clone()).or_insert(2);
            let suffix = format!("_{number}");
            *number = number.saturating_add(1);
            let mut start = base.clone();
            start.truncate(MAX_NAME_LEN.saturating_sub(suffix.len()));
            found = format!("{start}{suffix}");
        }
        found
    }
}

/// Changes to a text.
#[derive(Debug)]
pub(super) struct TextChanges<'t> {
    text: &'t [u8],
    changes: Vec<(Range<usize>, Vec<u8>)>,
}

impl<'t> TextChanges<'t> {
    /// Begins without changes.
    pub(super) fn new(text: &'t [u8]) -> TextChanges<'t> {
        TextChanges { text, changes: Vec::new() }
    }

    /// Replaces a part of the text by lines, which get the indentation of the line that they begin in. A comment begins a
    /// line, and ends one.
    pub(super) fn replace_by_lines(&mut self, range: Range<usize>, lines: &[Vec<u8>]) {
        let (indent, is_first) = self.indent(range.start);
        // A single directive can stay beside others.
        let is_first = is_first || matches!(lines, [only] if !only.starts_with(b"#"));
        let newline = self.newline();
        let mut text = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            if index > 0 || !is_first {
                text.extend_from_slice(newline);
                text.extend_from_slice(indent);
            }
            text.extend_from_slice(line);
        }
        let ends_with_comment = lines.last().is_some_and(|line| line.starts_with(b"#"));
        if ends_with_comment && !self.ends_line(range.end) {
            text.extend_from_slice(newline);
            text.extend_from_slice(indent);
        }
        self.changes.push((range, text));
    }

    /// Inserts lines before a position.
    pub(super) fn insert_lines(&mut self, at: usize, lines: &[Vec<u8>]) {
        let mut lines = lines.to_vec();
        lines.push(Vec::new());
        self.replace_by_lines(at..at, &lines);
    }

    /// Replaces a part of the text within a line.
    pub(super) fn replace(&mut self, range: Range<usize>, text: Vec<u8>) {
        self.changes.push((range, text));
    }

    /// Returns the changed text.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.changes.sort_by_key(|(range, _)| (range.start, range.end));
        let mut result = Vec::with_capacity(self.text.len());
        let mut at = 0;
        for (range, text) in self.changes {
            result.extend_from_slice(self.text.get(at..range.start).unwrap_or_default());
            result.extend_from_slice(&text);
            at = range.end.max(at);
        }
        result.extend_from_slice(self.text.get(at..).unwrap_or_default());
        result
    }

    /// Returns the white space at the beginning of a position's line, and whether there is nothing else before it.
    fn indent(&self, at: usize) -> (&'t [u8], bool) {
        let before = self.text.get(..at).unwrap_or_default();
        let line = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let blanks = line.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        (line.get(..blanks).unwrap_or_default(), blanks == line.len())
    }

    /// Whether the rest of the line is blank, or a comment.
    fn ends_line(&self, at: usize) -> bool {
        let mut after = self.text.get(at..).unwrap_or_default().iter();
        let first = after.find(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
        matches!(first, None | Some(b'\n' | b'#'))
    }

    /// Returns the end of lines that the text has.
    fn newline(&self) -> &'static [u8] {
        let first = self.text.iter().position(|byte| *byte == b'\n').unwrap_or_default();
        match self.text.get(..first) {
            Some([.., b'\r']) => b"\r\n",
            _ => b"\n",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_what_needs_quotes() {
        for (value, expected) in [
            ("key=$remote_addr", "key=$remote_addr"),
            ("key=${a}b", "key=${a}b"),
            ("key=$a $b", "\"key=$a $b\""),
            ("key=${a", "\"key=${a\""),
            ("a\"b\\c", "\"a\\\"b\\\\c\""),
            ("a;b", "\"a;b\""),
            ("", "\"\""),
        ] {
            assert_eq!(String::from_utf8_lossy(&nginx_word(value.as_bytes())), expected);
        }
    }

    #[test]
    fn makes_names_valid_and_unique() {
        let mut names = UniqueNames::default();
        let long = "x".repeat(70);
        for (name, expected) in [
            ("one", "one".to_owned()),
            ("one", "one_2".to_owned()),
            ("a$b", "a_b".to_owned()),
            ("off", "off_".to_owned()),
            (&long, "x".repeat(64)),
            (&long, format!("{}_2", "x".repeat(62))),
        ] {
            assert_eq!(names.valid(name.as_bytes()), expected);
        }
    }

    #[test]
    fn keeps_each_comment_on_a_line_of_its_own() {
        let lines = [b"# r".to_vec(), b"n".to_vec()];
        for (text, lines, expected) in [
            ("  OLD; b\n", &lines[..], "  # r\n  n b\n"),
            ("  a { OLD; }\n", &lines, "  a { \n  # r\n  n }\n"),
            ("OLD; }\n", &lines[..1], "# r\n }\n"),
            ("OLD; # c\n", &lines[..1], "# r # c\n"),
            ("\tOLD;\r\n", &lines, "\t# r\r\n\tn\r\n"),
        ] {
            let at = text.find("OLD;").unwrap();
            let mut changes = TextChanges::new(text.as_bytes());
            changes.replace_by_lines(at..at + 4, lines);
            assert_eq!(String::from_utf8(changes.finish()).unwrap(), expected);
        }
        let mut changes = TextChanges::new(b"  a; b;");
        changes.insert_lines(2, &lines[..1]);
        changes.replace(5..7, b"c".to_vec());
        assert_eq!(changes.finish(), b"  # r\n  a; c");
    }
}
