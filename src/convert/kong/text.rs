//! Text for nginx.conf, as all files beside this one write it: nothing here knows Kong.

use crate::convert::written::nginx_word;

/// A remark: the line, the text, and whether it asks for work by hand.
pub(super) type PlacedRemark = (usize, String, bool);

/// The remarks of a conversion, none twice.
#[derive(Default)]
pub(super) struct Remarks(pub(super) Vec<PlacedRemark>);

impl Remarks {
    /// Adds a remark unless it is there.
    pub(super) fn add(&mut self, line: usize, text: String, is_work: bool) {
        let remark = (line, text, is_work);
        if !self.0.contains(&remark) {
            self.0.push(remark);
        }
    }
}

/// Returns a word with the quotes that it needs.
pub(super) fn word(text: &str) -> String {
    String::from_utf8_lossy(&nginx_word(text.as_bytes())).into_owned()
}

/// Returns a block of directives, after an empty line.
pub(super) fn block(head: &str, lines: &[String]) -> String {
    let mut text = format!("\n{head} {{\n");
    for line in lines {
        text.push_str(&format!("    {line}\n"));
    }
    text.push_str("}\n");
    text
}

/// Returns a number of up to three decimals.
pub(super) fn decimal(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns lines with four blanks before each that is not empty.
pub(super) fn indented(text: &str) -> String {
    let mut result = String::new();
    for line in text.lines() {
        if !line.is_empty() {
            result.push_str("    ");
        }
        result.push_str(line);
        result.push('\n');
    }
    result
}
