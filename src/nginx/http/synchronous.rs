//! The path of a synchronous request, from top to bottom: evaluate, ask the store, wait, go on; or
//! decide without it, when it does not answer in time.
//!
//! While a request waits, nothing that nginx does about it runs its phases: its event handlers are
//! ours. When it goes on, it runs them once, and finds what it was suspended for kept with it.

use core::cell::Cell;
use core::ptr::{NonNull, fn_addr_eq};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use ngx::http::HttpModuleMainConf as _;
use smallvec::smallvec;

use nginx_sys::{
    NGX_AGAIN, NGX_DECLINED, NGX_HTTP_CLIENT_CLOSED_REQUEST, NGX_OK, ngx_handle_read_event,
    ngx_http_core_run_phases, ngx_http_event_handler_pt, ngx_http_finalize_request,
    ngx_http_log_ctx_t, ngx_http_request_t, ngx_http_run_posted_requests, ngx_http_test_reading,
    ngx_int_t, ngx_pool_cleanup_add, ngx_post_event, ngx_posted_events,
};

use super::super::conf::{Active, EvaluationError, LocationConf, RuleSet, Settings};
use super::super::log;
use super::super::module::Module;
use super::super::random::random_up_to;
use super::super::sync;
use super::super::time::NgxClock;
use super::context::{Context, ContextSlot, Renamed, Response, Room};
use super::handler;
use super::suspensions::{Deadline, SuspensionSlot, forget, now_millis, slot_of, with_suspensions};
use crate::broker::message::Reply;
use crate::engine::{Answered, Evaluation, LimitCheck, StoreQuestion, conclude, questions};
use crate::policy::namespace::OnError;
use crate::store::decision::{Answer, Few, Question};
use crate::table::Outcome;

const DECLINED: ngx_int_t = NGX_DECLINED as ngx_int_t;
const AGAIN: ngx_int_t = NGX_AGAIN as ngx_int_t;

/// A request that is evaluated, and what stores have said of it so far.
pub(super) struct Suspension {
    /// The number by which it is found.
    pub(super) id: u64,
    /// When it is decided without the store.
    pub(super) until: Deadline,
    slot: ContextSlot,
    rules: &'static RuleSet,
    settings: &'static Settings,
    /// Memory for the decision, until it is made.
    room: Option<Room>,
    checks: Few<LimitCheck<'static, 'static>>,
    renamed: Option<&'static Renamed>,
    answered: Few<Option<Answered>>,
    /// What stores are asked, one after the other.
    parts: Few<StoreQuestion>,
    /// The index of the part that is being asked.
    part: usize,
    /// When nobody waits for an answer any more, by nginx's monotonic clock in milliseconds.
    deadline: u64,
    on_error: OnError,
    /// Since when it waits, if it does.
    waits_since: Option<Instant>,
    is_waiting: bool,
    /// Whether a store has failed.
    has_failed: bool,
    /// The namespace whose store did.
    silent: Option<Arc<str>>,
    /// The requests that wait: the one that asks, and others of the same main request that reached
    /// rules meanwhile.
    waiting: Few<Waiting>,
}

/// A request that waits.
struct Waiting {
    request: *mut ngx_http_request_t,
    /// What it does otherwise when there is something to read; `None`: it still does.
    read_event_handler: Option<ngx_http_event_handler_pt>,
}

