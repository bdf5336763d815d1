//! A push: a batch is applied, and other nodes' changes are returned. It has three steps, whose
//! statements are sent concurrently:
//!
//! 1. Read the epoch, the last batch of each node, and this node's position.
//! 2. Write the batch's counts, the log of its changes, and the node's life; read the other nodes'
//!    changes since the position.
//! 3. Write the batch's id, after all of its rows; read the sums, and write the new position.
//!
//! The other nodes' changes may be too many to be read in the time for an exchange. Then the next
//! exchange that pushes reads none, and those that only read take fewer at a time, until they are
//! fast enough.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::{try_join, try_join_all, try_join3};

use super::counters::{self, RowToSet};
use super::epoch;
use super::failure::CqlFault;
use super::log::{self, Changed};
use super::position::{
    Progress, Recent, Vector, is_charger_of, name_bytes, name_of, node_bytes, node_of,
};
use super::session::statements::Cql;
use super::session::{Connected, rows};
use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::store::contract::strategy::{
    Batch, BatchId, Changes, Count, Diff, Epoch, LONGEST_LIFE, LivingNodes, NODE_LIFE, NodeId,
    Position, Pushed, Shard,
};

/// Batches of a node in one partition.
const PART: u64 = 256;
/// Most batches that are read at a time.
const MOST_BATCHES: usize = 64;

/// A row of a node.
struct NodeRow {
    progress: Progress,
    /// Start of its chain, in microseconds of the store's clock.
    began: i64,
    /// Remaining life of the row, in seconds.
    expires_in: i32,
}

/// The known nodes of a shard.
struct KnownNodes {
    /// Nodes that have pushed.
    rows: Vec<NodeRow>,
    /// Nodes that have said how long they live, with the end in Unix milliseconds.
    lives: Vec<(NodeId, i64)>,
}

impl KnownNodes {
    async fn read(connected: &Connected, epoch: Epoch) -> Result<KnownNodes, CqlFault> {
        let values = (epoch.0.get().cast_signed(),);
        let answer = connected.select(Cql::Nodes, values).await?;
        let mut nodes = KnownNodes { rows: Vec::new(), lives: Vec::new() };
        type Number = Option<i64>;
        type Row<'a> = (&'a [u8], Number, Number, Number, Option<i32>, Number);
        for row in rows::<Row<'_>>(&answer, Cql::Nodes)? {
            let (node, began, first, last, expires_in, lives) = row?;
            // An id with another length does not belong to a node.
            let Ok(node) = node.try_into() else {
                continue;
            };
            let node = node_of(node);
            nodes.lives.extend(lives.map(|until| (node, until)));
            // Otherwise the node has only said that it is alive.
            if let (Some(began), Some(first), Some(last)) = (began, first, last) {
                nodes.rows.push(NodeRow {
                    progress: Progress {
                        node,
                        first: BatchId(first.cast_unsigned()),
                        last: BatchId(last.cast_unsigned()),
                    },
                    began,
                    // A row without a life was written by somebody else. Cassandra allows no life
                    // above 20 years.
                    expires_in: expires_in.unwrap_or_default(),
                });
            }
        }
        Ok(nodes)
    }

    /// Returns the other living nodes, and the place of this one. Ignores lives that are longer than
    /// nodes may claim.
    fn living_beside(&self, node: NodeId, now: UnixMillis) -> LivingNodes {
        let longest = u64::try_from(LONGEST_LIFE.as_millis()).unwrap_or(u64::MAX);
        let latest = now.0.saturating_add(longest);
        let is_alive = |until| until > now.0 && until <= latest;
        let others = self
            .lives
            .iter()
            .filter(|(it, until)| *it != node && u64::try_from(*until).is_ok_and(is_alive));
        let (count, place) = others.fold((0_u64, 0_u64), |(count, place), (it, _)| {
            (count.saturating_add(1), place.saturating_add(u64::from(it.0 < node.0)))
        });
        LivingNodes { count, place: Some(place) }
    }
}

/// Returns the vector of a position, if it is known.
async fn seen(
    connected: &Connected,
    epoch: Epoch,
    recent: &Recent,
    position: Option<Position>,
) -> Result<Option<Arc<Vector>>, CqlFault> {
    let Some(position) = position else {
        return Ok(None);
    };
    if let Some(vector) = recent.find(epoch, position) {
        return Ok(Some(vector));
    }
    let answer = connected.select(Cql::Position, (name_bytes(position),)).await?;
    let row = rows::<(&[u8],)>(&answer, Cql::Position)?.next();
    let vector = row.transpose()?;
    let vector = vector.and_then(|(bytes,)| Vector::from_bytes(bytes, epoch));
    Ok(vector.map(Arc::new))
}

