//! Listens to a store's channel, so that pushes of other nodes are known before the next sync.
//!
//! One worker of the node listens in its sync thread, and holds a lease for that
//! ([`ChannelLease`](crate::table::ChannelLease)). Without a channel, the syncs fetch the same
//! counts, but later.

use core::cell::Cell;
use core::pin::pin;
use core::time::Duration;
use std::sync::Arc;

use futures_util::future::{join_all, select};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::broker::{EventLoopQueue, StoreEvent, WatchedStore};
use crate::engine::{Env as _, Machine, Subscriber};
use crate::nginx::conf::SyncedNamespace;
use crate::store::contract::decision::Decider;
use crate::store::contract::strategy::{PushNews, Strategy};
use crate::store::registry::StoreVisitor;

/// Time after which a listener that does not renew its lease counts as dead, in milliseconds.
const LIFETIME: u64 = 2000;
/// Interval in which the listener renews its lease, and other workers try to take it.
const LOOK: Duration = Duration::from_millis(500);
/// Pause before the next try while no subscription has a position to start from.
const LOOK_FOR_POSITION: Duration = Duration::from_millis(100);
/// Interval in which an event is retried that has to wait for this node's own batch.
const LOOK_FOR_ANSWER: Duration = Duration::from_millis(1);
const MAX_LOOKS: usize = 20;
/// First pause after an empty answer, in milliseconds. Each next pause is twice as long.
const IN_VAIN: u64 = 5;
const RETRY_UNAVAILABLE: Duration = Duration::from_secs(60);
/// Failures in a row, while syncs succeed, after which the store counts as without a channel: of
/// transient errors, and of permanent ones.
const MAX_TRANSIENT_FAILURES: u32 = 8;
const MAX_PERMANENT_FAILURES: u32 = 4;

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
            let listening = pin!(listen(&namespaces, connect, &events));
            // Dropped at once, since a subscription has no unsaved state.
            select(listening, pin!(ending.changed())).await;
        });
    }
}

/// Listens for the namespaces of one store, while no other worker does.
async fn listen<S: Strategy>(
    namespaces: &[SyncedNamespace],
    connect: impl Fn() -> S,
    events: &EventLoopQueue<StoreEvent>,
) {
    let Some(store) = namespaces.first().map(|it| &it.store) else {
        return;
    };
    let (Some(lease), Some(channel)) = (store.channel, connect().channel()) else {
        return;
    };
    let is_divided = channel.shards() > 1;
    let is_superseded = || {
        let mut states = namespaces.iter().filter_map(|it| it.namespace.sync_state());
        states.any(|state| state.is_superseded())
    };
    while !is_superseded() {
        if let Some(listening) = lease.take(Machine.monotonic(), LIFETIME) {
            let subscribers = namespaces.iter();
            let subscribers = subscribers.filter_map(|it| Subscriber::new(it.namespace, &it.sizes));
            // In a divided store, each shard has its own subscription.
            let subscribers: Vec<Vec<_>> = match is_divided {
                true => subscribers.flat_map(Subscriber::by_shard).map(|it| vec![it]).collect(),
                false => vec![subscribers.collect()],
            };
            let is_told = Cell::new(false);
            let lines = subscribers.into_iter().map(|subscribers| ChannelLine {
                subscribers,
                store,
                is_told: &is_told,
                events,
            });
            let lines = join_all(lines.map(|line| line.listen(connect().channel())));
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

/// The subscriptions of one connection.
struct ChannelLine<'l> {
    subscribers: Vec<Subscriber<'static, 'static>>,
    store: &'l Arc<WatchedStore>,
    /// Whether it was logged that there is no channel.
    is_told: &'l Cell<bool>,
    events: &'l EventLoopQueue<StoreEvent>,
}

impl ChannelLine<'_> {
    async fn listen(mut self, channel: Option<impl Strategy>) {
        let Some(mut channel) = channel else { return };
        // Failures in a row, and those of them that came while syncs succeeded.
        let (mut failures, mut beside) = (0_u32, 0_u32);
        // Empty answers in a row.
        let mut in_vain = 0_u32;
        loop {
            let subscriptions: Vec<_> =
                self.subscribers.iter().flat_map(Subscriber::subscriptions).collect();
            if subscriptions.is_empty() {
                sleep(LOOK_FOR_POSITION).await;
                continue;
            }
            let began = Instant::now();
            match channel.recv(&subscriptions).await {
                Ok(news) if news.is_empty() => {
                    (failures, beside) = (0, 0);
                    // An empty answer can come at once, without any news.
                    in_vain = match began.elapsed() < LOOK {
                        true => in_vain.saturating_add(1),
                        false => 0,
                    };
                    if in_vain > 0 {
                        sleep(Machine.pause(IN_VAIN, in_vain)).await;
                    }
                }
                Ok(news) => {
                    (failures, beside, in_vain) = (0, 0, 0);
                    for news in news {
                        self.note(news).await;
                    }
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    let is_there = self.store.state.is_some_and(|it| it.is_up() == Some(true));
                    // If syncs fail as well, such as because of a wrong password, the fault is not
                    // the channel's.
                    beside = if is_there { beside.saturating_add(1) } else { 0 };
                    let is_without = beside
                        >= if error.is_transient() {
                            MAX_TRANSIENT_FAILURES
                        } else {
                            MAX_PERMANENT_FAILURES
                        };
                    if is_without && !self.is_told.replace(true) {
                        self.events.push([self.store.channel_unavailable(&error)]);
                    }
                    sleep(match error.is_transient() {
                        true => Machine.back_off(failures),
                        false if is_without => RETRY_UNAVAILABLE,
                        // Meanwhile a sync can find out whether the store is up.
                        false => Machine.back_off(failures).max(LOOK),
                    })
                    .await;
                }
            }
        }
    }

    /// Applies a pushed count. If it has to wait for the answer to this node's own batch, retries
    /// it for a short time.
    async fn note(&mut self, news: PushNews) {
        let mut subscribers = self.subscribers.iter_mut();
        let Some(subscriber) = subscribers.find(|it| it.is_of(&news)) else {
            return;
        };
        let mut waiting = subscriber.note(news, &Machine);
        for _ in 0..MAX_LOOKS {
            let Some(news) = waiting else { return };
            sleep(LOOK_FOR_ANSWER).await;
            waiting = subscriber.note(news, &Machine);
        }
    }
}
