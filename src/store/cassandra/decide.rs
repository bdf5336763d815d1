//! Decisions: a decider charges the hits that it would admit, reads all charges, and takes back
//! those that exceed a limit.
//!
//! 1. It reads the counts. Questions that these refuse are charged nothing.
//! 2. It writes its own counts including the hits that it would admit, to most replicas.
//! 3. It reads all counts again, and decides once more. Of two deciders that race for the last hit,
//!    the one that wrote later reads the other's write, so a limit is never exceeded. Both may be
//!    refused.
//! 4. It takes back the charges of refused questions. Their answers say that they have raced, and
//!    may be asked again.
//!
//! Windows are those of the clock of the node that was read first. If an exchange fails, the next
//! one first takes back its charges. If the decider ends before, the charges stay.

use std::collections::{BTreeSet, HashMap};

use futures_util::future::{try_join, try_join_all, try_join3};

use super::charges::certainty::{FullCounters, answers};
use super::charges::charger::{Chargers, Writers};
use super::counters::{self, RowToSet};
use super::failure::CqlFault;
use super::log::Changed;
use super::name::Partition;
use super::position::Progress;
use super::push::{record_changes, record_node};
use super::session::statements::Cql;
use super::session::{Connected, rows};
use super::{Cassandra, epoch};
use crate::policy::algorithm::StoredKind;
use crate::policy::window::UnixMillis;
use crate::store::contract::decision::{Decided, Decider, Question};
use crate::store::contract::error::StoreError;
use crate::store::contract::strategy::{BatchId, Epoch, NodeId};
use crate::store::decide::asked::{AskedPlace, AskedPlaces};
use crate::store::decide::stored::StoredCount;

/// Time in seconds for which other nodes learn of a charger; longer than for its changes.
const CHARGER_LIFE: i32 = 7200;

/// The sums of all writers in the current and the previous window of each place, in thousandths.
type Totals = Vec<[i64; 2]>;

/// A place with a charge.
struct Charged {
    /// Index of the place.
    place: usize,
    partition: Partition,
    /// The charger's count before, and with the admitted hits, in thousandths.
    counts: [i64; 2],
}

impl Decider for Cassandra {
    const KINDS: &'static [StoredKind] = &[StoredKind::Windows];

    async fn decide(
        &mut self,
        node: NodeId,
        proposed: Epoch,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let (charged, full) = (&mut self.charged, &mut self.full);
        let exchange = async |connected: &Connected| {
            decide(connected, (charged, full), node, proposed, questions).await
        };
        self.link.exchange(exchange).await
    }
}

