//! A store that answers, and leads nowhere.

use core::num::NonZeroU64;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

use super::node::cluster;
use super::{LIFETIME, SIZE, T, hits, size};
use crate::engine::{SyncError, Syncer};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::error::StoreError;
use crate::store::options::StoreOptions;
use crate::store::strategy::*;

/// A store that says the same again and again.
struct Liar {
    calls: usize,
    answer: fn(&Batch, usize) -> Pushed,
    page: fn(usize) -> Option<usize>,
}

impl Strategy for Liar {
    type Options = ();
    type Step = usize;
    type Changes = Changes;
    type Counts = Added;

    fn new(_: &StoreOptions, (): &()) -> Self {
        unreachable!("made by the tests")
    }

    fn connects(&self) -> u64 {
        0
    }

    fn server(&self) -> Option<String> {
        None
    }

    fn shards(&self) -> u16 {
        1
    }

    async fn push_diffs(
        &mut self,
        _: &Shard,
        batch: &Batch,
        _: usize,
    ) -> Result<Pushed, StoreError> {
        self.calls += 1;
        Ok((self.answer)(batch, self.calls))
    }

    async fn open_epoch(
        &mut self,
        _: &Shard,
        _: Option<Epoch>,
        proposed: Epoch,
    ) -> Result<Epoch, StoreError> {
        self.calls += 1;
        Ok(proposed)
    }

    async fn get_counters(
        &mut self,
        _: &Shard,
        _: Epoch,
        _: &[(WindowSize, u64)],
        step: usize,
    ) -> Result<(Vec<Count>, Option<usize>), StoreError> {
        self.calls += 1;
        Ok((Vec::new(), (self.page)(step)))
    }

    async fn get_window(
        &mut self,
        _: &Shard,
        _: &[u8],
        _: WindowSize,
        _: u64,
    ) -> Result<Hits, StoreError> {
        Ok(Hits::ZERO)
    }

    async fn purge(&mut self, _: &Shard, _: UnixMillis) -> Result<bool, StoreError> {
        Ok(true)
    }
}

#[test]
fn a_store_that_leads_nowhere_is_left_alone_for_a_while() {
    fn applied(changes: Changes) -> Pushed {
        let now = UnixMillis(T);
        Pushed::Applied { changes, now }
    }
    fn since(position: u64, counts: Vec<Count>, has_more: bool) -> Pushed {
        let position = Position([position, 0]);
        applied(Changes::Since {
            counts,
            position,
            has_more,
        })
    }
    fn behind(call: usize) -> Pushed {
        let position = Position([call as u64, 0]);
        applied(Changes::Behind { position })
    }
    /// Of a window that is still to come.
    fn coming() -> Count {
        let (key, window) = (b"a".to_vec(), T / SIZE + 9);
        Count {
            key,
            size: size(),
            window,
            total: hits(1),
        }
    }
    let other =
        |_: &Batch, call: usize| Pushed::OtherEpoch(Epoch(NonZeroU64::new(call as u64).unwrap()));
    let last = |_| None;
    type Answer = fn(&Batch, usize) -> Pushed;
    type Page = fn(usize) -> Option<usize>;
    let answers: [(&str, Answer, Page); 11] = [
        ("lost", |_, _| Pushed::Lost, last),
        ("forgotten", |_, _| Pushed::Forgotten, last),
        ("twin", |_, _| Pushed::Twin, last),
        ("none", |_, _| Pushed::NoEpoch, last),
        ("other", other, last),
        ("itself", |batch, _| Pushed::OtherEpoch(batch.epoch), last),
        ("behind", |_, call| behind(call), last),
        ("more", |_, _| since(7, Vec::new(), true), last),
        ("nothing", |_, _| since(7, vec![coming()], false), last),
        ("pages", |_, call| behind(call), |step| Some(step + 1)),
        (
            "progress",
            |_, call| since(call as u64, Vec::new(), true),
            last,
        ),
    ];
    for (what, answer, page) in answers {
        let (_, nodes) = cluster(1);
        let node = &nodes[0];
        node.hit(b"a", hits(1));
        let lifetime = Duration::from_millis(LIFETIME);
        let syncer = Syncer::new(node.namespace, &[size()], lifetime).unwrap();
        let mut liar = Liar {
            calls: 0,
            answer,
            page,
        };
        for _ in 0..3 {
            let before = liar.calls;
            let mut sync = Box::pin(syncer.sync(&mut liar, node.time));
            let waker = Waker::noop();
            let result = sync.as_mut().poll(&mut Context::from_waker(waker));
            drop(sync);
            let calls = liar.calls - before;
            if what == "progress" {
                assert!(
                    matches!(result, Poll::Ready(Ok(Some(_)))),
                    "{what}: {result:?}"
                );
                assert!(calls < 1100, "{calls} calls");
                continue;
            }
            let Poll::Ready(Err(SyncError::NoProgress(_))) = result else {
                panic!("{what}: {result:?}");
            };
            assert!(
                calls <= if what == "pages" { 1010 } else { 20 },
                "{what}: {calls}"
            );
        }
    }
}
