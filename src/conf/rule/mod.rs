//! The words of a `ratelimit` directive, parsed.

mod ban;
mod concurrent;
mod rate;

use super::limit_list::WindowHits;
use super::words::parameter::{Parameter, QUOTES, is_other, unknown};
use super::words::settings::{STATUS, parse_status};
use crate::policy::algorithm::Algorithm;
use crate::policy::calendar::CalendarZone;
use crate::policy::key::MAX_COUNTER_LEN;
use crate::policy::limit::{BanRule, Burst, Quota, QuotaHits};
use crate::policy::namespace::{DEFAULT_NAMESPACE, MAX_NAME_LEN, valid_name};
use crate::policy::options::{OptionError, shown};
use crate::policy::window::WindowSize;
use rate::{RateText, refuse_without_rate};

/// The words of a rule, parsed as far as variables allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleText<'a> {
    /// The namespace in which hits are counted.
    pub namespace: &'a str,
    /// The limits, at least one; or a single rate; none if they are a list.
    pub quotas: Vec<Quota<'a>>,
    /// The list of limits.
    pub limits: Option<LimitsText<'a>>,
    /// The algorithm of the windows, or that of rates.
    pub algorithm: Algorithm,
    /// The burst and the delay of a rate.
    pub burst: Burst,
    /// The key; `None` for that of the level.
    pub key: Option<&'a [u8]>,
    /// The counter in which hits are counted.
    pub counter: CounterName<'a>,
    /// The cost of a request.
    pub cost: CostText<'a>,
    /// The name of the policy, if the rule has one limit and `name=`.
    pub name: Option<&'a str>,
    /// Whether the rule's rejections are only counted; `None` for what the level says.
    pub dry_run: Option<bool>,
    /// The status of the rule's rejections; `None` for that of the level.
    pub status: Option<isize>,
    /// The text with which a request is not subject to the rule, unless it is empty or `0`.
    pub unless: Option<&'a [u8]>,
    /// The bans of rejected keys.
    pub ban: Option<BanRule>,
}

/// The name that distinguishes counters of one key and window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CounterName<'a> {
    /// The shared counter, since the rule has no `counter=`.
    #[default]
    Unsaid,
    /// The shared counter, named explicitly: `counter=default`.
    Shared,
    /// The counter with this name.
    Own(&'a str),
}

/// The parameters `limits=` and `default=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsText<'a> {
    /// The text of a request's list.
    pub text: &'a [u8],
    /// The list in place of a wrong one.
    pub default: WindowHits,
    /// The time zone of `tz=`.
    pub zone: Option<&'static CalendarZone>,
}

