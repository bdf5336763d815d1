//! The channel of Redis: a blocking read of the streams of news.
//!
//! It blocks a connection of its own, not the server. One read covers the streams of all given
//! shards; a cluster allows only one shard.
//!
//! A listener that lags reads what changed since its position from the streams of changes, by a
//! script, until nothing has: the cost follows the number of counters, not of batches.

use core::time::Duration;

use redis::{Cmd, Value};

use super::answer::RedisAnswer;
use super::key::{self, WindowName, parse_position};
use super::{Redis, Transport};
use crate::policy::hits::Hits;
use crate::store::contract::error::StoreError;
use crate::store::contract::strategy::{Count, NodeId, PushNews, Subscription};

/// Longest wait of a read.
const WAIT: Duration = Duration::from_secs(1);
/// Batches of a shard that one read returns.
const ENTRIES: usize = 16;
/// Most counters of a shard that a listener that lags reads at once.
const COUNTERS: usize = 320;

impl Redis {
    /// Returns a client with connections of its own and a longer timeout of an exchange.
    pub(super) fn listener(&self) -> Redis {
        self.over(match &self.way {
            Transport::One(link) => Transport::One(Box::new(link.with_longer_timeout(WAIT))),
            Transport::Cluster(cluster) => Transport::Cluster(cluster.with_longer_timeout(WAIT)),
        })
    }

    /// Waits for news of these shards.
    pub(super) async fn listen(
        &mut self,
        subscriptions: &[Subscription],
    ) -> Result<Vec<PushNews>, StoreError> {
        let Some(first) = subscriptions.first() else {
            return Ok(Vec::new());
        };
        let first = self.shard_key(&first.shard);
        if core::mem::take(&mut self.lags) {
            let news = self.catch_up(&first, subscriptions).await?;
            if !news.is_empty() {
                self.lags = true;
                return Ok(news);
            }
        }
        let stream = |subscription: &Subscription| {
            key::news(&self.shard_key(&subscription.shard), subscription.epoch)
        };
        let mut read = Cmd::new();
        read.arg("XREAD")
            .arg("COUNT")
            .arg(ENTRIES)
            .arg("BLOCK")
            .arg(super::millis(WAIT))
            .arg("STREAMS")
            .arg(subscriptions.iter().map(stream).collect::<Vec<_>>());
        for subscription in subscriptions {
            read.arg(key::position(subscription.after));
        }
        let streams: Vec<String> = subscriptions.iter().map(stream).collect();
        let answer = self.way.call(&first, &read.into()).await?;
        if let Transport::Cluster(cluster) = &self.way {
            // The shard's node is known now.
            cluster.close_others();
        }
        let news = RedisAnswer(answer).news(&streams, subscriptions);
        let (news, lags) = news.ok_or_else(|| self.way.misunderstood("XREAD"))?;
        self.lags = lags;
        Ok(news)
    }

    /// Reads the changes of these shards since their positions; the first has the key `first`.
    async fn catch_up(
        &mut self,
        first: &str,
        subscriptions: &[Subscription],
    ) -> Result<Vec<PushNews>, StoreError> {
        let keys = subscriptions.iter().flat_map(|subscription| {
            let shard = self.shard_key(&subscription.shard);
            let stream = key::stream(&shard, subscription.epoch);
            [shard, stream]
        });
        let mut call = self.catch_up.command(&keys.collect::<Vec<_>>());
        call.arg(COUNTERS);
        for subscription in subscriptions {
            call.arg(subscription.epoch.to_string())
                .arg(subscription.node.to_string())
                .arg(key::position(subscription.after));
        }
        let read = |value| RedisAnswer(value).changes(subscriptions);
        self.way.run(first, &self.catch_up, call, read).await
    }
}

impl RedisAnswer {
    /// Parses the answer of `catch_up.lua`. Leaves out shards without changes.
    fn changes(self, subscriptions: &[Subscription]) -> Option<Vec<PushNews>> {
        let mut news = Vec::new();
        for (answer, subscription) in self.list()?.into_iter().zip(subscriptions) {
            let mut parts = RedisAnswer(answer).list()?.into_iter().map(RedisAnswer);
            let Some(position) = parts.next() else { continue };
            let (position, counts) = (position.position()?, parts.next()?.groups()?);
            let news_of_shard = position.is_after(subscription.after).then(|| PushNews {
                shard: subscription.shard.clone(),
                epoch: subscription.epoch,
                node: NodeId([0; 2]),
                position,
                counts,
            });
            news.extend(news_of_shard);
        }
        Some(news)
    }

