//! Evaluates the key, the hits and the cost of each rule of a request.

use core::fmt;

use nginx_sys::{NGX_LOG_ERR, NGX_LOG_INFO};

use super::context::Keys;
use crate::conf::limit_list::LimitList;
use crate::engine::{Ban, LimitCheck};
use crate::nginx::conf::{
    Active, ActiveLimit, ActiveRule, Amount, Cost, Evaluated, EvaluationError, LocationConf,
    OwnKey, RuleKey, Text,
};
use crate::nginx::event_loop::NgxClock;
use crate::nginx::log;
use crate::nginx::request::Request;
use crate::policy::algorithm::Reading;
use crate::policy::hits::Hits;
use crate::policy::key::{ShortName, counted_name, is_accounted, is_plain};
use crate::policy::limit::Limit;
use crate::policy::printable::Quoted;
use crate::table::{Invalid, Key};

/// Calls `check` with each limit that applies to a request, in the order of the rules. If a key is
/// banned, `check` gets the limit of the ban in place of the rule's, and no further rule, unless the
/// rule is tried alone. `HAS_BANS` says whether a rule may ban keys.
///
/// # Errors
///
/// No memory.
///
/// Always inlined, with its callees: for most requests they are a few instructions.
#[inline(always)]
pub(super) fn each_limit<'r, const HAS_BANS: bool>(
    request: &Request<'r>,
    conf: &LocationConf,
    active: &'static Active,
    keys: &mut Keys<'r>,
    mut check: impl FnMut(LimitCheck<'r, 'static>),
) -> Result<(), EvaluationError> {
    let mut key = None;
    for rule in &active.rules {
        next_key(&mut key, rule, conf, request, keys)?;
        let Some(key) = key else { continue };
        if HAS_BANS && let Some(ban) = ban_of(rule, key, request, keys)? {
            check(ban);
            match (ban.store, rule.trial) {
                // The store is asked: it may know of a ban, or of its end.
                (Some(_), _) => {}
                (None, Some(_)) => continue,
                (None, None) => return Ok(()),
            }
        }
        let cost = cost_of(rule, request)?;
        for limit in &rule.limits {
            if let Some(hits) = hits_of(limit, request)? {
                check(LimitCheck {
                    bound: &limit.bound,
                    hits,
                    key,
                    cost,
                    store: rule.synchronous.map(|it| it.store),
                    trial: rule.trial,
                });
            }
        }
    }
    Ok(())
}

/// Returns the check that refuses a key which the rule has banned, or that asks the store whether it
/// has; `None` for other keys.
fn ban_of<'r>(
    rule: &'static ActiveRule,
    counted: &'r Key<'r>,
    request: &Request<'r>,
    keys: &mut Keys<'r>,
) -> Result<Option<LimitCheck<'r, 'static>>, EvaluationError> {
    let Some(ban) = &rule.ban else {
        return Ok(None);
    };
    let (bound, trial) = (&ban.bound, rule.trial);
    let name = ban.name(counted.bytes());
    let store = rule.synchronous.map(|it| it.store);
    if store.is_none() && ban.left(bound.table().key(&name), &NgxClock).is_none() {
        return Ok(None);
    }
    let name = keys.name_again(counted.bytes(), &name, request).ok_or(EvaluationError)?;
    let key = keys.keep(bound.table().key(name)).ok_or(EvaluationError)?;
    let hits = hits_of_ban(rule, ban, request)?;
    Ok(Some(LimitCheck { bound, hits, key, cost: Hits::ZERO, store, trial }))
}

/// A ban of a request's key.
pub(super) struct FoundBan<'r> {
    pub(super) ban: &'static Ban<'static>,
    pub(super) reading: Reading,
    /// The hits of the limit that the ban is named after.
    pub(super) hits: Hits,
    key: &'r [u8],
    name: ShortName,
}

impl<'r> FoundBan<'r> {
    /// Keeps the name of the ban as long as the request. `None` without memory.
    pub(super) fn keep(&self, request: &Request<'r>, keys: &mut Keys<'r>) -> Option<&'r Key<'r>> {
        let name = keys.rename(self.key, &self.name, request)?;
        keys.keep(self.ban.bound.table().key(name))
    }
}

