//! The backlog of a decider: the questions for its next exchanges.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::sync::Arc;

use tokio::sync::Notify;

use super::unsent::UnsentHits;
use crate::policy::hits::Hits;
use crate::store::contract::decision::{Answer, Certainty, Few, Question};
use crate::table::MonotonicMillis;

/// Most counters that one exchange charges for hits that were counted while the store was down.
const UNSENT_AT_ONCE: usize = 32;

/// The questions to a decider that are not sent yet. An answer goes to a `T`.
pub struct Backlog<T> {
    gathered: RefCell<Gathered<T>>,
    /// Whether the store is down, so that nothing is sent.
    is_away: Cell<bool>,
    /// Hits that were counted without the store.
    unsent: RefCell<UnsentHits>,
    /// Lost hits by namespace, until they are counted.
    dropped: RefCell<Few<(Arc<str>, Hits)>>,
    /// Number of questions for which the task waits.
    pub awaited: Cell<usize>,
    /// Wakes the task when there are as many, or for another reason.
    pub ready: Notify,
}

/// The questions of an exchange, and the destinations of their answers.
pub struct Gathered<T> {
    /// The questions.
    pub questions: Vec<Question>,
    /// One for each question.
    pub reply_to: Vec<ReplyTo<T>>,
    /// Whether a probe is due, too.
    is_probed: bool,
    /// Number of questions at the beginning that charge hits counted without the store.
    unsent: usize,
}

/// The destination of an answer.
pub struct ReplyTo<T> {
    /// The receiver; `None` if no answer is needed.
    pub to: Option<T>,
    /// Deadline of the request, or the time from which a charge does not matter any more.
    deadline: u64,
    /// Time of a question that needs no answer.
    asked_at: MonotonicMillis,
}

impl<T> ReplyTo<T> {
    fn is_late(&self, now: MonotonicMillis) -> bool {
        self.deadline <= now.0
    }

    /// Returns whether a request still waits for the answer at this time.
    fn waits_at(&self, moment: MonotonicMillis) -> bool {
        self.to.is_some() && !self.is_late(moment)
    }
}

impl<T> Default for Gathered<T> {
    fn default() -> Self {
        Gathered { questions: Vec::new(), reply_to: Vec::new(), is_probed: false, unsent: 0 }
    }
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Backlog {
            gathered: RefCell::default(),
            is_away: Cell::new(false),
            unsent: RefCell::default(),
            dropped: RefCell::default(),
            awaited: Cell::new(0),
            ready: Notify::new(),
        }
    }
}

impl<T> Backlog<T> {
    /// Adds a question, whose answer `to` waits for until `deadline`. Without counters, it asks for
    /// a probe. `now` is the time of a charge.
    pub fn put(
        &self,
        question: Question,
        to: Option<T>,
        deadline: u64,
        now: impl FnOnce() -> MonotonicMillis,
    ) {
        if question.counters.is_empty() {
            self.gathered.borrow_mut().is_probed = true;
        } else if to.is_none() {
            self.charge(question, now());
        } else {
            self.gather(question, ReplyTo { to, deadline, asked_at: MonotonicMillis(0) });
        }
        // One notification suffices, since the task takes all questions.
        let gathered = self.gathered.borrow();
        if gathered.is_probed || gathered.questions.len() == self.awaited.get() {
            self.ready.notify_one();
        }
    }

