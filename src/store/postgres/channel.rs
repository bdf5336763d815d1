//! The channel of a Postgres: what is notified with a push, on a connection that listens.
//!
//! A notification is gone where nothing listens, so a connection that begins to asks once what was changed
//! up to then.

use core::num::NonZeroU64;
use core::time::Duration;

use tokio::time::timeout;

use super::Postgres;
use super::connection::{Connection, Fault, Prepared};
use super::row::signed;
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::error::StoreError;
use crate::store::strategy::{Batch, Count, Ear, Epoch, NodeId, Position, PushNews};

/// Names the session for those that look at them, and has it told.
const LISTEN: &str = "SET application_name = 'ngx_http_rate_limiting_module channel';
LISTEN ngx_rate_limiting";

/// How long it is waited for news.
const WAIT: Duration = Duration::from_secs(1);

impl Postgres {
    /// One with a connection of its own, on which an exchange may take so much longer.
    pub(super) fn listener(&self) -> Postgres {
        Postgres {
            link: self.link.patient(WAIT),
            nodes: None,
            purged: self.purged,
        }
    }

    /// Waits for news of these shards.
    pub(super) async fn listen(&mut self, ears: &[Ear]) -> Result<Vec<PushNews>, StoreError> {
        let exchange = async |connection: &Connection| {
            if !connection.listens.get() {
                connection.client.batch_execute(LISTEN).await?;
                connection.listens.set(true);
                let mut news = Vec::new();
                for ear in ears {
                    news.extend(catch_up(connection, ear).await?);
                }
                return Ok(news);
            }
            let Ok(first) = timeout(WAIT, connection.told()).await else {
                // Whether the server is there: nothing is said on a connection that was cut, either.
                connection.client.simple_query("").await?;
                return Ok(Vec::new());
            };
            let first = first.ok_or(Fault::Ended)?;
            let more = core::iter::from_fn(|| connection.take_told());
            let told = core::iter::once(first).chain(more);
            Ok(told.filter_map(|words| news(&words, ears)).collect())
        };
        self.link.exchange(exchange).await
    }
}

/// What was changed after the position of an ear, up to now, as news of no node.
async fn catch_up(connection: &Connection, ear: &Ear) -> Result<Option<PushNews>, Fault> {
    let catch_up = connection.statement(Prepared::CatchUp)?;
    let (epoch, Position([after, _])) = (ear.epoch.0.get(), ear.after);
    let limit = signed(Batch::MAX_DIFFS);
    let rows = connection
        .client
        .query(
            catch_up,
            &[&epoch.cast_signed(), &after.cast_signed(), &limit],
        )
        .await?;
    let Some(first) = rows.first() else {
        return Ok(None);
    };
    let last: i64 = first.try_get("changes")?;
    let mut counts = Vec::new();
    for row in &rows {
        // Nothing changed, if there is no key.
        let Some(key) = row.try_get::<_, Option<Vec<u8>>>("key")? else {
            continue;
        };
        let size = row.try_get::<_, i64>("window_size")?.cast_unsigned();
        counts.push(Count {
            key,
            size: WindowSize::from_millis(size).ok_or(Fault::Misunderstood("catch_up.sql"))?,
            window: row.try_get::<_, i64>("window_number")?.cast_unsigned(),
            total: Hits::from_thousandths(row.try_get("thousandths")?),
        });
    }
    Ok(Some(PushNews {
        shard: ear.shard.clone(),
        epoch: ear.epoch,
        node: NodeId([0; 2]),
        position: Position([last.cast_unsigned(), epoch]),
        counts,
    }))
}

/// What tell_change.sql tells, if it is of one of these shards, and is news there. What makes no sense is
/// somebody else's.
fn news(words: &str, ears: &[Ear]) -> Option<PushNews> {
    let mut words = words.split(' ');
    let epoch = words.next()?.parse::<i64>().ok()?.cast_unsigned();
    let epoch = Epoch(NonZeroU64::new(epoch)?);
    let number: i64 = words.next()?.parse().ok()?;
    let position = Position([number.cast_unsigned(), epoch.0.get()]);
    let mut ears = ears.iter();
    let ear = ears.find(|ear| ear.epoch == epoch && position.is_after(ear.after))?;
    let node = u128::from_str_radix(words.next()?, 16).ok()?;
    Some(PushNews {
        shard: ear.shard.clone(),
        epoch,
        node: NodeId([(node >> 64) as u64, node as u64]),
        position,
        counts: words.map(count).collect::<Option<_>>()?,
    })
}

/// The size and number of a window, a total, and a key in hexadecimal.
fn count(word: &str) -> Option<Count> {
    let mut parts = word.split(':');
    let mut number = || parts.next()?.parse::<i64>().ok();
    let (size, window, total) = (number()?, number()?, number()?);
    let bytes = parts.next()?.as_bytes().chunks(2);
    let bytes = bytes.map(|digits| match digits {
        [_, _] => u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok(),
        _ => None,
    });
    Some(Count {
        key: bytes.collect::<Option<_>>()?,
        size: WindowSize::from_millis(size.cast_unsigned())?,
        window: window.cast_unsigned(),
        total: Hits::from_thousandths(total),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance::shard;

    #[test]
    fn what_was_told_is_read() {
        let epoch = Epoch(NonZeroU64::new(u64::MAX).unwrap());
        let ear = Ear {
            shard: shard("api"),
            epoch,
            after: Position([6, u64::MAX]),
        };
        let read = |words| {
            let news = news(words, std::slice::from_ref(&ear))?;
            assert_eq!(news.epoch, epoch);
            let counts = news.counts.into_iter();
            let counts = counts.map(|it| (it.size.millis(), it.window, it.key, it.total));
            let Position([number, _]) = news.position;
            Some((news.node.0, number, counts.collect::<Vec<_>>()))
        };
        let total = Hits::from_thousandths(-5);
        for (words, expected) in [
            (
                "-1 7 00000000000000010000000000000002",
                Some(([1, 2], 7, vec![])),
            ),
            (
                "-1 8 0000000000000000000000000000000f 60000:7:-5:00fF 1000:8:-5:",
                Some((
                    [0, 15],
                    8,
                    vec![(60_000, 7, vec![0, 255], total), (1000, 8, vec![], total)],
                )),
            ),
            // It was known, or of another epoch.
            ("-1 6 00000000000000010000000000000002", None),
            ("-2 7 00000000000000010000000000000002", None),
            ("-1 7", None),
            ("-1 7 x", None),
            ("-1 7 0f 60000:7:1", None),
            ("-1 7 0f 60000:7:1:0", None),
            ("-1 7 0f 60000:7:1:xx", None),
            ("-1 7 0f 0:7:1:00", None),
            ("", None),
            ("hello", None),
        ] {
            assert_eq!(read(words), expected, "{words}");
        }
    }
}
