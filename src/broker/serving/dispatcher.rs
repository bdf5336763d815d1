//! The dispatcher: sorts the questions of all workers by decider, and writes the answers to the
//! workers' rings.

use core::cell::{Cell, RefCell};
use core::pin::pin;
use core::time::Duration;
use std::sync::Arc;

use futures_util::future::select;
use tokio::sync::Notify;

use super::backlog::{Backlog, ReplyTo};
use super::store_event::StoreEvent;
use crate::broker::shared::message::{Reader, messages, write_reply};
use crate::broker::shared::shared_queues::{SharedQueues, write_messages};
use crate::broker::shared::tenure::{Replaced, Term};
use crate::broker::wake::EventLoopQueue;
use crate::store::contract::decision::Answer;
use crate::table::MonotonicMillis;

/// Interval of the beats, by which the broker shows that it is alive.
pub(super) const BEAT: Duration = Duration::from_millis(100);
/// Pause before answers are written again to a full ring.
const NO_ROOM: Duration = Duration::from_millis(1);

/// A request that waits for an answer.
#[derive(Clone, Copy)]
pub(super) struct WaitingRequest {
    /// The number of its worker.
    worker: usize,
    id: u64,
}

/// The broker's state for all workers and deciders.
pub(super) struct Dispatcher {
    pub(super) queues: Arc<SharedQueues>,
    /// The number of this process's worker, and its term.
    worker: usize,
    pub(super) term: Term,
    /// The backlog of each decider.
    pub(super) backlogs: Vec<Backlog<WaitingRequest>>,
    reader: RefCell<Reader>,
    words: RefCell<Vec<u64>>,
    /// Answers to each worker that its ring had no room for.
    outboxes: RefCell<Vec<Vec<u64>>>,
    /// Log events of stores.
    pub(super) events: EventLoopQueue<StoreEvent>,
    /// The clock.
    pub(super) uptime: fn() -> Duration,
    pub(super) is_closed: Cell<bool>,
    /// Whether the process ends after it was replaced.
    is_given_up: Cell<bool>,
    /// Notified when another process serves.
    replaced: Notify,
}

impl Dispatcher {
    pub(super) fn new(
        queues: Arc<SharedQueues>,
        (worker, term): (usize, Term),
        events: EventLoopQueue<StoreEvent>,
        uptime: fn() -> Duration,
    ) -> Dispatcher {
        let backlogs = (0..queues.deciders()).map(|_| Backlog::default());
        let outboxes = queues.of_workers().map(|_| Vec::new());
        Dispatcher {
            backlogs: backlogs.collect(),
            outboxes: RefCell::new(outboxes.collect()),
            queues,
            worker,
            term,
            reader: RefCell::default(),
            words: RefCell::default(),
            events,
            uptime,
            is_closed: Cell::new(false),
            is_given_up: Cell::new(false),
            replaced: Notify::new(),
        }
    }

    /// Makes the pending writes of the previous term's broker fail.
    pub(super) fn take_over(&self) {
        let mut deciders = (0..self.queues.deciders()).filter_map(|it| self.queues.decider(it));
        let mut workers = self.queues.of_workers();
        let taken = deciders
            .try_for_each(|it| it.doorbell.take_over(self.term))
            .and_then(|()| workers.try_for_each(|it| it.questions.take_over(self.term)));
        self.unless_replaced(taken);
    }

    /// Returns whether this process still serves, as far as it knows.
    pub(super) fn is_serving(&self) -> bool {
        self.queues.tenure().is_some_and(|it| it.is_of(self.term))
    }

    /// Returns whether a task may wait for a store that is down: while this process serves; and
    /// after it was replaced, until it ends.
    pub(super) fn may_wait(&self) -> bool {
        match self.is_serving() {
            true => !self.is_closed.get(),
            false => !self.is_given_up.get(),
        }
    }

    /// Makes the tasks end that wait for a store after this process was replaced.
    pub(super) fn give_up(&self) {
        self.is_given_up.set(true);
    }

