//! A store whose answers make no progress.

use core::num::NonZeroU64;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

use super::node::{Synced, cluster};
use super::{LIFETIME, SIZE, T, hits, size};
use crate::engine::{SyncError, Syncer};
use crate::policy::window::UnixMillis;
use crate::store::contract::strategy::*;
use crate::testing::answers::{Answer, AnswerStore, Page};

/// Returns the results of three cycles, and the number of calls in each.
fn cycles<C, K>(answer: Answer<C>, page: Page) -> [(Poll<Synced>, usize); 3]
where
    C: ChangesKind,
    K: CountsKind,
{
    let (_, nodes) = cluster(1);
    let node = &nodes[0];
    node.hit(b"a", hits(1));
    let lifetime = Duration::from_millis(LIFETIME);
    let syncer = Syncer::new(node.namespace, &[size()], lifetime).unwrap();
    let mut liar = AnswerStore::<C, K>::answering(answer, page);
    [(); 3].map(|()| {
        let before = liar.calls;
        let mut sync = Box::pin(syncer.sync(&mut liar, node.time));
        let result = sync.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(sync);
        (result, liar.calls - before)
    })
}

/// Expects each cycle to end soon, without progress.
fn leads_nowhere<C: ChangesKind, K: CountsKind>(
    what: &str,
    answer: Answer<C>,
    page: Page,
    at_most: usize,
) {
    for (result, calls) in cycles::<C, K>(answer, page) {
        let Poll::Ready(Err(SyncError::NoProgress(_))) = result else {
            panic!("{what}: {result:?}");
        };
        assert!(calls <= at_most, "{what}: {calls}");
    }
}

/// Never reports a batch as applied.
fn denies<C: ChangesKind, K: CountsKind>() {
    let other =
        |_: &Batch, call: usize| Pushed::OtherEpoch(Epoch(NonZeroU64::new(call as u64).unwrap()));
    let answers: [(&str, Answer<C>); 6] = [
        ("lost", |_, _| Pushed::Lost),
        ("forgotten", |_, _| Pushed::Forgotten),
        ("twin", |_, _| Pushed::Twin),
        ("none", |_, _| Pushed::NoEpoch),
        ("other", other),
        ("itself", |batch, _| Pushed::OtherEpoch(batch.epoch)),
    ];
    for (what, answer) in answers {
        leads_nowhere::<C, K>(what, answer, |_| None, 20);
    }
}

fn applied<C>(changes: C) -> Pushed<C> {
    let now = UnixMillis(T);
    Pushed::Applied { changes, now }
}

#[test]
fn a_store_that_leads_nowhere_is_left_alone_for_a_while() {
    fn since(position: u64, counts: Vec<Count>, has_more: bool) -> Pushed {
        let position = Position([position, 0]);
        applied(Changes::Since { counts, position, has_more })
    }
    fn behind(call: usize) -> Pushed {
        let position = Position([call as u64, 0]);
        applied(Changes::Behind { position })
    }
    /// Returns a count in a future window.
    fn coming() -> Count {
        let (key, window) = (b"a".to_vec(), T / SIZE + 9);
        Count { key, size: size(), window, total: hits(1) }
    }
    denies::<Changes, Added>();
    let last = |_| None;
    let answers: [(&str, Answer<Changes>, Page, usize); 4] = [
        ("behind", |_, call| behind(call), last, 20),
        ("more", |_, _| since(7, Vec::new(), true), last, 20),
        ("nothing", |_, _| since(7, vec![coming()], false), last, 20),
        ("pages", |_, call| behind(call), |step| Some(step + 1), 1010),
    ];
    for (what, answer, page, at_most) in answers {
        leads_nowhere::<Changes, Added>(what, answer, page, at_most);
    }
    let progress: Answer<Changes> = |_, call| since(call as u64, Vec::new(), true);
    for (result, calls) in cycles::<Changes, Added>(progress, last) {
        assert!(matches!(result, Poll::Ready(Ok(Some(_)))), "{result:?}");
        assert!(calls < 1100, "{calls} calls");
    }
}

#[test]
fn a_lying_store_without_a_log_and_with_absolute_counts_is_an_error() {
    denies::<Snapshots, Absolute>();
    let endless: Page = |step| Some(step + 1);
    leads_nowhere::<Snapshots, Absolute>("pages", |_, _| applied(Snapshots), endless, 1010);
}