/// The parameters `cost=` and `charge=`, with their words for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostText<'a> {
    /// Neither parameter: one hit.
    One,
    /// `cost=`: charged with the decision.
    AtOnce(Parameter<'a>),
    /// `charge=`: charged when the response is known.
    Deferred(Parameter<'a>),
    /// Both: the cost is an estimate, and the difference is charged when the response is known.
    Estimated {
        /// `cost=`.
        cost: Parameter<'a>,
        /// `charge=`.
        charge: Parameter<'a>,
    },
}

impl<'a> RuleText<'a> {
    /// Parses the words that follow `ratelimit`.
    ///
    /// # Errors
    ///
    /// If a word is missing, is not accepted, or contradicts another one.
    pub fn parse(words: &[&'a [u8]]) -> Result<RuleText<'a>, OptionError> {
        let (namespace, words) = match words {
            [name, words @ ..] if !name.contains(&b'=') && !is_other(name) => {
                (valid_name("namespace", name)?, words)
            }
            words => (DEFAULT_NAMESPACE, words),
        };
        let (mut limits, mut quotas) = (Vec::new(), Vec::new());
        let (mut window, mut zone, mut key, mut counter) = (None, None, None, None);
        let (mut cost, mut charge, mut name) = (None, None, None);
        let (mut rate, mut burst, mut delay) = (None, None, None);
        let (mut dry_run, mut status, mut unless) = (None, None, None);
        let (mut list, mut default, mut concurrent) = (None, None, None);
        let (mut ban, mut ban_after) = (None, None);
        for &word in words {
            let parameter = Parameter::of(word).ok_or_else(|| unknown(word))?;
            let place = match parameter.name() {
                b"limit" => None,
                b"limits" => Some(&mut list),
                b"default" => Some(&mut default),
                b"window" => Some(&mut window),
                b"tz" => Some(&mut zone),
                b"rate" => Some(&mut rate),
                b"burst" => Some(&mut burst),
                b"delay" => Some(&mut delay),
                b"concurrent" => Some(&mut concurrent),
                b"key" => Some(&mut key),
                b"counter" => Some(&mut counter),
                b"cost" => Some(&mut cost),
                b"charge" => Some(&mut charge),
                b"name" => Some(&mut name),
                b"dry_run" => Some(&mut dry_run),
                b"status" => Some(&mut status),
                b"unless" => Some(&mut unless),
                b"ban" => Some(&mut ban),
                b"ban_after" => Some(&mut ban_after),
                _ => return Err(unknown(word)),
            };
            if let [b'"' | b'\'', ..] = parameter.value {
                return Err(parameter.invalid(QUOTES));
            }
            let Some(place) = place else {
                quotas.push(parse_quota(parameter)?);
                limits.push(parameter);
                continue;
            };
            if place.replace(parameter).is_some() {
                let word = shown(word);
                let message = format!("parameter \"{word}\" is duplicate: expected it once");
                return Err(OptionError::new(message));
            }
        }
        if let Some(concurrent) = concurrent {
            let limit = limits.first().copied();
            let others = [
                limit, list, default, window, zone, rate, burst, delay, cost, charge, ban,
                ban_after,
            ];
            quotas.push(concurrent::parse(concurrent, others.into_iter().flatten())?);
        }
        let others = [limits.first().copied(), rate, burst, delay, name];
        match (list, default, others.into_iter().flatten().next()) {
            (Some(list), _, Some(other)) => {
                return Err(OptionError::new(format!(
                    "parameter \"{}\" takes the place of \"{}\": expected one of the two, or rules \
                     of their own",
                    shown(list.word),
                    shown(other.word)
                )));
            }
            (None, Some(default), _) => {
                return Err(OptionError::new(format!(
                    "parameter \"{}\" is of a list: expected \"limits=$variable\" beside it",
                    shown(default.word)
                )));
            }
            _ => {}
        }
        let zone = match zone {
            Some(zone) => Some(parse_zone(zone, &quotas, list.is_some())?),
            None => None,
        };
        for quota in &mut quotas {
            quota.size = zone.map_or(quota.size, |zone| quota.size.in_zone(zone));
        }
        let rate = match rate {
            Some(rate) => Some(RateText::parse(rate, burst, delay)?),
            None => refuse_without_rate(burst, delay)?,
        };
        if let Some(rate) = &rate {
            rate.refuse_with(!quotas.is_empty(), window)?;
            quotas.push(rate.quota);
        }
        if quotas.is_empty() && list.is_none() {
            let message = "no limit: expected at least one \"limit=hits/window\"";
            return Err(OptionError::new(message));
        }
        let algorithm = match (&rate, concurrent) {
            (Some(_), _) => Algorithm::OF_RATES,
            (None, Some(_)) => Algorithm::Concurrency,
            (None, None) => window.map_or(Ok(Algorithm::default()), parse_algorithm)?,
        };
        for (parameter, quota) in limits.into_iter().zip(&quotas) {
            check_most(parameter, quota, algorithm)?;
        }
        let list =
            list.map(|list| LimitsText::parse(list, default, zone, algorithm)).transpose()?;
        if let Some(window) = window.filter(|_| algorithm != Algorithm::Fixed) {
            let listed = list.iter().flat_map(|list| list.default.sizes());
            refuse_calendar(window, quotas.iter().map(|quota| quota.size).chain(listed))?;
        }
        let name = name.map(parse_name).transpose()?;
        if let (Some(name), [_, _, ..]) = (name, quotas.as_slice()) {
            return Err(OptionError::new(format!(
                "the name \"{name}\" is for one limit, and there are {}: expected rules of their \
                 own",
                quotas.len()
            )));
        }
        Ok(RuleText {
            namespace,
            quotas,
            limits: list,
            algorithm,
            burst: rate.map(|rate| rate.burst).unwrap_or_default(),
            key: key.map(|parameter| parameter.value),
            counter: counter.map_or(Ok(CounterName::Unsaid), parse_counter)?,
            cost: match (cost, charge) {
                (Some(cost), Some(charge)) => CostText::Estimated { cost, charge },
                (Some(cost), None) => CostText::AtOnce(cost),
                (None, Some(charge)) => CostText::Deferred(charge),
                (None, None) => CostText::One,
            },
            name,
            dry_run: dry_run.map(parse_dry_run).transpose()?,
            status: status.map(parse_own_status).transpose()?,
            unless: unless.map(|parameter| parameter.value),
            ban: ban::parse(ban, ban_after, words)?,
        })
    }
}

impl<'a> LimitsText<'a> {
    fn parse(
        list: Parameter<'a>,
        default: Option<Parameter<'_>>,
        zone: Option<&'static CalendarZone>,
        algorithm: Algorithm,
    ) -> Result<LimitsText<'a>, OptionError> {
        if !list.value.contains(&b'$') {
            return Err(list.invalid("expected a variable with a list, such as 10/1s 1000/1d"));
        }
        let default = default.map(|default| {
            let parsed = WindowHits::parse(default.value, algorithm);
            parsed.map_err(|message| default.invalid(&message))
        });
        let default = default.transpose()?.unwrap_or_default();
        Ok(LimitsText { text: list.value, default, zone })
    }
}

impl<'a> CounterName<'a> {
    /// Whether the rule has a `counter=`, even the shared one.
    pub fn is_explicit(self) -> bool {
        self != CounterName::Unsaid
    }

    /// Returns the name of the counter; `None` for the shared one.
    pub fn own(self) -> Option<&'a str> {
        match self {
            CounterName::Own(name) => Some(name),
            CounterName::Unsaid | CounterName::Shared => None,
        }
    }
}

fn parse_quota<'a>(parameter: Parameter<'a>) -> Result<Quota<'a>, OptionError> {
    let text = parameter.value;
    Quota::parse(text).map_err(|error| match Quota::meant_by(text) {
        Some(meant) => parameter.invalid(&format!("{error}: did you mean {meant}?")),
        None => parameter.invalid(&error.to_string()),
    })
}

