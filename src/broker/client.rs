//! The broker's client in each worker's event loop: it writes questions to the worker's ring, and
//! reads answers from the others.

use core::cell::RefCell;
use std::sync::Arc;

use super::shared::breaker::Circuit;
use super::shared::message::{Reply, messages, reply, write_ask};
use super::shared::shared_queues::{CAPACITY, SharedQueues, WorkerQueues, write_messages};
use super::shared::tenure::Term;
use super::wake::EventFd;
use crate::policy::window::UnixMillis;
use crate::store::contract::decision::{Few, Question};
use crate::table::MonotonicMillis;

/// A worker's end of its rings.
#[derive(Debug)]
pub struct Client {
    shared: Arc<SharedQueues>,
    worker: usize,
    /// The messages that are not sent yet.
    outbox: RefCell<Vec<u64>>,
    /// Number of unsent messages for each decider.
    asked: RefCell<Few<(usize, u64)>>,
}

impl Client {
    /// Creates the client of a worker; `None` if there is no such worker.
    pub fn new(shared: Arc<SharedQueues>, worker: usize) -> Option<Client> {
        let client =
            Client { shared, worker, outbox: RefCell::default(), asked: RefCell::default() };
        client.queues().is_some().then_some(client)
    }

    fn queues(&self) -> Option<WorkerQueues<'_>> {
        self.shared.of_worker(self.worker)
    }

    /// Returns the eventfd that wakes this worker's event loop when answers arrive.
    pub fn eventfd(&self) -> Option<EventFd> {
        self.queues().map(|it| it.eventfd.clone())
    }

    /// Queues a question for the next [`Client::send`]; see [`Ask`](super::shared::message::Ask).
    /// Returns whether it can be asked.
    pub fn ask(&self, decider: usize, id: Option<u64>, deadline: u64, question: &Question) -> bool {
        if !question.can_be_asked() {
            return false;
        }
        let mut outbox = self.outbox.borrow_mut();
        let start = outbox.len();
        write_ask(&mut outbox, decider, id, deadline, question);
        if outbox.len().saturating_sub(start) > CAPACITY {
            outbox.truncate(start);
            return false;
        }
        let mut asked = self.asked.borrow_mut();
        match asked.iter_mut().find(|(it, _)| *it == decider) {
            Some((_, messages)) => *messages = messages.saturating_add(1),
            None => asked.push((decider, 1)),
        }
        true
    }

    /// Makes a decider charge hits that were counted without it, once it answers again. Returns
    /// false if the broker has no room for more of them.
    pub fn charge_later(&self, decider: usize, question: &Question) -> bool {
        self.unsent() <= CAPACITY && self.ask(decider, None, 0, question)
    }

    /// Returns the number of words that are not sent yet.
    pub fn unsent(&self) -> usize {
        self.outbox.borrow().len()
    }

    /// Sends the queued questions. Those without room stay queued.
    pub fn send(&self) {
        let mut outbox = self.outbox.borrow_mut();
        let Some(queues) = self.queues().filter(|_| !outbox.is_empty()) else {
            return;
        };
        write_messages(&queues.questions, &mut outbox);
        let mut asked = self.asked.borrow_mut();
        let mut is_due = false;
        for (decider, messages) in asked.iter() {
            if let Some(state) = self.shared.decider(*decider) {
                is_due |= state.doorbell.record_written(*messages);
            }
        }
        // When the broker is awake for one decider, it collects the questions to all.
        if is_due {
            self.shared.bell().wake();
        }
        // Messages without room are counted again when they are sent.
        if outbox.is_empty() {
            asked.clear();
        }
    }

    /// Returns whether the circuit of a decider is closed at `now`. If it is half-open, queues a
    /// probe for the next [`Client::send`].
    pub fn check_circuit(&self, decider: usize, now: MonotonicMillis) -> bool {
        let state = self.shared.decider(decider);
        match state.map_or(Circuit::Open, |it| it.breaker.look(now)) {
            Circuit::Closed => true,
            Circuit::Open => false,
            Circuit::HalfOpen => {
                self.probe(decider);
                false
            }
        }
    }

    /// Returns the time of a decider's store at `now`; `None` while it is unknown.
    pub fn store_time(&self, decider: usize, now: MonotonicMillis) -> Option<UnixMillis> {
        self.shared.decider(decider)?.clock.at(now)
    }

    /// Opens the circuit of a decider that did not answer in time, and queues a probe. If the probe
    /// is answered, the circuit closes; if it is lost, another one follows.
    pub fn record_timeout(&self, decider: usize, now: MonotonicMillis) {
        if let Some(state) = self.shared.decider(decider)
            && state.breaker.open(now)
        {
            self.probe(decider);
        }
    }

    fn probe(&self, decider: usize) {
        // Its queue always has room for a probe.
        self.ask(decider, None, 0, &Question::nothing());
    }

    /// Returns the answers that have arrived since the last call.
    pub fn replies(&self) -> Vec<Reply> {
        let mut words = Vec::new();
        for answers in self.shared.all_answers(self.worker) {
            // Only this process reads these rings, so no term is needed.
            let _ = answers.read(Term::default(), &mut words);
        }
        messages(&words).filter_map(reply).collect()
    }
}
