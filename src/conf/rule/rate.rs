//! `rate=`, `burst=` and `delay=`: the parameters of rules that limit as nginx's `limit_req` does.

use crate::conf::words::parameter::Parameter;
use crate::conf::words::text::did_you_mean;
use crate::policy::hits::Hits;
use crate::policy::limit::{Burst, ParseQuotaError, Quota, QuotaHits};
use crate::policy::options::{OptionError, shown};
use crate::policy::window::ParseWindowError;

/// The rate of a rule, with its burst and delay.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateText<'a> {
    parameter: Parameter<'a>,
    /// The hits and the time unit.
    pub(super) quota: Quota<'a>,
    /// The burst, and the part of it without a delay.
    pub(super) burst: Burst,
}

impl<'a> RateText<'a> {
    /// Parses `rate=hits/time`, with its `burst=` and `delay=`.
    ///
    /// # Errors
    ///
    /// If a value is invalid, or the delay begins above the burst.
    pub(super) fn parse(
        parameter: Parameter<'a>,
        burst: Option<Parameter<'_>>,
        delay: Option<Parameter<'_>>,
    ) -> Result<RateText<'a>, OptionError> {
        let hits = burst.map_or(Ok(Hits::ZERO), |burst| {
            parse_hits(burst, "expected a decimal of at least 0.001, such as 20")
        })?;
        let delay = delay.map(|delay| parse_delay(delay, hits)).transpose()?;
        let quota = parse_quota(parameter)?;
        let rate = match quota.hits {
            QuotaHits::Constant(rate) => Some(rate),
            QuotaHits::Variable(_) => None,
        };
        Ok(RateText { parameter, quota, burst: Burst { hits, delay, rate } })
    }

    /// Rejects parameters of windows beside a rate.
    ///
    /// # Errors
    ///
    /// If the rule has a `limit=` or a `window=`.
    pub(super) fn refuse_with(
        &self,
        has_limit: bool,
        window: Option<Parameter<'_>>,
    ) -> Result<(), OptionError> {
        let word = shown(self.parameter.word);
        match window {
            _ if has_limit => Err(OptionError::new(format!(
                "parameter \"{word}\" takes the place of \"limit=\": expected one of the two, or \
                 rules of their own"
            ))),
            Some(window) => Err(OptionError::new(format!(
                "parameter \"{}\" is of \"limit=\": expected none beside \"{word}\"",
                shown(window.word)
            ))),
            None => Ok(()),
        }
    }
}

/// Rejects parameters of rates in a rule without a rate.
///
/// # Errors
///
/// If the rule has a `burst=` or a `delay=`.
pub(super) fn refuse_without_rate(
    burst: Option<Parameter<'_>>,
    delay: Option<Parameter<'_>>,
) -> Result<Option<RateText<'static>>, OptionError> {
    match burst.or(delay) {
        Some(parameter) => Err(OptionError::new(format!(
            "parameter \"{}\" is of a rate: expected \"rate=hits/time\" beside it",
            shown(parameter.word)
        ))),
        None => Ok(None),
    }
}

