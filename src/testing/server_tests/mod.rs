//! Tests of every datastore with servers: which of them it uses, which it trusts by TLS, and the
//! outcome of a batch when one ends, hangs or loses an answer.

pub(crate) mod failures;
pub(crate) mod tls;

use core::fmt::Debug;
use core::num::NonZeroU32;
use core::time::Duration;

use super::certificates::{Authority, Certificate};
use super::conformance::{MINUTE, Node, block_on, hits, new_epoch, pairs, shard, totals};
use crate::store::contract::error::{Failure, StoreError};
use crate::store::contract::options::{Credentials, StoreOptions};
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::{Changes, Pushed, Strategy};

/// A server of one test, which ends when the value is dropped.
pub(crate) trait Served: Sized {
    type Store: Strategy<Changes = Changes>;

    /// The name of the protocol in messages.
    const PROTOCOL: &str;
    /// Most answers of a push on a new connection.
    const MOST_ANSWERS: usize = 1;
    /// A part of the error if the server does not trust the client's authority.
    const UNTRUSTED: &str = "UnknownCA";

    fn start() -> Self;
    /// Returns the test's own place in a shared server, if starting a server takes long.
    fn shared() -> Self {
        Self::start()
    }
    /// Starts a server that loses nothing by [`Served::restart`].
    fn start_durable() -> Self {
        Self::start()
    }
    /// Starts a server whose port requires TLS, with this certificate. If it `wants_certificates`,
    /// clients present one of the same authority.
    fn start_with_tls(
        authority: &Authority,
        certificate: &Certificate,
        wants_certificates: bool,
    ) -> Self;

    /// Creates a strategy with these options, for servers of this kind.
    fn store(&self, options: &StoreOptions) -> Self::Store;
    /// Returns the port.
    fn address(&self) -> ServerAddress;
    /// Sends its process a signal: `STOP`, `CONT`.
    fn signal(&self, name: &str);
    /// Kills the server.
    fn crash(&mut self);
    /// Starts it after [`Served::crash`], which took what it had.
    fn start_again(&mut self);
    /// Stops the server so that it keeps its data, and starts it again.
    fn restart(&mut self);
    /// Returns whether the server contains no data of a strategy.
    fn is_untouched(&self) -> bool;
    /// Returns whether this may be its answer to a client without a certificate.
    fn is_of_missing_certificate(error: &StoreError) -> bool;
}

/// Defines these tests for a kind of server.
macro_rules! server_tests {
    ($server:ty) => {
        $crate::testing::server_tests::server_tests! { $server:
            failures::a_server_that_cannot_be_reached_is_passed_over,
            failures::of_several_servers_each_is_told_what_happened_with_it,
            failures::a_server_that_hangs_at_the_beginning_is_passed_over,
            failures::a_server_that_has_ended_cannot_be_reached,
            failures::a_server_that_restarts_with_its_data_goes_on,
            failures::a_server_that_crashed_has_no_epoch,
            failures::a_server_that_hangs_may_have_applied_the_batch_and_applies_it_once,
            failures::a_late_answer_is_not_taken_for_another_one,
            failures::a_batch_whose_answer_was_lost_is_applied_once,
            tls::a_server_that_is_trusted_is_used,
            tls::an_untrusted_server_is_not_used,
            tls::the_certificate_has_the_name_of_the_server_or_the_one_that_is_set,
            tls::an_expired_certificate_is_not_trusted,
            tls::a_server_may_want_a_certificate_of_us,
        }
    };
    ($server:ty: $($group:ident :: $test:ident),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                $crate::testing::server_tests::$group::$test::<$server>();
            }
        )*
    };
}
pub(crate) use server_tests;

/// Longest time of any operation on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the options of all stores with these servers.
pub(crate) fn options(servers: &[ServerAddress]) -> StoreOptions {
    StoreOptions {
        servers: servers.to_vec(),
        credentials: Credentials::default(),
        connect_timeout: PATIENCE,
        timeout: PATIENCE,
        exchanges: NonZeroU32::MAX,
        tls: None,
    }
}

/// Returns the options of a store that waits only shortly.
fn impatient(servers: &[ServerAddress]) -> StoreOptions {
    StoreOptions {
        connect_timeout: Duration::from_secs(2),
        timeout: Duration::from_secs(3),
        ..options(servers)
    }
}

/// Creates a node of the server at this address, with the options of a strategy for `place`.
async fn join<F: Served>(place: &F, address: ServerAddress) -> Node<F::Store> {
    Node::join(place.store(&options(&[address])), shard("api")).await
}

/// Runs the first operation of a node.
pub(crate) async fn open(store: &mut impl Strategy) -> Result<(), StoreError> {
    let shard = shard("api");
    let opened = store.open_epoch(&shard, None, new_epoch()).await;
    opened.map(drop)
}

/// Checks that the store denies what this user with this password asks, and shows neither in the error.
pub(crate) async fn denies(mut store: impl Strategy + Debug, username: &str, password: &str) {
    let error = open(&mut store).await.unwrap_err();
    assert!(matches!(error.failure, Failure::Denied(_)), "{error}");
    assert!(!error.is_transient() && !error.may_have_applied());
    for text in [format!("{error} {error:?}"), format!("{store:?}")] {
        for secret in [username, password] {
            assert!(secret.is_empty() || !text.contains(secret), "{text}");
        }
    }
}

/// Returns the error of the node's batch of this number.
pub(crate) async fn failure<S: Strategy>(node: &mut Node<S>, number: u64) -> StoreError {
    let batch = node.batch(number, vec![hits("a", 1)]);
    let pushed = node.store.push_diffs(&node.shard, &batch, 500);
    pushed.await.expect_err("pushed")
}

async fn total<S: Strategy>(node: &mut Node<S>, key: &[u8]) -> i64 {
    let total = node.store.get_window(&node.shard, key, MINUTE, 7).await;
    total.unwrap().whole()
}
