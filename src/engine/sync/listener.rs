//! The listener to a store's channel: applies other nodes' pushes when they arrive, so that they are
//! known before the next sync. Without a channel, the syncs fetch the same counts, but later.
//!
//! One user of a node's memory listens: it holds a lease for that.

use core::cell::Cell;
use core::pin::pin;
use core::time::Duration;

use futures_util::future::{join_all, select};
use tokio::time::sleep;

use super::shard_sync::Env;
use super::subscriber::Subscriber;
use crate::store::contract::error::StoreError;
use crate::store::contract::strategy::{PushNews, Strategy};
use crate::table::ChannelLease;

/// Time after which a listener that does not renew its lease counts as dead, in milliseconds.
const LIFETIME: u64 = 2000;
/// Interval in which the listener renews its lease, and others try to take it.
const LOOK: Duration = Duration::from_millis(500);
/// Pause before the next try while no subscription has a position to start from.
const LOOK_FOR_POSITION: Duration = Duration::from_millis(100);
/// Interval in which an event is retried that has to wait for this node's own batch.
const LOOK_FOR_ANSWER: Duration = Duration::from_millis(1);
const MAX_LOOKS: usize = 20;
/// Time after which an empty answer is no sign that the channel answers at once.
const IN_TIME: Duration = Duration::from_millis(500);
/// First pause after an empty answer, in milliseconds. Each next pause is twice as long.
const IN_VAIN: u64 = 5;
/// Shortest pause after a permanent error: meanwhile a sync can find out whether the store is up.
const LEAST_AFTER_PERMANENT: Duration = Duration::from_millis(500);
const RETRY_UNAVAILABLE: Duration = Duration::from_secs(60);
/// Failures in a row, while syncs succeed, after which the store counts as without a channel: of
/// transient errors, and of permanent ones.
const MAX_TRANSIENT_FAILURES: u32 = 8;
const MAX_PERMANENT_FAILURES: u32 = 4;

/// An observer of a listener, which knows the state of the store.
pub trait ChannelObserver {
    /// Returns whether the last sync with the store succeeded.
    fn is_store_up(&self) -> bool;
    /// Called once if the channel fails again and again while syncs succeed; with the last error.
    fn channel_unavailable(&self, error: &StoreError);
}

/// Applies pushes for `subscribers`, whose namespaces have the same store, while no other user of
/// their memory does. `connect` creates a client of the store.
///
/// Returns if the store has no channel, or under a newer configuration. Can be dropped at any time,
/// since a subscription has no unsaved state.
pub async fn listen<'n, 'm: 'n, S: Strategy>(
    subscribers: impl Fn() -> Vec<Subscriber<'n, 'm>>,
    lease: ChannelLease<'m>,
    connect: impl Fn() -> S,
    env: &impl Env,
    observer: &impl ChannelObserver,
) {
    if connect().channel().is_none() {
        return;
    }
    let is_superseded = || subscribers().iter().any(Subscriber::is_superseded);
    while !is_superseded() {
        if let Some(listening) = lease.take(env.monotonic(), LIFETIME) {
            let lines = listen_now(subscribers(), &connect, env, observer);
            let is_ours = async {
                while listening.renew(env.monotonic(), LIFETIME) && !is_superseded() {
                    sleep(LOOK).await;
                }
            };
            select(pin!(lines), pin!(is_ours)).await;
        }
        sleep(LOOK).await;
    }
}

/// Applies pushes for `subscribers`. Returns only if the store has no channel.
async fn listen_now<'n, 'm: 'n, S: Strategy>(
    subscribers: Vec<Subscriber<'n, 'm>>,
    connect: impl Fn() -> S,
    env: &impl Env,
    observer: &impl ChannelObserver,
) {
    let Some(channel) = connect().channel() else {
        return;
    };
    // In a divided store, each shard has its own subscription.
    let subscribers: Vec<Vec<_>> = match channel.shards() > 1 {
        true => {
            let shards = subscribers.into_iter().flat_map(Subscriber::by_shard);
            shards.map(|it| vec![it]).collect()
        }
        false => vec![subscribers],
    };
    let is_told = Cell::new(false);
    let lines = subscribers.into_iter();
    let lines =
        lines.map(|subscribers| ChannelLine { subscribers, env, observer, is_told: &is_told });
    join_all(lines.map(|line| line.listen(connect().channel()))).await;
}