    /// Puts back the questions that raced with those of others to the front, if their requests wait
    /// longer than two more exchanges take. Returns the other answers with their destinations, and
    /// whether any question was put back.
    pub fn ask_again(
        &self,
        gathered: Gathered<T>,
        answers: Vec<Answer>,
        took: Duration,
        now: MonotonicMillis,
    ) -> (Vec<ReplyTo<T>>, Vec<Answer>, bool) {
        let Gathered { questions, reply_to, .. } = gathered;
        let is_raced = |answer: &Answer| answer.certainty == Certainty::Raced;
        if !answers.iter().any(is_raced) {
            return (reply_to, answers, false);
        }
        let two = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let two = two.saturating_add(1).saturating_mul(2);
        let then = MonotonicMillis(now.0.saturating_add(two));
        let asked = questions.into_iter().zip(reply_to).zip(answers);
        let (again, decided): (Vec<_>, Vec<_>) =
            asked.partition(|((_, to), answer)| is_raced(answer) && to.waits_at(then));
        let has_raced = !again.is_empty();
        let (questions, to): (Vec<_>, Vec<_>) = again.into_iter().map(|(asked, _)| asked).unzip();
        let mut gathered = self.gathered.borrow_mut();
        gathered.questions.splice(0..0, questions);
        gathered.reply_to.splice(0..0, to);
        let decided = decided.into_iter().map(|((_, to), answer)| (to, answer));
        let (reply_to, answers) = decided.unzip();
        (reply_to, answers, has_raced)
    }

    fn gather(&self, question: Question, reply_to: ReplyTo<T>) {
        let mut gathered = self.gathered.borrow_mut();
        gathered.questions.push(question);
        gathered.reply_to.push(reply_to);
    }

    /// Keeps the charge of a question without an answer while the store is down, if there is room.
    /// `asked_at` is its time.
    fn charge(&self, question: Question, asked_at: MonotonicMillis) {
        let is_away = self.is_away.get();
        let question = match is_away && UnsentHits::are(&question) {
            true => self.unsent.borrow_mut().add(&question, asked_at),
            false => Some(question),
        };
        let Some(question) = question else { return };
        if is_away && self.kept() >= UnsentHits::MOST {
            return self.drop_hits(&question);
        }
        let sizes = question.counters.iter().map(|it| it.size.longest());
        let deadline = asked_at.0.saturating_add(sizes.min().unwrap_or(0));
        self.gather(question, ReplyTo { to: None, deadline, asked_at });
    }

    /// Returns a lower bound of the number of counters that are kept for the store.
    fn kept(&self) -> usize {
        let unsent = self.unsent.borrow().len();
        unsent.saturating_add(self.gathered.borrow().questions.len())
    }

    /// Stops sending, since the store has failed. `asked` are the last questions; if the store has
    /// certainly executed none of them (`is_undone`), those without an answer are kept.
    pub fn leave(&self, asked: Gathered<T>, is_undone: bool, now: MonotonicMillis) {
        if is_undone {
            self.unsent.borrow_mut().put_back();
        }
        self.is_away.set(true);
        let failed = asked.questions.into_iter().zip(asked.reply_to);
        let failed = failed.skip(asked.unsent).filter(|_| is_undone);
        let Gathered { questions, reply_to, .. } = self.gathered.take();
        let waiting = questions.into_iter().zip(reply_to);
        // The failures of requests were reported already.
        let failed = failed.filter(|(_, to)| to.to.is_none());
        for (question, to) in failed.chain(waiting) {
            match to.to {
                _ if to.is_late(now) => self.drop_late(&question, &to),
                None => self.charge(question, to.asked_at),
                Some(_) => self.gather(question, to),
            }
        }
    }

    /// Sends again, since the store is back.
    pub fn come_back(&self) {
        self.is_away.set(false);
    }

    /// Removes obsolete questions while the store is down.
    pub fn forget_late(&self, now: MonotonicMillis) {
        let mut gathered = self.gathered.take();
        self.take_late(&mut gathered, now);
        *self.gathered.borrow_mut() = gathered;
    }

    /// Removes the questions of requests that were decided otherwise, and charges that do not
    /// matter any more.
    fn take_late(&self, gathered: &mut Gathered<T>, now: MonotonicMillis) {
        if !gathered.reply_to.iter().any(|to| to.is_late(now)) {
            return;
        }
        let all = gathered.questions.drain(..).zip(gathered.reply_to.drain(..));
        let (late, in_time): (Vec<_>, Vec<_>) = all.partition(|(_, to)| to.is_late(now));
        late.iter().for_each(|(question, to)| self.drop_late(question, to));
        (gathered.questions, gathered.reply_to) = in_time.into_iter().unzip();
    }

