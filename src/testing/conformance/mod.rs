//! The suite that every strategy passes: it tests the contract in `strategy.rs` and `decision.rs` with a
//! real datastore.
//!
//! A store of this crate, and one of another crate (with the feature `conformance`), run it like this:
//!
//! ```text
//! struct MyServer { .. }
//!
//! impl Fixture for MyServer {
//!     type Store = MyStore;
//!     ..
//! }
//!
//! conformance_tests!(MyServer, Snapshots, Absolute);
//! ```
//!
//! The arguments are the store's [`Strategy::Changes`] and [`Strategy::Counts`], and select the tests for
//! such a store; with other arguments, they do not compile. A store that returns the number of living
//! [nodes](Strategy::living) adds `conformance_tests!(MyServer, Nodes)`, and one with a
//! [`channel`](Strategy::channel) the same with `Channel`. `decision_tests!` are for a store that
//! decides.
#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used,
        reason = "a test ends by panicking"
    )
)]

#[doc(hidden)]
pub mod abilities;
#[doc(hidden)]
pub mod batches;
#[doc(hidden)]
pub mod changes;
#[doc(hidden)]
pub mod channel;
#[doc(hidden)]
pub mod counters;
#[doc(hidden)]
pub mod decisions;
#[doc(hidden)]
pub mod epochs;
mod node;
#[cfg(test)]
mod others;

use core::future::Future;
use core::time::Duration;
use std::collections::BTreeMap;

use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::contract::strategy::{
    Absolute, Added, Batch, BatchId, Changes, Count, Diff, MAX_TOTAL, Position, Pushed, Shard,
    Snapshots, Strategy,
};
#[cfg(test)]
pub(crate) use channel::Listener;
#[doc(inline)]
pub use decisions::decision_tests;
#[cfg(test)]
pub(crate) use decisions::{Asking, ListOfHits, moving, question};
pub(crate) use node::{Node, behind, hits, new_epoch, pairs, shard, since, totals};
use node::{applied, new_node, occupancy, thousandths, told};
#[cfg(test)]
pub(crate) use others::Others;

/// A datastore for one test.
pub trait Fixture {
    /// The strategy that is tested.
    type Store: Strategy;

    /// Starts a datastore that holds nothing. Ends with the value.
    fn start() -> Self;
    /// Creates a strategy.
    fn connect(&self) -> Self::Store;
    /// Deletes all data.
    fn flush(&self);
}

/// A fixture whose store keeps a log of changes.
pub trait LogFixture: Fixture<Store: Strategy<Changes = Changes>> {
    /// Deletes the log of changes, but no counts.
    fn forget_changes(&self, shard: &Shard);
    /// Returns a later position of the same epoch, which the store has not reached.
    fn ahead_of(&self, position: Position) -> Position;
}

