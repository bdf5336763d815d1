//! C functions that ask a store. A question gets a ticket, with which the caller takes the answer.

use core::cell::RefCell;
use core::ffi::{c_char, c_int, c_void};
use std::rc::Rc;

use super::call::{bytes, call, tell, weight as weight_of};
use super::define::no_place;
use super::types::{Handle, RawReady, RawResult, RawWait, WAIT};
use crate::broker::shared::message::Reply;
use crate::broker::{Asker, Waiters};
use crate::engine::functions::arguments::ArgumentError;
use crate::engine::{AskedHits, Incoming, Increment, StoreQuestion, TellDecider};
use crate::nginx::conf::{LibraryError, LibraryLimiter, MainConf, Synchronous};
use crate::nginx::cycle::Cycle;
use crate::nginx::event_loop::{NgxClock, OfEventLoop, guard};
use crate::nginx::log::Log;
use crate::nginx::store_wait::StoreWait;
use crate::nginx::sync;
use crate::policy::algorithm::Weight;
use crate::policy::hits::Hits;
use crate::store::contract::decision::{Answer, Question};

/// The tickets whose answers are outstanding or were not taken.
static TICKETS: OfEventLoop<RefCell<Waiters<Ticket>>> =
    OfEventLoop(RefCell::new(Waiters::of(Asker::Caller)));

/// Most tickets. Beyond that, the oldest answer is forgotten.
const MOST: usize = 1 << 16;

enum Ticket {
    Asked(Rc<AskedTicket>),
    Answered(Result<Incoming, LibraryError>),
}

/// A ticket whose answer is outstanding.
struct AskedTicket {
    limiter: Rc<LibraryLimiter>,
    synchronous: Synchronous,
    question: StoreQuestion,
    key: Box<[u8]>,
    cost: Hits,
    commit: bool,
    weight: Weight,
    ready: Ready,
    /// The wait for the answer. At its deadline, the question is decided without the store.
    wait: StoreWait<'static>,
}

/// A caller's callback.
struct Ready {
    function: RawReady,
    data: *mut c_void,
}

impl Ready {
    fn call(&self) {
        if let Some(function) = self.function {
            // SAFETY: by the contract in the header, function and data live until this call, or
            // until the ticket is forgotten.
            unsafe { function(self.data, 1) };
        }
    }
}

impl AskedTicket {
    fn asked(&self) -> AskedHits<'_> {
        AskedHits { key: &self.key, cost: self.cost, commit: self.commit, weight: self.weight }
    }
}

/// `increment_async`
///
/// # Safety
///
/// The arguments are as `ngx_rate_limiting.h` requires. This holds for each function of this file.
pub(super) unsafe extern "C" fn increment_async(
    found: Handle,
    key: *const c_void,
    key_len: usize,
    window_size: f64,
    value: f64,
    weight: f64,
    wait: *mut RawWait,
    result: *mut RawResult,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: by the contract in the header.
    let (key, wait, result) = unsafe { (bytes(key, key_len), wait.as_mut(), result.as_mut()) };
    let count = |main: &'static MainConf| {
        let Increment { size, asked } = Increment::new(key, window_size, value, weight_of(weight))?;
        let limiter = main.library().with_found(found, |found| found.unlimited(size))?;
        ask(&limiter, asked, wait, result)
    };
    // SAFETY: by the contract in the header.
    unsafe { call(error, error_size, count) }
}

/// `incoming_async`
pub(super) unsafe extern "C" fn incoming_async(
    limiter: Handle,
    key: *const c_void,
    key_len: usize,
    cost: f64,
    commit: c_int,
    wait: *mut RawWait,
    result: *mut RawResult,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: by the contract in the header.
    let (key, wait, result) = unsafe { (bytes(key, key_len), wait.as_mut(), result.as_mut()) };
    let count = |main: &'static MainConf| {
        let asked = AskedHits::new(key, cost, commit != 0)?;
        let limiter = main.library().limiter(limiter)?;
        ask(&limiter, asked, wait, result)
    };
    // SAFETY: by the contract in the header.
    unsafe { call(error, error_size, count) }
}

/// Asks the store about hits, if one decides; otherwise decides here.
fn ask(
    limiter: &Rc<LibraryLimiter>,
    asked: AskedHits<'_>,
    wait: Option<&mut RawWait>,
    result: Option<&mut RawResult>,
) -> Result<c_int, LibraryError> {
    let wait = wait.ok_or_else(|| no_place("wait"))?;
    let result = result.ok_or_else(|| no_place("result"))?;
    let Some(synchronous) = limiter.synchronous else {
        let (incoming, committed) = limiter.limiter.incoming(asked, &NgxClock);
        limiter.remember(committed);
        return Ok(tell(&incoming, result));
    };
    if wait.ready.is_none() {
        return Err(no_place("ready"));
    }
    let question = limiter.limiter.question(asked, synchronous.store);
    let question = question.filter(|it| sync::check_circuit(it.decider));
    let Some(question) = question else {
        return Ok(tell(&without_store(limiter, synchronous, asked)?, result));
    };
    let id = next_id()?;
    // SAFETY: the questions of a cycle are answered or failed before it ends.
    let log = Cycle::with_current(|cycle| unsafe { Log::new(cycle.log().as_ptr()) });
    let store_wait = StoreWait::new(log, time_out, id);
    store_wait.begin(synchronous.timeout);
    if !store_wait.ask(question.decider, &question.question) {
        return Ok(tell(&without_store(limiter, synchronous, asked)?, result));
    }
    let ticket = AskedTicket {
        limiter: limiter.clone(),
        synchronous,
        question,
        key: asked.key.into(),
        cost: asked.cost,
        commit: asked.commit,
        weight: asked.weight,
        ready: Ready { function: wait.ready, data: wait.data },
        wait: store_wait,
    };
    TICKETS.0.borrow_mut().add(Ticket::Asked(Rc::new(ticket)));
    wait.ticket = id;
    Ok(WAIT)
}