async fn decide(
    connected: &Connected,
    (chargers, full): (&mut Chargers, &mut FullCounters),
    node: NodeId,
    proposed: Epoch,
    questions: &[Question],
) -> Result<Decided, CqlFault> {
    let asked = AskedPlaces::new(questions);
    if let Some(writers) = chargers.unsure() {
        take_back(connected, writers).await?;
    }
    let (epochs, counted, now) = read(connected, chargers, &asked, proposed).await?;
    let before: Vec<_> = counted.iter().map(stored).collect();
    let mut counts = before.clone();
    let first = answers(&asked, questions, &mut counts, now, &[]);
    let charges: Vec<i64> =
        counts.iter().zip(&before).map(|(after, before)| after.charged_since(before)).collect();
    if charges.iter().all(|charge| *charge == 0) {
        let mut answers = first;
        full.judge(&asked, &epochs, questions, &[], &mut answers, now);
        return Ok(Decided { now, answers });
    }

    let mut writers = chargers.writers();
    let mut charged = Vec::new();
    for (index, (place, charge)) in asked.places.iter().zip(charges).enumerate() {
        if charge == 0 {
            continue;
        }
        let epoch = *epochs.get(place.shard).ok_or(NO_EPOCH)?;
        let charger = writers.of(place.shard, epoch, node, now);
        let (window, life) = place.window(now);
        let partition = Partition::of(place.key, place.size, window);
        charged.push(Charged {
            place: index,
            partition,
            counts: [
                charger.count(partition, place.key),
                charger.charge(partition, place.key, charge, life),
            ],
        });
    }
    let after_push = |fault: CqlFault| fault.after_push();
    write(connected, &asked, &mut writers, &charged, now).await.map_err(after_push)?;
    let again = read_again(connected, &asked, &writers, &charged);
    let (totals, ()) = try_join(again, note(connected, &writers)).await.map_err(after_push)?;

    let mut counts = before;
    for (charged, total) in charged.iter().zip(totals) {
        let [before, with_charge] = charged.counts;
        // The counts of other deciders, and of this one before.
        let present = total.saturating_sub(with_charge).saturating_add(before);
        let previous = counted.get(charged.place).map_or(0, |[_, previous]| *previous);
        if let Some(count) = counts.get_mut(charged.place) {
            *count = StoredCount::windows(present, previous);
        }
    }
    let before = counts.clone();
    let mut answers = answers(&asked, questions, &mut counts, now, &first);
    full.judge(&asked, &epochs, questions, &first, &mut answers, now);
    let mut too_much = Vec::new();
    for Charged { place: index, partition, counts: [own, with_charge] } in charged {
        let (Some(place), Some(after), Some(before)) =
            (asked.places.get(index), counts.get(index), before.get(index))
        else {
            continue;
        };
        let charge = after.charged_since(before);
        let back = own.saturating_add(charge).saturating_sub(with_charge);
        let Some((_, charger)) = writers.of_shards.get_mut(&place.shard) else {
            continue;
        };
        // A saturated count stays.
        if back < 0 {
            let (_, life) = place.window(now);
            let count = charger.charge(partition, place.key, back, life);
            too_much.push(Charged { place: index, partition, counts: [with_charge, count] });
        }
    }
    if !too_much.is_empty() {
        let taken_back = write(connected, &asked, &mut writers, &too_much, now).await;
        taken_back.map_err(after_push)?;
        note(connected, &writers).await.map_err(after_push)?;
    }
    writers.settle();
    Ok(Decided { now, answers })
}

/// Takes back the charges of a failed exchange.
async fn take_back(connected: &Connected, mut writers: Writers<'_>) -> Result<(), CqlFault> {
    let mut written = Vec::new();
    for (epoch, charger) in writers.of_shards.values_mut() {
        let unsure = charger.unsure();
        let batch = charger.next(charger.at());
        let (epoch, by) = (*epoch, (charger.writer, charger.node, batch));
        written.push(async move {
            let rows = unsure.iter().map(|unsure| RowToSet {
                key: &unsure.key,
                size: unsure.partition.size,
                window: unsure.partition.window,
                occupancy: 0,
                thousandths: unsure.before,
                expires_in: unsure.expires_in,
            });
            set(connected, epoch, by, rows).await
        });
    }
    let after_push = |fault: CqlFault| fault.after_push();
    try_join_all(written).await.map_err(after_push)?;
    note(connected, &writers).await.map_err(after_push)?;
    writers.settle();
    Ok(())
}

const NO_EPOCH: CqlFault = CqlFault::Misunderstood("a shard without an epoch");

fn stored([current, previous]: &[i64; 2]) -> StoredCount {
    StoredCount::windows(*current, *previous)
}