/// Parses the time zone of windows of the calendar, of which the rule must have one, or a list.
fn parse_zone(
    parameter: Parameter<'_>,
    quotas: &[Quota<'_>],
    has_list: bool,
) -> Result<&'static CalendarZone, OptionError> {
    let zone = CalendarZone::named(parameter.value);
    let zone = zone.map_err(|error| parameter.invalid(&error.to_string()))?;
    if has_list || quotas.iter().any(|quota| quota.size.is_of_calendar()) {
        return Ok(zone);
    }
    Err(OptionError::new(format!(
        "parameter \"{}\" is of windows of the calendar: expected a limit per hour, day, week or month \
         beside it, such as \"limit=1000/day\"",
        shown(parameter.word)
    )))
}

/// Rejects `window=` beside a window of the calendar, which is always fixed.
fn refuse_calendar(
    window: Parameter<'_>,
    mut sizes: impl Iterator<Item = WindowSize>,
) -> Result<(), OptionError> {
    let Some(size) = sizes.find(|size| size.is_of_calendar()) else {
        return Ok(());
    };
    Err(OptionError::new(format!(
        "parameter \"{}\" does not go with the window {} of the calendar, which is fixed: expected \
         window=fixed, or rules of their own",
        shown(window.word),
        size.name()
    )))
}

fn parse_algorithm(parameter: Parameter<'_>) -> Result<Algorithm, OptionError> {
    let algorithm = Algorithm::parse(parameter.value);
    algorithm.map_err(|error| parameter.invalid(&error.to_string()))
}

