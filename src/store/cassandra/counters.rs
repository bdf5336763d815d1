//! Counters: one row for each writer; a total is their sum.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::try_join_all;
use scylla::statement::batch::{Batch as Statements, BatchType};
use scylla::value::{CqlVarintBorrowed, MaybeUnset};

use super::failure::CqlFault;
use super::log::Changed;
use super::name::{Name, Partition};
use super::position::node_bytes;
use super::session::statements::Cql;
use super::session::{Connected, rows};
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::contract::strategy::{BatchId, Count, Diff, Epoch, MAX_TOTAL, NodeId};

/// Most rows that a statement writes, or keys that it reads.
const MOST: usize = 250;

/// Returns the name of a writer: a node in an occupancy.
fn writer(node: NodeId, occupancy: u64) -> [u8; 24] {
    let mut writer = [0; 24];
    if let Some((of_node, of_occupancy)) = writer.split_first_chunk_mut() {
        *of_node = node_bytes(node);
        of_occupancy.copy_from_slice(&occupancy.to_be_bytes());
    }
    writer
}

/// Returns the timestamp of a batch's row in a window: microseconds since the window began,
/// different for each batch. Of two rows, the later batch's wins, whatever clocks say. Rows with
/// similar times of expiry have similar timestamps, so that Cassandra stores them together.
fn moment(partition: Partition, batch: BatchId) -> i64 {
    let Partition { size, window, .. } = partition;
    let began = size.start_of(window).0.saturating_mul(1000);
    began.saturating_add(batch.number()).cast_signed()
}

/// A row to write.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowToSet<'a> {
    pub(super) key: &'a [u8],
    pub(super) size: WindowSize,
    pub(super) window: u64,
    /// Occupancy of the writer's row.
    pub(super) occupancy: u64,
    pub(super) thousandths: i64,
    pub(super) expires_in: Duration,
}

impl<'a> From<&'a Diff> for RowToSet<'a> {
    fn from(diff: &'a Diff) -> Self {
        RowToSet {
            key: &diff.key,
            size: diff.size,
            window: diff.window,
            occupancy: diff.occupancy.0.get(),
            thousandths: diff.local.thousandths(),
            expires_in: diff.expires_in,
        }
    }
}

/// Writes the rows of a node's batch.
pub(super) async fn set(
    connected: &Connected,
    epoch: Epoch,
    by: (NodeId, BatchId),
    to_set: impl IntoIterator<Item = RowToSet<'_>>,
) -> Result<(), CqlFault> {
    let mut partitions: BTreeMap<Partition, Vec<RowToSet<'_>>> = BTreeMap::new();
    for row in to_set {
        let partition = Partition::of(row.key, row.size, row.window);
        partitions.entry(partition).or_default().push(row);
    }
    let chunks = partitions.iter().flat_map(|(partition, to_set)| {
        let chunks = to_set.chunks(MOST);
        chunks.map(move |to_set| set_at_once(connected, epoch, *partition, by, to_set))
    });
    try_join_all(chunks).await.map(drop)
}

/// Writes rows of one partition.
async fn set_at_once(
    connected: &Connected,
    epoch: Epoch,
    partition: Partition,
    (node, batch): (NodeId, BatchId),
    to_set: &[RowToSet<'_>],
) -> Result<(), CqlFault> {
    let epoch = epoch.0.get().cast_signed();
    let (size, window, part) = partition.values();
    let names: Vec<_> = to_set.iter().map(|row| Name::of(row.key)).collect();
    let values = to_set.iter().zip(&names).map(|(row, named)| {
        (
            epoch,
            size,
            window,
            part,
            &*named.name,
            writer(node, row.occupancy),
            row.thousandths,
            named.rest.map_or(MaybeUnset::Unset, MaybeUnset::Set),
            seconds(row.expires_in),
        )
    });
    let values: Vec<_> = values.collect();
    let statement = connected.statement(Cql::Count)?;
    let mut statements = Statements::new(BatchType::Unlogged);
    for _ in &values {
        statements.append_statement(statement.clone());
    }
    statements.set_timestamp(Some(moment(partition, batch)));
    connected.session.batch(&statements, values).await?;
    Ok(())
}

/// Returns the totals of those counters that exist.
pub(super) async fn sums<'a>(
    connected: &Connected,
    epoch: Epoch,
    counters: &BTreeSet<Changed<'a>>,
) -> Result<Vec<(Changed<'a>, i64)>, CqlFault> {
    let mut partitions: BTreeMap<Partition, Vec<&'a [u8]>> = BTreeMap::new();
    for (size, window, key) in counters {
        let partition = Partition::of(key, *size, *window);
        partitions.entry(partition).or_default().push(key);
    }
    let chunks = partitions.iter().flat_map(|(partition, keys)| {
        let chunks = keys.chunks(MOST);
        chunks.map(move |keys| sums_in(connected, epoch, *partition, keys))
    });
    Ok(try_join_all(chunks).await?.concat())
}