/// Reads the shards' epochs, the counts of the places, and the clock: concurrently if the epochs
/// and windows are those of the last decision.
async fn read(
    connected: &Connected,
    chargers: &mut Chargers,
    asked: &AskedPlaces<'_>,
    proposed: Epoch,
) -> Result<(Vec<Epoch>, Totals, UnixMillis), CqlFault> {
    if asked.shards.is_empty() {
        return Ok((Vec::new(), Vec::new(), clock(connected).await?));
    }
    let expected = chargers.last.as_ref().and_then(|last| {
        let mut shards = asked.shards.iter();
        let epochs: Option<Vec<Epoch>> =
            shards.by_ref().map(|shard| last.epochs.get(*shard).copied()).collect();
        Some((epochs?, last.now))
    });
    let present = present(connected, asked, proposed);
    let (counted, (epochs, now)) = match &expected {
        Some((epochs, now)) => {
            let (counted, present) =
                try_join(read_counts(connected, asked, epochs, *now), present).await?;
            (Some(counted), present)
        }
        None => (None, present.await?),
    };
    let is_expected = expected.as_ref().is_some_and(|(before, then)| {
        let has_window =
            |place: &AskedPlace<'_>| place.size.at(*then).number == place.size.at(now).number;
        *before == epochs && asked.places.iter().all(has_window)
    });
    let counted = match counted.filter(|_| is_expected) {
        Some(counted) => counted,
        None => read_counts(connected, asked, &epochs, now).await?,
    };
    let shards = asked.shards.iter().map(|shard| (*shard).clone());
    let last = chargers.last.get_or_insert_default();
    last.epochs.extend(shards.zip(epochs.iter().copied()));
    last.now = now;
    Ok((epochs, counted, now))
}

/// Returns the shards' epochs, which are opened if needed, and the clock.
async fn present(
    connected: &Connected,
    asked: &AskedPlaces<'_>,
    proposed: Epoch,
) -> Result<(Vec<Epoch>, UnixMillis), CqlFault> {
    let found = asked.shards.iter().map(|shard| epoch::present(connected, shard));
    let (mut epochs, mut clock) = (Vec::new(), UnixMillis(0));
    let mut next = proposed;
    for (shard, found) in asked.shards.iter().zip(try_join_all(found).await?) {
        let found = match found {
            Some(found) => found,
            None => {
                epoch::open(connected, shard, None, next).await?;
                next = epoch::after(next);
                let opened = epoch::present(connected, shard).await?;
                opened.ok_or(NO_EPOCH)?
            }
        };
        let (epoch, now) = found;
        epochs.push(epoch);
        clock = clock.max(now);
    }
    Ok((epochs, clock))
}

/// Returns the clock, and checks that most replicas answer and accept a write.
async fn clock(connected: &Connected) -> Result<UnixMillis, CqlFault> {
    // Reads a row that need not exist.
    let is_there = connected.select(Cql::Epoch, ("", 0_i32));
    // No position has this name.
    let is_written = connected.execute(Cql::NotePosition, ([0_u8; 16], Vec::<u8>::new()));
    let clock = connected.select(Cql::Clock, ());
    let (_, (), answer) = try_join3(is_there, is_written, clock).await?;
    let now = rows::<(i64,)>(&answer, Cql::Clock)?.next().transpose()?;
    let now = now.and_then(|(now,)| u64::try_from(now).ok());
    now.map(UnixMillis).ok_or(CqlFault::Misunderstood("no clock"))
}

/// Reads the counts of all writers in the windows at `now`.
async fn read_counts(
    connected: &Connected,
    asked: &AskedPlaces<'_>,
    epochs: &[Epoch],
    now: UnixMillis,
) -> Result<Totals, CqlFault> {
    let mut wanted: Vec<BTreeSet<Changed<'_>>> = vec![BTreeSet::new(); epochs.len()];
    for place in &asked.places {
        let (window, _) = place.window(now);
        if let Some(wanted) = wanted.get_mut(place.shard) {
            wanted.insert((place.size, window, place.key));
            wanted.insert((place.size, window.saturating_sub(1), place.key));
        }
    }
    let sums = epochs.iter().zip(&wanted);
    let sums = sums.map(|(epoch, wanted)| counters::sums(connected, *epoch, wanted));
    let sums = try_join_all(sums).await?;
    let totals: Vec<HashMap<Changed<'_>, i64>> =
        sums.into_iter().map(|sums| sums.into_iter().collect()).collect();
    let counted = asked.places.iter().map(|place| {
        let (window, _) = place.window(now);
        let total = |window: u64| {
            let totals = totals.get(place.shard);
            let total = totals.and_then(|it| it.get(&(place.size, window, place.key)));
            total.copied().unwrap_or_default()
        };
        [total(window), total(window.saturating_sub(1))]
    });
    Ok(counted.collect())
}