    /// Parses the answer to `XREAD` of these streams: the news, and whether there may be more.
    /// Leaves out invalid entries, whose changes the next exchange returns.
    fn news(
        self,
        streams: &[String],
        subscriptions: &[Subscription],
    ) -> Option<(Vec<PushNews>, bool)> {
        if self.0 == Value::Nil {
            return Some((Vec::new(), false));
        }
        let (mut news, mut lags) = (Vec::new(), false);
        for of_stream in self.list()? {
            let [name, entries] = <[Value; 2]>::try_from(RedisAnswer(of_stream).list()?).ok()?;
            let name = RedisAnswer(name).text()?;
            let place = streams.iter().position(|stream| *stream == name)?;
            let subscription = subscriptions.get(place)?;
            let entries = RedisAnswer(entries).list()?;
            lags |= entries.len() == ENTRIES;
            let entries = entries.into_iter().map(RedisAnswer);
            news.extend(entries.filter_map(|entry| entry.entry(subscription)));
        }
        Some((news, lags))
    }

    /// Parses an entry of a stream of news.
    fn entry(self, subscription: &Subscription) -> Option<PushNews> {
        let [id, fields] = <[Value; 2]>::try_from(self.list()?).ok()?;
        let [_, node, _, totals] = <[Value; 4]>::try_from(RedisAnswer(fields).list()?).ok()?;
        Some(PushNews {
            shard: subscription.shard.clone(),
            epoch: subscription.epoch,
            node: node_id(&RedisAnswer(node).text()?)?,
            position: parse_position(&RedisAnswer(id).text()?)?,
            counts: totals_of(&RedisAnswer(totals).bytes()?)?,
        })
    }
}

fn node_id(text: &str) -> Option<NodeId> {
    let number = u128::from_str_radix(text, 16).ok()?;
    Some(NodeId([(number >> 64) as u64, number as u64]))
}

/// Parses the entry that `push.lua` writes for a batch. For each window: its name, the number of
/// counters, and a newline; then for each counter its total, the length of its key, and the key,
/// separated by spaces.
fn totals_of(mut text: &[u8]) -> Option<Vec<Count>> {
    let mut counts = Vec::new();
    while !text.is_empty() {
        let name = word(&mut text, b' ')?;
        let window = WindowName::parse(name);
        if window.is_none() && !key::is_of_unknown_zone(name) {
            return None;
        }
        let number: usize = word(&mut text, b'\n')?.parse().ok()?;
        for _ in 0..number {
            let total: i64 = word(&mut text, b' ')?.parse().ok()?;
            let length: usize = word(&mut text, b' ')?.parse().ok()?;
            let (key, rest) = text.split_at_checked(length)?;
            text = rest;
            counts.extend(window.map(|window| Count {
                key: key.to_vec(),
                size: window.size,
                window: window.number,
                total: Hits::from_thousandths(total),
            }));
        }
    }
    Some(counts)
}

/// Takes the text up to the first `end`, and removes both.
fn word<'t>(text: &mut &'t [u8], end: u8) -> Option<&'t str> {
    let length = text.iter().position(|byte| *byte == end)?;
    let (word, rest) = text.split_at_checked(length)?;
    *text = rest.get(1..)?;
    str::from_utf8(word).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_with_keys_of_any_bytes() {
        let read = |text: &[u8]| {
            let counts = totals_of(text)?;
            let parts = counts.into_iter().map(|count| {
                let total = count.total.thousandths();
                (count.size.millis(), count.window, count.key, total)
            });
            Some(parts.collect::<Vec<_>>())
        };
        let key = b"1 2\n3".to_vec();
        for (text, expected) in [
            (&b""[..], Some(vec![])),
            (
                b"60000:7 2\n1000 1 a-5 5 1 2\n31000:8 1\n0 1 b",
                Some(vec![
                    (60_000, 7, b"a".to_vec(), 1000),
                    (60_000, 7, key, -5),
                    (1000, 8, b"b".to_vec(), 0),
                ]),
            ),
            // A time zone of a newer database.
            (b"32212254721:7 1\n1000 1 a1000:8 1\n5 1 b", Some(vec![(1000, 8, b"b".to_vec(), 5)])),
            (b"32212254721:x 1\n1000 1 a", None),
            (b"60000:7 2\n1000 1 a", None),
            (b"60000:7 1\n1000 2 a", None),
            (b"60000:7 1\n1000 99999999999999999999 a", None),
            (b"60000 1\n1000 1 a", None),
            (b"x", None),
        ] {
            assert_eq!(read(text), expected, "{}", text.escape_ascii());
        }
    }
}
