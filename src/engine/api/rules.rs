//! The answers about the rules of a namespace: the rules themselves, and what they say about a key.

use super::json::{ApiError, Thousandths, json, object};
use super::key::check_key;
use super::list::ListBody;
use super::request::ExplainCall;
use super::reset::has_hits;
use crate::conf::listed::{ListedLimit, ListedRule};
use crate::engine::{BoundLimit, Namespace};
use crate::policy::hits::Hits;
use crate::policy::key::counted_name;
use crate::policy::window::Clock;

/// Answers [`ApiCall::Rules`](super::ApiCall::Rules) with these rules.
pub fn rules<'c>(
    rules: impl Iterator<Item = &'c ListedRule>,
) -> ListBody<impl Iterator<Item = Option<String>>> {
    ListBody::new("rules", rules.map(|rule| Some(of_rule(rule))))
}

fn of_rule(rule: &ListedRule) -> String {
    let limits = rule.limits.iter().map(|ListedLimit { limit, hits }| {
        let burst = Some(limit.burst.hits).filter(|_| limit.algorithm.is_of_rates());
        object! {
            name: &*limit.name,
            limit: hits.map(Thousandths::from),
            window: Thousandths::of(limit.size.millis()),
            window_type: limit.algorithm.name(),
            burst: burst.map(Thousandths::from),
            delay: limit.burst.delay.map(Thousandths::from),
        }
    });
    json(&object! {
        place: &*rule.place,
        limits: limits.collect::<Vec<_>>(),
        key: String::from_utf8_lossy(&rule.key),
        counter: rule.counter.as_deref(),
        cost: rule.cost.map(Thousandths::from),
        phase: rule.phase.name(),
        dry_run: rule.is_dry_run,
    })
}

/// Answers [`ApiCall::Explain`](super::ApiCall::Explain) by these rules of `namespace`, from this node's table. Charges
/// nothing.
///
/// # Errors
///
/// 400 if the key is empty.
pub fn explain<'c>(
    call: ExplainCall,
    namespace: &'c Namespace<'c>,
    rules: impl Iterator<Item = &'c ListedRule> + 'c,
    clock: &'c impl Clock,
) -> Result<ListBody<impl Iterator<Item = Option<String>> + 'c>, ApiError> {
    check_key(&call.key)?;
    let rules = rules.map(move |rule| of_key(&call, namespace, rule, clock));
    Ok(ListBody::new("rules", rules))
}

/// Returns what a rule says about a key; `None` if it is left out, since the key has no hits under it.
fn of_key(
    call: &ExplainCall,
    namespace: &Namespace<'_>,
    rule: &ListedRule,
    clock: &impl Clock,
) -> Option<String> {
    let name = counted_name(&call.key, rule.counter.as_deref());
    let key = namespace.table().key(&name);
    let cost = call.cost.or(rule.cost).unwrap_or(Hits::ONE);
    let mut is_told = call.has_all;
    let limits: Vec<_> = rule
        .limits
        .iter()
        .map(|ListedLimit { limit, hits }| {
            let told = hits.or(call.limit);
            let bound = BoundLimit::new(limit.clone(), namespace, []);
            // Without its hits, a limit still has a count, but a rate has no bucket.
            let is_known = told.is_some() || !limit.algorithm.is_of_rates();
            let most = told.unwrap_or(Hits::MAX);
            let verdict = is_known.then(|| bound.verdict(most, key, cost, clock));
            is_told |= verdict.is_some_and(|it| has_hits(limit.algorithm, limit.size, &it.reading));
            let decided = verdict.filter(|_| told.is_some());
            let wait = decided.filter(|it| !it.admitted).and_then(|it| it.retry_after());
            object! {
                name: &*limit.name,
                limit: decided.map(|it| Thousandths::from(it.hits)),
                rate: verdict.map(|it| Thousandths::from(it.rate())),
                remaining: decided.map(|it| Thousandths::from(it.remaining())),
                reset: decided.and_then(|it| it.reset(it.remaining())).map(Thousandths::of),
                admitted: decided.map(|it| it.admitted),
                until: wait.map(|wait| Thousandths::of(clock.now().0.saturating_add(wait))),
            }
        })
        .collect();
    is_told.then(|| {
        json(&object! {
            place: &*rule.place,
            name: rule.limits.first().map(|it| &*it.limit.name),
            counter: rule.counter.as_deref(),
            cost: Thousandths::from(cost),
            dry_run: rule.is_dry_run,
            limits: limits,
        })
    })
}
