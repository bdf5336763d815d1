//! Charges hits at the end of a request, when their number depends on the response.

use core::ptr;

use super::context::{Context, Response};
use super::evaluate::amount_or;
use super::reserves::spend_deferred;
use crate::engine::{Charge, SpentReserve, charge_deferred, deferred_charges};
use crate::nginx::conf::{Active, Cost};
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
    if !has_deferred || !is_charged {
        return;
    }
    let mut deferred = Vec::new();
    for rule in rules {
        let mut charges = context.charges.iter().filter(|charge| rule.has(charge.bound()));
        let is_refused = |charge: &Charge<'_, '_>| !charge.verdict().admitted && !count_rejected;
        let has_applied = charges.clone().next().is_some() && !charges.any(is_refused);
        if let (Cost::Deferred(amount), true) = (rule.cost, has_applied) {
            // Charges nothing without memory; nginx has logged the failed allocation.
            let hits = amount_or(Hits::ZERO, Invalid::Charge, amount, rule, request);
            deferred.push((rule, hits.unwrap_or(Hits::ZERO)));
        }
    }
    let value_of = |bound: &_| {
        let of_rule = deferred.iter().find(|(rule, _)| rule.has(bound));
        of_rule.map_or(Hits::ZERO, |(_, hits)| *hits)
    };
    let store_of = |bound: &_| {
        let rule = rules.iter().find(|rule| rule.has(bound))?;
        Some(rule.synchronous?.store)
    };
    let decider_of = |bound: &_| {
        let mut charges = context.charges.iter();
        let charge = charges.find(|charge| ptr::eq(charge.bound(), bound))?;
        Some(store_of(bound)?.number_of(charge.key().bytes()))
    };
    for mut deferred in deferred_charges(context.charges, value_of, store_of) {
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
        let of_decider = |bound: &_| match decider_of(bound) == Some(deferred.decider) {
            true => value_of(bound),
            false => Hits::ZERO,
        };
        charge_deferred(context.charges, of_decider, &NgxClock);
    }
    let of_node = |bound: &_| match store_of(bound) {
        Some(_) => Hits::ZERO,
        None => value_of(bound),
    };
    charge_deferred(context.charges, of_node, &NgxClock);
}

/// Sends hits to the decider of their store without waiting. Returns whether the decider accepts
/// them.
fn send(decider: usize, question: &Question) -> bool {
    sync::check_circuit(decider) && sync::tell(decider, question)
}
