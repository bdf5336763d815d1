//! The answers about the rules of a namespace: the rules themselves, and their explanations of a key.

use serde::Serialize;

use super::json::{ApiError, Thousandths, WindowBody, json, object};
use super::key::check_key;
use super::list::ListBody;
use super::request::ExplainCall;
use super::reset::has_hits;
use crate::conf::listed::{ListedLimit, ListedRule};
use crate::engine::{Ban, BoundLimit, Namespace};
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
            window: (!limit.algorithm.is_of_concurrency()).then_some(WindowBody(limit.size)),
            window_type: limit.algorithm.name(),
            burst: burst.map(Thousandths::from),
            delay: limit.burst.delay.map(Thousandths::from),
        }
    });
    let text = json(&object! {
        place: &*rule.place,
        limits: limits.collect::<Vec<_>>(),
        key: String::from_utf8_lossy(&rule.key),
        counter: rule.counter.as_deref(),
        cost: rule.cost.map(Thousandths::from),
        phase: rule.phase.name(),
        dry_run: rule.is_dry_run,
    });
    let Some(ban) = rule.ban else {
        return text;
    };
    let (time, after) = (Thousandths::of(ban.size.millis()), Thousandths::from(ban.after));
    let ban = json(&object! { time: time, after: after });
    format!("{},\"ban\":{ban}}}", text.trim_end_matches('}'))
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
    let rules = rules.map(move |rule| {
        let name = counted_name(&call.key, rule.counter.as_deref());
        let explained = ExplainedRule::new(rule, namespace, &name, (call.cost, call.limit), clock);
        (call.has_all || explained.has_hits).then(|| json(&explained))
    });
    Ok(ListBody::new("rules", rules))
}

/// The explanation of a key by a rule.
#[derive(Debug, Serialize)]
pub(super) struct ExplainedRule<'r> {
    pub(super) place: &'r str,
    name: Option<&'r str>,
    counter: Option<&'r str>,
    cost: Thousandths,
    pub(super) dry_run: bool,
    /// The end of the key's ban, in Unix time.
    #[serde(skip_serializing_if = "Option::is_none")]
    banned_until: Option<Thousandths>,
    pub(super) limits: Vec<ExplainedLimit<'r>>,
    /// Whether the key has hits under the rule.
    #[serde(skip)]
    pub(super) has_hits: bool,
}

/// The explanation of a key by a limit.
#[derive(Debug, Serialize)]
pub(super) struct ExplainedLimit<'r> {
    pub(super) name: &'r str,
    limit: Option<Thousandths>,
    rate: Option<Thousandths>,
    remaining: Option<Thousandths>,
    reset: Option<Thousandths>,
    /// `None` if the number of hits is unknown.
    pub(super) admitted: Option<bool>,
    pub(super) until: Option<Thousandths>,
}

impl<'r> ExplainedRule<'r> {
    /// Explains a hit of the key with this counted name. A `cost` replaces the rule's; a `limit` replaces those from
    /// variables.
    pub(super) fn new(
        rule: &'r ListedRule,
        namespace: &Namespace<'_>,
        name: &[u8],
        (cost, limit): (Option<Hits>, Option<Hits>),
        clock: &impl Clock,
    ) -> ExplainedRule<'r> {
        let key = namespace.table().key(name);
        let cost = cost.or(rule.cost).unwrap_or(Hits::ONE);
        let mut explained = ExplainedRule {
            place: &rule.place,
            name: rule.limits.first().map(|it| &*it.limit.name),
            counter: rule.counter.as_deref(),
            cost: cost.into(),
            dry_run: rule.is_dry_run,
            banned_until: None,
            limits: Vec::new(),
            has_hits: false,
        };
        let limits = rule.limits.iter().map(|it| &it.limit);
        let ban = rule.ban.and_then(|ban| Ban::new(ban, limits, namespace));
        let banned = ban.and_then(|ban| ban.left_of(name, clock));
        explained.banned_until =
            banned.map(|left| Thousandths::of(clock.now().0.saturating_add(left)));
        explained.has_hits = banned.is_some();
        for ListedLimit { limit: of_rule, hits } in &rule.limits {
            let told = hits.or(limit);
            let bound = BoundLimit::new(of_rule.clone(), namespace, []);
            // Without its hits, a limit still has a count, but a rate has no bucket.
            let is_known = told.is_some() || !of_rule.algorithm.is_of_rates();
            let most = told.unwrap_or(Hits::MAX);
            let verdict = is_known.then(|| bound.verdict(most, key, cost, clock));
            explained.has_hits |=
                verdict.is_some_and(|it| has_hits(of_rule.algorithm, of_rule.size, &it.reading));
            let decided = verdict.filter(|_| told.is_some());
            let wait = decided.filter(|it| !it.admitted).and_then(|it| it.retry_after());
            let wait = wait.max(banned);
            explained.limits.push(ExplainedLimit {
                name: &of_rule.name,
                limit: decided.map(|it| it.hits.into()),
                rate: verdict.map(|it| it.rate().into()),
                remaining: decided.map(|it| it.remaining().into()),
                reset: decided.and_then(|it| it.reset(it.remaining())).map(Thousandths::of),
                admitted: match banned {
                    Some(_) => Some(false),
                    None => decided.map(|it| it.admitted),
                },
                until: wait.map(|wait| Thousandths::of(clock.now().0.saturating_add(wait))),
            });
        }
        explained
    }
}