/// Decides on a request some rules of which a store decides, or has it wait for that.
#[cold]
pub(super) fn decide(
    request: *mut ngx_http_request_t,
    slot: ContextSlot,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<ngx_int_t, EvaluationError> {
    let suspensions = slot_of(request).ok_or(EvaluationError)?;
    if let Some(suspension) = suspensions.suspension() {
        return match suspension.is_waiting {
            true => suspension.wait(request),
            false => suspension.finish(request),
        };
    }
    let RequestChecks {
        room,
        checks,
        renamed,
    } = evaluate(request, conf, rules)?;
    let parts = questions(&checks, conf.settings.count_rejected);
    let limits = limits_of(rules.active());
    let mut suspension = Suspension {
        id: 0,
        until: Deadline::new(),
        slot,
        rules,
        settings: &conf.settings,
        room: Some(room),
        answered: smallvec![None; checks.len()],
        checks,
        renamed,
        part: 0,
        deadline: now_millis().saturating_add(millis(limits.timeout)),
        on_error: limits.on_error,
        waits_since: None,
        is_waiting: true,
        has_failed: false,
        silent: None,
        waiting: Few::new(),
        parts,
    };
    if suspension.parts.is_empty() || suspension.recall() {
        return suspension.finish(request);
    }
    let mut parts = suspension.parts.iter();
    if let Some(down) = parts.position(|part| !sync::check_circuit(part.decider)) {
        suspension.fail_at(down);
        return suspension.finish(request);
    }
    suspend(request, suspensions, suspension)
}

/// The limits of a request, with its keys and costs, and memory for what is decided.
struct RequestChecks {
    room: Room,
    checks: Few<LimitCheck<'static, 'static>>,
    renamed: Option<&'static Renamed>,
}

/// Finds the limits of a request, its keys and costs.
fn evaluate(
    request: *mut ngx_http_request_t,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<RequestChecks, EvaluationError> {
    let active = rules.active();
    let (room, mut keys) = Room::new(request, active).ok_or(EvaluationError)?;
    let mut checks = Few::with_capacity(active.limit_count);
    let mut key = None;
    for rule in &active.rules {
        handler::next_key(&mut key, rule, conf, request, &mut keys)?;
        let Some(key) = key else { continue };
        let cost = handler::cost_of(rule, request)?;
        for limit in &rule.limits {
            if let Some(hits) = handler::hits_of(limit, request)? {
                checks.push(LimitCheck {
                    bound: &limit.bound,
                    hits,
                    key,
                    cost,
                    store: rule.synchronous.map(|it| it.store),
                });
            }
        }
    }
    Ok(RequestChecks {
        room,
        checks,
        renamed: keys.renamed(),
    })
}

/// How long a request may wait, and what becomes of it then: where namespaces differ, the shortest
/// time, and the strictest.
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
        timeout: synchronous
            .clone()
            .map(|it| it.timeout)
            .min()
            .unwrap_or_default(),
        on_error: synchronous
            .map(|it| it.on_error)
            .max_by_key(strictness)
            .unwrap_or_default(),
    }
}

/// Has a request wait for the answer to the first part of its question.
fn suspend(
    request: *mut ngx_http_request_t,
    slot: SuspensionSlot,
    suspension: Suspension,
) -> Result<ngx_int_t, EvaluationError> {
    // SAFETY: nginx passes a request that has not ended, and so has not its main request, of whose
    // memory the cleanup is.
    let cleanup = unsafe {
        let size = size_of::<Suspension>();
        ngx_pool_cleanup_add((*(*request).main).pool, size).as_mut()
    };
    let cleanup = cleanup.ok_or(EvaluationError)?;
    let place = NonNull::new(cleanup.data.cast()).ok_or(EvaluationError)?;
    const { assert!(align_of::<Suspension>() <= align_of::<usize>()) };
    // SAFETY: the memory is as large as was asked for, and aligned for a word, like all of a pool's.
    unsafe { place.write(suspension) };
    cleanup.handler = Some(forget);
    slot.set(place);
    let id = with_suspensions(|all| all.add(place));
    // SAFETY: it was just made, and is dropped by `forget` only.
    let suspension = unsafe { &mut *place.as_ptr() };
    suspension.id = id;
    if !suspension.ask() {
        suspension.fail();
        with_suspensions(|all| all.remove(id));
        return suspension.finish(request);
    }
    suspension.waits_since = Some(Instant::now());
    let timeout = suspension.deadline.saturating_sub(now_millis());
    // SAFETY: as above; a request has a connection, which outlives it.
    unsafe { Deadline::set(place, (*request).connection, timeout) };
    suspension.wait(request)
}

impl Suspension {
    /// Has a request wait: the one that asks, or another one of the same main request.
    fn wait(&mut self, request: *mut ngx_http_request_t) -> Result<ngx_int_t, EvaluationError> {
        let is_new = !self.waiting.iter().any(|it| it.request == request);
        // SAFETY: nginx passes a request that has not ended, with its connection.
        unsafe {
            let read = (*(*request).connection).read;
            // As limit_req does: what has come already is not told of again.
            if (*read).ready() != 0 {
                ngx_post_event(read, &raw mut ngx_posted_events);
            } else if ngx_handle_read_event(read, 0) != NGX_OK as ngx_int_t {
                return Err(EvaluationError);
            }
            let mut read_event_handler = None;
            // A body that is thrown away has to be read; if the client goes, that notices it, too.
            if (*request).discard_body() == 0 {
                let handler = Some(ngx_http_test_reading as _);
                read_event_handler = Some((*request).read_event_handler);
                (*request).read_event_handler = handler;
            }
            (*request).write_event_handler = Some(WHILE_WAITING);
            if is_new {
                self.waiting.push(Waiting {
                    request,
                    read_event_handler,
                });
            }
        }
        Ok(AGAIN)
    }