/// The answer to a batch.
pub(super) struct BatchAnswer {
    pub(super) pushed: Pushed,
    /// The living nodes, if the batch says that its node is alive.
    pub(super) living: Option<LivingNodes>,
    /// Whether the store has lost charges for reserves, of which the batch gives some back.
    pub(super) has_lost_grants: bool,
}

/// The answer to a batch that was not applied.
impl From<Pushed> for BatchAnswer {
    fn from(pushed: Pushed) -> BatchAnswer {
        BatchAnswer { pushed, living: None, has_lost_grants: false }
    }
}

/// Applies a batch, and returns other nodes' changes.
pub(super) async fn push(
    connected: &Connected,
    recent: &mut Recent,
    shard: &Shard,
    batch: &Batch,
    limit: usize,
) -> Result<BatchAnswer, CqlFault> {
    recent.share.begin();
    let (present, nodes, seen) = try_join3(
        epoch::present(connected, shard),
        KnownNodes::read(connected, batch.epoch),
        seen(connected, batch.epoch, recent, batch.position),
    )
    .await?;
    let now = match present {
        None => return Ok(Pushed::NoEpoch.into()),
        Some((epoch, _)) if epoch != batch.epoch => return Ok(Pushed::OtherEpoch(epoch).into()),
        Some((_, now)) => now,
    };
    let living = batch.lives_for.map(|life| {
        let others = nodes.living_beside(batch.node, now);
        let own = u64::from(life > Duration::ZERO);
        LivingNodes { count: others.count.saturating_add(own), ..others }
    });
    let nodes = nodes.rows;
    let own = nodes.iter().find(|node| node.progress.node == batch.node);
    let last = own.map_or(BatchId::NONE, |node| node.progress.last);
    let is_new = batch.id.is_some() && last == batch.previous;
    if !is_new && last != batch.last() {
        return Ok(batch.misfit(last).into());
    }
    let has_lost_grants = has_lost_grants(connected, batch, is_new).await?;
    let progress = batch.id.map(|id| Progress {
        node: batch.node,
        first: own.map_or(id, |node| node.progress.first),
        last: id,
    });
    // The node knows all of its own changes, including those of its chargers.
    let all = nodes.iter().map(|node| node.progress);
    let is_own = |it: &Progress| is_charger_of(it.node, batch.node);
    let (own_ones, mut others): (Vec<_>, Vec<_>) =
        all.filter(|it| it.node != batch.node).partition(is_own);
    recent.take_turns(&mut others);
    let present = own.map(|node| node.progress);
    let present = progress.or(present).into_iter().chain(own_ones);

    let apply = async {
        match batch.id.filter(|_| is_new) {
            Some(id) => write(connected, batch, id, has_lost_grants).await,
            None => Ok(()),
        }
    };
    let record_life = async {
        match batch.lives_for {
            Some(life) => record_life(connected, batch, life, now).await,
            None => Ok(()),
        }
    };
    let at_once = recent.share.of(batches_at_once(limit, recent.batch_size));
    let limit = recent.share.of(limit);
    // A node that has reset a key learns from the answer whether it subtracted too much.
    let has_reset = batch.diffs.iter().any(|diff| diff.diff < Hits::ZERO);
    let is_apart = batch.id.is_some() && recent.share.is_apart() && !has_reset;
    let from = batch.position.filter(|_| is_apart && seen.is_some());
    if seen.is_some() && from.is_none() {
        recent.share.read();
    }
    let news = async {
        match &seen {
            _ if from.is_some() => Ok(None),
            Some(seen) => News::read(connected, batch.epoch, seen, &others, at_once).await,
            None => Ok(None),
        }
    };
    let after_push = |fault: CqlFault| match is_new {
        true => fault.after_push(),
        false => fault,
    };
    let ((), (), news) = try_join3(apply, record_life, news).await.map_err(after_push)?;
    let record_node = async {
        match progress.filter(|_| is_new) {
            Some(progress) => note(connected, batch, progress, own, now).await,
            None => Ok(()),
        }
    };
    if let Some(position) = from {
        record_node.await.map_err(after_push)?;
        let changes = Changes::Since { counts: Vec::new(), position, has_more: true };
        let pushed = Pushed::Applied { changes, now };
        return Ok(BatchAnswer { pushed, living, has_lost_grants });
    }
    // News of another version that cannot be parsed count as missing.
    let part = news.as_ref().and_then(|news| news.part(limit));
    let (changed, vector, has_more) = match part {
        Some(part) => {
            recent.batch_size = part.batch_size().unwrap_or(recent.batch_size);
            let vector = Vector::new(part.progress.into_iter().chain(present).collect());
            (Some(part.changed), vector, part.has_more)
        }
        None => (None, Vector::new(others.into_iter().chain(present).collect()), false),
    };
    let bytes = vector.to_bytes(batch.epoch);
    let position = name_of(&bytes);
    let record_position = async {
        match batch.position == Some(position) {
            true => Ok(()),
            false => {
                let values = (name_bytes(position), bytes);
                connected.execute(Cql::NotePosition, values).await
            }
        }
    };
    let sums = async {
        match &changed {
            Some(changed) => Ok(Some(sums(connected, batch.epoch, changed).await?)),
            None => Ok(None),
        }
    };
    let (counts, (), ()) =
        try_join3(sums, record_node, record_position).await.map_err(after_push)?;
    if changed.is_some() {
        recent.share.done();
    }
    recent.note(batch.epoch, position, Arc::new(vector));
    let changes = match counts {
        Some(counts) => Changes::Since { counts, position, has_more },
        None => Changes::Behind { position },
    };
    Ok(BatchAnswer { pushed: Pushed::Applied { changes, now }, living, has_lost_grants })
}

