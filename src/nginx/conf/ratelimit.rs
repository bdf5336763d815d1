//! `ratelimit [namespace] limit=hits/window ... [parameters]` and `ratelimit off`

use std::rc::Rc;

use nginx_sys::ngx_conf_t;
use ngx::http::HttpModuleMainConf as _;

use super::super::module::Module;
use super::Origin;
use super::directives::{Directive, Failure, Word, valid_name};
use super::location::LocationConf;
use super::rules::{Cost, Rule, RuleLimit, RuleSet};
use super::text::{Amount, Text};
use crate::policy::hits::Hits;
use crate::policy::limit::{Limit, Quota, QuotaHits};
use crate::policy::namespace::DEFAULT_NAMESPACE;
use crate::policy::window::WindowType;

pub(super) struct Ratelimit;

impl Directive<LocationConf> for Ratelimit {
    const NAME: &'static str = "ratelimit";

    fn apply(cf: &mut ngx_conf_t, conf: &mut LocationConf, words: &[Word]) -> Result<(), Failure> {
        let is_off = matches!(words, [Word(b"off")]);
        if conf
            .rules
            .as_ref()
            .is_some_and(|set| is_off || set.is_off())
        {
            return Err("\"off\" goes with no other \"ratelimit\" on its level".into());
        }
        let rules = conf.rules.get_or_insert_with(Rc::<RuleSet>::default);
        if is_off {
            return Ok(());
        }
        let rule = parse(cf, words)?;
        // Nobody else has the set before levels are merged, when all directives were read.
        match Rc::get_mut(rules).map(|rules| rules.push(rule)) {
            Some(Err(name)) => Err(format!(
                "the name \"{name}\" is duplicate: expected one that no other rule of this level \
                 has"
            )
            .into()),
            _ => Ok(()),
        }
    }
}

/// The parameters of a rule, as they were written.
#[derive(Default)]
struct Parameters<'w> {
    quotas: Vec<Quota<'static>>,
    window: Option<&'w Word>,
    key: Option<&'w Word>,
    cost: Option<&'w Word>,
    charge: Option<&'w Word>,
    name: Option<&'w Word>,
}

const EXPECTED: &str = "expected limit=hits/window, window=, key=, cost=, charge= or name=";

fn parse(cf: &mut ngx_conf_t, words: &[Word]) -> Result<Rule, Failure> {
    let (namespace, words) = match words {
        [name, words @ ..] if !name.0.contains(&b'=') => (valid_name("namespace", *name)?, words),
        words => (DEFAULT_NAMESPACE, words),
    };
    let mut given = Parameters::default();
    for word in words {
        let mut parts = word.0.splitn(2, |&byte| byte == b'=');
        let place = match (parts.next().unwrap_or_default(), parts.next()) {
            (b"limit", Some(text)) => {
                let quota = Quota::parse(text)
                    .map_err(|error| format!("invalid parameter \"{word}\": {error}"))?;
                given.quotas.push(quota);
                continue;
            }
            (b"window", Some(_)) => &mut given.window,
            (b"key", Some(_)) => &mut given.key,
            (b"cost", Some(_)) => &mut given.cost,
            (b"charge", Some(_)) => &mut given.charge,
            (b"name", Some(_)) => &mut given.name,
            _ => return Err(format!("invalid parameter \"{word}\": {EXPECTED}").into()),
        };
        if place.replace(word).is_some() {
            return Err(format!("parameter \"{word}\" is duplicate: expected it once").into());
        }
    }
    if given.quotas.is_empty() {
        return Err("no limit: expected at least one \"limit=hits/window\"".into());
    }

    let window_type = match given.window {
        Some(word) => parse_window_type(*word)?,
        None => WindowType::default(),
    };
    let name = given.name.map(|word| parse_name(*word)).transpose()?;
    if let (Some(name), [_, _, ..]) = (name, given.quotas.as_slice()) {
        return Err(format!(
            "the name \"{name}\" is for one limit, and there are {}: expected rules of their own",
            given.quotas.len()
        )
        .into());
    }
    let mut limits = Vec::new();
    for quota in given.quotas {
        let default_name = format!("{namespace}-{}", Word(quota.window));
        limits.push(RuleLimit {
            limit: Limit {
                name: name.unwrap_or_default().into(),
                size: quota.size,
                window_type,
            },
            window: Word(quota.window),
            hits: match quota.hits {
                QuotaHits::Constant(hits) => Amount::Constant(hits),
                QuotaHits::Variable(text) => Amount::Variable(Text::compile(cf, Word(text))?),
            },
            default_name: name.is_none().then(|| default_name.into()),
        });
    }
    let cost = match (given.cost, given.charge) {
        (Some(_), Some(charge)) => {
            return Err(format!(
                "parameter \"{charge}\" takes the place of \"cost=\": expected one of the two"
            )
            .into());
        }
        (Some(word), None) => Cost::AtOnce(parse_amount(cf, *word)?),
        (None, Some(word)) => Cost::Late(parse_amount(cf, *word)?),
        (None, None) => Cost::AtOnce(Amount::Constant(Hits::ONE)),
    };
    let key = given.key.map(|word| Text::compile(cf, value_of(*word)));

    let origin = Origin::of(cf);
    let main = Module::main_conf_mut(cf).ok_or("no configuration of http")?;
    main.has_late |= matches!(cost, Cost::Late(_));
    Ok(Rule {
        namespace: main.use_namespace(namespace, &limits, origin),
        key: key.transpose()?,
        cost,
        limits,
    })
}

/// What follows the `=` of a parameter.
fn value_of(word: Word) -> Word {
    let mut parts = word.0.splitn(2, |&byte| byte == b'=');
    Word(parts.nth(1).unwrap_or_default())
}

fn parse_window_type(word: Word) -> Result<WindowType, Failure> {
    match value_of(word).0 {
        b"sliding" => Ok(WindowType::Sliding),
        b"fixed" => Ok(WindowType::Fixed),
        b"moving" | b"elastic" => Err(format!(
            "parameter \"{word}\" is not supported by this version: expected sliding or fixed"
        )
        .into()),
        _ => Err(format!("invalid parameter \"{word}\": expected sliding or fixed").into()),
    }
}

/// The name of a policy: it is quoted in headers.
fn parse_name(word: Word) -> Result<&'static str, Failure> {
    let name = value_of(word).0;
    let is_legal = |byte: &u8| matches!(byte, b' '..=b'~') && !b"\"\\$".contains(byte);
    let text = core::str::from_utf8(name).ok();
    text.filter(|name| !name.is_empty() && name.bytes().all(|byte| is_legal(&byte)))
        .ok_or_else(|| {
            format!(
                "invalid parameter \"{word}\": expected printable ASCII characters but for \
                 \"\\\"\", \"\\\" and \"$\""
            )
            .into()
        })
}

fn parse_amount(cf: &mut ngx_conf_t, word: Word) -> Result<Amount, Failure> {
    Amount::compile(cf, value_of(word)).map_err(|failure| match failure {
        Failure::Here(message) => format!("invalid parameter \"{word}\": {message}").into(),
        other => other,
    })
}
