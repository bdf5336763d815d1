//! `concurrent=`: the parameter of rules that limit how many requests of a key are under way. A file beside that of
//! `rate=`, as each form of a rule has.

use crate::conf::words::parameter::Parameter;
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::limit::{Quota, QuotaHits};
use crate::policy::options::{OptionError, shown};
use crate::policy::window::WindowSize;

/// Parses `concurrent=n`. The quota has no window.
///
/// # Errors
///
/// If the value is no number of requests, or the rule has one of the `others`, which are parameters of other rules.
pub(super) fn parse<'a>(
    parameter: Parameter<'a>,
    others: impl IntoIterator<Item = Parameter<'a>>,
) -> Result<Quota<'a>, OptionError> {
    if let Some(other) = others.into_iter().next() {
        return Err(OptionError::new(format!(
            "parameter \"{}\" does not go with \"{}\", which counts each request once, while it is under \
             way: expected rules of their own",
            shown(other.word),
            shown(parameter.word)
        )));
    }
    let text = parameter.value;
    let most = Algorithm::Concurrency.max_limit();
    let hits = match text.contains(&b'$') {
        true => QuotaHits::Variable(text),
        false => {
            let hits = Hits::parse(text)
                .ok()
                .filter(|hits| (Hits::ONE..=most).contains(hits) && hits.thousandths() % 1000 == 0);
            QuotaHits::Constant(hits.ok_or_else(|| {
                parameter.invalid(&format!(
                    "expected a whole number of requests from 1 to {most}, such as 10, or a variable"
                ))
            })?)
        }
    };
    Ok(Quota { hits, size: WindowSize::MIN, window: b"" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::rule::RuleText;

    fn parse<'a>(words: &[&'a str]) -> Result<RuleText<'a>, String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        RuleText::parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn a_rule_has_a_number_of_requests_or_a_variable() {
        let rule = parse(&["api", "concurrent=10", "key=$k", "counter=c", "name=n", "status=503"]);
        let rule = rule.unwrap();
        assert_eq!(rule.algorithm, Algorithm::Concurrency);
        assert_eq!(rule.quotas.len(), 1);
        assert_eq!(rule.quotas[0].hits, QuotaHits::Constant(Hits::from_thousandths(10_000)));
        assert_eq!((rule.name, rule.status, rule.counter.own()), (Some("n"), Some(503), Some("c")));
        let rule = parse(&["concurrent=$n", "dry_run=on", "unless=$u"]).unwrap();
        assert_eq!(rule.quotas[0].hits, QuotaHits::Variable(b"$n"));
    }

    #[test]
    fn errors_say_what_is_expected() {
        for value in ["0", "-1", "1.5", "x", "", "1048576", "10r/s"] {
            let message = format!(
                "invalid parameter \"concurrent={value}\": expected a whole number of requests from 1 to \
                 1048575, such as 10, or a variable"
            );
            assert_eq!(parse(&[&format!("concurrent={value}")]).unwrap_err(), message);
        }
        for other in [
            "limit=5/1s",
            "limits=$l",
            "default=5/1s",
            "window=fixed",
            "rate=1/1s",
            "burst=5",
            "delay=all",
            "tz=UTC",
            "cost=2",
            "charge=$x",
            "ban=10m",
            "ban_after=2",
        ] {
            let message = format!(
                "parameter \"{other}\" does not go with \"concurrent=2\", which counts each request once, \
                 while it is under way: expected rules of their own"
            );
            assert_eq!(parse(&["concurrent=2", other]).unwrap_err(), message);
            assert_eq!(parse(&[other, "concurrent=2"]).unwrap_err(), message);
        }
        let message = "parameter \"concurrent=3\" is duplicate: expected it once";
        assert_eq!(parse(&["concurrent=2", "concurrent=3"]).unwrap_err(), message);
    }
}
