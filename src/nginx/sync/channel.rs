//! Listens to a store's channel in a worker's sync thread, and logs that there is none. A file of its own, since other
//! tasks of the thread need no store.

use core::pin::pin;
use std::sync::Arc;

use futures_util::future::select;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::broker::{EventLoopQueue, StoreEvent, WatchedStore};
use crate::engine::{ChannelObserver, Machine, Subscriber, listen};
use crate::nginx::conf::SyncedNamespace;
use crate::store::contract::decision::Decider;
use crate::store::contract::error::StoreError;
use crate::store::registry::StoreVisitor;

/// The subscription to a store's channel: a task that ends when `ending` is closed.
pub(super) struct ChannelTask<'a> {
    /// Namespaces of the store.
    pub(super) namespaces: Vec<SyncedNamespace>,
    pub(super) events: EventLoopQueue<StoreEvent>,
    pub(super) ending: watch::Receiver<()>,
    pub(super) tasks: &'a mut JoinSet<()>,
}

impl StoreVisitor for ChannelTask<'_> {
    type Output = ();

    fn visit<S: Decider + 'static>(self, connect: impl Fn() -> S + 'static) {
        let ChannelTask { namespaces, events, mut ending, tasks } = self;
        let Some(store) = namespaces.first().map(|it| it.store.clone()) else { return };
        let Some(lease) = store.channel else { return };
        tasks.spawn_local(async move {
            let observer = LoggedChannel { store, events };
            let subscribers = || {
                let subscribers = namespaces.iter();
                let subscribers =
                    subscribers.filter_map(|it| Subscriber::new(it.namespace, &it.sizes));
                subscribers.map(|it| it.within(observer.store.budget)).collect()
            };
            let listening = pin!(listen(subscribers, lease, connect, &Machine, &observer));
            select(listening, pin!(ending.changed())).await;
        });
    }
}

/// Logs that a store has no channel.
struct LoggedChannel {
    store: Arc<WatchedStore>,
    events: EventLoopQueue<StoreEvent>,
}

impl ChannelObserver for LoggedChannel {
    fn is_store_up(&self) -> bool {
        self.store.state.is_some_and(|it| it.is_up() == Some(true))
    }

    fn channel_unavailable(&self, error: &StoreError) {
        self.events.push([self.store.channel_unavailable(error)]);
    }
}