    /// Ends the term.
    pub(super) fn end(&self) {
        if let Some(tenure) = self.queues.tenure() {
            tenure.end(self.term);
        }
    }

    /// Stops collecting if another process serves; collected questions are still answered. Returns
    /// whether this process still serves.
    pub(super) fn unless_replaced(&self, result: Result<(), Replaced>) -> bool {
        if result.is_err() {
            self.leave();
            self.replaced.notify_one();
        }
        result.is_ok()
    }

    /// Beats until another process serves.
    pub(super) async fn beat(&self, has_lock: impl Fn() -> bool) {
        while let Some(tenure) = self.queues.tenure() {
            if !self.unless_replaced(tenure.beat(self.term, has_lock())) {
                return;
            }
            tokio::time::sleep(BEAT).await;
        }
    }

    pub(super) fn now(&self) -> MonotonicMillis {
        let millis = (self.uptime)().as_millis();
        MonotonicMillis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    /// Moves the workers' questions to the backlogs, unless the dispatcher is closed.
    pub(super) fn collect(&self) {
        if self.is_closed.get() {
            return;
        }
        let (mut reader, mut words) = (self.reader.borrow_mut(), self.words.borrow_mut());
        for (worker, worker_queues) in self.queues.of_workers().enumerate() {
            words.clear();
            if !self.unless_replaced(worker_queues.questions.read(self.term, &mut words)) {
                return;
            }
            for ask in messages(&words).filter_map(|it| reader.ask(it)) {
                if let Some(backlog) = self.backlogs.get(ask.decider) {
                    let to = ask.id.map(|id| WaitingRequest { worker, id });
                    backlog.put(ask.question, to, ask.deadline, || self.now());
                }
            }
        }
    }

    /// Collects questions whenever the bell wakes an idle task, until another process serves.
    pub(super) async fn answer_bell(&self) {
        let Ok(bell) = self.queues.bell().listen() else {
            return;
        };
        let collect = async {
            while let Ok(mut rung) = bell.readable().await {
                rung.clear_ready();
                self.collect();
            }
        };
        select(pin!(collect), pin!(self.replaced.notified())).await;
    }

    /// Writes answers to the rings of their workers.
    pub(super) fn reply(
        &self,
        reply_to: &[ReplyTo<WaitingRequest>],
        answers: impl Iterator<Item = Option<Answer>>,
    ) {
        let mut outboxes = self.outboxes.borrow_mut();
        for (reply_to, answer) in reply_to.iter().zip(answers) {
            if let Some(WaitingRequest { worker, id }) = reply_to.to
                && let Some(outbox) = outboxes.get_mut(worker)
            {
                write_reply(outbox, &(id, answer));
            }
        }
        drop(outboxes);
        self.deliver();
    }

    /// Writes the queued answers to the workers' rings. Returns whether all of them had room.
    fn deliver(&self) -> bool {
        let mut is_all = true;
        let mut outboxes = self.outboxes.borrow_mut();
        let outboxes = outboxes.iter_mut().zip(self.queues.of_workers());
        for (worker, (outbox, worker_queues)) in outboxes.enumerate() {
            if let Some(answers) = self.queues.answers(worker, self.worker)
                && !outbox.is_empty()
            {
                write_messages(&answers, outbox);
                worker_queues.eventfd.wake();
                is_all &= outbox.is_empty();
            }
        }
        is_all
    }

    /// Waits for news for a task.
    pub(super) async fn wait(&self, backlog: &Backlog<WaitingRequest>) {
        while !self.deliver() {
            if tokio::time::timeout(NO_ROOM, backlog.ready.notified()).await.is_ok() {
                return;
            }
        }
        backlog.ready.notified().await;
    }

    /// Makes the tasks end when all questions asked so far are answered.
    pub(super) fn close(&self) {
        self.collect();
        self.leave();
    }

    /// Makes the tasks end when all collected questions are answered.
    fn leave(&self) {
        self.is_closed.set(true);
        for backlog in &self.backlogs {
            backlog.ready.notify_one();
        }
    }
}
