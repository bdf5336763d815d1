//! The worker of a node that listens to a store's channel.
//!
//! It listens in its sync thread, and holds a lease for that
//! ([`ChannelLease`](crate::table::ChannelLease)) until a newer configuration is served.

use core::pin::pin;
use core::time::Duration;
use std::sync::Arc;

use futures_util::future::select;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::broker::{EventLoopQueue, StoreEvent, WatchedStore};
use crate::engine::{ChannelObserver, Env as _, Machine, Subscriber, listen};
use crate::nginx::conf::SyncedNamespace;
use crate::store::contract::decision::Decider;
use crate::store::contract::error::StoreError;
use crate::store::contract::strategy::Strategy;
use crate::store::registry::StoreVisitor;

/// Time after which a listener that does not renew its lease counts as dead, in milliseconds.
const LIFETIME: u64 = 2000;
/// Interval in which the listener renews its lease, and other workers try to take it.
const LOOK: Duration = Duration::from_millis(500);

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
        tasks.spawn_local(async move {
            let listening = pin!(listen_alone(&namespaces, connect, events));
            select(listening, pin!(ending.changed())).await;
        });
    }
}

/// Listens for the namespaces of one store, while no other worker does.
async fn listen_alone<S: Strategy>(
    namespaces: &[SyncedNamespace],
    connect: impl Fn() -> S,
    events: EventLoopQueue<StoreEvent>,
) {
    let Some(store) = namespaces.first().map(|it| it.store.clone()) else {
        return;
    };
    let (Some(lease), Some(_)) = (store.channel, connect().channel()) else {
        return;
    };
    let observer = LoggedChannel { store, events };
    let is_superseded = || {
        let mut states = namespaces.iter().filter_map(|it| it.namespace.sync_state());
        states.any(|state| state.is_superseded())
    };
    while !is_superseded() {
        if let Some(listening) = lease.take(Machine.monotonic(), LIFETIME) {
            let subscribers = namespaces.iter();
            let subscribers = subscribers.filter_map(|it| Subscriber::new(it.namespace, &it.sizes));
            let subscribers = subscribers.map(|it| it.within(observer.store.budget));
            let lines = listen(subscribers, &connect, &Machine, &observer);
            let is_ours = async {
                while listening.renew(Machine.monotonic(), LIFETIME) && !is_superseded() {
                    sleep(LOOK).await;
                }
            };
            select(pin!(lines), pin!(is_ours)).await;
        }
        sleep(LOOK).await;
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