/// Returns the number of the next question. At the maximum, forgets the oldest ticket.
///
/// # Errors
///
/// The maximum is reached, and the oldest ticket has no answer yet.
fn next_id() -> Result<u64, LibraryError> {
    let mut tickets = TICKETS.0.borrow_mut();
    if tickets.len() >= MOST {
        let oldest = tickets.oldest();
        let answered = oldest.filter(|(_, ticket)| matches!(ticket, Ticket::Answered(_)));
        let id = answered.map(|(id, _)| id).ok_or(LibraryError::TooMany)?;
        tickets.remove(id);
    }
    Ok(tickets.next_id())
}

/// Decides by the configured `on_error`.
fn without_store(
    limiter: &LibraryLimiter,
    synchronous: Synchronous,
    asked: AskedHits<'_>,
) -> Result<Incoming, LibraryError> {
    let (store, on_error) = ((synchronous.store, &TellBroker), synchronous.on_error);
    let decided = limiter.limiter.without_store(asked, on_error, store, &NgxClock);
    let (incoming, committed) = decided.ok_or_else(|| {
        let namespace = limiter.limiter.bound().namespace();
        LibraryError::Unavailable(namespace.into())
    })?;
    limiter.remember(committed);
    Ok(incoming)
}

/// Tells deciders by this node's broker.
pub(super) struct TellBroker;

impl TellDecider for TellBroker {
    fn tell(&self, decider: usize, question: &Question) -> bool {
        sync::tell(decider, question)
    }

    fn charge_later(&self, decider: usize, charge: &Question) {
        sync::charge_later(decider, charge);
    }
}

/// Takes the stores' replies to callers' questions.
pub(crate) fn take_replies(replies: Vec<Reply>) {
    for (id, answer) in replies {
        // A ticket that was forgotten, or decided without the store, is ignored.
        finish(id, answer);
    }
}

/// Decides all questions without their stores, which will not answer any more.
pub(crate) fn fail_all() {
    let ids = TICKETS.0.borrow().ids();
    for id in ids {
        finish(id, None);
    }
}

/// Decides a question without its store, which has not answered in time.
fn time_out(id: u64) {
    if let Some(Ticket::Asked(ticket)) = TICKETS.0.borrow().get(id) {
        ticket.wait.record_timeout();
    }
    finish(id, None);
}

/// Decides a question by its answer, or without one, and calls the caller back.
fn finish(id: u64, answer: Option<Answer>) {
    // A ticket that was decided before stays as it is.
    let ticket = match TICKETS.0.borrow().get(id) {
        Some(Ticket::Asked(ticket)) => ticket.clone(),
        _ => return,
    };
    let (limiter, store) = (&ticket.limiter, ticket.synchronous.store);
    if let Some(waited) = ticket.wait.end() {
        limiter.limiter.bound().count_wait(waited);
    }
    let incoming = match answer {
        Some(answer) => {
            let answered = (ticket.question.clone(), &answer);
            let decided = limiter.limiter.answered(ticket.asked(), store, answered, &NgxClock);
            let (incoming, committed) = decided;
            limiter.remember(committed);
            Ok(incoming)
        }
        None => without_store(limiter, ticket.synchronous, ticket.asked()),
    };
    if let Some(place) = TICKETS.0.borrow_mut().get_mut(id) {
        *place = Ticket::Answered(incoming);
    }
    // The caller may call this module again.
    ticket.ready.call();
}

/// `take`
pub(super) unsafe extern "C" fn take(
    ticket: u64,
    result: *mut RawResult,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: by the contract in the header.
    let result = unsafe { result.as_mut() };
    let take = |_: &'static MainConf| {
        let result = result.ok_or_else(|| no_place("result"))?;
        let mut tickets = TICKETS.0.borrow_mut();
        if let Some(Ticket::Asked(_)) = tickets.get(ticket) {
            return Err(LibraryError::Phase("the store has not answered yet"));
        }
        match tickets.remove(ticket) {
            Some(Ticket::Answered(incoming)) => Ok(tell(&incoming?, result)),
            _ => {
                let expected = "one whose answer was not taken";
                Err(ArgumentError::new("ticket", expected, ticket).into())
            }
        }
    };
    // SAFETY: by the contract in the header.
    unsafe { call(error, error_size, take) }
}

/// `forget`
pub(super) unsafe extern "C" fn forget(ticket: u64) {
    guard((), || {
        let forgotten = TICKETS.0.borrow_mut().remove(ticket);
        // Dropping the ticket's data may call this module again.
        drop(forgotten);
    });
}
