//! The report: tables, and their figures in JSON.

use std::fmt::Write;
use std::path::Path;

use ngx_http_rate_limiting_module::policy::algorithm::Algorithm;
use serde_json::{Value, json};

use crate::Row;
use crate::bounds::Bounds;
use crate::limiter::ALGORITHMS;
use crate::simulation::Tally;

const WIDTHS: [usize; 11] = [26, 9, 9, 9, 10, 10, 10, 8, 6, 10, 7];
const HEADINGS: [[&str; 11]; 2] = [
    ["", "", "", "", "wrongly", "wrongly", "far", "worst", "at", "rate", "of"],
    [
        "traffic",
        "algorithm",
        "requests",
        "admitted",
        "admitted",
        "rejected",
        "off",
        "window",
        "most",
        "off",
        "exact",
    ],
];

/// Colours of algorithms in plots, in their order.
const COLOURS: [&str; 5] = ["#2a6f97", "#b0b0b0", "#d1495b", "#66a182", "#8d5a97"];

/// A table.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) text: String,
    lines: Vec<Value>,
    /// The rows that are out of bounds.
    pub(crate) violations: Vec<String>,
}

impl Report {
    /// Adds what came of a row's traffic with an algorithm, and with an exact window of its own.
    pub(crate) fn row(&mut self, row: &Row, algorithm: Algorithm, tally: &Tally, exact: &Tally) {
        let place = ALGORITHMS.iter().position(|it| *it == algorithm);
        let colour = COLOURS.iter().cycle().nth(place.unwrap_or_default());
        let algorithm = algorithm.name();
        let (name, limit) = (row.traffic.name.as_str(), row.quota.hits as f64);
        let bounds = Bounds::of(algorithm, row.quota, row.traffic.counts_rejected);
        let [worst, most] = [Some(tally.worst), bounds.as_ref().map(|it| it.worst)]
            .map(|hits| hits.map(|hits| hits as f64 / limit));
        let of_exact = tally.admitted as f64 / exact.admitted as f64;
        let percent = |part, digits| format!("{:.digits$} %", tally.percent(part));
        let ratio = |ratio: f64| format!("{ratio:.2}");
        if self.text.is_empty() {
            HEADINGS.into_iter().for_each(|it| self.line(it));
        }
        self.line([
            name,
            algorithm,
            &tally.requests.to_string(),
            &percent(tally.admitted, 1),
            &percent(tally.wrongly_admitted, 3),
            &percent(tally.wrongly_rejected, 3),
            &percent(tally.far, 3),
            &worst.map(ratio).unwrap_or_default(),
            &most.map(ratio).unwrap_or_default(),
            &format!("{:.1} %", tally.mean_rate_off()),
            &format!("{of_exact:.3}"),
        ]);
        self.lines.push(json!({
            "name": format!("{name}: {algorithm}"), "series": algorithm, "colour": colour, "x": row.x,
            "requests": tally.requests,
            "admitted": tally.percent(tally.admitted),
            "wrong": tally.percent(tally.wrong()),
            "wrongly_admitted": tally.percent(tally.wrongly_admitted),
            "wrongly_rejected": tally.percent(tally.wrongly_rejected),
            "far": tally.percent(tally.far),
            "worst": worst, "at_most": most,
            "rate_off": tally.mean_rate_off(), "of_exact": of_exact,
        }));
        let is_within = bounds.is_none_or(|bounds| bounds.hold(tally));
        let measured = row.measured.as_ref();
        if !is_within || !measured.is_none_or(|it| it.holds(algorithm, tally)) {
            self.violations.push(format!("{name}: {algorithm}: {tally:?}"));
        }
    }

    fn line(&mut self, cells: [&str; 11]) {
        let mut line = String::new();
        for (index, (cell, width)) in cells.iter().zip(WIDTHS).enumerate() {
            let written = match index {
                0 | 1 => write!(line, "{cell:<width$}"),
                _ => write!(line, "{cell:>width$}"),
            };
            written.expect("memory");
        }
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// Writes the table and its figures to files of this name.
    pub(crate) fn keep(&self, directory: &str, name: &str) {
        let lines = self.lines.iter().map(|line| format!("{line}\n"));
        for (kind, text) in [("txt", &self.text), ("json", &lines.collect())] {
            let file = Path::new(directory).join(name).with_extension(kind);
            std::fs::write(file, text).expect("a file that can be written");
        }
    }
}
