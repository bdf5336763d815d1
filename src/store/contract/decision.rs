//! Decisions that a datastore makes, each before its request goes on: synchronous mode.
//!
//! The counts are those that [`push_diffs`](super::strategy::Strategy::push_diffs) adds to, so that
//! nodes that push and nodes that ask may share a namespace: what a decision charges is a change
//! that others are told of. Nothing is numbered: a question whose answer was lost is not asked
//! again, and may have been charged.

use smallvec::{SmallVec, smallvec};

use super::error::StoreError;
use super::strategy::{Batch, Epoch, NodeId, Shard, Strategy};
use crate::policy::algorithm::{Algorithm, Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::reserve::Witness;
use crate::policy::window::{UnixMillis, WindowSize};

/// A list of mostly one element, which needs no memory of its own.
pub type Few<T> = SmallVec<[T; 1]>;

/// The bytes of a key; most need no memory of their own.
pub type KeyBytes = SmallVec<[u8; 32]>;

/// A request, or another hit, that limits are asked to admit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Whether it is charged although a limit refuses it; otherwise, it is charged to all counters or
    /// to none.
    pub counts_rejected: bool,
    /// Counters of the question, each once.
    pub counters: Few<AskedCounter>,
    /// The limits, all of which must admit it. There may be none: then it is charged.
    pub limits: Few<AskedLimit>,
}

impl Question {
    /// The most that are asked at once.
    pub const MAX_AT_ONCE: usize = 128;

    /// Whether it repairs a count that is below zero: others read that as zero.
    pub fn is_repair(&self) -> bool {
        self.limits.iter().any(|it| it.hits < Hits::ZERO)
    }

    /// Whether it is so small that a store can be asked: it may have as many counters as a [`Batch`] has
    /// diffs, and twice as many limits. One that fails would fail for all.
    pub fn can_be_asked(&self) -> bool {
        self.counters.len() <= Batch::MAX_DIFFS && self.limits.len() / 2 <= Batch::MAX_DIFFS
    }

    /// Returns how many of `questions`, from the first on, may be asked at once so that a store
    /// takes a few milliseconds: bounded like a [`Batch`] by the counters and the bytes of their
    /// keys, a log being as much as a few counters. At least one, if there are any.
    pub fn at_once(questions: &[Question]) -> usize {
        let (mut counters, mut bytes) = (0_usize, 0_usize);
        let fit = questions.iter().take_while(|question| {
            for counter in &question.counters {
                counters = counters.saturating_add(counter.weight());
                bytes = bytes.saturating_add(counter.key.len());
            }
            counters <= Batch::MAX_DIFFS && bytes <= Batch::MAX_KEY_BYTES
        });
        let fit = fit.take(Self::MAX_AT_ONCE).count();
        fit.max(1).min(questions.len())
    }

    /// Returns the level to which rejected hits fill the bucket with this index, by its first
    /// limit. `None`: rejected hits do not count, or the counter has no limit.
    pub fn filled_to(&self, counter: usize) -> Option<Hits> {
        let mut limits = self.limits.iter().filter(|_| self.counts_rejected);
        let first = limits.find(|limit| limit.counter == counter);
        first.map(|limit| limit.hits)
    }

    /// Returns the question that gives back the charges of this one.
    pub fn refund(&self) -> Question {
        let counters = self.counters.iter();
        let counters = counters.map(|counter| AskedCounter {
            cost: Hits::ZERO.minus(counter.cost),
            ..counter.clone()
        });
        Question { counters: counters.collect(), ..Question::nothing() }
    }

    /// One about nothing.
    pub fn nothing() -> Question {
        Question { counts_rejected: false, counters: Few::new(), limits: Few::new() }
    }

    /// Questions that need of the store what `questions` do: they charge each kind of their counters as little as can
    /// be, with a key that no client has.
    pub fn trials(questions: &[Question]) -> Vec<Question> {
        let mut trials: Vec<Question> = Vec::new();
        for AskedCounter { shard, kind, .. } in questions.iter().flat_map(|it| &it.counters) {
            let is_tried = trials
                .iter()
                .flat_map(|it| &it.counters)
                .any(|counter| counter.shard == *shard && counter.kind.wire_id() == kind.wire_id());
            if !is_tried {
                trials.push(Question::trial(shard.clone(), *kind));
            }
        }
        trials.truncate(Question::at_once(&trials));
        trials
    }

