//! The suspension of a request: the questions to stores, one after another, their answers, and the
//! decision.

use core::cell::{Cell, RefCell};
use core::ptr;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use nginx_sys::{NGX_AGAIN, ngx_int_t};
use ngx::http::HttpModuleMainConf as _;
use smallvec::smallvec;

use super::{Waiting, WaitingParts};
use crate::engine::{
    Answered, BoundLimit, Evaluation, LimitCheck, RejectionCache, StoreQuestion, conclude,
    questions, unsent_charges,
};
use crate::nginx::conf::{Active, EvaluationError, LocationConf, RuleSet, Settings};
use crate::nginx::event_loop::{OfEventLoop, monotonic, monotonic_millis};
use crate::nginx::http::context::{Context, ContextSlot, Renamed, Response, Room};
use crate::nginx::log;
use crate::nginx::module::Module;
use crate::nginx::random::random_up_to;
use crate::nginx::request::Request;
use crate::nginx::sync;
use crate::nginx::time::NgxClock;
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

/// An evaluated request, and the stores' answers about it so far.
pub(crate) struct Suspension<'r> {
    slot: ContextSlot<'r>,
    rules: &'static RuleSet,
    settings: &'static Settings,
    /// Memory for the decision; `None` once it is made.
    room: Option<Room<'r>>,
    checks: Few<LimitCheck<'r, 'static>>,
    renamed: Option<&'r Renamed<'r>>,
    answered: Few<Option<Answered>>,
    /// Questions to stores, asked one after another.
    parts: Few<StoreQuestion>,
    /// Index of the part that is being asked.
    part: usize,
    /// Deadline of the answer, in milliseconds of nginx's monotonic clock.
    deadline: u64,
    on_error: OnError,
    /// Start of the wait; `None` if the request does not wait.
    waits_since: Option<Instant>,
    pub(crate) is_waiting: bool,
    /// Whether a store has failed.
    has_failed: bool,
    /// Namespace whose store failed.
    silent: Option<Arc<str>>,
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
            settings: &conf.settings,
            room: Some(room),
            answered: smallvec![None; checks.len()],
            parts: questions(&checks, conf.settings.count_rejected),
            checks,
            renamed,
            part: 0,
            deadline: monotonic_millis().saturating_add(millis(limits.timeout)),
            on_error: limits.on_error,
            waits_since: None,
            is_waiting: true,
            has_failed: false,
            silent: None,
            waiting: WaitingParts::default(),
        }
    }

    /// Returns the time since the deadline.
    pub(crate) fn overdue(&self) -> Duration {
        Duration::from_millis(monotonic_millis().saturating_sub(self.deadline))
    }

    /// Starts the wait. Returns the milliseconds until the deadline.
    pub(crate) fn begin(&mut self) -> u64 {
        self.waits_since = Some(Instant::now());
        self.deadline.saturating_sub(monotonic_millis())
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

    /// Decides without asking if no store is to be asked, if the rejection cache knows the answer,
    /// or if the circuit of a store is open. Returns whether stores are to be asked.
    pub(crate) fn prepare(&mut self) -> bool {
        if self.parts.is_empty() || self.recall() {
            return false;
        }
        let mut parts = self.parts.iter();
        let down = parts.position(|part| !sync::check_circuit(part.decider));
        if let Some(down) = down {
            self.fail_at(down);
        }
        down.is_none()
    }

    /// Asks the store about the current part of request `id`. Returns whether the store was asked.
    pub(crate) fn ask(&self, id: u64) -> bool {
        let Some(part) = self.parts.get(self.part) else {
            return false;
        };
        sync::ask(part.decider, Some(id), self.deadline, &part.question)
    }

    /// Looks the request up in the rejection cache. Returns whether it refuses the request, so that
    /// no store is asked. Always false with `count_rejected`, since the store must then charge the
    /// rejected hits.
    fn recall(&mut self) -> bool {
        if self.settings.count_rejected {
            return false;
        }
        let refusals = REFUSALS.0.borrow();
        let known = refusals.as_ref();
        let known = known.and_then(|known| known.recall(&self.checks, monotonic()));
        let is_known = known.is_some();
        if let Some(known) = known {
            self.answered = known;
            // No store was asked, so there is nothing to refund.
            self.parts.clear();
        }
        is_known
    }

    /// Takes the answer to the current part of request `id`. Returns whether the request can
    /// resume.
    pub(crate) fn take(&mut self, id: u64, reply: Option<Answer>) -> bool {
        if !self.is_waiting {
            return false;
        }
        let (Some(answer), Some(part)) = (reply, self.parts.get(self.part)) else {
            self.fail();
            return true;
        };
        let is_admitted = part.note(&answer, &self.checks, &mut self.answered, &NgxClock);
        self.part = self.part.saturating_add(1);
        if !is_admitted {
            let mut refusals = REFUSALS.0.borrow_mut();
            let refusals = refusals.get_or_insert_default();
            refusals.remember(&self.checks, &self.answered, monotonic());
        }
        let is_over = !is_admitted && !self.settings.count_rejected;
        if is_over || self.part >= self.parts.len() {
            // A store that refuses a part has not charged it.
            self.parts.truncate(self.part.saturating_sub(usize::from(is_over)));
            self.is_waiting = false;
            return true;
        }
        if !self.decider().is_some_and(sync::check_circuit) || !self.ask(id) {
            self.fail();
        }
        !self.is_waiting
    }

    /// Returns the number of the decider of the current part.
    pub(crate) fn decider(&self) -> Option<usize> {
        self.parts.get(self.part).map(|part| part.decider)
    }

    /// Decides without the store of the current part.
    pub(crate) fn fail(&mut self) {
        self.fail_at(self.part);
    }

    /// Decides without the store of this part.
    fn fail_at(&mut self, part: usize) {
        let counters = self.parts.get(part).map(|part| &part.question.counters);
        let counter = counters.and_then(|counters| counters.first());
        self.silent = counter.map(|counter| counter.shard.namespace.clone());
        self.has_failed = true;
        self.is_waiting = false;
        self.parts.truncate(self.part);
    }

    /// Records the time that the request waited, in each namespace whose store decides.
    fn count_wait(&mut self) {
        let Some(begin) = self.waits_since.take() else {
            return;
        };
        let time = begin.elapsed();
        let asked = self.checks.iter().filter(|check| check.store.is_some());
        for_each_namespace(asked, |bound| bound.count_wait(time));
    }

    /// Makes the decision, and stores it with the request. `None` if another part of the same main
    /// request was decided on before.
    pub(crate) fn finish(&mut self, request: &Request<'r>) -> Option<&'r Context<'r>> {
        let evaluation = Evaluation::new(self.room.take()?, self.settings.count_rejected);
        self.count_wait();
        let (outcome, room, response) = match self.has_failed {
            true => self.fall_back(evaluation, request),
            false => self.conclude(evaluation),
        };
        Some(room.keep(self.slot, |charges| Context {
            rules: self.rules,
            settings: self.settings,
            charges,
            outcome,
            response,
            jitter: match response {
                Response::Admit => 0,
                _ => random_up_to(self.settings.retry_after_jitter),
            },
            renamed: self.renamed,
            last_decided: Cell::new(request.identity()),
        }))
    }

    /// Decides by the stores' answers.
    fn conclude(&mut self, mut evaluation: Evaluation<Room<'r>>) -> (Outcome, Room<'r>, Response) {
        conclude(&mut evaluation, &self.checks, &self.answered, &NgxClock);
        if evaluation.is_refused() && !self.settings.count_rejected {
            self.refund();
        }
        let (outcome, room) = evaluation.finish(self.settings.refusal, &NgxClock);
        let response = match outcome {
            Outcome::Rejected => Response::Reject,
            _ => Response::Admit,
        };
        (outcome, room, response)
    }

    /// Decides by the configured `on_error`.
    #[cold]
    fn fall_back(
        &mut self,
        mut evaluation: Evaluation<Room<'r>>,
        request: &Request<'r>,
    ) -> (Outcome, Room<'r>, Response) {
        self.refund();
        for check in &self.checks {
            let is_counted_here = check.store.is_none() || self.on_error == OnError::Local;
            if is_counted_here && self.on_error != OnError::Deny {
                let LimitCheck { bound, hits, key, cost, .. } = *check;
                evaluation.charge(bound, hits, key, cost, &NgxClock);
            }
        }
        let response = match (self.on_error, evaluation.is_refused()) {
            _ if self.settings.refusal == Outcome::RejectedDryRun => Response::Admit,
            (OnError::Deny, _) => Response::Unavailable,
            (_, true) => Response::Reject,
            (_, false) => Response::Admit,
        };
        if self.on_error == OnError::Deny {
            self.log_denial(request);
        }
        for_each_namespace(&self.checks, |bound| bound.count_fallback(self.on_error));
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
        let (Some(conf), Some(namespace)) = (conf, &self.silent) else {
            return;
        };
        let what = match self.settings.refusal {
            Outcome::RejectedDryRun => "would be denied",
            _ => "denied",
        };
        let store = conf.store_of(namespace).unwrap_or_default();
        let message = format_args!(
            "ratelimit: {what}, store \"{store}\" does not answer, namespace \"{namespace}\""
        );
        log::error(self.settings.log_level as log::NgxLogLevel, request.log(), message);
    }

    /// Refunds the hits at the stores that have charged the request, after another limit refused
    /// it.
    fn refund(&mut self) {
        for part in self.parts.drain(..) {
            // If no decider takes the refund, the store has charged one request that was not
            // admitted.
            sync::tell(part.decider, &part.refund());
        }
    }
}

/// Calls `count` with one limit of each namespace of `checks`.
fn for_each_namespace<'c, 'r: 'c>(
    checks: impl IntoIterator<Item = &'c LimitCheck<'r, 'static>>,
    count: impl Fn(&BoundLimit<'static>),
) {
    let mut counted: Vec<&str> = Vec::new();
    for LimitCheck { bound, .. } in checks {
        if !counted.contains(&bound.namespace()) {
            counted.push(bound.namespace());
            count(bound);
        }
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
    Limits {
        timeout: synchronous.clone().map(|it| it.timeout).min().unwrap_or_default(),
        on_error: synchronous.map(|it| it.on_error).max_by_key(strictness).unwrap_or_default(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
