//! Requests that are decided from this node's reserve without waiting for a store. This worker asks
//! stores for parts of the reserve, and gives unused hits back.

use core::cell::RefCell;
use core::time::Duration;
use std::sync::Arc;

use super::context::{Context, ContextSlot, Response};
use super::held::suspension::RequestChecks;
use crate::broker::shared::message::Reply;
use crate::broker::{Asker, KINDS};
use crate::engine::{
    DeferredCharge, Evaluation, LimitCheck, PartQuestion, ReserveBook, Spending, SpentReserve,
    conclude, spend,
};
use crate::nginx::conf::{LocationConf, RuleSet};
use crate::nginx::event_loop::{EventTimer, NgxClock, OfEventLoop, monotonic, monotonic_millis};
use crate::nginx::request::Request;
use crate::nginx::sync;
use crate::store::contract::decision::Few;

/// The reserves of this worker; `None` until it has one.
static BOOK: OfEventLoop<RefCell<Option<Book>>> = OfEventLoop(RefCell::new(None));

/// Interval in which reserves are checked and refilled, in milliseconds.
const TICK: u64 = ReserveBook::SOON.as_millis() as u64;
/// Shortest interval between pushes of hits that were given back.
const PUSH_PAUSE: Duration = Duration::from_millis(250);
/// Longest wait for a part, in milliseconds. No request waits for it.
const PATIENCE: u64 = 1000;

struct Book {
    reserves: ReserveBook<'static>,
    timer: EventTimer<'static>,
    /// Questions that the next tick sends.
    unsent: Vec<PartQuestion>,
    /// The namespaces that have given back hits to push.
    unpushed: Few<Arc<str>>,
    pushed_at: Duration,
}

/// Decides on a request if the reserve covers all of its hits. Otherwise returns the request's
/// checks unchanged.
pub(super) fn decide<'r>(
    request: &Request<'r>,
    slot: ContextSlot<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
    evaluated: RequestChecks<'r>,
) -> Result<&'r Context<'r>, RequestChecks<'r>> {
    let Some(spending) = spend(&evaluated.checks, sync::store_time) else {
        return Err(evaluated);
    };
    let RequestChecks { room, checks, renamed } = evaluated;
    record_spent(&checks, &spending);
    let settings = &conf.settings;
    let mut evaluation = Evaluation::new(room, settings.count_rejected);
    conclude(&mut evaluation, &checks, &spending.answered, &NgxClock);
    if !evaluation.is_charged() {
        spending.put_back();
    }
    let (outcome, room) = match rules.active().has_estimates {
        true => evaluation.finish_rare(settings.refusal, &NgxClock),
        false => evaluation.finish(settings.refusal, &NgxClock),
    };
    let decided = (outcome, Response::to(outcome));
    Ok(room.keep(request, slot, (conf, rules), decided, renamed))
}

/// Asks for parts of those reserves that a request has begun to use up.
fn record_spent(checks: &[LimitCheck<'_, 'static>], spending: &Spending<'static>) {
    with_book(|book| {
        let (time_of, now) = (sync::store_time, monotonic());
        let questions = book.reserves.ask_again(checks, spending, time_of, now, &NgxClock);
        send(book, questions);
    });
}

/// Asks for parts of reserves when a request asks the store anyway.
pub(super) fn ask_along(checks: &[LimitCheck<'_, 'static>]) {
    with_book(|book| {
        let (time_of, now) = (sync::store_time, monotonic());
        let questions = book.reserves.ask_along(checks, time_of, now, &NgxClock);
        send(book, questions);
    });
}

/// Sends the urgent questions now, and leaves the others to the next tick.
fn send(book: &mut Book, questions: Few<PartQuestion>) {
    for asked in questions {
        match asked.can_wait {
            true => book.unsent.push(asked),
            false => ask(&mut book.reserves, &asked),
        }
    }
}

fn ask(reserves: &mut ReserveBook<'static>, asked: &PartQuestion) {
    let PartQuestion { decider, id, question, .. } = asked;
    let deadline = monotonic_millis().saturating_add(PATIENCE);
    let is_asked =
        sync::check_circuit(*decider) && sync::ask(*decider, Some(*id), deadline, question);
    if !is_asked {
        // The next request asks again.
        reserves.take(*id, None, &NgxClock);
    }
}

/// Spends hits from the reserve that are known only with the response. The store is asked for the
/// rest.
pub(super) fn spend_deferred(
    charge: &mut DeferredCharge<'_, '_, 'static>,
) -> Few<SpentReserve<'static>> {
    charge.spend(sync::store_time)
}

/// Takes the answer to a question for a part.
pub(crate) fn take((id, answer): Reply) {
    if let Some(book) = BOOK.0.borrow_mut().as_mut() {
        book.reserves.take(id, answer.as_ref(), &NgxClock);
    }
}

fn with_book(use_it: impl FnOnce(&mut Book)) {
    let mut book = BOOK.0.borrow_mut();
    if book.is_none() {
        *book = sync::log().map(|log| Book {
            reserves: ReserveBook::new(Asker::Reserve.first_id(), KINDS),
            timer: EventTimer::new(log, tick, 0).cancelable(),
            unsent: Vec::new(),
            unpushed: Few::new(),
            pushed_at: Duration::ZERO,
        });
    }
    if let Some(book) = book.as_mut() {
        let was_empty = book.reserves.is_empty();
        use_it(book);
        if was_empty && !book.reserves.is_empty() {
            book.timer.set(TICK);
        }
    }
}

/// Sends the collected questions, and checks the reserves that are due.
fn tick(_: u64) {
    let mut book = BOOK.0.borrow_mut();
    let Some(book) = book.as_mut() else { return };
    let now = monotonic();
    let reserves = &mut book.reserves;
    for asked in book.unsent.drain(..) {
        ask(reserves, &asked);
    }
    reserves.look(sync::store_time, now, &NgxClock, &mut book.unpushed);
    if now >= book.pushed_at.saturating_add(PUSH_PAUSE) {
        for namespace in book.unpushed.drain(..) {
            book.pushed_at = now;
            sync::sync_now(&namespace);
        }
    }
    if !book.reserves.is_empty() || !book.unpushed.is_empty() {
        book.timer.set(TICK);
    }
}

/// Gives back all reserves, before this process ends or uses another configuration.
pub(crate) fn end() {
    if let Some(mut book) = BOOK.0.take() {
        book.reserves.give_all_back(sync::store_time, &NgxClock);
    }
}