/// The subscriptions of one connection.
struct ChannelLine<'l, 'n, 'm, E, O> {
    subscribers: Vec<Subscriber<'n, 'm>>,
    env: &'l E,
    observer: &'l O,
    /// Whether the observer was told that there is no channel.
    is_told: &'l Cell<bool>,
}

/// The failures of a channel in a row.
#[derive(Clone, Copy, Debug, Default)]
struct ChannelFailures {
    all: u32,
    /// Those that came while syncs succeeded.
    beside_syncs: u32,
}

impl<E: Env, O: ChannelObserver> ChannelLine<'_, '_, '_, E, O> {
    async fn listen(mut self, channel: Option<impl Strategy>) {
        let Some(mut channel) = channel else { return };
        let mut failures = ChannelFailures::default();
        // Empty answers in a row.
        let mut in_vain = 0_u32;
        let mut last_read = Duration::ZERO;
        loop {
            self.wait_for_turn(&mut last_read, channel.servers()).await;
            let subscriptions: Vec<_> =
                self.subscribers.iter().flat_map(Subscriber::subscriptions).collect();
            if subscriptions.is_empty() {
                sleep(LOOK_FOR_POSITION).await;
                continue;
            }
            let began = self.env.uptime();
            match channel.recv(&subscriptions).await {
                Ok(news) if news.is_empty() => {
                    failures = ChannelFailures::default();
                    // An empty answer can come at once, without any news.
                    in_vain = match self.env.uptime().saturating_sub(began) < IN_TIME {
                        true => in_vain.saturating_add(1),
                        false => 0,
                    };
                    if in_vain > 0 {
                        sleep(self.env.pause(IN_VAIN, in_vain)).await;
                    }
                }
                Ok(news) => {
                    (failures, in_vain) = (ChannelFailures::default(), 0);
                    for news in news {
                        self.note(news).await;
                    }
                }
                Err(error) => sleep(self.pause_after(&error, &mut failures)).await,
            }
        }
    }

    /// Waits until the budget of exchanges allows a read after the last one, and records it.
    async fn wait_for_turn(&self, last: &mut Duration, servers: u16) {
        let Some(budget) = self.subscribers.first().and_then(Subscriber::budget) else {
            return;
        };
        let nodes = self.subscribers.iter().map(Subscriber::nodes).max().unwrap_or(1);
        loop {
            let now = self.env.uptime();
            let wait = budget.wait_for_read(*last, now, nodes, servers);
            if wait.is_zero() {
                budget.record(now, nodes, servers);
                *last = now;
                return;
            }
            sleep(wait).await;
        }
    }

    /// Counts a failure, and tells the observer if there is no channel. Returns the pause before
    /// the next try.
    fn pause_after(&self, error: &StoreError, failures: &mut ChannelFailures) -> Duration {
        failures.all = failures.all.saturating_add(1);
        // If syncs fail as well, such as because of a wrong password, the fault is not the
        // channel's.
        failures.beside_syncs = match self.observer.is_store_up() {
            true => failures.beside_syncs.saturating_add(1),
            false => 0,
        };
        let most = match error.is_transient() {
            true => MAX_TRANSIENT_FAILURES,
            false => MAX_PERMANENT_FAILURES,
        };
        let is_without = failures.beside_syncs >= most;
        if is_without && !self.is_told.replace(true) {
            self.observer.channel_unavailable(error);
        }
        match error.is_transient() {
            true => self.env.back_off(failures.all),
            false if is_without => RETRY_UNAVAILABLE,
            false => self.env.back_off(failures.all).max(LEAST_AFTER_PERMANENT),
        }
    }

    /// Applies a pushed count. If it has to wait for the answer to this node's own batch, retries
    /// it for a short time.
    async fn note(&mut self, news: PushNews) {
        let mut subscribers = self.subscribers.iter_mut();
        let Some(subscriber) = subscribers.find(|it| it.is_of(&news)) else {
            return;
        };
        let mut waiting = subscriber.note(news, self.env);
        for _ in 0..MAX_LOOKS {
            let Some(news) = waiting else { return };
            sleep(LOOK_FOR_ANSWER).await;
            waiting = subscriber.note(news, self.env);
        }
    }
}