/// Returns whether a batch gives hits back that the store has not. A batch that was applied before
/// may have done so then.
async fn has_lost_grants(
    connected: &Connected,
    batch: &Batch,
    is_new: bool,
) -> Result<bool, CqlFault> {
    if batch.grants.is_none() {
        return Ok(false);
    }
    let mut refunds = batch.sums();
    refunds.retain(|_, (sum, _)| *sum < 0);
    if refunds.is_empty() {
        return Ok(false);
    }
    if !is_new {
        return Ok(true);
    }
    let counters = refunds.keys().copied().collect();
    let totals = counters::sums(connected, batch.epoch, &counters).await?;
    let totals: BTreeMap<_, _> = totals.into_iter().collect();
    Ok(refunds.iter().any(|(counter, (sum, _))| {
        totals.get(counter).copied().unwrap_or_default().saturating_add(*sum) < 0
    }))
}

/// Returns the totals of changed counters.
async fn sums(
    connected: &Connected,
    epoch: Epoch,
    changed: &BTreeSet<Changed<'_>>,
) -> Result<Vec<Count>, CqlFault> {
    let sums = counters::sums(connected, epoch, changed).await?;
    let sums = sums.into_iter();
    Ok(sums
        .map(|((size, window, key), total)| Count {
            key: key.into(),
            size,
            window,
            total: Hits::from_thousandths(total),
        })
        .collect())
}

/// Writes the counts of a batch, without refunds if the store has lost what they refund.
async fn write(
    connected: &Connected,
    batch: &Batch,
    id: BatchId,
    has_lost_grants: bool,
) -> Result<(), CqlFault> {
    let is_written = |diff: &&Diff| !has_lost_grants || diff.diff >= Hits::ZERO;
    let diffs = batch.diffs.iter().filter(is_written);
    let counters = diffs.clone().map(|diff| (diff.size, diff.window, &*diff.key));
    let rows = diffs.map(RowToSet::from);
    let note = record_changes(connected, batch.epoch, (batch.node, id), counters);
    let set = counters::set(connected, batch.epoch, (batch.node, id), rows);
    try_join(set, note).await.map(drop)
}

/// Writes the log of a batch's changes.
pub(super) async fn record_changes(
    connected: &Connected,
    epoch: Epoch,
    (node, id): (NodeId, BatchId),
    counters: impl IntoIterator<Item = Changed<'_>>,
) -> Result<(), CqlFault> {
    let (changed, counters) = log::to_bytes(counters);
    let values = (
        epoch.0.get().cast_signed(),
        node_bytes(node),
        part_of(id.number()),
        id.0.cast_signed(),
        counters,
        changed,
    );
    connected.execute(Cql::NoteChanges, values).await
}