    /// Asks the store about the present part. Returns whether there is one to answer.
    fn ask(&self) -> bool {
        let Some(part) = self.parts.get(self.part) else {
            return false;
        };
        sync::ask(part.decider, Some(self.id), self.deadline, &part.question)
    }

    /// Whether it is known already that a limit refuses, so that no store need be asked. What
    /// rejected hits are charged has to be charged.
    fn recall(&mut self) -> bool {
        if self.settings.count_rejected {
            return false;
        }
        let known = with_suspensions(|all| {
            let refusals = all.refusals.as_ref()?;
            refusals.recall(&self.checks, monotonic())
        });
        let is_known = known.is_some();
        if let Some(known) = known {
            self.answered = known;
            // Nobody was asked, and nothing is to be given back.
            self.parts.clear();
        }
        is_known
    }

    /// Takes the answer to the present part. Returns whether the request can go on.
    fn take(&mut self, reply: Option<Answer>) -> bool {
        let (Some(answer), Some(part)) = (reply, self.parts.get(self.part)) else {
            self.fail();
            return true;
        };
        let is_admitted = part.note(&answer, &self.checks, &mut self.answered, &NgxClock);
        self.part = self.part.saturating_add(1);
        if !is_admitted {
            with_suspensions(|all| {
                let refusals = all.refusals.get_or_insert_default();
                refusals.remember(&self.checks, &self.answered, monotonic());
            });
        }
        let is_over = !is_admitted && !self.settings.count_rejected;
        if is_over || self.part >= self.parts.len() {
            // A part that refused was not charged.
            self.parts
                .truncate(self.part.saturating_sub(usize::from(is_over)));
            self.is_waiting = false;
            return true;
        }
        if !sync::check_circuit(self.decider()) || !self.ask() {
            self.fail();
        }
        !self.is_waiting
    }

    /// The number of the one who is asked now.
    fn decider(&self) -> usize {
        self.parts
            .get(self.part)
            .map_or(usize::MAX, |part| part.decider)
    }

    /// Decides without the store that was asked last.
    fn fail(&mut self) {
        self.fail_at(self.part);
    }

    /// Decides without the store that has this part.
    fn fail_at(&mut self, part: usize) {
        let counters = self.parts.get(part).map(|part| &part.question.counters);
        let counter = counters.and_then(|counters| counters.first());
        self.silent = counter.map(|counter| counter.shard.namespace.clone());
        self.has_failed = true;
        self.is_waiting = false;
        self.parts.truncate(self.part);
    }

    /// Counts how long the request waited, in each namespace about which a store was asked.
    fn count_wait(&mut self) {
        let Some(begin) = self.waits_since.take() else {
            return;
        };
        let time = begin.elapsed();
        let mut counted: Vec<&str> = Vec::new();
        for LimitCheck { bound, .. } in self.checks.iter().filter(|it| it.store.is_some()) {
            if !counted.contains(&bound.namespace()) {
                counted.push(bound.namespace());
                bound.count_wait(time);
            }
        }
    }

