//! `ratelimit [namespace] limit=hits/window ... [parameters]` and `ratelimit off`

use std::rc::Rc;

use nginx_sys::{NGX_LOG_WARN, ngx_conf_t};
use ngx::http::HttpModuleMainConf as _;

use super::super::log;
use super::super::module::Module;
use super::Origin;
use super::directives::{Directive, Failure, Word};
use super::location::LocationConf;
use super::rules::{Cost, OwnKey, Rule, RuleLimit, RuleSet};
use super::text::{Amount, Text, WrittenText};
use crate::conf::rule::{CostText, Parameter, RuleText};
use crate::conf::sharing::WindowLimits;
use crate::policy::hits::Hits;
use crate::policy::limit::{Limit, Quota, QuotaHits};
use crate::policy::window::warn_of_months;

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
        let rule = read(cf, words)?;
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

/// Reads the words of a rule, and compiles those that have variables.
fn read(cf: &mut ngx_conf_t, words: &[Word]) -> Result<Rule, Failure> {
    let words: Vec<&'static [u8]> = words.iter().map(|word| word.0).collect();
    let rule = RuleText::parse(&words)?;
    let mut limits = Vec::new();
    for quota in &rule.quotas {
        if let Some(warning) = warn_of_months(quota.window) {
            log::conf_error(NGX_LOG_WARN, cf, format_args!("ratelimit: {warning}"));
        }
        limits.push(limit(cf, &rule, quota)?);
    }
    let cost = match rule.cost {
        CostText::One => Cost::AtOnce(Amount::Constant(Hits::ONE)),
        CostText::AtOnce(cost) => Cost::AtOnce(amount(cf, cost)?),
        CostText::Late(charge) => Cost::Late(amount(cf, charge)?),
    };
    let text = rule.key.map(|key| WrittenText::compile(cf, Word(key)));
    let key = OwnKey {
        text: text.transpose()?,
        counter: rule.counter.own().map(Into::into),
    };

    let origin = Origin::of(cf);
    let main = Module::main_conf_mut(cf).ok_or("no configuration of http")?;
    main.has_late |= matches!(cost, Cost::Late(_));
    Ok(Rule {
        number: main.number_rule(&origin),
        namespace: main.use_namespace(rule.namespace, &limits, origin),
        key,
        cost,
        limits,
        shared: match rule.counter.is_said() {
            true => Vec::new(),
            false => WindowLimits::of(&rule.quotas),
        },
    })
}

fn limit(
    cf: &mut ngx_conf_t,
    rule: &RuleText<'static>,
    quota: &Quota<'static>,
) -> Result<RuleLimit, Failure> {
    let default_name = format!("{}-{}", rule.namespace, Word(quota.window));
    Ok(RuleLimit {
        limit: Limit {
            name: rule.name.unwrap_or_default().into(),
            size: quota.size,
            algorithm: rule.algorithm,
        },
        window: Word(quota.window),
        hits: match quota.hits {
            QuotaHits::Constant(hits) => Amount::Constant(hits),
            QuotaHits::Variable(text) => Amount::Variable(Text::compile(cf, Word(text))?),
        },
        default_name: rule.name.is_none().then(|| default_name.into()),
    })
}

fn amount(cf: &mut ngx_conf_t, parameter: Parameter<'static>) -> Result<Amount, Failure> {
    Amount::compile(cf, Word(parameter.value)).map_err(|failure| match failure {
        Failure::Here(message) => parameter.invalid(&message).into(),
        other => other,
    })
}