/// Writes the end of the node's life. If the clocks of Cassandra's nodes differ, an earlier
/// statement may win for as long as the difference.
async fn record_life(
    connected: &Connected,
    batch: &Batch,
    life: Duration,
    now: UnixMillis,
) -> Result<(), CqlFault> {
    let until = match life {
        Duration::ZERO => 0,
        life => {
            i64::try_from(u128::from(now.0).saturating_add(life.as_millis())).unwrap_or(i64::MAX)
        }
    };
    let values = (
        batch.epoch.0.get().cast_signed(),
        node_bytes(batch.node),
        until,
        // A started second counts as a whole one.
        counters::seconds(life.saturating_add(Duration::from_secs(1))),
    );
    connected.execute(Cql::NoteLife, values).await
}

/// Writes the node's last batch.
async fn note(
    connected: &Connected,
    batch: &Batch,
    progress: Progress,
    before: Option<&NodeRow>,
    now: UnixMillis,
) -> Result<(), CqlFault> {
    let began = before.map_or_else(|| micros(now), |row| row.began);
    // A day longer than its counts, so that batches sent again by a node that was removed are of
    // windows that do not matter any more.
    let life = counters::seconds(batch.life().max(NODE_LIFE).saturating_add(NODE_LIFE));
    let known_for = before.map_or(0, |row| row.expires_in);
    record_node(connected, batch.epoch, progress, began, life.max(known_for)).await
}

/// Writes a node's last batch. The row's timestamp is the start of its chain, and a microsecond
/// more with each batch. So an earlier batch that arrives late changes nothing, and a chain that
/// begins after the former one was removed is later.
pub(super) async fn record_node(
    connected: &Connected,
    epoch: Epoch,
    progress: Progress,
    began: i64,
    life: i32,
) -> Result<(), CqlFault> {
    let number = progress.last.number().cast_signed();
    let values = (
        epoch.0.get().cast_signed(),
        node_bytes(progress.node),
        began,
        progress.first.0.cast_signed(),
        progress.last.0.cast_signed(),
        life,
        began.saturating_add(number),
    );
    connected.execute(Cql::NoteNode, values).await
}

/// Converts a time to microseconds, as chains use them.
pub(super) fn micros(now: UnixMillis) -> i64 {
    now.0.saturating_mul(1000).cast_signed()
}

fn part_of(number: u64) -> i64 {
    number.checked_div(PART).unwrap_or_default().cast_signed()
}

/// The changes of other nodes since a position.
struct News {
    /// Each node with changes, its position, and its later batches.
    nodes: Vec<NodeNews>,
}

struct NodeNews {
    /// Last position that was read; `None` without one.
    seen: Option<Progress>,
    present: Progress,
    /// The next batches without gaps: all up to `present`, or the first of them.
    batches: Vec<(BatchId, Vec<Vec<u8>>)>,
}

/// The part of the news in one answer.
struct Told<'a> {
    changed: BTreeSet<Changed<'a>>,
    /// Number of batches in this part.
    batches: usize,
    progress: Vec<Progress>,
    has_more: bool,
}

impl Told<'_> {
    /// Returns the number of counters in a batch of these; `None` without batches.
    fn batch_size(&self) -> Option<usize> {
        self.changed.len().checked_div(self.batches)
    }
}

/// Returns the number of batches to read for this number of counters. Batches that are read but not
/// returned must be read again.
fn batches_at_once(limit: usize, batch_size: usize) -> usize {
    let batches = limit.checked_div(batch_size).unwrap_or(MOST_BATCHES);
    batches.clamp(1, MOST_BATCHES)
}

impl News {
    /// Reads the changes since a position. `None` if that is impossible.
    async fn read(
        connected: &Connected,
        epoch: Epoch,
        seen: &Vector,
        others: &[Progress],
        at_once: usize,
    ) -> Result<Option<News>, CqlFault> {
        let mut nodes = Vec::with_capacity(others.len());
        let mut after = Vec::with_capacity(others.len());
        for &present in others {
            let seen = seen.of(present.node).copied();
            // A chain that began again is read from its beginning.
            let seen = seen.filter(|seen| seen.first == present.first);
            let next = match seen {
                Some(seen) if seen.last == present.last => None,
                Some(seen) if seen.last.number() >= present.last.number() => return Ok(None),
                Some(seen) => seen.last.number().checked_add(1),
                None => Some(present.first.number()),
            };
            after.push(next);
            nodes.push(NodeNews { seen, present, batches: Vec::new() });
        }
        let with_news = after.iter().flatten().count().max(1);
        let each = at_once.checked_div(with_news).unwrap_or_default().max(1);
        let reading = nodes.iter_mut().zip(after).filter_map(|(node, next)| Some((node, next?)));
        let reading = reading.take(at_once).map(async |(node, next)| {
            let each = u64::try_from(each).unwrap_or(1);
            let batches = batches(connected, epoch, node.present, next, each).await?;
            let is_whole = batches.is_some();
            node.batches = batches.unwrap_or_default();
            Ok::<_, CqlFault>(is_whole)
        });
        let are_whole = try_join_all(reading).await?;
        Ok(are_whole.iter().all(|is_whole| *is_whole).then_some(News { nodes }))
    }