/// Defines the tests of the suite for a [`Fixture`], whose store's `Changes` and `Counts` are these.
#[macro_export]
macro_rules! conformance_tests {
    ($fixture:ty, $changes:ident, $counts:ident) => {
        $crate::testing::conformance::conformance_tests! { $fixture:
            batches::a_new_store_has_no_epoch,
            batches::batches_are_applied_in_order,
            batches::a_repeat_is_applied_once,
            batches::a_batch_that_does_not_fit_is_not_applied,
            batches::a_node_that_asks_is_told_what_does_not_fit,
            batches::a_batch_without_diffs_is_one_all_the_same,
            batches::of_two_nodes_with_one_identity_the_second_is_told,
            batches::a_batch_of_a_former_chain_is_not_applied,
            epochs::of_many_nodes_that_open_an_epoch_one_wins,
            epochs::only_the_epoch_that_is_named_is_replaced,
            epochs::a_flushed_store_has_no_epoch,
            epochs::a_new_epoch_begins_without_counts_and_numbers,
            epochs::a_batch_of_another_epoch_is_not_applied,
            counters::all_counters_are_read_in_pages_while_others_write,
            counters::only_counters_of_the_requested_windows_are_read,
            counters::windows_of_the_calendar_are_windows_as_others,
            counters::decimals_and_large_totals_are_exact,
            counters::diffs_may_be_negative,
            counters::any_bytes_are_a_key,
            counters::ended_windows_go_away_and_the_epoch_stays,
            counters::namespaces_shards_sizes_and_windows_do_not_mix,
        }
        $crate::testing::conformance::conformance_tests! { $fixture, $changes }
        $crate::testing::conformance::conformance_tests! { $fixture, $counts }
    };
    ($fixture:ty, Changes) => {
        $crate::testing::conformance::conformance_tests! { $fixture:
            changes::nodes_see_what_others_changed,
            changes::totals_include_what_others_pushed_meanwhile,
            changes::a_counter_that_both_changed_comes_once,
            changes::a_nodes_own_changes_do_not_come_back,
            changes::changes_of_others_come_with_a_repeat,
            changes::changes_come_in_parts_up_to_the_limit,
            changes::a_node_without_a_position_is_behind,
            changes::a_position_that_is_forgotten_is_behind,
            changes::a_position_ahead_is_behind,
            changes::of_changes_at_the_same_time_each_is_applied_once,
        }
    };
    ($fixture:ty, Channel) => {
        $crate::testing::conformance::conformance_tests! { $fixture:
            channel::pushes_of_others_are_heard_at_once,
            channel::pushes_are_heard_in_order,
            channel::pushes_since_a_position_are_heard,
            channel::a_push_without_news_is_not_heard,
            channel::a_batch_that_is_not_applied_is_not_heard,
            channel::any_keys_and_totals_are_heard,
            channel::the_next_epoch_is_heard,
            channel::one_hears_of_several_namespaces,
            channel::each_position_of_news_that_come_together_is_known,
            channel::news_have_the_totals_of_their_position,
            channel::a_listener_that_lags_hears_the_latest_totals,
        }
    };
    ($fixture:ty, Snapshots) => {
        $crate::testing::conformance::conformance_tests! { $fixture:
            abilities::nodes_read_what_others_pushed,
        }
    };
    ($fixture:ty, Added) => {
        $crate::testing::conformance::conformance_tests! { $fixture:
            abilities::totals_saturate,
            abilities::under_another_identity_a_batch_is_the_first,
        }
    };
    ($fixture:ty, Absolute) => {
        $crate::testing::conformance::conformance_tests! { $fixture:
            abilities::occupancies_of_a_counter_add_up,
            abilities::a_batch_that_comes_late_leaves_newer_counts,
            abilities::a_repeat_may_lack_what_was_evicted,
            abilities::sums_saturate,
        }
    };
    // For a store that counts living nodes, in addition to the others.
    ($fixture:ty, Nodes) => {
        $crate::testing::conformance::conformance_tests! { $fixture:
            abilities::nodes_that_live_are_counted,
            abilities::living_nodes_have_different_places,
            abilities::a_node_that_says_nothing_for_long_does_not_live,
            abilities::a_node_that_asks_lives_in_its_namespace,
        }
    };
    ($fixture:ty: $($group:ident :: $test:ident),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                let fixture = <$fixture as $crate::testing::conformance::Fixture>::start();
                let test = $crate::testing::conformance::$group::$test(&fixture);
                $crate::testing::conformance::block_on(test);
            }
        )*
    };
}
#[doc(inline)]
pub use conformance_tests;

/// Runs a test to its end, on a runtime of its own.
///
/// # Panics
///
/// No runtime can be created.
pub fn block_on<T>(test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    runtime.block_on(test)
}

/// Waits until something is so, such as that a server says so.
#[cfg(test)]
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let deadline = Duration::from_secs(30);
    tokio::time::timeout(deadline, waiting).await.expect(what);
}

pub(crate) const MINUTE: WindowSize = size(60_000);
pub(crate) const HOUR: WindowSize = size(3_600_000);
/// A number above that of any test.
const LIMIT: usize = 1000;

/// The random bits of all batches, unless a test says otherwise.
const NONCE: u32 = 0xab_cdef;

pub(crate) const fn size(millis: u64) -> WindowSize {
    WindowSize::from_millis(millis).unwrap()
}

async fn nodes<F: Fixture>(fixture: &F) -> [Node<F::Store>; 2] {
    [
        Node::join(fixture.connect(), shard("api")).await,
        Node::join(fixture.connect(), shard("api")).await,
    ]
}

/// Waits for all of these, which make progress together.
pub(crate) async fn all_at_once<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<T>> = waiting.iter().map(|_| None).collect();
    core::future::poll_fn(move |context| {
        for (future, done) in waiting.iter_mut().zip(&mut done) {
            if done.is_none()
                && let core::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *done = Some(value);
            }
        }
        if done.iter().any(Option::is_none) {
            return core::task::Poll::Pending;
        }
        core::task::Poll::Ready(done.iter_mut().filter_map(Option::take).collect())
    })
    .await
}
