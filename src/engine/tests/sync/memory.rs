//! A store in memory, and a worker's client of it.

use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::pin::Pin;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Wake;

use crate::policy::window::WindowSize;
use crate::store::contract::error::{Failure, StoreError};
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::{Count, LivingNodes, Shard};

/// A count's name in the store.
pub(super) type Name = (WindowSize, u64, Vec<u8>);

/// A shard of a store in memory.
pub(super) trait Kept: Clone + Default + 'static {
    /// Creates an empty shard at time `now`.
    fn empty(now: u64) -> Self;
    /// Returns the total of a counter.
    fn count(&self, name: &Name) -> Count;
    /// Drops the log of changes, if there is one, but no counts.
    fn trim(&mut self);
}

/// A store in memory: its shards, of one kind.
pub(super) type Shards<K> = Rc<Vec<RefCell<K>>>;

/// A worker's client of the store.
#[derive(Clone)]
pub(super) struct Memory<K> {
    pub(super) shards: Shards<K>,
    /// Faults of the next exchanges.
    pub(super) faults: Rc<RefCell<Vec<Fault>>>,
    /// The living nodes, from the last answer.
    pub(super) living: Option<LivingNodes>,
    /// The counters that the last batch has made negative.
    pub(super) overdrawn: Vec<Count>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// The batch never arrives.
    Before,
    /// The batch is applied, and the answer lost.
    After,
    /// The worker is stopped before the batch leaves.
    StoppedBefore,
    /// The worker is stopped after the batch was applied.
    StoppedAfter,
}

thread_local! {
    /// Number of times that workers were polled.
    static TURNS: Cell<u64> = const { Cell::new(0) };
}

/// Polls a worker until it ends, or is stopped, as a runtime does.
pub(super) fn go_on<F: Future + ?Sized>(mut worker: Pin<&mut F>) -> Poll<F::Output> {
    TURNS.set(TURNS.get() + 1);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    loop {
        let polled = worker.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_ready() || !woken.0.swap(false, Relaxed) {
            return polled;
        }
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// Returns when the worker is polled again.
async fn be_stopped() {
    let turn = TURNS.get();
    poll_fn(|_| match TURNS.get() == turn {
        true => Poll::Pending,
        false => Poll::Ready(()),
    })
    .await;
}

impl<K> Memory<K> {
    pub(super) async fn exchange<T>(
        &self,
        shard: &Shard,
        apply: impl FnOnce(&mut K) -> T,
    ) -> Result<T, StoreError> {
        let fault = self.faults.borrow_mut().pop().unwrap_or(Fault::None);
        if fault == Fault::StoppedBefore {
            be_stopped().await;
        }
        let failure = Failure::TimedOut(Duration::from_millis(250));
        let server = ServerAddress::Unix("/".into());
        let lost = Err(StoreError::new(server, failure));
        if fault == Fault::Before {
            return lost;
        }
        let answer = apply(&mut self.shards[usize::from(shard.number)].borrow_mut());
        if fault == Fault::StoppedAfter {
            be_stopped().await;
        }
        if fault == Fault::After { lost } else { Ok(answer) }
    }
}
