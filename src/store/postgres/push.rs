//! Pushes a batch, and parses the answer.

use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;
use std::collections::BTreeMap;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::connection::{Connection, Fault, Prepared};
use super::row::{epoch, name, signed};
use super::told;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::strategy::{
    Batch, BatchId, Changes, Count, Diff, LONGEST_LIFE, LivingNodes, MAX_TOTAL, NODE_LIFE, NodeId,
    Position, Pushed, Shard,
};

/// Longest time for which anything is kept.
pub(super) const MAX_LIFE: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// Longest time for which pushes do not notify, in milliseconds. The statements have it, too.
const LONGEST_SILENCE: u64 = 10_000;

/// Returns the milliseconds after a notification for which pushes do not notify. In this way, notifications
/// of a namespace wake these nodes at most half of `exchanges` times a second, all together.
pub(super) fn silence(living: Option<LivingNodes>, exchanges: NonZeroU32) -> i64 {
    let nodes = living.map_or(0, |it| it.count);
    let millis = nodes.saturating_mul(2000) / NonZeroU64::from(exchanges);
    millis.min(LONGEST_SILENCE).cast_signed()
}

/// Sends a batch. If it is news, notifies listening nodes, unless a push has notified them within `silence`
/// (in milliseconds). Returns the counters that it has made negative. The outer errors are of this side.
pub(super) async fn push(
    connection: &Connection,
    shard: &Shard,
    batch: &Batch,
    (id, silence): (BatchId, Option<i64>),
    diffs: &Columns<'_>,
) -> Result<Result<Vec<Count>, Error>, Fault> {
    let (namespace, number) = name(shard);
    let push = connection.statement(match silence {
        Some(_) => Prepared::Tell,
        None => Prepared::Push,
    })?;
    let (epoch, node) = (batch.epoch.0.get().cast_signed(), batch.node.to_string());
    let (id, previous) = (id.0.cast_signed(), batch.previous.0.cast_signed());
    let told = told::number(batch.epoch, batch.node).to_string();
    let refunds = batch.grants.is_some();
    let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![
        &epoch,
        &node,
        &diffs.sizes,
        &diffs.windows,
        &diffs.keys,
        &diffs.thousandths,
        &diffs.lives,
        &namespace,
        &number,
        &id,
        &previous,
        &diffs.node_life,
        &refunds,
    ];
    if let Some(silence) = &silence {
        parameters.extend::<[&(dyn ToSql + Sync); 2]>([&told, silence]);
    }
    let rows = connection.client.query(push, &parameters).await;
    Ok(rows.and_then(|rows| rows.iter().filter_map(|row| count(row).transpose()).collect()))
}

pub(super) async fn ask(
    connection: &Connection,
    shard: &Shard,
    batch: &Batch,
    limit: usize,
) -> Result<Result<Vec<Row>, Error>, Fault> {
    let (namespace, number) = name(shard);
    let ask = connection.statement(Prepared::Ask)?;
    let position = batch.position.map(|Position(words)| words);
    // A position of another epoch is useless in this one.
    let position = position.filter(|[_, epoch]| *epoch == batch.epoch.0.get());
    let position = position.map(|[number, _]| number.cast_signed());
    let result = connection
        .client
        .query(
            ask,
            &[
                &namespace,
                &number,
                &batch.epoch.0.get().cast_signed(),
                &batch.node.to_string(),
                &position,
                &signed(limit),
            ],
        )
        .await;
    Ok(result)
}

/// Records how long the batch's node is alive, if it says so. Returns the living nodes.
pub(super) async fn living(
    connection: &Connection,
    batch: &Batch,
) -> Result<Result<Option<LivingNodes>, Error>, Fault> {
    let Some(life) = batch.lives_for else {
        return Ok(Ok(None));
    };
    let living = connection.statement(Prepared::Living)?;
    let NodeId([high, low]) = batch.node;
    // No node has this id.
    let row = NodeId([!high, low]).to_string();
    let (epoch, life) = (batch.epoch.0.get().cast_signed(), millis(life));
    let client = &connection.client;
    let longest = millis(LONGEST_LIFE);
    let parameters: [&(dyn ToSql + Sync); 4] = [&epoch, &row, &life, &longest];
    let others = client.query_one(living, &parameters).await;
    let own = u64::from(life > 0);
    let living = others.and_then(|row| {
        let (others, place) = (row.try_get::<_, i64>(0)?, row.try_get::<_, i64>(1)?);
        let count = others.unsigned_abs().saturating_add(own);
        Ok(LivingNodes { count, place: Some(place.unsigned_abs()) })
    });
    Ok(living.map(Some))
}

/// Ends an epoch of a shard, if it is the current one; or the current one in any case.
pub(super) async fn end_epoch(
    connection: &Connection,
    shard: &Shard,
    epoch: Option<i64>,
) -> Result<(), Fault> {
    let (namespace, number) = name(shard);
    let end = connection.statement(Prepared::EndEpoch)?;
    let parameters: [&(dyn ToSql + Sync); 3] = [&namespace, &number, &epoch];
    connection.client.execute(end, &parameters).await?;
    Ok(())
}