    /// Makes the decision, and keeps it with the request. Returns what its handler is to return.
    fn finish(&mut self, request: *mut ngx_http_request_t) -> Result<ngx_int_t, EvaluationError> {
        // Another request of the same main request was faster.
        let Some(room) = self.room.take() else {
            return Ok(DECLINED);
        };
        self.count_wait();
        let mut evaluation = Evaluation::new(room, self.settings.count_rejected);
        let (outcome, room, response) = if self.has_failed {
            self.give_back();
            for check in &self.checks {
                let is_asked = check.store.is_none() || self.on_error == OnError::Local;
                if is_asked && self.on_error != OnError::Deny {
                    let LimitCheck {
                        bound,
                        hits,
                        key,
                        cost,
                        ..
                    } = *check;
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
            let mut counted: Vec<&str> = Vec::new();
            for LimitCheck { bound, .. } in &self.checks {
                if !counted.contains(&bound.namespace()) {
                    counted.push(bound.namespace());
                    bound.count_fallback(self.on_error);
                }
            }
            (Outcome::Error, evaluation.end(), response)
        } else {
            conclude(&mut evaluation, &self.checks, &self.answered, &NgxClock);
            if evaluation.is_refused() && !self.settings.count_rejected {
                self.give_back();
            }
            let (outcome, room) = evaluation.finish(self.settings.refusal);
            let response = match outcome {
                Outcome::Rejected => Response::Reject,
                _ => Response::Admit,
            };
            (outcome, room, response)
        };
        let context = room.keep(self.slot, |charges| Context {
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
            last_decided: Cell::new(request),
        });
        Ok(handler::answer(request, context))
    }

    #[cold]
    fn log_denial(&self, request: *mut ngx_http_request_t) {
        // SAFETY: nginx passes a request that has not ended, with the configuration of its cycle.
        let conf = Module::main_conf(unsafe { &*request });
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
        log::error(self.settings.log_level, handler::log_of(request), message);
    }

    /// Has the stores that have charged the request give it back, since another limit refused.
    fn give_back(&mut self) {
        for part in self.parts.drain(..) {
            // If there is nobody, it was charged once more than it was admitted.
            sync::ask(part.decider, None, 0, &part.to_give_back());
        }
    }
}

/// Hits that are known only with the response, of limits that a store counts for: they are sent, and
/// nobody waits. Returns whether there is somebody to take them.
pub(super) fn charge(decider: usize, question: &Question) -> bool {
    sync::check_circuit(decider) && sync::ask(decider, None, 0, question)
}

/// Has requests go on that a store has decided about, or failed to.
pub(in super::super) fn go_on(replies: Vec<Reply>) {
    for (id, answer) in replies {
        // A request that has ended, or was decided on without the store, is not there any more.
        let Some(mut suspension) = with_suspensions(|all| all.get(id)) else {
            continue;
        };
        // SAFETY: those that are registered were not freed, and nobody else has them now: this is the
        // only thread, and no request is being called.
        let suspension = unsafe { suspension.as_mut() };
        if suspension.is_waiting && suspension.take(answer) {
            suspension.until.unset();
            wake(id);
        }
    }
}

/// Has the requests go on that waited for a decision, which is made.
fn wake(id: u64) {
    loop {
        let next = with_suspensions(|all| {
            let mut suspension = all.get(id)?;
            // SAFETY: as above.
            let waiting = unsafe { &mut suspension.as_mut().waiting };
            (!waiting.is_empty()).then(|| waiting.remove(0))
        });
        // The last one may have ended the main request, and all others with it.
        let Some(waiting) = next else {
            return with_suspensions(|all| all.remove(id));
        };
        // SAFETY: a request that has not ended, else `forget` had been called.
        unsafe { waiting.resume() };
    }
}

impl Waiting {
    /// Has the request run its phases, once: nginx does so only of requests that do not wait.
    ///
    /// # Safety
    ///
    /// The request has not ended. It may have when this returns, and its main request with it.
    unsafe fn resume(self) {
        let request = self.request;
        // SAFETY: as the caller says; the connection lives longer than the request. So does its log,
        // which has a context that says about which request the lines are.
        unsafe {
            let does_wait = (*request)
                .write_event_handler
                .is_some_and(|handler| fn_addr_eq(handler, WHILE_WAITING));
            if !does_wait {
                // nginx took it elsewhere, such as to a `post_action`, since its client went.
                return;
            }
            if let Some(handler) = self.read_event_handler {
                (*request).read_event_handler = handler;
            }
            (*request).write_event_handler = Some(ngx_http_core_run_phases);
            let connection = (*request).connection;
            let context = (*(*connection).log).data.cast::<ngx_http_log_ctx_t>();
            (*context).current_request = request;
            ngx_http_core_run_phases(request);
            ngx_http_run_posted_requests(connection);
        }
    }
}

/// What nginx calls where a request that waits could write: because its connection can, or because it
/// is its turn among the subrequests of a response.
static WHILE_WAITING: unsafe extern "C" fn(*mut ngx_http_request_t) = while_waiting;

unsafe extern "C" fn while_waiting(request: *mut ngx_http_request_t) {
    // SAFETY: nginx passes a request that has not ended, with its connection. It may free it then, with
    // what it was suspended for, to which nobody refers now.
    unsafe {
        if (*(*request).connection).error() != 0 {
            ngx_http_finalize_request(request, NGX_HTTP_CLIENT_CLOSED_REQUEST as ngx_int_t);
        }
    }
}

/// Decides on a request without its store, which has not answered in time.
pub(super) fn time_out(id: u64) {
    if let Some(mut suspension) = with_suspensions(|all| all.get(id)) {
        // SAFETY: as above.
        let suspension = unsafe { suspension.as_mut() };
        sync::note_timeout(suspension.decider());
        suspension.fail();
        wake(id);
    }
}

/// Decides about all requests that wait without their stores: nobody will answer them any more.
pub(in super::super) fn fail_all() {
    let ids = with_suspensions(|all| all.ids());
    go_on(ids.into_iter().map(|id| (id, None)).collect());
}

fn monotonic() -> Duration {
    Duration::from_millis(now_millis())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