/// Returns the first ban of a request's key by a rule that is not tried alone, by the counters of this
/// node; `None` without one.
pub(super) fn find_ban<'r>(
    request: &Request<'r>,
    conf: &LocationConf,
    active: &'static Active,
) -> Result<Option<FoundBan<'r>>, EvaluationError> {
    for rule in active.rules.iter().filter(|rule| rule.trial.is_none()) {
        let Some(ban) = &rule.ban else { continue };
        let own = match rule.key {
            RuleKey::Rare(own) => Some(own),
            RuleKey::OfLevel | RuleKey::AsBefore | RuleKey::Own(_) => None,
        };
        if own.map_or(Ok(false), |own| is_exempt(own, request))? {
            continue;
        }
        let key = match (rule.key, own.and_then(OwnKey::text)) {
            (RuleKey::Own(text), _) | (_, Some(text)) => text.evaluate(request)?,
            _ => conf.evaluate_key(request)?,
        };
        if !is_accounted(key) {
            continue;
        }
        let name = ban.name(&counted_name(key, own.and_then(OwnKey::counter)));
        let reading = ban.reading(ban.bound.table().key(&name), &NgxClock);
        if ban.left_after(&reading).is_some() {
            let hits = hits_of_ban(rule, ban, request)?;
            return Ok(Some(FoundBan { ban, reading, hits, key, name }));
        }
    }
    Ok(None)
}

/// Returns the maximum number of hits of the limit that a ban is named after.
fn hits_of_ban(
    rule: &ActiveRule,
    ban: &Ban<'static>,
    request: &Request<'_>,
) -> Result<Hits, EvaluationError> {
    let mut limits = rule.limits.iter();
    let named = limits.find(|limit| limit.bound.limit.name == ban.bound.limit.name);
    let Some(named) = named else {
        return Ok(Hits::ZERO);
    };
    let hits = hits_of(named, request)?.unwrap_or_default();
    Ok(named.bound.limit.most(hits))
}

/// Sets `key` to the key of the next rule; to `None` if the rule does not account this key.
#[inline(always)]
fn next_key<'r>(
    key: &mut Option<&'r Key<'r>>,
    rule: &'static ActiveRule,
    conf: &LocationConf,
    request: &Request<'r>,
    keys: &mut Keys<'r>,
) -> Result<(), EvaluationError> {
    let [first, ..] = &*rule.limits else {
        return Ok(());
    };
    let bytes = match rule.key {
        RuleKey::OfLevel => Some(conf.evaluate_key(request)?),
        RuleKey::AsBefore => None,
        RuleKey::Own(text) => Some(text.evaluate(request)?),
        RuleKey::Rare(own) => {
            let name = rare_name(own, conf, request, keys)?;
            *key = name.and_then(|name| keys.keep(first.bound.table().key(name)));
            return Ok(());
        }
    };
    if let Some(bytes) = bytes {
        let name = match is_plain(bytes) {
            true => Some(bytes),
            false => name_of(bytes, None, request, keys)?,
        };
        *key = name.and_then(|name| keys.keep(first.bound.table().key(name)));
    }
    Ok(())
}

/// Returns whether the rule does not apply to a request: `unless=`.
fn is_exempt(own: &OwnKey, request: &Request<'_>) -> Result<bool, EvaluationError> {
    let Some(unless) = own.unless() else {
        return Ok(false);
    };
    Ok(!matches!(unless.evaluate(request)?, b"" | b"0"))
}

/// Returns the name of a key whose rule names a counter, or has an exception: see [`name_of`].
#[cold]
fn rare_name<'r>(
    own: &OwnKey,
    conf: &LocationConf,
    request: &Request<'r>,
    keys: &mut Keys<'r>,
) -> Result<Option<&'r [u8]>, EvaluationError> {
    if is_exempt(own, request)? {
        return Ok(None);
    }
    let key = match own.text() {
        Some(text) => text.evaluate(request)?,
        None => conf.evaluate_key(request)?,
    };
    name_of(key, own.counter(), request, keys)
}

/// Returns the name under which a key is counted, which lives as long as the request. `None` if the
/// key is not accounted.
#[cold]
fn name_of<'r>(
    key: &'r [u8],
    counter: Option<&str>,
    request: &Request<'r>,
    keys: &mut Keys<'r>,
) -> Result<Option<&'r [u8]>, EvaluationError> {
    if !is_accounted(key) {
        return Ok(None);
    }
    let name = keys.rename(key, &counted_name(key, counter), request);
    name.map(Some).ok_or(EvaluationError)
}

/// Returns the hits that a limit admits; `None` if the limit does not apply.
#[inline]
fn hits_of(limit: &ActiveLimit, request: &Request<'_>) -> Result<Option<Hits>, EvaluationError> {
    match limit.hits {
        Amount::Constant(hits) => Ok(Some(*hits)),
        Amount::Variable(_) | Amount::Listed(_) => variable_hits_of(limit, request),
    }
}

