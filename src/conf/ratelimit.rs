//! `ratelimit`: reading a rule, and compiling its texts with variables.

use std::rc::Rc;

use super::http::HttpConf;
use super::level::LevelConf;
use super::level::rules::{Cost, OwnKey, Rule, RuleLimit};
use super::limit_list::LimitList;
use super::review::{WindowLimits, warn_of_rule};
use super::rule::{CostText, LimitsText, RuleText};
use super::timezone::LevelZone;
use super::words::message::{ConfError, Message};
use super::words::nginx::Nginx;
use super::words::parameter::Parameter;
use super::words::text::{self, Amount, WrittenText, compile};
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::limit::{Limit, Quota, QuotaHits};
use crate::policy::options::shown;
use crate::policy::window::warn_of_months;

/// Reads `ratelimit [namespace] limit=hits/window ... [parameters]` or `ratelimit off`.
pub(super) fn read<T, N: Nginx<Text = T>>(
    nginx: &mut N,
    http: &mut HttpConf,
    level: &mut LevelConf<T>,
    words: &[&[u8]],
) -> Result<(), ConfError> {
    let is_off = words == [b"off"];
    if level.rules.as_ref().is_some_and(|rules| is_off || rules.is_off()) {
        return Err("\"off\" goes with no other \"ratelimit\" on its level".into());
    }
    level.rules.get_or_insert_with(Rc::default);
    if is_off {
        return Ok(());
    }
    let rule = Rule::read(nginx, http, &level.zone, words)?;
    // Rules are shared only later, when levels inherit.
    match level.rules.as_mut().and_then(Rc::get_mut).map(|rules| rules.push(rule)) {
        Some(Err(name)) => Err(format!(
            "the name \"{name}\" is duplicate: expected one that no other rule of this level has"
        )
        .into()),
        _ => Ok(()),
    }
}

impl<T> Rule<T> {
    /// Parses the words of a rule, and compiles those with variables.
    fn read<N: Nginx<Text = T>>(
        nginx: &mut N,
        http: &mut HttpConf,
        zone: &LevelZone,
        words: &[&[u8]],
    ) -> Result<Rule<T>, ConfError> {
        let rule = RuleText::parse(words)?;
        let mut limits = Vec::new();
        for quota in &rule.quotas {
            if let Some(warning) = warn_of_months(quota.window) {
                nginx.warn(Message::Here(format!("ratelimit: {warning}")));
            }
            limits.push(RuleLimit::read(nginx, &rule, quota)?);
        }
        let cost = match rule.cost {
            CostText::One => Cost::AtOnce(Amount::Constant(Hits::ONE)),
            CostText::AtOnce(cost) => Cost::AtOnce(amount(nginx, cost)?),
            CostText::Deferred(charge) => Cost::Deferred(amount(nginx, charge)?),
            CostText::Estimated { cost, charge } => {
                Cost::Estimated { cost: amount(nginx, cost)?, charge: amount(nginx, charge)? }
            }
        };
        warn_of_rule(nginx, &rule);
        let mut compile = |text| WrittenText::compile(nginx, text);
        let key = OwnKey {
            text: rule.key.map(&mut compile).transpose()?,
            counter: rule.counter.own().map(Into::into),
            unless: rule.unless.map(&mut compile).transpose()?,
        };

        let list = match rule.limits {
            Some(LimitsText { text, ref default, zone }) => Some((
                LimitList {
                    text: text::compile(nginx, text)?,
                    default: default.clone(),
                    zone,
                    sizes: Vec::new(),
                },
                rule.algorithm,
            )),
            None => None,
        };
        let origin = nginx.origin();
        http.has_deferred |= cost.is_deferred();
        let namespace = http.use_namespace(
            rule.namespace,
            (&rule.quotas, rule.limits.is_some()),
            zone,
            rule.algorithm,
            rule.counter.own(),
            &origin,
        );
        if let Some(ban) = rule.ban {
            http.record_ban(namespace, ban.size);
        }
        Ok(Rule {
            number: http.number_rule(&origin),
            place: origin.within(&nginx.directory()).into(),
            namespace,
            key,
            cost,
            dry_run: rule.dry_run,
            status: rule.status,
            ban: rule.ban,
            limits,
            list,
            shared: match rule.counter.is_explicit() {
                true => Vec::new(),
                false => WindowLimits::of(&rule),
            },
        })
    }
}

impl<T> RuleLimit<T> {
    fn read<N: Nginx<Text = T>>(
        nginx: &mut N,
        rule: &RuleText<'_>,
        quota: &Quota<'_>,
    ) -> Result<RuleLimit<T>, ConfError> {
        let default_name = match rule.algorithm {
            Algorithm::Bucket => format!("{}-rate", rule.namespace),
            Algorithm::Concurrency => format!("{}-concurrent", rule.namespace),
            _ => format!("{}-{}", rule.namespace, shown(quota.window)),
        };
        Ok(RuleLimit {
            limit: Limit {
                name: rule.name.unwrap_or_default().into(),
                size: quota.size,
                algorithm: quota.algorithm(rule.algorithm),
                burst: rule.burst,
                of_rule: None,
            },
            hits: match quota.hits {
                QuotaHits::Constant(hits) => Amount::Constant(hits),
                QuotaHits::Variable(text) => Amount::Variable(compile(nginx, text)?),
            },
            default_name: rule.name.is_none().then(|| default_name.into()),
        })
    }
}

fn amount<N: Nginx>(nginx: &mut N, parameter: Parameter<'_>) -> Result<Amount<N::Text>, ConfError> {
    Amount::compile(nginx, parameter.value).map_err(|error| match error {
        ConfError::Wrong(Message::Here(message)) => parameter.invalid(&message).into(),
        other => other,
    })
}