    /// The trial of a kind of counters in a shard.
    pub fn trial(shard: Shard, kind: StoredKind) -> Question {
        let counter = AskedCounter {
            shard,
            // A key that begins so is digested: see `policy::key`.
            key: KeyBytes::from_slice(b"sha256:trial"),
            kind,
            size: WindowSize::MIN,
            cost: Hits::from_thousandths(1),
        };
        Question { counters: smallvec![counter], ..Question::nothing() }
    }

    /// One whose answer tells only that the shard is answered for.
    pub fn probe(shard: Shard) -> Question {
        let counter = AskedCounter {
            shard,
            key: b"-"[..].into(),
            kind: StoredKind::Windows,
            size: WindowSize::MIN,
            cost: Hits::ZERO,
        };
        Question { counters: smallvec![counter], ..Question::nothing() }
    }
}

/// A counter, and what it is charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedCounter {
    /// Shard of the counter.
    pub shard: Shard,
    /// The key: 1 to 65535 bytes, any.
    pub key: KeyBytes,
    /// Kind of stored state; of a bucket, with the rate at which it leaks.
    pub kind: StoredKind,
    /// The size of the window.
    pub size: WindowSize,
    /// The hits that are charged; zero only asks, and less gives back. Of a level, what is above zero
    /// is a hit, whether it is charged or refused.
    pub cost: Hits,
}

impl AskedCounter {
    /// Returns the number of counters of two windows for which a store takes as long, at most: a
    /// log may have 100,000 entries.
    fn weight(&self) -> usize {
        match self.kind {
            StoredKind::Log => 4,
            StoredKind::Windows | StoredKind::Level(_) => 1,
        }
    }
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedLimit {
    /// The index of the counter.
    pub counter: usize,
    /// Algorithm that reads its windows.
    pub algorithm: Algorithm,
    /// The most hits; of a bucket, what it holds. One below zero admits while the count of the present window is not
    /// above it.
    pub hits: Hits,
    /// The cost that is to be admitted, as [`Algorithm::admits`] says.
    pub cost: Hits,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether each limit admits the request.
    pub admitted: Few<bool>,
    /// Readings of each counter after the decision, by the store's clock. A log's reading tells
    /// when all moving limits on the counter have room.
    pub readings: Few<Reading>,
    /// Whether a refusal may rest on charges that do not last.
    pub certainty: Certainty,
}

/// The certainty of a refusal: whether it rests on charges that stay. Charges of a store that
/// decides in one step stay; those of a [decider](Decider) that charges first and then reads may be
/// taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certainty {
    /// The limit is full.
    #[default]
    Settled,
    /// Some of what fills the limit may be a charge that another decider takes back.
    Unsettled,
    /// There was room before it was charged, and none after: others charged at the same time. It was taken back,
    /// and may be admitted if it is asked again.
    Raced,
}

impl Certainty {
    /// The number that a message has in its place.
    pub fn to_word(self) -> u64 {
        match self {
            Certainty::Settled => 0,
            Certainty::Unsettled => 1,
            Certainty::Raced => 2,
        }
    }

    /// Reads what [`Certainty::to_word`] made.
    pub fn from_word(word: u64) -> Option<Certainty> {
        let all = [Certainty::Settled, Certainty::Unsettled, Certainty::Raced];
        all.into_iter().find(|it| it.to_word() == word)
    }
}

/// The decisions on several questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The store's clock: all decisions are of this moment.
    pub now: UnixMillis,
    /// In the order of the questions, in which they were decided.
    pub answers: Vec<Answer>,
}

/// A shard's history as a decision tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardHistory {
    /// The name of the exchange.
    pub witness: Witness,
    /// Whether the store has the exchange that it was to [follow](Decider::follow).
    pub is_whole: bool,
}

