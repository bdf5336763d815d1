//! Decisions of a store as `decision.rs` describes them, against a real datastore.

mod admission;
mod bucket;
mod calendar;
mod elastic;
mod model;
mod moving;
mod shared;
mod values;

use super::*;
use crate::policy::algorithm::{Algorithm, Reading, StoredKind, WindowCounts};
use crate::policy::reserve::Grants;
use crate::policy::window::UnixMillis;
use crate::store::contract::decision::{
    Answer, AskedCounter, AskedLimit, Decided, Decider, KeyBytes, Question,
};
use crate::store::contract::error::StoreError;
use crate::store::contract::strategy::NodeId;
pub use admission::*;
pub use bucket::*;
pub use calendar::*;
pub use elastic::*;
pub(crate) use model::ListOfHits;
pub use model::{decisions_follow_the_model, decisions_in_one_shard_follow_the_model};
pub use moving::*;
pub use shared::*;
use smallvec::smallvec;
pub use values::*;

use Algorithm::{Fixed, Sliding};

/// Defines the tests of decisions for a [`Fixture`] whose store decides, and whose `Changes` and
/// `Counts` are these: about shards of several namespaces at once, or `of one shard`; about all kinds of
/// counters, or `of windows` alone, or `of levels` too.
#[macro_export]
macro_rules! decision_tests {
    ($fixture:ty, $changes:ident, $counts:ident) => {
        $crate::testing::conformance::decision_tests!($fixture, of several shards);
        $crate::testing::conformance::decision_tests!($fixture, $changes, $counts, of one shard);
    };
    ($fixture:ty, $changes:ident, $counts:ident, of one shard) => {
        $crate::testing::conformance::decision_tests!($fixture, of other kinds);
        $crate::testing::conformance::decision_tests!($fixture, $changes, $counts, of windows in one shard);
    };
    ($fixture:ty, $changes:ident, $counts:ident, of windows) => {
        $crate::testing::conformance::decision_tests!($fixture, of several shards);
        $crate::testing::conformance::decision_tests!($fixture, $changes, $counts, of windows in one shard);
    };
    ($fixture:ty, of several shards) => {
        $crate::testing::conformance::conformance_tests! { $fixture:
            decisions::counters_of_a_question_may_be_in_several_shards,
            decisions::decisions_follow_the_model,
        }
    };
    ($fixture:ty, $changes:ident, $counts:ident, of windows in one shard) => {
        $crate::testing::conformance::conformance_tests! { $fixture:
            decisions::a_limit_admits_so_many_hits,
            decisions::earlier_decisions_count_in_the_same_call,
            decisions::decisions_in_one_shard_follow_the_model,
            decisions::all_counters_are_charged_or_none,
            decisions::rejected_hits_are_charged_if_they_are_to,
            decisions::a_counter_may_have_several_limits,
            decisions::decisions_on_decimals_and_large_counts_are_exact,
            decisions::a_count_that_saturates_harms_no_other,
            decisions::no_more_is_given_back_than_was_counted,
            decisions::a_shard_without_an_epoch_gets_the_proposed_one,
            decisions::pushes_of_others_count,
            decisions::windows_of_the_calendar_are_those_of_the_stores_clock,
            decisions::pushes_of_others_count_in_windows_of_the_calendar,
            decisions::an_ended_window_weighs_as_the_previous_one,
            decisions::at_most_the_limit_of_many_concurrent_hits_is_admitted,
            decisions::thousands_may_be_asked_about_at_once,
            decisions::the_largest_question_is_answered,
            decisions::no_questions_have_no_answers,
        }
        $crate::testing::conformance::decision_tests!($fixture, $changes);
        $crate::testing::conformance::decision_tests!($fixture, $counts);
    };
    ($fixture:ty, of other kinds) => {
        $crate::testing::conformance::decision_tests!($fixture, of levels);
        $crate::testing::conformance::decision_tests!($fixture, of logs);
    };
    ($fixture:ty, of levels) => {
        $crate::testing::conformance::conformance_tests! { $fixture:
            decisions::each_hit_extends_an_elastic_window,
            decisions::an_elastic_window_that_was_not_hit_ends,
            decisions::hits_are_given_back_to_an_elastic_window,
            decisions::each_rate_has_a_bucket_of_its_own,
            decisions::rejected_hits_fill_a_bucket_and_no_more,
            decisions::hits_are_given_back_to_a_bucket,
        }
    };
    ($fixture:ty, of logs) => {
        $crate::testing::conformance::conformance_tests! { $fixture:
            decisions::logs_are_lists_of_hits,
            decisions::parts_of_a_hit_leave_one_by_one,
            decisions::all_counters_are_charged_or_none_whatever_their_algorithms,
            decisions::of_many_that_ask_at_once_no_window_has_one_too_many,
        }
    };
    ($fixture:ty, Changes) => {
        $crate::testing::conformance::conformance_tests! { $fixture:
            decisions::asking_charges_nothing_and_is_no_change,
            decisions::less_than_zero_gives_back,
            decisions::any_bytes_may_be_asked_about,
            decisions::charges_are_changes_for_others,
        }
    };
    ($fixture:ty, Snapshots) => {};
    ($fixture:ty, Added) => {
        $crate::testing::conformance::conformance_tests! { $fixture:
            decisions::exactly_the_limit_of_many_concurrent_hits_is_admitted,
            decisions::a_count_below_zero_is_no_room,
        }
    };
    ($fixture:ty, Absolute) => {};
}
#[doc(inline)]
pub use decision_tests;

/// The largest window, which no test sees end.
const LONGEST: WindowSize = size(WindowSize::MAX_MILLIS);

fn counter(key: &str, size: WindowSize, cost: i64) -> AskedCounter {
    AskedCounter {
        shard: shard("api"),
        key: key.as_bytes().into(),
        kind: StoredKind::Windows,
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

/// Returns the question about one hit under one limit, in whole hits.
pub(crate) fn question(key: &str, algorithm: Algorithm, hits: i64) -> Question {
    Question {
        counts_rejected: false,
        counters: smallvec![AskedCounter { kind: algorithm.kind(), ..counter(key, LONGEST, 1000) }],
        limits: smallvec![limit(0, algorithm, hits * 1000, 1000)],
    }
}

/// A node that asks questions.
pub(crate) struct Asking<S> {
    pub(crate) store: S,
    pub(crate) node: NodeId,
}

impl<S: Decider> Asking<S> {
    pub(crate) fn new(store: S) -> Asking<S> {
        Asking { store, node: new_node() }
    }

    pub(crate) async fn ask(&mut self, questions: &[Question]) -> Decided {
        self.try_to_ask(questions).await.unwrap()
    }

    pub(crate) async fn try_to_ask(
        &mut self,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let epoch = new_epoch();
        self.store.decide(self.node, epoch, questions).await
    }

    /// Asks one question. Returns whether each limit admits it, and the counts afterwards, in
    /// thousandths.
    async fn ask_one(&mut self, question: &Question) -> (Vec<bool>, Vec<i64>) {
        let decided = self.ask(core::slice::from_ref(question)).await;
        let Answer { admitted, readings, .. } = decided.answers[0].clone();
        (admitted.to_vec(), readings.iter().map(current).collect())
    }

    /// Returns the total of the key in the current window.
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

/// Returns the number of questions that were admitted.
fn admitted(decided: &Decided) -> usize {
    let answers = decided.answers.iter();
    answers.filter(|it| it.admitted.iter().all(|it| *it)).count()
}