    fn drop_late(&self, question: &Question, reply_to: &ReplyTo<T>) {
        if reply_to.to.is_none() {
            self.drop_hits(question);
        }
    }

    fn drop_hits(&self, question: &Question) {
        let mut dropped = self.dropped.borrow_mut();
        question.counters.iter().for_each(|counter| {
            add_dropped(&mut dropped, &counter.shard.namespace, counter.cost);
        });
    }

    /// Takes the lost hits by namespace.
    pub fn take_dropped(&self) -> Few<(Arc<str>, Hits)> {
        let mut dropped = self.dropped.take();
        for (namespace, hits) in self.unsent.borrow_mut().take_dropped() {
            add_dropped(&mut dropped, &namespace, hits);
        }
        dropped
    }

    /// Returns whether charges are kept for the store.
    pub(super) fn keeps_charges(&self) -> bool {
        let is_charge = |to: &ReplyTo<T>| to.to.is_none();
        !self.unsent.borrow().is_empty() || self.gathered.borrow().reply_to.iter().any(is_charge)
    }

    /// Drops the charges that are kept for the store.
    pub fn forget_charges(&self) {
        self.unsent.borrow_mut().forget();
        let Gathered { questions, reply_to, .. } = self.gathered.take();
        for (question, reply_to) in questions.into_iter().zip(reply_to) {
            match reply_to.to {
                None => self.drop_hits(&question),
                Some(_) => self.gather(question, reply_to),
            }
        }
    }

    /// Returns whether there are charges that were made without the store.
    fn has_unsent(&self) -> bool {
        !self.is_away.get() && !self.unsent.borrow().is_empty()
    }

    /// Returns the number of questions.
    pub(super) fn waiting(&self) -> usize {
        self.gathered.borrow().questions.len()
    }

    /// Returns the number of questions for which the task still waits; `None` if it waits for none.
    pub fn lacking(&self) -> Option<usize> {
        let gathered = self.gathered.borrow();
        let more = self.awaited.get().saturating_sub(gathered.questions.len());
        (more > 0 && !gathered.is_probed && !self.has_unsent()).then_some(more)
    }

    /// Takes the questions of an exchange, without those whose deadline has passed.
    pub fn take(&self, now: MonotonicMillis) -> Gathered<T> {
        self.unsent.borrow_mut().forget_taken();
        let has_unsent = self.has_unsent();
        if !has_unsent && self.gathered.borrow().is_nothing() {
            return Gathered::default();
        }
        let mut gathered = self.gathered.replace(Gathered {
            questions: Vec::with_capacity(Question::MAX_AT_ONCE),
            reply_to: Vec::with_capacity(Question::MAX_AT_ONCE),
            ..Gathered::default()
        });
        self.take_late(&mut gathered, now);
        if has_unsent {
            // First, since these are few enough to be asked all at once.
            let unsent = self.unsent.borrow_mut().take(UNSENT_AT_ONCE, now);
            gathered.unsent = unsent.len();
            let reply_to =
                unsent.iter().map(|_| ReplyTo { to: None, deadline: u64::MAX, asked_at: now });
            gathered.reply_to.splice(..0, reply_to);
            gathered.questions.splice(..0, unsent);
        }
        let count = Question::at_once(&gathered.questions);
        let mut others = self.gathered.borrow_mut();
        others.questions.extend(gathered.questions.drain(count..));
        others.reply_to.extend(gathered.reply_to.drain(count..));
        drop(others);
        gathered
    }
}

/// Adds positive hits to a namespace.
fn add_dropped(dropped: &mut Few<(Arc<str>, Hits)>, namespace: &Arc<str>, hits: Hits) {
    let hits = hits.max(Hits::ZERO);
    match dropped.iter_mut().find(|(it, _)| it == namespace) {
        Some((_, sum)) => *sum = sum.plus(hits),
        None => dropped.push((namespace.clone(), hits)),
    }
}

impl<T> Gathered<T> {
    /// Returns whether there is nothing to ask.
    pub fn is_nothing(&self) -> bool {
        self.questions.is_empty() && !self.is_probed
    }
}
