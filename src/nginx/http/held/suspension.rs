//! Requests that wait for stores: the questions, one after another, their answers, and the decision.
//! They are found by number, resumed at their deadlines, and removed when they end.

use core::cell::RefCell;
use core::ptr;
use core::time::Duration;

use nginx_sys::{NGX_AGAIN, ngx_int_t, ngx_uint_t};
use ngx::http::HttpModuleMainConf as _;
use ngx::ngx_string;

use super::{OwnedWait, RequestWait, Waiting, WaitingParts, WaitingRequests, for_each_namespace};
use crate::broker::Asker;
use crate::engine::{
    Evaluation, LimitCheck, PendingDecision, RejectionCache, StoreQuestion, fall_back,
    unsent_charges,
};
use crate::nginx::conf::{Active, ActiveRule, Conf, EvaluationError, LocationConf, RuleSet};
use crate::nginx::event_loop::{NgxClock, OfEventLoop, monotonic};
use crate::nginx::http::context::{Context, ContextSlot, Renamed, Response, Room};
use crate::nginx::module::Module;
use crate::nginx::request::Request;
use crate::nginx::slot::RequestSlot;
use crate::nginx::store_wait::StoreWait;
use crate::nginx::{log, slot, sync};
use crate::policy::hits::Hits;
use crate::policy::namespace::OnError;
use crate::store::contract::decision::{Answer, Few};
use crate::table::Outcome;

const AGAIN: ngx_int_t = NGX_AGAIN as ngx_int_t;

/// This worker's cache of counters that were over a limit a moment ago.
static REFUSALS: OfEventLoop<RefCell<Option<RejectionCache>>> = OfEventLoop(RefCell::new(None));

/// The limits of a request with its keys and costs, and memory for the decision.
pub(crate) struct RequestChecks<'r> {
    pub(crate) room: Room<'r>,
    pub(crate) checks: Few<LimitCheck<'r, 'static>>,
    pub(crate) renamed: Option<&'r Renamed<'r>>,
}

/// An evaluated request that waits for the decision of stores.
pub(crate) struct Suspension<'r> {
    slot: ContextSlot<'r>,
    rules: &'static RuleSet,
    conf: &'static LocationConf,
    /// Memory for the decision; `None` once it is made.
    room: Option<Room<'r>>,
    checks: Few<LimitCheck<'r, 'static>>,
    renamed: Option<&'r Renamed<'r>>,
    decision: PendingDecision,
    /// The longest wait for the stores' answers.
    pub(crate) timeout: Duration,
    on_error: OnError,
    /// The request that the decision is about, and other parts of the same main request that
    /// reached rules meanwhile.
    waiting: WaitingParts,
}

