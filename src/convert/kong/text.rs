//! Text for nginx.conf, as all files beside this one write it: nothing here knows Kong.

use std::collections::HashSet;

use crate::convert::written::nginx_word;

/// A remark: the line, the text, and whether it asks for work by hand.
pub(super) type PlacedRemark = (usize, String, bool);

/// The remarks of a conversion, none twice.
#[derive(Default)]
pub(super) struct Remarks {
    list: Vec<PlacedRemark>,
    known: HashSet<PlacedRemark>,
}

impl Remarks {
    /// Begins with these.
    pub(super) fn of(remarks: &[PlacedRemark]) -> Remarks {
        let mut all = Remarks::default();
        for (line, text, is_work) in remarks {
            all.add(*line, text.clone(), *is_work);
        }
        all
    }

    /// Adds a remark unless it is there.
    pub(super) fn add(&mut self, line: usize, text: String, is_work: bool) {
        let remark = (line, text, is_work);
        if self.known.insert(remark.clone()) {
            self.list.push(remark);
        }
    }

    /// Returns the remarks, in their order.
    pub(super) fn list(&self) -> &[PlacedRemark] {
        &self.list
    }

    /// Returns the remarks, in their order.
    pub(super) fn into_list(self) -> Vec<PlacedRemark> {
        self.list
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