/// A datastore that decides. Each question is decided in one atomic step, so that just as many hits are
/// admitted as a limit says, however many ask at the same time.
///
/// One that keeps [`Absolute`](super::strategy::Absolute) counts has no step in which it reads what others
/// were charged and charges. It may charge, then read, and take the charge back: so never more is
/// admitted; but of questions that race for the last hits all may be refused, which their answers say
/// ([`Certainty`]), and a charge stays whose asker ends in between.
///
/// One whose keys are all in one shard ([`Strategy::shards`] is 1) decides about several shards, of
/// different namespaces, in one step; others about one shard, and the caller splits what it asks.
#[expect(async_fn_in_trait, reason = "as for `Strategy`")]
pub trait Decider: Strategy {
    /// Kinds of state that it keeps, a bucket at no rate: other algorithms are not asked for. A
    /// store that only counts has none, and is asked nothing; for the registry, its `decide` is an
    /// error then.
    const KINDS: &'static [StoredKind];

    /// Has the next [`decide`](Decider::decide) about a shard tell its history, after the exchange with this name.
    fn follow(&mut self, shard: &Shard, after: Option<Witness>) {
        let _ = (shard, after);
    }

    /// Takes what the last [`decide`](Decider::decide) told of the history of a shard. `None`: the store does not tell, or
    /// was not asked to.
    fn take_history(&mut self, shard: &Shard) -> Option<ShardHistory> {
        let _ = shard;
        None
    }

    /// Decides on questions, one after the other in their order: each with what the ones before were
    /// charged, and none with half of what others were. A shard that has no epoch is given `proposed`;
    /// of several, further ones may be given others.
    ///
    /// Without questions, it tells whether the store would answer one; whether a certain shard of
    /// several would be answered for, a question tells that only asks.
    ///
    /// A sensible number of questions is what [`Question::at_once`] says; more hold the store's server
    /// for longer.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; whether anything was charged is then unknown, unless
    /// [`StoreError::may_have_applied`] says that it was not. Questions about several shards that are
    /// not decided in one step are refused.
    async fn decide(
        &mut self,
        node: NodeId,
        proposed: Epoch,
        questions: &[Question],
    ) -> Result<Decided, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(counters: usize, length: usize) -> Question {
        let shard = Shard { namespace: "api".into(), number: 0 };
        let counter = AskedCounter {
            shard,
            key: smallvec![b'x'; length],
            kind: StoredKind::Windows,
            size: WindowSize::MIN,
            cost: Hits::ONE,
        };
        Question { counters: smallvec![counter; counters], ..Question::nothing() }
    }

    #[test]
    fn so_much_is_asked_at_once_as_a_store_answers_soon() {
        for (questions, counters, length, at_once) in [
            (0, 1, 10, 0),
            (127, 1, 10, 127),
            (129, 1, 10, 128),
            (128, 4, 10, 125),
            (128, 1, 256, 128),
            (128, 1, 272, 120),
            (128, 2, 272, 60),
            // One is asked whatever it is like.
            (2, 500, 10, 1),
            (2, 200, 272, 1),
        ] {
            let questions = vec![question(counters, length); questions];
            let what = (questions.len(), counters, length);
            assert_eq!(Question::at_once(&questions), at_once, "{what:?}");
        }
        let mut of_logs = question(2, 10);
        of_logs.counters[0].kind = StoredKind::Log;
        assert_eq!(Question::at_once(&vec![of_logs; 128]), 100);
    }

    #[test]
    fn a_trial_needs_of_a_store_what_questions_need() {
        let mut log = question(2, 10);
        log.counters[1].kind = StoredKind::Log;
        let mut other = question(1, 3);
        other.counters[0].shard.number = 1;
        let trials = Question::trials(&[question(3, 1), log.clone(), other, log]);
        let tried = trials.iter().map(|it| {
            let [counter] = &it.counters[..] else { unreachable!() };
            assert!(counter.cost > Hits::ZERO && it.limits.is_empty());
            (counter.shard.number, counter.kind)
        });
        let expected = [(0, StoredKind::Windows), (0, StoredKind::Log), (1, StoredKind::Windows)];
        assert!(tried.eq(expected));
        assert_eq!(Question::trials(&[]), []);
    }
}