#[cold]
fn variable_hits_of(
    limit: &ActiveLimit,
    request: &Request<'_>,
) -> Result<Option<Hits>, EvaluationError> {
    let most = limit.bound.limit.algorithm.max_limit();
    let evaluated = match limit.hits {
        Amount::Listed(list) => return listed_hits_of(list, limit, request),
        amount => amount.evaluate(request)?,
    };
    Ok(match evaluated {
        Evaluated::Hits(hits) if hits > most => {
            limit.bound.count_invalid(Invalid::Limit);
            let name = &limit.bound.limit.name;
            let message = format_args!(
                "ratelimit: the limit \"{name}\" is {hits}, and its window has at most {most}: it is \
                 taken as that"
            );
            log::error(NGX_LOG_ERR, request.log(), message);
            Some(most)
        }
        Evaluated::Hits(hits) => Some(hits),
        Evaluated::Empty => None,
        Evaluated::Wrong(text) => {
            limit.bound.count_invalid(Invalid::Limit);
            let name = &limit.bound.limit.name;
            let message = format_args!(
                "ratelimit: the limit \"{name}\" is \"{}\", which is no plain decimal: it does not \
                 apply",
                Quoted(text)
            );
            log::error(NGX_LOG_ERR, request.log(), message);
            None
        }
    })
}

/// Returns the hits of a limit in a request's list of limits. A wrong list is logged once, for the
/// first limit of its rule.
fn listed_hits_of(
    list: &LimitList<Text>,
    limit: &ActiveLimit,
    request: &Request<'_>,
) -> Result<Option<Hits>, EvaluationError> {
    let text = list.text.evaluate(request)?;
    let Limit { size, algorithm, .. } = limit.bound.limit;
    let reason = match list.parse(text, algorithm) {
        Ok(limits) => return Ok(limits.of(size)),
        Err(reason) => reason,
    };
    if list.sizes.first() == Some(&size) {
        limit.bound.count_invalid(Invalid::Limit);
        let message = format_args!(
            "ratelimit: the limits are \"{}\", in which {}: {} applies",
            Quoted(text),
            Quoted(reason.as_bytes()),
            if list.default.is_empty() { "none" } else { "the default" },
        );
        log::error(NGX_LOG_ERR, request.log(), message);
    }
    Ok(list.default.of(size))
}

/// Returns the cost that is charged with the decision.
#[inline]
fn cost_of(rule: &ActiveRule, request: &Request<'_>) -> Result<Hits, EvaluationError> {
    match rule.cost {
        Cost::AtOnce(Amount::Constant(hits)) => Ok(*hits),
        Cost::AtOnce(cost) | Cost::Estimated { cost, .. } => {
            amount_or(Hits::ONE, Invalid::Cost, cost, rule, request)
        }
        Cost::Deferred(_) => Ok(Hits::ZERO),
    }
}

/// Parses an amount. If it is not a number, logs that and returns `otherwise`.
pub(super) fn amount_or(
    otherwise: Hits,
    which: Invalid,
    amount: &Amount,
    rule: &ActiveRule,
    request: &Request<'_>,
) -> Result<Hits, EvaluationError> {
    let counted = format_args!("{otherwise} is counted");
    let known = known_amount(which, amount, rule, request, counted)?;
    Ok(known.unwrap_or(otherwise))
}

/// Parses an amount. If it is not a number, logs that with its consequence, and returns `None`.
#[cold]
pub(super) fn known_amount(
    which: Invalid,
    amount: &Amount,
    rule: &ActiveRule,
    request: &Request<'_>,
    consequence: fmt::Arguments<'_>,
) -> Result<Option<Hits>, EvaluationError> {
    let what = match which {
        Invalid::Charge => "charge",
        _ => "cost",
    };
    match amount.evaluate(request)? {
        Evaluated::Hits(hits) => return Ok(Some(hits)),
        Evaluated::Empty => {
            // An upstream may leave the amount out, so an empty one is not logged as an error.
            let message = format_args!("ratelimit: the {what} is empty: {consequence}");
            log::error(NGX_LOG_INFO, request.log(), message);
        }
        Evaluated::Wrong(text) => {
            if let Some(limit) = rule.limits.first() {
                limit.bound.count_invalid(which);
            }
            let message = format_args!(
                "ratelimit: the {what} is \"{}\", which is no plain decimal: {consequence}",
                Quoted(text)
            );
            log::error(NGX_LOG_ERR, request.log(), message);
        }
    }
    Ok(None)
}
