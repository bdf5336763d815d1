//! What a store decides: what `decision.rs` says, against a real datastore.

mod admission;
mod model;
mod shared;
mod values;

pub(in crate::store) use self::admission::*;
pub(in crate::store) use self::model::*;
pub(in crate::store) use self::shared::*;
pub(in crate::store) use self::values::*;
use super::*;
use crate::policy::algorithm::{Algorithm, Reading, WindowCounts};
use crate::store::decision::{
    Answer, AskedCounter, AskedLimit, Decided, Decider, KeyBytes, Question,
};
use crate::store::error::StoreError;
use smallvec::smallvec;

use Algorithm::{Fixed, Sliding};

/// Defines the tests of decisions for a fixture whose store decides: about shards of several
/// namespaces at once, or about one.
macro_rules! decision_tests {
    ($fixture:ty) => {
        $crate::store::conformance::conformance_tests! { $fixture:
            counters_of_a_question_may_be_in_several_shards,
            decisions_follow_the_model,
        }
        $crate::store::conformance::decision_tests!($fixture, of one shard);
    };
    ($fixture:ty, of one shard) => {
        $crate::store::conformance::conformance_tests! { $fixture:
            a_limit_admits_so_many_hits,
            what_was_decided_before_counts_in_the_same_call,
            decisions_in_one_shard_follow_the_model,
            all_counters_are_charged_or_none,
            rejected_hits_are_charged_if_they_are_to,
            asking_charges_nothing_and_is_no_change,
            less_than_zero_gives_back,
            a_counter_may_have_several_limits,
            decisions_on_decimals_and_large_counts_are_exact,
            a_count_that_saturates_harms_no_other,
            any_bytes_may_be_asked_about,
            a_shard_without_an_epoch_gets_the_proposed_one,
            what_is_charged_is_a_change_for_others,
            what_others_pushed_counts,
            an_ended_window_weighs_as_the_previous_one,
            of_many_that_ask_at_once_so_many_are_admitted,
            thousands_may_be_asked_about_at_once,
            the_largest_question_is_answered,
            no_questions_have_no_answers,
        }
    };
}
pub(in crate::store) use decision_tests;

/// The largest, so that no test sees it end.
const LONGEST: WindowSize = size(WindowSize::MAX_MILLIS);

fn counter(key: &str, size: WindowSize, cost: i64) -> AskedCounter {
    AskedCounter {
        shard: shard("api"),
        key: key.as_bytes().into(),
        size,
        cost: Hits::from_thousandths(cost),
    }
}

fn limit(counter: usize, algorithm: Algorithm, hits: i64, cost: i64) -> AskedLimit {
    AskedLimit {
        counter,
        algorithm,
        hits: Hits::from_thousandths(hits),
        cost: Hits::from_thousandths(cost),
    }
}

/// One hit under one limit, in whole hits.
pub(in crate::store) fn question(key: &str, algorithm: Algorithm, hits: i64) -> Question {
    Question {
        counts_rejected: false,
        counters: smallvec![counter(key, LONGEST, 1000)],
        limits: smallvec![limit(0, algorithm, hits * 1000, 1000)],
    }
}

/// A node that asks.
pub(in crate::store) struct Asking<S> {
    pub(in crate::store) store: S,
    pub(in crate::store) node: NodeId,
}

impl<S: Decider> Asking<S> {
    pub(in crate::store) fn new(store: S) -> Asking<S> {
        Asking {
            store,
            node: new_node(),
        }
    }

    pub(in crate::store) async fn ask(&mut self, questions: &[Question]) -> Decided {
        self.try_to_ask(questions).await.unwrap()
    }

    pub(in crate::store) async fn try_to_ask(
        &mut self,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let epoch = new_epoch();
        self.store.decide(self.node, epoch, questions).await
    }

    /// Whether one question is admitted by each limit, and what is counted then, in thousandths.
    async fn ask_one(&mut self, question: &Question) -> (Vec<bool>, Vec<i64>) {
        let decided = self.ask(core::slice::from_ref(question)).await;
        let Answer { admitted, readings } = decided.answers[0].clone();
        (admitted.to_vec(), readings.iter().map(current).collect())
    }

    /// The total of the key in the present window.
    async fn total(&mut self, key: &[u8]) -> i64 {
        let now = self.ask(&[]).await.now;
        let window = LONGEST.at(now).number;
        let shard = shard("api");
        let total = self.store.get_window(&shard, key, LONGEST, window);
        total.await.unwrap().thousandths()
    }
}

fn current(reading: &Reading) -> i64 {
    reading.windows().current.thousandths()
}

/// How many questions were admitted.
fn admitted(decided: &Decided) -> usize {
    let answers = decided.answers.iter();
    answers
        .filter(|it| it.admitted.iter().all(|it| *it))
        .count()
}