impl<'r> Suspension<'r> {
    /// Creates the suspension of an evaluated request, with questions to the stores that decide.
    pub(crate) fn new(
        slot: ContextSlot<'r>,
        evaluated: RequestChecks<'r>,
        conf: &'static LocationConf,
        rules: &'static RuleSet,
    ) -> Suspension<'r> {
        let RequestChecks { room, checks, renamed } = evaluated;
        let limits = limits_of(rules.active());
        Suspension {
            slot,
            rules,
            conf,
            room: Some(room),
            decision: PendingDecision::new(&checks, conf.settings.count_rejected),
            checks,
            renamed,
            timeout: limits.timeout,
            on_error: limits.on_error,
            waiting: WaitingParts::default(),
        }
    }

    /// Returns the checks, if some of their hits are to be reserved ahead. `None` for a request
    /// that costs nothing: it would reserve hits that nobody spends.
    pub(crate) fn reserving(&self) -> Option<&[LimitCheck<'r, 'static>]> {
        let active = self.rules.active();
        let costs = || self.checks.iter().any(|check| check.cost > Hits::ZERO);
        (active.is_reserving && (active.has_deferred || costs())).then_some(&*self.checks)
    }

    /// Suspends `request`: the one that the decision is about, or another part of the same main
    /// request.
    pub(crate) fn wait(&mut self, request: &Request<'r>) -> Result<ngx_int_t, EvaluationError> {
        // SAFETY: the main request owns `self`, and its subrequests end no later than it does.
        let waits = unsafe { self.waiting.add(request) };
        waits.map(|()| AGAIN).ok_or(EvaluationError)
    }

    /// Takes the next request to resume after the decision.
    pub(crate) fn next_waiting(&mut self) -> Option<Waiting> {
        self.waiting.next()
    }

    /// Whether the request waits for an answer.
    pub(crate) fn is_waiting(&self) -> bool {
        self.decision.is_pending()
    }

    /// Decides without asking if no store is to be asked, if the rejection cache knows the answer,
    /// or if the circuit of a store is open. Returns whether stores are to be asked.
    pub(crate) fn prepare(&mut self) -> bool {
        self.decision.recall(REFUSALS.0.borrow().as_ref(), &self.checks, monotonic());
        let mut deciders = self.decision.deciders();
        if let Some(down) = deciders.find(|decider| !sync::check_circuit(*decider)) {
            drop(deciders);
            self.decision.fail(down);
        }
        self.is_waiting()
    }

    /// Asks the store of the current question, whose circuit is closed. If it cannot be asked,
    /// decides the request.
    pub(crate) fn ask(&mut self, wait: &StoreWait<'_>) {
        if let Some(StoreQuestion { decider, question, .. }) = self.decision.question()
            && !wait.ask(*decider, question)
        {
            self.fail();
        }
    }

    /// Takes the answer to the current question, and asks the next one, if there is one. Without an
    /// answer, decides the request.
    pub(crate) fn take(&mut self, reply: Option<Answer>, wait: &StoreWait<'_>) {
        let Some(answer) = reply else {
            return self.fail();
        };
        if !self.decision.answer(&answer, &self.checks, &NgxClock) {
            let mut refusals = REFUSALS.0.borrow_mut();
            let refusals = refusals.get_or_insert_default();
            refusals.remember(&self.checks, self.decision.answered(), monotonic());
        }
        // The circuit may have opened since `prepare`.
        match self.decision.question() {
            Some(next) if !sync::check_circuit(next.decider) => self.fail(),
            _ => self.ask(wait),
        }
    }

    /// Decides without the store of the current question.
    pub(crate) fn fail(&mut self) {
        if let Some(decider) = self.decision.question().map(|asked| asked.decider) {
            self.decision.fail(decider);
        }
    }

    /// Records the time that the request waited, in each namespace whose store decides.
    pub(crate) fn count_wait(&self, time: Duration) {
        let asked = self.checks.iter().filter(|check| check.store.is_some());
        for_each_namespace(asked.map(|it| it.bound), |bound| bound.count_wait(time));
    }

    /// Makes the decision, and stores it with the request. `None` if another part of the same main
    /// request was decided on before.
    pub(crate) fn finish(&mut self, request: &Request<'r>) -> Option<&'r Context<'r>> {
        let evaluation = Evaluation::new(self.room.take()?, self.conf.settings.count_rejected);
        let (outcome, room, response) = match self.decision.has_failed() {
            true => self.fall_back(evaluation, request),
            false => self.conclude(evaluation),
        };
        let of = (self.conf, self.rules);
        Some(room.keep(request, self.slot, of, (outcome, response), self.renamed))
    }

    /// Returns the outcome of a refused request.
    fn refusal(&self) -> Outcome {
        self.rules.active().refusal(self.conf.settings.refusal)
    }

    /// Whether no rule can reject the request.
    fn is_dry_run(&self) -> bool {
        let is_tried = |rule: &ActiveRule| rule.trial.is_some();
        self.refusal() == Outcome::RejectedDryRun || self.rules.active().rules.iter().all(is_tried)
    }

    /// Decides by the stores' answers.
    fn conclude(&mut self, mut evaluation: Evaluation<Room<'r>>) -> (Outcome, Room<'r>, Response) {
        self.decision.conclude(&mut evaluation, &self.checks, &NgxClock);
        if !evaluation.is_charged() {
            self.refund();
        }
        refund(self.decision.take_banned());
        let (outcome, room) = evaluation.finish_rare(self.refusal(), &NgxClock);
        (outcome, room, Response::to(outcome))
    }

    /// Decides by the configured `on_error`.
    #[cold]
    fn fall_back(
        &mut self,
        mut evaluation: Evaluation<Room<'r>>,
        request: &Request<'r>,
    ) -> (Outcome, Room<'r>, Response) {
        self.refund();
        refund(self.decision.take_banned());
        fall_back(&mut evaluation, &self.checks, self.on_error, &NgxClock);
        let response = match (self.on_error, evaluation.is_refused()) {
            _ if self.is_dry_run() => Response::Admit,
            (OnError::Deny, _) => Response::Unavailable,
            (_, true) => Response::Reject,
            (_, false) => Response::Admit,
        };
        if self.on_error == OnError::Deny {
            self.log_denial(request);
        }
        let bounds = self.checks.iter().map(|it| it.bound);
        for_each_namespace(bounds, |bound| bound.count_fallback(self.on_error));
        let room = evaluation.end(&NgxClock);
        let store_of = |bound: &_| {
            let mut checks = self.checks.iter();
            checks.find(|check| ptr::eq(check.bound, bound))?.store
        };
        for (decider, question) in unsent_charges(room.charges(), store_of) {
            sync::charge_later(decider, &question);
        }
        (Outcome::Error, room, response)
    }

    #[cold]
    fn log_denial(&self, request: &Request<'r>) {
        let conf = Module::main_conf(request);
        let (Some(conf), Some(namespace)) = (conf, self.decision.silent_namespace()) else {
            return;
        };
        let what = match self.is_dry_run() {
            true => "would be denied",
            false => "denied",
        };
        let store = conf.store_of(namespace).unwrap_or_default();
        let message = format_args!(
            "ratelimit: {what}, store \"{store}\" does not answer, namespace \"{namespace}\""
        );
        log::error(self.conf.settings.log_level as log::NgxLogLevel, request.log(), message);
    }

    /// Refunds the hits at the stores that have charged the request, after another limit refused
    /// it.
    fn refund(&mut self) {
        refund(self.decision.take_charged());
    }
}

