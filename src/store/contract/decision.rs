//! Decisions of a datastore about requests that wait for them: synchronous mode.
//!
//! The counts are those of [`push_diffs`](super::strategy::Strategy::push_diffs), so nodes that
//! push and nodes that ask can share a namespace, and a decision's charge is a change that other
//! nodes receive. Questions have no ids: one whose answer was lost is not asked again, and may have
//! been charged.

use smallvec::{SmallVec, smallvec};

use super::error::StoreError;
use super::strategy::{Batch, Epoch, NodeId, Shard, Strategy};
use crate::policy::algorithm::{Algorithm, Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::reserve::Witness;
use crate::policy::window::{UnixMillis, WindowSize};

/// A list that mostly has one element, for which it allocates no memory.
pub type Few<T> = SmallVec<[T; 1]>;

/// The bytes of a key, mostly without allocated memory.
pub type KeyBytes = SmallVec<[u8; 32]>;

/// A request, or another hit, that limits must admit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Whether it is charged even if a limit refuses it. Otherwise it is charged in all counters or
    /// in none.
    pub counts_rejected: bool,
    /// Counters of the question, each once.
    pub counters: Few<AskedCounter>,
    /// The limits, all of which must admit it. Without limits it is charged.
    pub limits: Few<AskedLimit>,
}

impl Question {
    /// Most questions that are asked at once.
    pub const MAX_AT_ONCE: usize = 128;

    /// Returns whether it repairs a negative count, which is read as zero.
    pub fn is_repair(&self) -> bool {
        self.limits.iter().any(|it| it.hits < Hits::ZERO)
    }

    /// Returns whether it is small enough for a store: it may have as many counters as a [`Batch`]
    /// has diffs, and twice as many limits. A store that fails on a question fails on all that are
    /// asked with it.
    pub fn can_be_asked(&self) -> bool {
        self.counters.len() <= Batch::MAX_DIFFS && self.limits.len() / 2 <= Batch::MAX_DIFFS
    }

    /// Returns how many of `questions`, from the first on, may be asked at once, so that a store
    /// takes a few milliseconds. Like a [`Batch`], they are bounded by the counters and by the
    /// bytes of their keys; a log counts as several counters. At least one, if there are any.
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
    /// limit. `None` if rejected hits do not count, or the counter has no limit.
    pub fn filled_to(&self, counter: usize) -> Option<Hits> {
        let mut limits = self.limits.iter().filter(|_| self.counts_rejected);
        let first = limits.find(|limit| limit.counter == counter);
        first.map(|limit| limit.hits)
    }

    /// Returns the question that refunds the charges of this one.
    pub fn refund(&self) -> Question {
        let counters = self.counters.iter();
        let counters = counters.map(|counter| AskedCounter {
            cost: Hits::ZERO.minus(counter.cost),
            ..counter.clone()
        });
        Question { counters: counters.collect(), ..Question::nothing() }
    }

    /// Returns a question without counters and limits.
    pub fn nothing() -> Question {
        Question { counts_rejected: false, counters: Few::new(), limits: Few::new() }
    }

    /// Returns questions that require the same of the store as `questions`: they charge each kind
    /// of counter the minimum, under a key that no client can have.
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

    /// Returns the trial question of a kind of counter in a shard.
    pub fn trial(shard: Shard, kind: StoredKind) -> Question {
        let counter = AskedCounter {
            shard,
            // Keys with this beginning are digested: see `policy::key`.
            key: KeyBytes::from_slice(b"sha256:trial"),
            kind,
            size: WindowSize::MIN,
            cost: Hits::from_thousandths(1),
        };
        Question { counters: smallvec![counter], ..Question::nothing() }
    }

    /// Returns a question that only finds out whether the shard's store answers.
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

/// A counter, and its charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedCounter {
    /// Shard of the counter.
    pub shard: Shard,
    /// The key: 1 to 65535 bytes, any.
    pub key: KeyBytes,
    /// Kind of the stored state; a bucket's kind has its rate.
    pub kind: StoredKind,
    /// The size of the window.
    pub size: WindowSize,
    /// The hits to charge; zero only asks, and a negative number refunds. In a level, a positive
    /// number is a hit, even if it is refused.
    pub cost: Hits,
}

impl AskedCounter {
    /// Returns whether both are the same counter, whatever is charged.
    pub(crate) fn is_same(&self, other: &AskedCounter) -> bool {
        AskedCounter { cost: other.cost, ..self.clone() } == *other
    }

