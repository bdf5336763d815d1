//! A task for each decider: connects, asks it one exchange after another, and probes it while it is
//! away.

use core::hash::BuildHasher as _;
use core::ops::Range;
use core::pin::pin;
use core::time::Duration;
use std::hash::RandomState;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt as _, select};
use tokio::task::JoinSet;

use super::backlog::{Backlog, Gathered, ReplyTo};
use super::batching::BatchingDelay;
use super::dispatcher::Dispatcher;
use super::shared_queues::DeciderState;
use super::store_clock::LearnedClock;
use super::store_event::{KnownBefore, Observer, WatchedStore};
use super::timer::Timer;
use crate::store::decision::{Answer, Certainty, Decided, Decider, Question};
use crate::store::error::StoreError;
use crate::store::registry::StoreVisitor;
use crate::store::strategy::{Epoch, NodeId};
use crate::table::MonotonicMillis;

/// How often is collected what is asked of a store that is away: workers' queues are short.
const COLLECT: Duration = Duration::from_millis(50);

/// How long after a failure, and after each that follows, it is looked whether the store is back: for ever.
pub fn pauses() -> impl Iterator<Item = Duration> {
    [50, 100, 200]
        .into_iter()
        .chain(core::iter::repeat(400))
        .map(Duration::from_millis)
}

/// Asks one decider, for all workers.
pub(super) struct DeciderTask {
    pub(super) dispatcher: Rc<Dispatcher>,
    /// The store that has the decider.
    pub(super) store: Arc<WatchedStore>,
    /// All deciders that it has.
    pub(super) siblings: Range<usize>,
    pub(super) decider: usize,
    /// The questions of a probe, which finds out whether there is an answer.
    pub(super) probe: Vec<Question>,
}

/// The tasks of a store, none of which has a decider yet.
pub struct DeciderTasks<'t> {
    pub(super) tasks: Vec<DeciderTask>,
    pub(super) node: NodeId,
    pub(super) running: &'t mut JoinSet<()>,
}

/// Has each serve with a decider of its own.
impl StoreVisitor for DeciderTasks<'_> {
    type Output = ();

    fn visit<S: Decider + 'static>(self, connect: impl Fn() -> S + 'static) {
        let store = connect();
        for task in self.tasks {
            let store = store.share().unwrap_or_else(&connect);
            self.running.spawn_local(task.serve(store, self.node));
        }
    }
}

/// When a task waits for more questions.
struct Pauses {
    delay: BatchingDelay,
    /// When the delay last learned how much time passed.
    learned: Duration,
    /// `None`: the system had none left, and there are no pauses.
    timer: Option<Timer>,
}

impl DeciderTask {
    /// Answers until the dispatcher is closed.
    async fn serve(self, mut store: impl Decider, node: NodeId) {
        let (Some(state), Some(backlog)) = (
            self.dispatcher.queues.decider(self.decider),
            self.dispatcher.backlogs.get(self.decider),
        ) else {
            return;
        };
        // Connects before a request waits for it.
        let before = self.store.known();
        let probe = self.probe(&mut store, node).await;
        self.note(probe.as_ref().err(), before, state, &store);
        if probe.is_err() {
            self.wait_for(&mut store, node, state, backlog).await;
        }
        let mut pauses = Pauses::new((self.dispatcher.uptime)());
        let mut clock = LearnedClock::default();
        while let Some(gathered) = self.next(backlog, state, &mut pauses).await {
            let Gathered {
                mut questions,
                reply_to,
                ..
            } = gathered;
            if questions.is_empty() {
                questions.clone_from(&self.probe);
            }
            pauses.delay.note(questions.len());
            let (before, began) = (self.store.known(), (self.dispatcher.uptime)());
            match store.decide(node, Epoch::proposed(), &questions).await {
                Ok(Decided { now, answers }) => {
                    let ended = (self.dispatcher.uptime)();
                    if self.dispatcher.is_serving() {
                        state.clock.set(clock.learn(now, ended));
                    }
                    self.note(None, before, state, &store);
                    let took = ended.saturating_sub(began);
                    let decided = self.ask_again(backlog, took, questions, (reply_to, answers));
                    let (reply_to, answers, has_raced) = decided;
                    self.dispatcher
                        .reply(&reply_to, answers.into_iter().map(Some));
                    if has_raced && !self.dispatcher.is_closed.get() {
                        // Those it raced with ask again too: at another moment.
                        tokio::time::sleep(took.mul_f32(fraction())).await;
                    }
                }
                Err(error) => {
                    self.note(Some(&error), before, state, &store);
                    self.dispatcher.reply(&reply_to, core::iter::repeat(None));
                    self.wait_for(&mut store, node, state, backlog).await;
                }
            }
        }
    }

    /// Notes whether the store has answered, or why not.
    fn note(
        &self,
        error: Option<&StoreError>,
        before: KnownBefore,
        state: DeciderState<'_>,
        store: &impl Decider,
    ) {
        // What a process finds that was stopped meanwhile says nothing of the present.
        if !self.dispatcher.is_serving() {
            return;
        }
        let result = match error {
            Some(error) => {
                state.breaker.open(self.dispatcher.now());
                Err(error)
            }
            None => {
                state.breaker.close();
                Ok(())
            }
        };
        let queues = &self.dispatcher.queues;
        let mut all = self.siblings.clone().filter_map(|it| queues.decider(it));
        if result.is_ok() && !all.all(|it| it.breaker.is_closed()) {
            // It is not there as a whole.
            return;
        }
        let event = self
            .store
            .note(Observer::Broker, before, result, || store.server());
        if event.is_some() {
            self.dispatcher.events.push(event);
        }
    }