/// Writes the rows of charged places, and records that they changed.
async fn write(
    connected: &Connected,
    asked: &AskedPlaces<'_>,
    writers: &mut Writers<'_>,
    charged: &[Charged],
    now: UnixMillis,
) -> Result<(), CqlFault> {
    let mut written = Vec::new();
    for (shard, (epoch, charger)) in &mut writers.of_shards {
        let of_shard = charged.iter().filter_map(|charged| {
            let place = asked.places.get(charged.place);
            Some((charged, place.filter(|place| place.shard == *shard)?))
        });
        let to_set: Vec<_> = of_shard
            .map(|(charged, place)| RowToSet {
                key: place.key,
                size: place.size,
                window: charged.partition.window,
                occupancy: 0,
                thousandths: charged.counts[1],
                expires_in: place.window(now).1,
            })
            .collect();
        if to_set.is_empty() {
            continue;
        }
        let by = (charger.writer, charger.node, charger.next(now));
        written.push(set(connected, *epoch, by, to_set.into_iter()));
    }
    try_join_all(written).await.map(drop)
}

/// Writes rows of a writer, and records that they changed, as a batch of the node id for other
/// nodes.
async fn set<'a>(
    connected: &Connected,
    epoch: Epoch,
    (writer, node, batch): (NodeId, NodeId, BatchId),
    rows: impl Iterator<Item = RowToSet<'a>> + Clone,
) -> Result<(), CqlFault> {
    let changed = rows.clone().map(|row| (row.size, row.window, row.key));
    let noted = record_changes(connected, epoch, (node, batch), changed);
    let set = counters::set(connected, epoch, (writer, batch), rows);
    try_join(set, noted).await.map(drop)
}

/// Records the chargers' last batches.
async fn note(connected: &Connected, writers: &Writers<'_>) -> Result<(), CqlFault> {
    let noted = writers.of_shards.values().map(|(epoch, charger)| {
        let progress =
            Progress { node: charger.node, first: charger.first(), last: charger.last() };
        record_node(connected, *epoch, progress, charger.began, CHARGER_LIFE)
    });
    try_join_all(noted).await.map(drop)
}

/// Reads the charged places' counts of all writers again, with the places' indexes.
async fn read_again(
    connected: &Connected,
    asked: &AskedPlaces<'_>,
    writers: &Writers<'_>,
    charged: &[Charged],
) -> Result<Vec<i64>, CqlFault> {
    let mut totals: HashMap<(usize, Changed<'_>), i64> = HashMap::new();
    let names = charged.iter().filter_map(|it| {
        let place = asked.places.get(it.place)?;
        Some((place.shard, (place.size, it.partition.window, place.key)))
    });
    let names: Vec<_> = names.collect();
    let sums = writers.of_shards.iter().map(async |(shard, (epoch, _))| {
        let of_shard = names.iter().filter(|(of, _)| of == shard);
        let wanted: BTreeSet<_> = of_shard.map(|(_, name)| *name).collect();
        let sums = counters::sums(connected, *epoch, &wanted).await?;
        Ok::<_, CqlFault>((*shard, sums))
    });
    for (shard, sums) in try_join_all(sums).await? {
        totals.extend(sums.into_iter().map(|(name, total)| ((shard, name), total)));
    }
    let totals = names.iter().map(|name| totals.get(name).copied().unwrap_or_default());
    Ok(totals.collect())
}
