//! Charges hits at the end of a request, when their number depends on the response.

use super::context::{Context, Response};
use super::evaluate::{amount_or, known_amount};
use super::reserves::spend_deferred;
use crate::engine::{Charge, SpentReserve, deferred_charges, deferred_hits};
use crate::nginx::conf::{Active, ActiveRule, Cost};
use crate::nginx::event_loop::NgxClock;
use crate::nginx::request::Request;
use crate::nginx::sync;
use crate::policy::hits::Hits;
use crate::store::contract::decision::Question;
use crate::table::{Invalid, Outcome};

/// Charges the hits of those rules whose cost depends on the response.
pub(super) fn charge(request: &Request<'_>, context: &Context<'_>) {
    let Active { rules, has_deferred, is_reserving, has_trials, .. } = context.rules.active();
    let count_rejected = context.settings().count_rejected;
    // A rule that is tried alone refuses itself only.
    let is_charged = context.response == Response::Admit
        && (context.outcome != Outcome::RejectedDryRun || *has_trials)
        || count_rejected;
    if !has_deferred || !is_charged || context.is_banned() {
        return;
    }
    let has_charged = |charge: &Charge<'_, '_>| {
        charge.verdict().admitted || count_rejected && !charge.bound().is_of_bans()
    };
    let mut values = Vec::new();
    for rule in rules {
        let mut charges = context.charges.iter().filter(|charge| rule.has(charge.bound()));
        let has_applied = charges.clone().next().is_some() && charges.all(has_charged);
        if has_applied {
            values.push((rule, value_of(rule, request)));
        }
    }
    let rule_of = |bound: &_| rules.iter().find(|rule| rule.has(bound));
    let store_of = |bound: &_| Some(rule_of(bound)?.synchronous?.store);
    let hits = deferred_hits(
        context.charges,
        |bound| values.iter().find(|(rule, _)| rule.has(bound))?.1,
        |charge| {
            let is_decided = context.outcome != Outcome::Error && has_charged(charge);
            is_decided && store_of(charge.bound()).is_some()
        },
    );
    for mut deferred in deferred_charges(&hits, store_of) {
        let spent = is_reserving.then(|| spend_deferred(&mut deferred));
        if deferred.is_spent() || send(deferred.decider, &deferred.question) {
            deferred.count(&NgxClock);
            continue;
        }
        // This node charges all of these hits, so none of them stay spent.
        spent.into_iter().flatten().for_each(SpentReserve::put_back);
        // The hits are pushed, or charged, when the store is back.
        if let Some(question) = deferred.unsent() {
            sync::charge_later(deferred.decider, &question);
        }
        deferred.charge_here(&NgxClock);
    }
    let age = request.age();
    for deferred in hits {
        let store = store_of(deferred.bound());
        if store.is_none() {
            deferred.charge(&NgxClock);
        }
        if let Some((decider, question)) = deferred.give_back(store, age, &NgxClock) {
            // Without a decider that takes them, they stay charged.
            send(decider, &question);
        }
    }
}

/// Returns the hits of a rule; `None` if those of the decision stay.
fn value_of(rule: &ActiveRule, request: &Request<'_>) -> Option<Hits> {
    // Charges nothing without memory; nginx has logged the failed allocation.
    match rule.cost {
        Cost::AtOnce(_) => None,
        Cost::Deferred(charge) => {
            amount_or(Hits::ZERO, Invalid::Charge, charge, rule, request).ok()
        }
        Cost::Estimated { charge, .. } => {
            let consequence = format_args!("the cost stays");
            known_amount(Invalid::Charge, charge, rule, request, consequence).ok()?
        }
    }
}

/// Sends hits to the decider of their store without waiting. Returns whether the decider accepts
/// them.
fn send(decider: usize, question: &Question) -> bool {
    sync::check_circuit(decider) && sync::tell(decider, question)
}