    /// Puts those questions back that raced with others' and whose requests wait for longer than two more exchanges
    /// take. Returns the answers to the others, where these go, and whether there was any such question.
    fn ask_again(
        &self,
        backlog: &Backlog,
        took: Duration,
        questions: Vec<Question>,
        (reply_to, answers): (Vec<ReplyTo>, Vec<Answer>),
    ) -> (Vec<ReplyTo>, Vec<Answer>, bool) {
        let is_raced = |answer: &Answer| answer.certainty == Certainty::Raced;
        if !answers.iter().any(is_raced) {
            return (reply_to, answers, false);
        }
        let two = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let two = two.saturating_add(1).saturating_mul(2);
        let then = MonotonicMillis(self.dispatcher.now().0.saturating_add(two));
        let asked = questions.into_iter().zip(reply_to).zip(answers);
        let (again, decided): (Vec<_>, Vec<_>) =
            asked.partition(|((_, to), answer)| is_raced(answer) && to.waits_at(then));
        let (again, _): (Vec<_>, Vec<Answer>) = again.into_iter().unzip();
        let has_raced = !again.is_empty();
        let (questions, to) = again.into_iter().unzip();
        backlog.put_back(questions, to);
        let decided = decided.into_iter().map(|((_, to), answer)| (to, answer));
        let (reply_to, answers) = decided.unzip();
        (reply_to, answers, has_raced)
    }

    /// What is to be asked now; `None` if there will be nothing more.
    async fn next(
        &self,
        backlog: &Backlog,
        state: DeciderState<'_>,
        pauses: &mut Pauses,
    ) -> Option<Gathered> {
        loop {
            self.dispatcher.collect();
            if let Some((questions, pause)) =
                pauses.awaits(backlog.waiting(), (self.dispatcher.uptime)())
            {
                select(pin!(pause), pin!(self.gather(backlog, state, questions))).await;
                self.dispatcher.collect();
            }
            let gathered = backlog.take(self.dispatcher.now());
            if !gathered.is_nothing() {
                let unset = state.doorbell.unset(self.dispatcher.term);
                self.dispatcher.unless_replaced(unset);
                return Some(gathered);
            }
            if self.dispatcher.is_closed.get() {
                return None;
            }
            self.gather(backlog, state, 1).await;
        }
    }

    /// Waits until there are so many questions, or another reason to go on.
    async fn gather(&self, backlog: &Backlog, state: DeciderState<'_>, questions: usize) {
        backlog.awaited.set(questions);
        while let Some(more) = backlog.lacking()
            && !self.dispatcher.is_closed.get()
        {
            let set = state.doorbell.set(self.dispatcher.term, more as u64);
            self.dispatcher.unless_replaced(set);
            self.dispatcher.collect();
            if backlog.lacking() == Some(more) {
                self.dispatcher.wait(backlog).await;
            }
        }
    }

    /// Waits until there are answers again: what is to be asked meanwhile finds the circuit open, and what is
    /// counted without the store is kept.
    async fn wait_for(
        &self,
        store: &mut impl Decider,
        node: NodeId,
        state: DeciderState<'_>,
        backlog: &Backlog,
    ) {
        backlog.leave(self.dispatcher.now());
        for pause in pauses() {
            // Where another process serves, what was kept here is charged now or never.
            let is_last = !self.dispatcher.is_serving();
            if !is_last {
                state.breaker.open(self.dispatcher.now());
                if self.dispatcher.is_closed.get() {
                    return;
                }
                self.pause(pause).await;
            }
            let before = self.store.known();
            match self.probe(store, node).await {
                Ok(()) => {
                    backlog.come_back();
                    return self.note(None, before, state, store);
                }
                // The first failure may have been of a time before others found the store there.
                Err(error) => self.note(Some(&error), before, state, store),
            }
            if is_last {
                return;
            }
        }
    }

    /// Waits for so long, and collects what is asked: nobody rings for that.
    async fn pause(&self, pause: Duration) {
        let mut left = pause;
        while left > Duration::ZERO {
            let part = left.min(COLLECT);
            tokio::time::sleep(part).await;
            self.dispatcher.collect();
            left = left.saturating_sub(part);
        }
    }

    /// Finds out whether there are answers.
    async fn probe(&self, store: &mut impl Decider, node: NodeId) -> Result<(), StoreError> {
        let probe = store.decide(node, Epoch::proposed(), &self.probe);
        probe.await.map(drop)
    }
}

/// Returns a number from 0 to 1, by chance.
fn fraction() -> f32 {
    let word = RandomState::new().hash_one(()) >> 48;
    f32::from(u16::try_from(word).unwrap_or(0)) / f32::from(u16::MAX)
}

impl Pauses {
    fn new(now: Duration) -> Pauses {
        Pauses {
            delay: BatchingDelay::default(),
            learned: now,
            timer: Timer::new().ok(),
        }
    }

    /// For how many questions to wait while so many are there, and until when; `None` if that is not
    /// worthwhile.
    fn awaits(
        &mut self,
        waiting: usize,
        now: Duration,
    ) -> Option<(usize, impl Future<Output = ()>)> {
        if self.delay.learn(now.saturating_sub(self.learned)) {
            self.learned = now;
        }
        let questions = self.delay.awaits(waiting)?;
        // If it fails, there is no pause.
        let pause = self.timer.as_ref()?.sleep(BatchingDelay::PAUSE).map(drop);
        Some((questions, pause))
    }
}
