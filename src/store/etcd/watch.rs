//! The channel of etcd: a watch of the keys with news, on a connection of its own.
//!
//! A watch begins after what the listener has read of the changes themselves. While it is silent, the listener looks
//! for changes once in a second: so it finds out if the server is gone, or if the watch is.

use core::time::Duration;
use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use tokio::time::timeout;

use super::failure::EtcdFault;
use super::key::ShardKeys;
use super::link::{EtcdLink, EtcdSession};
use super::wire::{self, WatchAnswer};
use crate::store::contract::error::{Failure, StoreError};
use crate::store::contract::strategy::{Epoch, NodeId, Position, PushNews, Subscription};
use crate::store::keyed::change::{LoggedChange, PAGE};

/// Longest wait for news.
const WAIT: Duration = Duration::from_secs(1);

/// A running watch.
#[derive(Debug)]
pub(super) struct Watch {
    session: EtcdSession,
    /// The keys with news.
    keys: Vec<String>,
    /// The beginning of the next message.
    input: Vec<u8>,
}

/// A node that listens to the shards of its subscriptions.
#[derive(Debug, Default)]
pub(super) struct Listener {
    watch: Option<Watch>,
}

impl Listener {
    /// Waits for news. A call that is dropped loses the watch, and the next one reads what changed.
    pub(super) async fn recv(
        &mut self,
        link: &mut EtcdLink,
        prefix: &str,
        subscriptions: &[Subscription],
    ) -> Result<Vec<PushNews>, StoreError> {
        let shards = subscriptions.iter();
        let shards = shards.map(|it| ShardKeys::of(prefix, &it.shard, it.epoch));
        let shards: Vec<_> = shards.collect();
        let keys: Vec<_> = shards.iter().map(ShardKeys::news).collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let Some(mut watch) = self.watch.take().filter(|it| it.keys == keys) else {
            let (found, revision, has_more) = catch_up(link, subscriptions, &shards).await?;
            if !has_more {
                self.watch = Some(Watch::start(link, keys, revision.saturating_add(1)).await?);
            }
            return Ok(all_merged(subscriptions, &found));
        };
        let news = match timeout(WAIT, watch.changes()).await {
            Ok(changes) => {
                let changes = changes.map_err(|fault| link.error(fault))?;
                let mut news = Vec::new();
                for (key, subscription) in keys.iter().zip(subscriptions) {
                    let of_key = changes.iter().filter(|(name, _)| name == key.as_bytes());
                    let of_key: Vec<_> = of_key.map(|(_, change)| change.clone()).collect();
                    // A change that is not news is missing, and may have changed the same counters.
                    let runs =
                        of_key.chunk_by(|one, next| next.number == one.number.wrapping_add(1));
                    news.extend(runs.filter_map(|run| merged(subscription, run)));
                }
                news
            }
            Err(_) => {
                let (found, ..) = catch_up(link, subscriptions, &shards).await?;
                let news = all_merged(subscriptions, &found);
                if found.iter().flatten().any(|change| change.is_news) {
                    // The watch has missed it.
                    return Ok(news);
                }
                news
            }
        };
        self.watch = Some(watch);
        Ok(news)
    }
}

/// Reads the changes since the positions. Returns those of each shard, the revision of etcd at which they were read,
/// and whether there are more.
async fn catch_up(
    link: &mut EtcdLink,
    subscriptions: &[Subscription],
    shards: &[ShardKeys],
) -> Result<(Vec<Vec<LoggedChange>>, i64, bool), StoreError> {
    let read = shards.iter().zip(subscriptions).map(|(keys, Subscription { after, .. })| {
        let Position([after, _]) = after;
        wire::page(keys.changes(), &keys.change(*after), PAGE)
    });
    let read: Vec<_> = read.collect();
    let exchange = async |session: &mut EtcdSession| session.read(read.clone()).await;
    let answer = link.exchange(exchange).await?;
    let revision = answer.header.revision;
    let reads = answer.reads();
    let has_more = reads.iter().any(|it| it.more);
    let parse = |answer: &wire::KeyValues| {
        answer.kvs.iter().filter_map(|it| LoggedChange::parse(&it.value)).collect()
    };
    Ok((reads.iter().map(parse).collect(), revision, has_more))
}

/// Returns the news of each subscription that has changes.
fn all_merged(subscriptions: &[Subscription], found: &[Vec<LoggedChange>]) -> Vec<PushNews> {
    let news = subscriptions.iter().zip(found);
    news.filter_map(|(subscription, changes)| merged(subscription, changes)).collect()
}

/// Returns the counters of a subscription's changes, with their last totals; `None` without changes after its position.
fn merged(subscription: &Subscription, changes: &[LoggedChange]) -> Option<PushNews> {
    let Subscription { shard, epoch, after: Position([after, _]), .. } = subscription;
    let changes = || changes.iter().filter(|it| it.number > *after);
    let last = changes().next_back()?;
    let is_of_one = changes().all(|it| it.node == last.node);
    let counts = changes().flat_map(|change| change.names().zip(&change.counts));
    let counts: BTreeMap<_, _> = counts.collect();
    let Epoch(word) = epoch;
    Some(PushNews {
        shard: shard.clone(),
        epoch: *epoch,
        node: if is_of_one { last.node } else { NodeId([0; 2]) },
        position: Position([last.number, word.get()]),
        counts: counts.into_values().cloned().collect(),
    })
}

impl Watch {
    /// Starts a watch of these keys from a revision on.
    async fn start(
        link: &mut EtcdLink,
        keys: Vec<String>,
        revision: i64,
    ) -> Result<Watch, StoreError> {
        let mut session = link.connect().await?;
        let requests: String = keys.iter().map(|key| wire::watch(key, revision)).collect();
        link.wait(session.send("watch", requests.as_bytes())).await?;
        Ok(Watch { session, keys, input: Vec::new() })
    }

    /// Waits for changes. Returns all that have arrived, with their keys.
    async fn changes(&mut self) -> Result<Vec<(Vec<u8>, LoggedChange)>, EtcdFault> {
        let mut changes = Vec::new();
        while changes.is_empty() {
            let mut data = self.session.http.data().await?;
            loop {
                if data.is_empty() {
                    return Err(ended("the watch has ended"));
                }
                self.input.extend(data);
                self.parse(&mut changes)?;
                match self.session.http.data().now_or_never() {
                    Some(more) => data = more?,
                    None => break,
                }
            }
        }
        Ok(changes)
    }

    /// Parses the messages that have arrived, each of which is a line.
    fn parse(&mut self, changes: &mut Vec<(Vec<u8>, LoggedChange)>) -> Result<(), EtcdFault> {
        while let Some(length) = self.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=length).collect();
            let message = serde_json::from_slice(&line);
            let WatchAnswer { result } = message.map_err(|_| EtcdFault::misunderstood("watch"))?;
            if result.canceled {
                return Err(ended("the watch was canceled"));
            }
            let kvs = result.events.into_iter().map(|event| event.kv);
            // Leaves out deletions, and what somebody else wrote.
            changes.extend(kvs.filter_map(|it| Some((it.key, LoggedChange::parse(&it.value)?))));
        }
        Ok(())
    }
}

fn ended(cause: &str) -> EtcdFault {
    EtcdFault::Failed(Failure::Disconnected(cause.into()))
}