    /// Returns an upper bound of the window counters for which a store takes as long. A log may
    /// have 100,000 entries.
    fn weight(&self) -> usize {
        match self.kind {
            StoredKind::Log => 4,
            StoredKind::Windows | StoredKind::Level(_) | StoredKind::Holds => 1,
        }
    }
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedLimit {
    /// Index of the counter.
    pub counter: usize,
    /// Algorithm that reads its windows.
    pub algorithm: Algorithm,
    /// The limit's hits, or a bucket's capacity. A negative limit admits while the current window's
    /// count is not above it.
    pub hits: Hits,
    /// The cost to admit, as in [`Algorithm::admits`].
    pub cost: Hits,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether each limit admits the request.
    pub admitted: Few<bool>,
    /// The reading of each counter after the decision, by the store's clock. A log's reading
    /// contains the time when all moving limits of the counter have room.
    pub readings: Few<Reading>,
    /// Whether a refusal may rest on charges that do not last.
    pub certainty: Certainty,
}

/// The certainty of a refusal: whether the charges that it rests on stay. A store that decides
/// atomically always has final charges; a [decider](Decider) that charges first and then reads may
/// take charges back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certainty {
    /// The limit is certainly full.
    #[default]
    Settled,
    /// The charges that fill the limit may include some that another decider takes back.
    Unsettled,
    /// There was room before the charge and none after it, since others charged at the same time.
    /// The charge was taken back, and the question may be admitted if it is asked again.
    Raced,
}

impl Certainty {
    /// Returns the certainty's number in messages.
    pub fn to_word(self) -> u64 {
        match self {
            Certainty::Settled => 0,
            Certainty::Unsettled => 1,
            Certainty::Raced => 2,
        }
    }

    /// Inverts [`Certainty::to_word`]; `None` for other numbers.
    pub fn from_word(word: u64) -> Option<Certainty> {
        let all = [Certainty::Settled, Certainty::Unsettled, Certainty::Raced];
        all.into_iter().find(|it| it.to_word() == word)
    }
}

/// The decisions on several questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Time of the store's clock, at which all decisions were made.
    pub now: UnixMillis,
    /// In the order of the questions, in which they were decided.
    pub answers: Vec<Answer>,
}

/// A shard's history, as returned with a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardHistory {
    /// The name of the exchange.
    pub witness: Witness,
    /// Whether the store still has the exchange that it was told to [follow](Decider::follow).
    pub is_whole: bool,
}

/// A datastore that decides. It decides about each question in one atomic step, so that exactly as
/// many hits are admitted as a limit allows, however many ask at the same time.
///
/// A store with [`Absolute`](super::strategy::Absolute) counts cannot read and charge atomically.
/// It may charge, then read, and take the charge back. Then a limit is never exceeded, but of
/// questions that race for the last hits all may be refused, which their answers say
/// ([`Certainty`]); and if the asker ends in between, its charge stays.
///
/// A store with one shard ([`Strategy::shards`] is 1) decides about shards of several namespaces in
/// one step; others decide about one shard, and the caller splits its questions.
#[expect(async_fn_in_trait, reason = "as for `Strategy`")]
pub trait Decider: Strategy {
    /// Kinds of state that it stores, with a bucket at rate zero; it is asked only about these. A
    /// store that only counts has none and is asked nothing; for the registry, its `decide` returns
    /// an error.
    const KINDS: &'static [StoredKind];

    /// Makes the next [`decide`](Decider::decide) about a shard return its history after the
    /// exchange with this name.
    fn follow(&mut self, shard: &Shard, after: Option<Witness>) {
        let _ = (shard, after);
    }

    /// Takes the history of a shard from the last [`decide`](Decider::decide). `None` if the store
    /// does not support that, or was not asked to.
    fn take_history(&mut self, shard: &Shard) -> Option<ShardHistory> {
        let _ = shard;
        None
    }

    /// Decides about questions one after another, each with the charges of those before it, and
    /// never with a part of another charge. Gives a shard without an epoch the epoch `proposed`; if
    /// several shards have none, later ones may get others.
    ///
    /// Without questions, finds out whether the store answers; for one of several shards, a
    /// question that only asks does that.
    ///
    /// [`Question::at_once`] returns a reasonable number of questions. More block the store's
    /// server for longer.
    ///
    /// # Errors
    ///
    /// [`StoreError`]. It is then unknown whether anything was charged, unless
    /// [`StoreError::may_have_applied`] says that it was not.
    /// Questions about several shards that cannot be decided in one step are refused.
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
    fn as_many_questions_are_asked_at_once_as_a_store_answers_quickly() {
        for (questions, counters, length, at_once) in [
            (0, 1, 10, 0),
            (127, 1, 10, 127),
            (129, 1, 10, 128),
            (128, 4, 10, 125),
            (128, 1, 256, 128),
            (128, 1, 272, 120),
            (128, 2, 272, 60),
            // At least one is always asked.
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
    fn a_trial_requires_the_same_of_a_store_as_the_questions() {
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