    /// Returns the part with up to `limit` counters, or the first batch; `None` if the news cannot
    /// be parsed.
    fn part(&self, limit: usize) -> Option<Told<'_>> {
        let mut part =
            Told { changed: BTreeSet::new(), batches: 0, progress: Vec::new(), has_more: false };
        let mut is_full = false;
        for node in &self.nodes {
            let mut last = node.seen.map(|seen| seen.last);
            for (id, rows) in &node.batches {
                let mut changed = BTreeSet::new();
                for row in rows {
                    changed.extend(log::from_bytes(row)?);
                }
                let new = changed.difference(&part.changed).count();
                let all = part.changed.len().saturating_add(new);
                is_full |= all > limit && !part.changed.is_empty();
                if is_full {
                    break;
                }
                part.changed.append(&mut changed);
                part.batches = part.batches.saturating_add(1);
                last = Some(*id);
            }
            let Progress { first, .. } = node.present;
            part.has_more |= last != Some(node.present.last);
            part.progress.extend(last.map(|last| Progress {
                node: node.present.node,
                first,
                last,
            }));
        }
        Some(part)
    }
}

/// Reads up to `most` batches of a node, from number `next` on; `None` if one is missing.
async fn batches(
    connected: &Connected,
    epoch: Epoch,
    node: Progress,
    next: u64,
    most: u64,
) -> Result<Option<Vec<(BatchId, Vec<Vec<u8>>)>>, CqlFault> {
    let end_of_part = next | PART.saturating_sub(1);
    let last = next.saturating_add(most).saturating_sub(1);
    let last = last.min(node.last.number()).min(end_of_part);
    let (least, greatest) = (BatchId::new(next, 0), BatchId::new(last, u32::MAX));
    let values = (
        epoch.0.get().cast_signed(),
        node_bytes(node.node),
        part_of(next),
        least.0.cast_signed(),
        greatest.0.cast_signed(),
    );
    let answer = connected.select(Cql::Changes, values).await?;
    let mut batches: BTreeMap<BatchId, Vec<Vec<u8>>> = BTreeMap::new();
    for row in rows::<(i64, &[u8])>(&answer, Cql::Changes)? {
        let (id, changed) = row?;
        let batch = batches.entry(BatchId(id.cast_unsigned())).or_default();
        batch.push(changed.into());
    }
    let numbers = batches.keys().map(|id| id.number());
    Ok(numbers.eq(next..=last).then(|| batches.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::conformance::MINUTE;

    #[test]
    fn batches_of_changes_are_read_up_to_the_limit() {
        for (limit, batch_size, batches) in [
            // Unknown, or the batch was empty.
            (500, 0, MOST_BATCHES),
            (500, 1, MOST_BATCHES),
            (500, 100, 5),
            (500, 320, 1),
            (500, 501, 1),
            (0, 1, 1),
        ] {
            assert_eq!(batches_at_once(limit, batch_size), batches);
        }
        let key = |number: u8| vec![b'k', number];
        let row = |keys: core::ops::Range<u8>| {
            let keys: Vec<_> = keys.map(key).collect();
            log::to_bytes(keys.iter().map(|key| (MINUTE, 7, &**key))).0
        };
        let progress = |last| Progress {
            node: NodeId([1, 1]),
            first: BatchId::new(1, 0),
            last: BatchId::new(last, 0),
        };
        let batch = |number: u8| {
            let keys = row(number * 10..number * 10 + 10);
            (BatchId::new(number.into(), 0), vec![keys])
        };
        let news = News {
            nodes: vec![NodeNews {
                seen: None,
                present: progress(9),
                batches: (1..=6).map(batch).collect(),
            }],
        };
        let told = news.part(35).unwrap();
        assert_eq!((told.changed.len(), told.has_more), (30, true));
        assert_eq!(told.progress, [progress(3)]);
        assert_eq!(told.batch_size(), Some(10));
        let news = News { nodes: Vec::new() };
        assert_eq!(news.part(35).unwrap().batch_size(), None);
    }
}
