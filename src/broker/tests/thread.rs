//! The broker's thread, which tests kill.

use core::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;
use std::thread::JoinHandle;

use futures_util::future::{Either, select};
use tokio::runtime::LocalRuntime;
use tokio::sync::oneshot;

use crate::broker::{Broker, DecidingStore, EventFd, EventLoopQueue, SharedQueues, WatchedStore};
use crate::store::contract::strategy::{NodeId, Shard};
use crate::table::StoreState;

use super::store::Store;
use super::uptime;

/// The thread that asks for all workers.
pub(super) struct BrokerThread {
    kill: oneshot::Sender<()>,
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl BrokerThread {
    pub(super) fn start(queues: &Arc<SharedQueues>, store: &Store) -> BrokerThread {
        BrokerThread::of_worker(0, queues, store)
    }

    /// Starts the thread of a worker.
    pub(super) fn of_worker(
        worker: usize,
        queues: &Arc<SharedQueues>,
        store: &Store,
    ) -> BrokerThread {
        BrokerThread::with(worker, queues, store, None)
    }

    /// Starts a thread that records in `state` whether the store is up.
    pub(super) fn watch(
        queues: &Arc<SharedQueues>,
        store: &Store,
        state: Option<StoreState<'static>>,
    ) -> BrokerThread {
        BrokerThread::with(0, queues, store, state)
    }

    fn with(
        worker: usize,
        queues: &Arc<SharedQueues>,
        store: &Store,
        state: Option<StoreState<'static>>,
    ) -> BrokerThread {
        let broker = Broker {
            queues: queues.clone(),
            worker,
            stores: vec![DecidingStore {
                store: Arc::new(WatchedStore {
                    name: "store".into(),
                    without_it: String::new(),
                    state,
                    channel: None,
                    budget: None,
                }),
                source: Arc::new(store.clone()),
                node: NodeId([1, 2]),
                shards: vec![Shard { namespace: "api".into(), number: 0 }],
                is_divided: false,
                namespaces: vec![],
                is_superseded: Arc::new({
                    let store = Arc::downgrade(&store.0);
                    move || store.upgrade().is_some_and(|it| it.is_superseded.load(SeqCst))
                }),
            }],
            uptime,
        };
        let (kill, killed) = oneshot::channel();
        let (end, ending) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = LocalRuntime::new().unwrap();
            runtime.block_on(async {
                let events = EventLoopQueue::new(EventFd::new().unwrap());
                let served = tokio::task::spawn_local(broker.serve(ending, events));
                // The questions that a killed thread has taken are lost.
                if let Either::Left((ended, _)) = select(served, killed).await {
                    ended.unwrap();
                }
            });
        });
        BrokerThread { kill, end, thread }
    }

    /// Drops the thread's task where it is.
    pub(super) fn kill(self) {
        let BrokerThread { kill, end, thread } = self;
        kill.send(()).unwrap();
        thread.join().unwrap();
        drop(end);
    }

    /// Lets the thread answer the questions so far, and ends it.
    pub(super) fn end(self) {
        self.end_after(|| {});
    }

    /// Like `end`, but calls `before` first, and waits for it.
    pub(super) fn end_after(self, before: impl FnOnce()) {
        let BrokerThread { kill, end, thread } = self;
        drop(end);
        before();
        thread.join().unwrap();
        drop(kill);
    }
}