fn parse_quota(parameter: Parameter<'_>) -> Result<Quota<'_>, OptionError> {
    let text = parameter.value;
    let quota = Quota::parse(text).and_then(|quota| match quota.size.is_of_calendar() {
        true => Err(ParseQuotaError::Window(ParseWindowError)),
        false => Ok(quota),
    });
    quota.map_err(|error| {
        let expected = match error {
            ParseQuotaError::NoWindow => "a rate is \"hits/time\", such as 10/1s".into(),
            ParseQuotaError::Window(_) => {
                "the time is from 1ms to 366d, such as 1s, 1m, 1h30m or 0.5".into()
            }
            ParseQuotaError::Hits(_) | ParseQuotaError::NoHits => error.to_string(),
        };
        match Quota::meant_by(text) {
            Some(meant) => parameter.invalid(&format!("{expected}: did you mean {meant}?")),
            None => parameter.invalid(&expected),
        }
    })
}

/// Parses the number of hits above the rate from which on requests are delayed; at most `burst`.
fn parse_delay(parameter: Parameter<'_>, burst: Hits) -> Result<Hits, OptionError> {
    const EXPECTED: &str = "expected all, or a decimal of at least 0.001, such as 8";
    if parameter.value == b"all" {
        return Ok(Hits::ZERO);
    }
    let delay = parse_hits(parameter, EXPECTED)?;
    if delay > burst && burst > Hits::ZERO {
        return Err(OptionError::new(format!(
            "parameter \"{}\" is above the burst, which is {burst}: expected at most that, or none \
             if no request is to wait",
            shown(parameter.word)
        )));
    }
    Ok(delay.min(burst))
}

fn parse_hits(parameter: Parameter<'_>, expected: &str) -> Result<Hits, OptionError> {
    let hits = Hits::parse(parameter.value).ok();
    hits.filter(|hits| *hits > Hits::ZERO).ok_or_else(|| {
        let meant = did_you_mean(parameter.value);
        parameter.invalid(&format!("{expected}{meant}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::rule::RuleText;
    use crate::policy::algorithm::Algorithm;

    fn parse<'a>(words: &[&'a str]) -> Result<RuleText<'a>, String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        RuleText::parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn a_rate_has_a_burst_and_a_delay() {
        let hits = Hits::from_thousandths;
        let at_rate = |rate| Burst { rate: Some(hits(rate)), ..Burst::default() };
        for (words, expected) in [
            (&["rate=10/1s"][..], at_rate(10_000)),
            (&["burst=20", "rate=0.5/1h30m"], Burst { hits: hits(20_000), ..at_rate(500) }),
            (
                &["api", "rate=$plan/0.5", "burst=20", "delay=20", "name=x"],
                Burst { hits: hits(20_000), delay: Some(hits(20_000)), rate: None },
            ),
            (&["rate=10/1s", "delay=all"], Burst { delay: Some(Hits::ZERO), ..at_rate(10_000) }),
        ] {
            let rule = parse(words).unwrap();
            assert_eq!(rule.burst, expected, "{words:?}");
            assert_eq!(rule.algorithm, Algorithm::Bucket);
            assert_eq!(rule.quotas.len(), 1);
        }
        let rule = parse(&["rate=$plan/0.5"]).unwrap();
        assert_eq!(rule.quotas[0].hits, QuotaHits::Variable(b"$plan"));
        assert_eq!(rule.quotas[0].size.millis(), 500);
    }

    #[test]
    fn errors_about_wrong_words_suggest_right_ones() {
        const HITS: &str =
            "the hits are a decimal of at least 0.001, such as 5 or 0.5, or a variable";
        const TIME: &str = "the time is from 1ms to 366d, such as 1s, 1m, 1h30m or 0.5";
        const BURST: &str = "expected a decimal of at least 0.001, such as 20";
        const DELAY: &str = "expected all, or a decimal of at least 0.001, such as 8";
        const PLACE: &str = "takes the place of \"limit=\": expected one of the two, or rules of \
                             their own";
        for (words, message) in [
            (
                "rate=10r/s",
                &*format!(
                    "invalid parameter \"rate=10r/s\": {HITS} (not a plain decimal): did you mean 10/1s?"
                ),
            ),
            (
                "rate=30r/m burst=5",
                &format!(
                    "invalid parameter \"rate=30r/m\": {HITS} (not a plain decimal): did you mean 30/1m?"
                ),
            ),
            ("rate=10/s", &format!("invalid parameter \"rate=10/s\": {TIME}: did you mean 10/1s?")),
            ("rate=10", "invalid parameter \"rate=10\": a rate is \"hits/time\", such as 10/1s"),
            ("rate=0/1s", &format!("invalid parameter \"rate=0/1s\": {HITS}")),
            ("rate=1/367d", &format!("invalid parameter \"rate=1/367d\": {TIME}")),
            ("rate=1/1s rate=2/1s", "parameter \"rate=2/1s\" is duplicate: expected it once"),
            ("rate=1/1s burst=1 burst=1", "parameter \"burst=1\" is duplicate: expected it once"),
            ("rate=1/1s limit=5/1s", &format!("parameter \"rate=1/1s\" {PLACE}")),
            ("limit=5/1s rate=1/1s window=fixed", &format!("parameter \"rate=1/1s\" {PLACE}")),
            (
                "window=fixed rate=1/1s",
                "parameter \"window=fixed\" is of \"limit=\": expected none beside \"rate=1/1s\"",
            ),
            (
                "burst=5",
                "parameter \"burst=5\" is of a rate: expected \"rate=hits/time\" beside it",
            ),
            (
                "limit=5/1s delay=5",
                "parameter \"delay=5\" is of a rate: expected \"rate=hits/time\" beside it",
            ),
            (
                "rate=1/1s burst=5 delay=5.001",
                "parameter \"delay=5.001\" is above the burst, which is 5: expected at most that, \
                 or none if no request is to wait",
            ),
            ("rate=1/1s burst=0", &format!("invalid parameter \"burst=0\": {BURST}")),
            ("rate=1/1s burst=$x", &format!("invalid parameter \"burst=$x\": {BURST}")),
            ("rate=1/1s burst=", &format!("invalid parameter \"burst=\": {BURST}")),
            ("rate=1/1s delay=0", &format!("invalid parameter \"delay=0\": {DELAY}")),
            ("rate=1/1s delay=-1", &format!("invalid parameter \"delay=-1\": {DELAY}")),
            ("rate=1/1s delay=All", &format!("invalid parameter \"delay=All\": {DELAY}")),
            (
                "rate=1/1s burst=5 nodelay",
                "parameter \"nodelay\" is of limit_req: expected none, and no \"delay=\" either, \
                 without which no request is delayed",
            ),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            assert_eq!(parse(&words).unwrap_err(), message, "{words:?}");
        }
    }
}