/// Refunds the hits of these questions at their stores.
fn refund(charged: Few<StoreQuestion>) {
    for charged in charged {
        // If no decider takes the refund, the store has charged one request that was not admitted.
        sync::tell(charged.decider, &charged.refund());
    }
}

/// The longest wait of a request, and the decision without its stores. Of several namespaces, the
/// shortest timeout and the strictest `on_error` hold.
struct Limits {
    timeout: Duration,
    on_error: OnError,
}

fn limits_of(active: &Active) -> Limits {
    let strictness = |on_error: &OnError| match on_error {
        OnError::Allow => 0,
        OnError::Local => 1,
        OnError::Deny => 2,
    };
    let synchronous = active.rules.iter().filter_map(|rule| rule.synchronous);
    // A rule that is tried alone refuses no request, whether its store answers or not.
    let is_dry_run = active.rules.iter().all(|rule| rule.trial.is_some());
    let deciding = active.rules.iter().filter(|rule| rule.trial.is_none() || is_dry_run);
    let on_errors = deciding.filter_map(|rule| Some(rule.synchronous?.on_error));
    Limits {
        timeout: synchronous.map(|it| it.timeout).min().unwrap_or_default(),
        on_error: on_errors.max_by_key(strictness).unwrap_or(OnError::Allow),
    }
}

/// The suspended requests of this worker.
static SUSPENDED: WaitingRequests<Suspended<'static>> = WaitingRequests::of(Asker::Request);

/// A suspended main request.
pub(crate) struct Suspended<'r> {
    /// The wait for the stores' answers. At its deadline, the request is decided on without them.
    pub(crate) wait: StoreWait<'r>,
    pub(crate) suspension: RefCell<Suspension<'r>>,
}

/// The place of a main request's suspension.
pub(crate) type SuspensionSlot<'r> = RequestSlot<'r, OwnedSuspended<'r>>;

/// A suspension with its number.
type OwnedSuspended<'r> = OwnedWait<'r, Suspended<'static>>;

/// Adds a place for the suspension to each request of the configuration being read. Returns its
/// number; `None` without memory.
pub(crate) fn add_slot(conf: &mut Conf<'_>) -> Option<ngx_uint_t> {
    slot::add(conf, ngx_string!("ratelimit suspension"))
}

/// Returns the place of the suspension of `request`'s main request. `None` if the module has no
/// configuration.
pub(crate) fn slot_of<'r>(request: &Request<'r>) -> Option<SuspensionSlot<'r>> {
    let conf = Module::main_conf(request)?;
    // SAFETY: `add_slot` reserved this number for suspensions in the request's configuration.
    Some(unsafe { request.main().slot(conf.suspension_slot) })
}

/// Suspends the main request of `request`. At the deadline, `time_out` is called with the number of
/// the suspension. `None` without memory.
pub(crate) fn add<'r>(
    request: &Request<'r>,
    suspension: Suspension<'r>,
    time_out: fn(u64),
) -> Option<&'r OwnedSuspended<'r>> {
    SUSPENDED.add(request, |id| Suspended {
        wait: StoreWait::new(request.log(), time_out, id),
        suspension: RefCell::new(suspension),
    })
}

/// Calls `callback` with the suspension of request `id` and its wait, if it waits. `callback` must
/// not resume any request.
pub(crate) fn with<T>(
    id: u64,
    callback: impl for<'r> FnOnce(&mut Suspension<'r>, &StoreWait<'r>) -> T,
) -> Option<T> {
    SUSPENDED.with(id, |it| callback(&mut it.suspension.borrow_mut(), &it.wait))
}

/// Removes request `id` from the waiting requests.
pub(crate) fn remove(id: u64) {
    SUSPENDED.remove(id);
}

/// Returns the numbers of all waiting requests.
pub(crate) fn ids() -> Vec<u64> {
    SUSPENDED.ids()
}

impl RequestWait for Suspended<'static> {
    type Of<'r> = Suspended<'r>;
}