/// Parses the answer of `ask.sql`.
pub(super) fn pushed(batch: &Batch, rows: &[Row]) -> Result<Pushed, Fault> {
    let misunderstood = || Fault::Misunderstood("ask.sql");
    let Some(first) = rows.first() else {
        return Ok(Pushed::NoEpoch);
    };
    let present = epoch(first)?.ok_or_else(misunderstood)?;
    if present != batch.epoch {
        return Ok(Pushed::OtherEpoch(present));
    }
    let last = BatchId(first.try_get::<_, i64>("number")?.cast_unsigned());
    if last != batch.last() {
        return Ok(batch.misfit(last));
    }
    let number: i64 = first.try_get("position")?;
    let number = u64::try_from(number).map_err(|_| misunderstood())?;
    let position = Position([number, present.0.get()]);
    let now: i64 = first.try_get("now")?;
    let now = UnixMillis(u64::try_from(now).map_err(|_| misunderstood())?);
    if !first.try_get::<_, bool>("is_known")? {
        let changes = Changes::Behind { position };
        return Ok(Pushed::Applied { changes, now });
    }
    let mut counts = Vec::new();
    for row in rows {
        counts.extend(count(row)?);
    }
    let changes = Changes::Since { counts, position, has_more: first.try_get("has_more")? };
    Ok(Pushed::Applied { changes, now })
}

/// Parses the counter of a row, if it has one, with the window as nodes number it.
pub(super) fn count(row: &Row) -> Result<Option<Count>, Error> {
    let Some(key) = row.try_get("key")? else {
        return Ok(None);
    };
    let size: i64 = row.try_get("window_size")?;
    let window: i64 = row.try_get("window_number")?;
    let total = Hits::from_thousandths(row.try_get("thousandths")?);
    let size = WindowSize::from_bits(size.cast_unsigned());
    Ok(size.map(|size| Count { key, size, window: window.cast_unsigned(), total }))
}

/// A number that a push or a decision adds to a total.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addition<'a> {
    pub(super) key: &'a [u8],
    pub(super) size: WindowSize,
    pub(super) window: u64,
    pub(super) thousandths: i64,
    /// Time from now until the window ceases to matter.
    pub(super) life: Duration,
}

impl<'a> From<&'a Diff> for Addition<'a> {
    fn from(diff: &'a Diff) -> Self {
        Addition {
            key: &diff.key,
            size: diff.size,
            window: diff.window,
            thousandths: diff.diff.thousandths(),
            life: diff.expires_in,
        }
    }
}

/// Additions as arrays, each counter once, in the order in which rows are locked.
pub(super) struct Columns<'a> {
    node_life: i64,
    pub(super) sizes: Vec<i64>,
    pub(super) windows: Vec<i64>,
    pub(super) keys: Vec<&'a [u8]>,
    pub(super) thousandths: Vec<i64>,
    pub(super) lives: Vec<i64>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(additions: impl IntoIterator<Item = Addition<'a>>) -> Columns<'a> {
        let mut counters: BTreeMap<_, (i64, Duration)> = BTreeMap::new();
        for addition in additions {
            let counter = (addition.size, addition.window, addition.key);
            let (sum, life) = counters.entry(counter).or_default();
            *sum = sum.saturating_add(addition.thousandths);
            *life = addition.life.max(*life);
        }
        let longest = counters.values().map(|(_, life)| *life).max();
        // As in `ask.sql`, for a node that only asks.
        let longest = longest.unwrap_or_default().max(NODE_LIFE);
        let mut columns = Columns {
            // A day longer than its counts, so that batches sent again by a node that was removed
            // are of windows that do not matter any more.
            node_life: millis(longest.saturating_add(NODE_LIFE)),
            sizes: Vec::with_capacity(counters.len()),
            windows: Vec::with_capacity(counters.len()),
            keys: Vec::with_capacity(counters.len()),
            thousandths: Vec::with_capacity(counters.len()),
            lives: Vec::with_capacity(counters.len()),
        };
        for ((size, window, key), (sum, life)) in counters {
            columns.sizes.push(size.bits().cast_signed());
            columns.windows.push(window.cast_signed());
            columns.keys.push(key);
            columns.thousandths.push(sum.clamp(-MAX_TOTAL, MAX_TOTAL));
            columns.lives.push(millis(life));
        }
        columns
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.min(MAX_LIFE).as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_silence_grows_with_the_nodes_and_is_bounded() {
        for (nodes, exchanges, millis) in [
            (None, 1000, 0),
            (Some(1), 1000, 2),
            (Some(10), 1000, 20),
            (Some(50), 100, 1000),
            (Some(50), 1_000_000, 0),
            (Some(300), 1, 10_000),
            (Some(u64::MAX), 1000, 10_000),
        ] {
            let exchanges = NonZeroU32::new(exchanges).unwrap();
            let living = nodes.map(|count| LivingNodes { count, place: None });
            assert_eq!(silence(living, exchanges), millis, "{nodes:?}, {exchanges}");
        }
    }
}