/// Returns an error if a limit is larger than `algorithm` supports.
fn check_most(
    parameter: Parameter<'_>,
    quota: &Quota<'_>,
    algorithm: Algorithm,
) -> Result<(), OptionError> {
    let most = algorithm.max_limit();
    match quota.hits {
        QuotaHits::Constant(hits) if hits > most => {
            let name = algorithm.name();
            Err(parameter.invalid(&format!("expected at most {most} hits with window={name}")))
        }
        _ => Ok(()),
    }
}

fn parse_counter(parameter: Parameter<'_>) -> Result<CounterName<'_>, OptionError> {
    const { assert!(MAX_NAME_LEN <= MAX_COUNTER_LEN) };
    match valid_name("counter", parameter.value)? {
        "default" => Ok(CounterName::Shared),
        name => Ok(CounterName::Own(name)),
    }
}

fn parse_dry_run(parameter: Parameter<'_>) -> Result<bool, OptionError> {
    match parameter.value {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(parameter.invalid("expected on or off")),
    }
}

fn parse_own_status(parameter: Parameter<'_>) -> Result<isize, OptionError> {
    parse_status(parameter.value).ok_or_else(|| parameter.invalid(STATUS))
}

/// Parses the name of a policy, which is quoted in headers.
fn parse_name<'a>(parameter: Parameter<'a>) -> Result<&'a str, OptionError> {
    let name = parameter.value;
    let is_legal = |byte: &u8| matches!(byte, b' '..=b'~') && !b"\"\\$".contains(byte);
    let text = core::str::from_utf8(name).ok();
    text.filter(|name| !name.is_empty() && name.bytes().all(|byte| is_legal(&byte))).ok_or_else(
        || {
            parameter
                .invalid("expected printable ASCII characters but for \"\\\"\", \"\\\" and \"$\"")
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::words::parameter::EXPECTED;
    use crate::policy::hits::Hits;

    fn parse<'a>(words: &[&'a str]) -> Result<RuleText<'a>, String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        RuleText::parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn a_rule_is_a_namespace_limits_and_parameters() {
        let rule = parse(&["limit=5/10s"]).unwrap();
        assert_eq!(rule.namespace, "default");
        assert_eq!(rule.quotas[0].hits, QuotaHits::Constant(Hits::from_thousandths(5000)));
        assert_eq!(rule.algorithm, Algorithm::Sliding);
        assert_eq!((rule.key, rule.name), (None, None));
        assert_eq!((rule.counter, rule.cost), (CounterName::Unsaid, CostText::One));

        let words = ["api", "charge=$a=1", "name=a b", "counter=c", "key=k=v", "window=fixed"];
        let rule = parse(&[&words[..], &["limit=$x/1m"]].concat()).unwrap();
        assert_eq!(rule.namespace, "api");
        assert_eq!(rule.algorithm, Algorithm::Fixed);
        assert_eq!(rule.key, Some(&b"k=v"[..]));
        assert_eq!(rule.name, Some("a b"));
        assert_eq!(rule.counter.own(), Some("c"));
        let word = b"charge=$a=1";
        let value = b"$a=1";
        assert_eq!(rule.cost, CostText::Deferred(Parameter { word, value }));
        assert_eq!(parse(&["limit=1/1s", "limit=2/1m"]).unwrap().quotas.len(), 2);
    }

    #[test]
    fn the_shared_counter_has_a_name_too() {
        let counter = |word: &'static str| parse(&["limit=1/1s", word]).unwrap().counter;
        assert_eq!(counter("counter=default"), CounterName::Shared);
        assert_eq!(counter("counter=default").own(), None);
        assert!(counter("counter=default").is_explicit() && counter("counter=A.-_1").is_explicit());
        assert!(!CounterName::Unsaid.is_explicit());
        for name in ["", "off", "a b", "a:b", "$a", &"x".repeat(65)] {
            let word = format!("counter={name}");
            assert_eq!(
                parse(&["limit=1/1s", &word]).unwrap_err(),
                format!(
                    "invalid name \"{name}\" of a counter: expected 1 to 64 of A-Z, a-z, 0-9, \
                     \"_\", \".\", \"-\", and not \"off\""
                )
            );
        }
    }

    #[test]
    fn an_error_about_a_word_of_limit_req_suggests_ours() {
        for (word, message) in [
            (
                "nodelay",
                "parameter \"nodelay\" is of limit_req: expected none, and no \"delay=\" either, \
                 without which no request is delayed",
            ),
            (
                "zone=one",
                "parameter \"zone=one\" is of limit_req: expected \"zone name;\" in a \
                 \"ratelimit_namespace\" block, whose name is the first word here",
            ),
        ] {
            for words in [&[word][..], &[word, "limit=5/1s"], &["limit=5/1s", word]] {
                assert_eq!(parse(words).unwrap_err(), message, "{words:?}");
            }
        }
    }

    #[test]
    fn an_error_about_a_wrong_limit_suggests_a_right_one() {
        for (word, meant) in
            [("limit=100r/s", "100/1s"), ("limit=10/m", "10/1m"), ("limit=10r/min", "10/1m")]
        {
            let message = parse(&[word]).unwrap_err();
            assert!(message.starts_with(&format!("invalid parameter \"{word}\": ")));
            assert!(message.ends_with(&format!(": did you mean {meant}?")), "{message}");
        }
        assert!(!parse(&["limit=x/m"]).unwrap_err().contains("did you mean"));
    }

    #[test]
    fn a_namespace_is_the_first_word() {
        let message = "invalid parameter \"namespace=api\": a namespace is the first word, and no \
                       more than its name: expected \"ratelimit api limit=...\"";
        for words in [["namespace=api", "limit=5/1s"], ["limit=5/1s", "namespace=api"]] {
            assert_eq!(parse(&words).unwrap_err(), message);
        }
        assert_eq!(
            parse(&["limit=5/1s", "api"]).unwrap_err(),
            format!(
                "invalid parameter \"api\": {EXPECTED}; or as the first word, and no other, a \
                 namespace: \"ratelimit api limit=...\""
            )
        );
        let message = parse(&["a b", "limit=5/1s"]).unwrap_err();
        assert!(message.starts_with("invalid name \"a b\" of a namespace"));
    }

    #[test]
    fn quotes_are_around_a_whole_parameter() {
        // The words into which nginx divides `key="a b"`.
        for words in
            [&["limit=5/1s", "key=\"a", "b\""][..], &["limit=5/1s", "key='a'"], &["limit=\"5/1s\""]]
        {
            let wrong = words.iter().find(|word| word.contains(['"', '\''])).unwrap();
            let message = format!("invalid parameter \"{wrong}\": {QUOTES}");
            assert_eq!(parse(words).unwrap_err(), message);
        }
        let message = format!("invalid parameter \"$b\"\": {QUOTES}");
        assert_eq!(parse(&["limit=5/1s", "key=a", "$b\""]).unwrap_err(), message);
        assert!(parse(&["limit=5/1s", "key=it's \"so\""]).is_ok());
    }

    #[test]
    fn an_error_about_another_word_suggests_a_right_one() {
        for (words, message) in [
            (&[][..], "no limit: expected at least one \"limit=hits/window\""),
            (&["api"], "no limit: expected at least one \"limit=hits/window\""),
            (
                &["limit=5/1s", "name=a", "name=b"],
                "parameter \"name=b\" is duplicate: expected it once",
            ),
            (
                &["limit=5/1s", "limit=5/1m", "name=a"],
                "the name \"a\" is for one limit, and there are 2: expected rules of their own",
            ),
            (
                &["limit=5/1s", "window=Fixed"],
                "invalid parameter \"window=Fixed\": expected sliding, fixed, elastic or moving",
            ),
            (
                &["limit=5/1s", "limit=100000.001/1m", "window=moving"],
                "invalid parameter \"limit=100000.001/1m\": expected at most 100000 hits with \
                 window=moving",
            ),
            (
                &["limit=5/1s", "name=a$b"],
                "invalid parameter \"name=a$b\": expected printable ASCII characters but for \
                 \"\\\"\", \"\\\" and \"$\"",
            ),
        ] {
            assert_eq!(parse(words).unwrap_err(), message);
        }
        let message = format!("invalid parameter \"hits=5\": {EXPECTED}");
        assert_eq!(parse(&["hits=5"]).unwrap_err(), message);
    }
}
