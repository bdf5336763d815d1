//! Samples in Prometheus's text format.

use core::time::Duration;

/// The labels of a sample, with their values.
pub(super) type Labels<'l> = [(&'static str, &'l str)];

/// A writer of a family's samples. It writes the description before the first sample.
pub(super) struct Samples<'t> {
    pub(super) text: &'t mut String,
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) help: &'static str,
    /// The name of the family whose description was written last.
    pub(super) described: &'t mut &'static str,
    /// The first label of all samples: the zone, namespace or store that they are of.
    pub(super) owner: Option<(&'static str, &'t str)>,
}

impl<'t> Samples<'t> {
    /// Sets the first label of the samples that follow.
    pub(super) fn of(&mut self, label: &'static str, value: &'t str) -> &mut Self {
        self.owner = Some((label, value));
        self
    }

    /// Writes a sample, if there is a value.
    pub(super) fn write(&mut self, value: impl Into<Option<u64>>) {
        self.write_decimal(value.into().map(whole));
    }

    /// Writes a sample, if there is a value.
    pub(super) fn write_decimal(&mut self, value: impl Into<Option<Decimal>>) {
        if let Some(value) = value.into() {
            self.write_sample("", &[], None, value);
        }
    }

    pub(super) fn write_labeled(&mut self, labels: &Labels<'_>, value: u64) {
        self.write_sample("", labels, None, whole(value));
    }

    /// Writes a sample for each value of a label.
    pub(super) fn write_by<const N: usize>(
        &mut self,
        label: &'static str,
        values: [&str; N],
        counts: [u64; N],
    ) {
        for (value, count) in values.into_iter().zip(counts) {
            self.write_labeled(&[(label, value)], count);
        }
    }

    /// Writes a histogram: its cumulative buckets, the sum, and the total count.
    pub(super) fn write_buckets(
        &mut self,
        bounds: &[u64],
        counts: &[u64],
        sum: u64,
        unit: fn(u64) -> Duration,
    ) {
        let bounds = bounds.iter().map(|bound| Bound::UpTo(seconds(unit(*bound))));
        let mut count: u64 = 0;
        for (bound, more) in bounds.chain([Bound::All]).zip(counts) {
            count = count.saturating_add(*more);
            self.write_sample("_bucket", &[], Some(bound), whole(count));
        }
        self.write_sample("_sum", &[], None, seconds(unit(sum)));
        self.write_sample("_count", &[], None, whole(count));
    }

    fn write_sample(
        &mut self,
        suffix: &str,
        labels: &Labels<'_>,
        bound: Option<Bound>,
        value: Decimal,
    ) {
        let Samples { text, name, kind, help, described, owner } = self;
        if **described != *name {
            **described = name;
            let parts = ["# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n"];
            text.extend(parts);
        }
        text.extend([name, suffix]);
        let mut before = "{";
        for (label, value) in owner.iter().chain(labels) {
            text.extend([before, label, "=\""]);
            push_escaped(text, value);
            text.push('"');
            before = ",";
        }
        if let Some(bound) = bound {
            text.extend([before, "le=\""]);
            match bound {
                Bound::UpTo(bound) => bound.push_to(text),
                Bound::All => text.push_str("+Inf"),
            }
            text.push('"');
            before = ",";
        }
        text.push_str(if before == "," { "} " } else { " " });
        value.push_to(text);
        text.push('\n');
    }
}

/// The upper bound of a bucket.
enum Bound {
    UpTo(Decimal),
    All,
}

/// A decimal: `whole`, and a fraction in billionths.
pub(super) struct Decimal {
    pub(super) is_negative: bool,
    pub(super) whole: u64,
    pub(super) billionths: u32,
}

pub(super) fn whole(whole: u64) -> Decimal {
    Decimal { is_negative: false, whole, billionths: 0 }
}

/// Converts thousandths: of hits, or of seconds. A sum of hits may be larger than
/// [`Hits::MAX`](crate::policy::hits::Hits::MAX).
pub(super) fn thousandths(count: u64) -> Decimal {
    Decimal {
        is_negative: false,
        whole: count / 1000,
        billionths: ((count % 1000) as u32).wrapping_mul(1_000_000),
    }
}

pub(super) fn seconds(duration: Duration) -> Decimal {
    Decimal { is_negative: false, whole: duration.as_secs(), billionths: duration.subsec_nanos() }
}

impl Decimal {
    /// Writes the decimal without trailing zeros. A page has tens of thousands of them, for which formatting macros
    /// would take most of the time.
    fn push_to(&self, text: &mut String) {
        if self.is_negative {
            text.push('-');
        }
        push_digits(text, self.whole, 1);
        let (mut rest, mut digits) = (u64::from(self.billionths), 9_u32);
        if rest > 0 {
            text.push('.');
            while rest % 10 == 0 {
                (rest, digits) = (rest / 10, digits.saturating_sub(1));
            }
            push_digits(text, rest, digits);
        }
    }
}

/// Writes a number, padded with zeros to `at_least` digits.
fn push_digits(text: &mut String, number: u64, at_least: u32) {
    let mut digits = [b'0'; 20];
    let (mut rest, mut count) = (number, 0_u32);
    for digit in digits.iter_mut().rev() {
        if rest == 0 && count >= at_least {
            break;
        }
        *digit = b'0' | (rest % 10) as u8;
        (rest, count) = (rest / 10, count.saturating_add(1));
    }
    let start = digits.len().saturating_sub(count as usize);
    let digits = digits.get(start..).unwrap_or_default();
    text.extend(digits.iter().map(|&digit| char::from(digit)));
}

/// Writes the value of a label, escaped for use between quotes.
fn push_escaped(text: &mut String, value: &str) {
    for part in value.split_inclusive(['\\', '"', '\n']) {
        let plain = part.trim_end_matches(['\\', '"', '\n']);
        text.push_str(plain);
        text.push_str(match part.get(plain.len()..) {
            Some("\\") => "\\\\",
            Some("\"") => "\\\"",
            Some("\n") => "\\n",
            _ => "",
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_and_short() {
        let text = |decimal: Decimal| {
            let mut text = String::new();
            decimal.push_to(&mut text);
            text
        };
        assert_eq!(text(whole(0)), "0");
        assert_eq!(text(whole(u64::MAX)), u64::MAX.to_string());
        assert_eq!(text(thousandths(1_050)), "1.05");
        assert_eq!(text(thousandths(7)), "0.007");
        assert_eq!(text(seconds(Duration::from_nanos(1))), "0.000000001");
        assert_eq!(text(seconds(Duration::from_millis(2500))), "2.5");
    }

    #[test]
    fn labels_are_escaped() {
        let escaped = |value| {
            let mut text = String::new();
            push_escaped(&mut text, value);
            text
        };
        assert_eq!(escaped("a\\b\"c\nd\\\\"), "a\\\\b\\\"c\\nd\\\\\\\\");
    }
}