async fn sums_in<'a>(
    connected: &Connected,
    epoch: Epoch,
    partition: Partition,
    keys: &[&'a [u8]],
) -> Result<Vec<(Changed<'a>, i64)>, CqlFault> {
    let (size, window, part) = partition.values();
    let keys: BTreeMap<_, &'a [u8]> = keys.iter().map(|key| (Name::of(key).name, *key)).collect();
    let names: Vec<&[u8]> = keys.keys().map(|name| &**name).collect();
    let values = (epoch.0.get().cast_signed(), size, window, part, names);
    let answer = connected.select(Cql::Sums, values).await?;
    let mut totals = Vec::with_capacity(keys.len());
    for row in rows::<(&[u8], CqlVarintBorrowed<'_>)>(&answer, Cql::Sums)? {
        let (name, sum) = row?;
        if let Some(key) = keys.get(name) {
            totals.push(((partition.size, partition.window, *key), thousandths(&sum)));
        }
    }
    Ok(totals)
}

/// Returns a page of the counters in a partition, by name, and the last name if more may follow.
pub(super) async fn page(
    connected: &Connected,
    epoch: Epoch,
    partition: Partition,
    after: &[u8],
    most: usize,
) -> Result<(Vec<Count>, Option<Vec<u8>>), CqlFault> {
    let (size, window, part) = partition.values();
    let limit = i32::try_from(most).unwrap_or(i32::MAX);
    let epoch = epoch.0.get().cast_signed();
    let values = (epoch, size, window, part, after, limit);
    let answer = connected.select(Cql::Page, values).await?;
    let (mut counts, mut last) = (Vec::with_capacity(most), None);
    type Row<'a> = (&'a [u8], Option<&'a [u8]>, CqlVarintBorrowed<'a>);
    for row in rows::<Row<'_>>(&answer, Cql::Page)? {
        let (name, rest, sum) = row?;
        counts.push(Count {
            key: Name::key(name, rest),
            size: partition.size,
            window: partition.window,
            total: Hits::from_thousandths(thousandths(&sum)),
        });
        last = Some(name);
    }
    let last = last.filter(|_| counts.len() >= most).map(Into::into);
    Ok((counts, last))
}

/// Returns the total of a counter; zero if it does not exist.
pub(super) async fn total(
    connected: &Connected,
    epoch: Epoch,
    partition: Partition,
    key: &[u8],
) -> Result<Hits, CqlFault> {
    let (size, window, part) = partition.values();
    let name = Name::of(key).name;
    let values = (epoch.0.get().cast_signed(), size, window, part, &*name);
    let answer = connected.select(Cql::Total, values).await?;
    let mut sums = rows::<(Option<CqlVarintBorrowed<'_>>,)>(&answer, Cql::Total)?;
    let sum = sums.next().transpose()?.and_then(|(sum,)| sum);
    Ok(sum.map_or(Hits::ZERO, |sum| Hits::from_thousandths(thousandths(&sum))))
}

/// Converts a row's life to whole seconds, from 1 to 20 years, the maximum of Cassandra.
pub(super) fn seconds(life: Duration) -> i32 {
    const MOST: i32 = 20 * 365 * 24 * 60 * 60;
    let whole = life.saturating_add(Duration::from_nanos(999_999_999)).as_secs();
    i32::try_from(whole).unwrap_or(MOST).clamp(1, MOST)
}

/// Converts a CQL varint (big-endian two's complement of any length) to thousandths, saturating.
fn thousandths(sum: &CqlVarintBorrowed<'_>) -> i64 {
    let bytes = sum.as_signed_bytes_be_slice();
    let sign = match bytes.first() {
        Some(0x80..) => -1,
        _ => 0,
    };
    // The sum of 2^63 rows is less than 2^127.
    let sum = bytes.iter().fold(sign, |sum: i128, byte| sum << 8 | i128::from(*byte));
    const MOST: i128 = MAX_TOTAL as i128;
    const LEAST: i128 = -MOST;
    i64::try_from(sum.clamp(LEAST, MOST)).unwrap_or(MAX_TOTAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::conformance::MINUTE;

    #[test]
    fn sums_saturate() {
        for (bytes, total) in [
            (&[0][..], 0),
            (&[0x7f], 127),
            (&[0xff], -1),
            (&[0x80, 0], -32_768),
            (&[0x00, 0xff], 255),
            (&[0x7f; 12], MAX_TOTAL),
            (&[0x80; 12], -MAX_TOTAL),
        ] {
            let sum = CqlVarintBorrowed::from_signed_bytes_be_slice(bytes);
            assert_eq!(thousandths(&sum), total, "{bytes:?}");
        }
    }

    #[test]
    fn the_later_batch_stays() {
        let at =
            |window, batch| moment(Partition::of(b"k", MINUTE, window), BatchId::new(batch, 0));
        assert_eq!(at(0, 1), 1);
        assert_eq!(at(7, 1), 7 * 60_000_000 + 1);
        assert_eq!(at(7, 1 << 35) - at(7, 0), 1 << 35);
    }
}
