//! Decisions: a transaction of two exchanges, between which this side decides.
//!
//! The first locks the keys, and reads the clock and the counts; the second adds what was charged,
//! and commits. Who decides about a key has it locked until its charge is to be seen, and reads the
//! clock when it has the lock: so decisions about a key have one order, in which the clock never goes
//! back, and none misses what one before it charged, be it in the window before.
//!
//! What is locked are not rows, which there may not be yet, but numbers that only those who decide
//! know: who pushes does not wait for them, since adding to a count needs no order. Locks are taken in
//! the order of their numbers, then rows as a push takes them, so that nobody waits in a circle.

use core::num::NonZeroU64;
use core::time::Duration;
use std::collections::{BTreeSet, HashMap};

use futures_util::future::join;

use super::connection::{Connection, Fault, Prepared};
use super::push::{Addition, Columns};
use super::{Postgres, row};
use crate::policy::algorithm::{Reading, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::decision::{Answer, AskedCounter, Decided, Decider, Few, Question};
use crate::store::error::StoreError;
use crate::store::strategy::{CLOCK_MARGIN, Epoch, NodeId, Shard};

/// What all locks begin with, in 32 bits: others may lock numbers in the same database.
const LOCKS: i64 = 0x7261_7465 << 32;
/// Into how many locks the keys of a shard are divided. A server has room for a few thousand.
const LOCKS_OF_SHARD: u16 = 1024;
/// How often it is looked whether all shards have an epoch, each time after it was given one.
const ATTEMPTS: usize = 3;

/// A counter, which several questions may be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place<'q> {
    /// The index of the shard.
    shard: usize,
    size: WindowSize,
    key: &'q [u8],
}

/// Questions, as far as the server is asked about them.
#[derive(Debug, Default)]
struct Asked<'q> {
    shards: Vec<&'q Shard>,
    /// Each counter once.
    places: Vec<Place<'q>>,
    /// The indexes of the counters' places, in the order of questions.
    slots: Vec<usize>,
    /// What is locked, in order; nothing, if nothing can be charged.
    locks: Vec<i64>,
}

/// What the server has of the counters.
#[derive(Debug)]
struct Read {
    now: UnixMillis,
    /// By place.
    counts: Vec<(i64, i64)>,
    /// By shard.
    epochs: Vec<Option<Epoch>>,
}

impl Decider for Postgres {
    async fn decide(
        &mut self,
        node: NodeId,
        proposed: Epoch,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let asked = Asked::new(questions);
        let exchange = async |connection: &Connection| {
            for _ in 0..ATTEMPTS {
                let read = asked.read(connection).await?;
                let epochs: Option<Vec<Epoch>> = read.epochs.iter().copied().collect();
                if let Some(epochs) = epochs {
                    let (decided, charges) = asked.decide(questions, &read);
                    asked
                        .charge(connection, node, &epochs, read.now, &charges)
                        .await?;
                    return Ok(decided);
                }
                asked
                    .open_epochs(connection, &read.epochs, proposed)
                    .await?;
            }
            Err(Fault::Misunderstood("read.sql"))
        };
        self.link.exchange(exchange).await
    }
}

impl<'q> Asked<'q> {
    fn new(questions: &'q [Question]) -> Asked<'q> {
        let mut asked = Asked::default();
        let mut shards: HashMap<&Shard, usize> = HashMap::new();
        let mut places: HashMap<Place, usize> = HashMap::new();
        let mut locks = BTreeSet::new();
        let mut is_charged = false;
        for counter in questions.iter().flat_map(|it| &it.counters) {
            let AskedCounter {
                shard, key, size, ..
            } = counter;
            is_charged |= counter.cost != Hits::ZERO;
            let place = Place {
                shard: *shards.entry(shard).or_insert_with(|| {
                    asked.shards.push(shard);
                    asked.shards.len().saturating_sub(1)
                }),
                size: *size,
                key,
            };
            let slot = *places.entry(place).or_insert_with(|| {
                locks.insert(lock(shard, key));
                asked.places.push(place);
                asked.places.len().saturating_sub(1)
            });
            asked.slots.push(slot);
        }
        if is_charged {
            asked.locks.extend(locks);
        }
        asked
    }

    /// Reads the counts; in a transaction, which is left open, if anything is to be locked.
    async fn read(&self, connection: &Connection) -> Result<Read, Fault> {
        let client = &connection.client;
        let shards = self.shards.iter();
        let (namespaces, numbers): (Vec<_>, Vec<_>) = shards.map(|it| row::name(it)).unzip();
        let places = self.places.iter();
        let shards: Vec<_> = places
            .clone()
            .map(|it| row::signed(it.shard).saturating_add(1))
            .collect();
        let sizes: Vec<_> = places
            .clone()
            .map(|it| it.size.millis().cast_signed())
            .collect();
        let keys: Vec<_> = places.map(|it| it.key).collect();
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&namespaces, &numbers, &shards, &sizes, &keys];
        let read = client.query(connection.statement(Prepared::Read)?, &parameters);
        let rows = if self.locks.is_empty() {
            read.await?
        } else {
            // On their way together.
            let begin = client.batch_execute("BEGIN");
            let locks: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&self.locks];
            let lock = client.execute(connection.statement(Prepared::Lock)?, &locks);
            let ((begun, locked), rows) = join(join(begin, lock), read).await;
            begun?;
            locked?;
            rows?
        };

        let misunderstood = || Fault::Misunderstood("read.sql");
        let now: i64 = rows.first().ok_or_else(misunderstood)?.try_get("now")?;
        let mut read = Read {
            now: UnixMillis(u64::try_from(now).map_err(|_| misunderstood())?),
            counts: vec![(0, 0); self.places.len()],
            epochs: vec![None; self.shards.len()],
        };
        for row in &rows {
            // There is none, if there are no counters.
            let Some(place) = row.try_get::<_, Option<i64>>("place")? else {
                break;
            };
            let place = usize::try_from(place.saturating_sub(1)).map_err(|_| misunderstood())?;
            let shard = self.places.get(place).map(|it| it.shard);
            let shard = shard.and_then(|it| read.epochs.get_mut(it));
            *shard.ok_or_else(misunderstood)? = row
                .try_get::<_, Option<i64>>("epoch")?
                .and_then(|epoch| NonZeroU64::new(epoch.cast_unsigned()).map(Epoch));
            let count = |name| Ok::<_, Fault>(row.try_get::<_, Option<i64>>(name)?.unwrap_or(0));
            let counts = read.counts.get_mut(place).ok_or_else(misunderstood)?;
            *counts = (count("current")?, count("previous")?);
        }
        Ok(read)
    }

    /// Gives an epoch to each shard that has none, and ends the transaction: what it sees is to be
    /// what all see.
    async fn open_epochs(
        &self,
        connection: &Connection,
        epochs: &[Option<Epoch>],
        proposed: Epoch,
    ) -> Result<(), Fault> {
        let client = &connection.client;
        if !self.locks.is_empty() {
            client.batch_execute("ROLLBACK").await?;
        }
        let begin = connection.statement(Prepared::BeginEpoch)?;
        let mut next = proposed.0.get().cast_signed();
        for (shard, _) in self
            .shards
            .iter()
            .zip(epochs)
            .filter(|(_, it)| it.is_none())
        {
            let (namespace, number) = row::name(shard);
            client.execute(begin, &[&namespace, &number, &next]).await?;
            // No two shards have the same, since counters are of epochs.
            next = match next.wrapping_add(1) {
                0 => 1,
                next => next,
            };
        }
        Ok(())
    }

    /// Decides on questions in their order; what each place is charged then, in thousandths.
    fn decide(&self, questions: &[Question], read: &Read) -> (Decided, Vec<i64>) {
        let now = read.now;
        let mut charges = vec![0_i64; self.places.len()];
        let mut slots = self.slots.iter().copied();
        let mut answers = Vec::with_capacity(questions.len());
        for question in questions {
            let slots: Few<_> = slots.by_ref().take(question.counters.len()).collect();
            let counted = |charges: &[i64]| -> Few<Reading> {
                let counters = question.counters.iter().zip(&slots);
                let readings = counters.map(|(counter, slot)| {
                    let (current, previous) = read.counts.get(*slot).copied().unwrap_or_default();
                    let charged = charges.get(*slot).copied().unwrap_or_default();
                    WindowCounts::of(
                        counter.size.at(now),
                        Hits::from_thousandths(current.saturating_add(charged)),
                        Hits::from_thousandths(previous),
                    )
                    .into()
                });
                readings.collect()
            };
            let before = counted(&charges);
            let admits = question.limits.iter().map(|limit| {
                let counter = question.counters.get(limit.counter);
                // What is about no counter admits nothing.
                counter
                    .zip(before.get(limit.counter))
                    .is_some_and(|(counter, reading)| {
                        let (size, hits, cost) = (counter.size, limit.hits, limit.cost);
                        limit.algorithm.admits(size, reading, hits, cost)
                    })
            });
            let admitted: Few<bool> = admits.collect();
            let mut readings = before;
            if question.counts_rejected || admitted.iter().all(|it| *it) {
                for (counter, slot) in question.counters.iter().zip(&slots) {
                    if let Some(charge) = charges.get_mut(*slot) {
                        *charge = charge.saturating_add(counter.cost.thousandths());
                    }
                }
                readings = counted(&charges);
            }
            answers.push(Answer { admitted, readings });
        }
        (Decided { now, answers }, charges)
    }

    /// Adds what was charged, and commits.
    async fn charge(
        &self,
        connection: &Connection,
        node: NodeId,
        epochs: &[Epoch],
        now: UnixMillis,
        charges: &[i64],
    ) -> Result<(), Fault> {
        if self.locks.is_empty() {
            return Ok(());
        }
        let client = &connection.client;
        let statement = connection.statement(Prepared::Charge)?;
        let node = node.to_string();
        let mut charged: Vec<(&Shard, i64, Vec<Addition<'_>>)> = Vec::new();
        for (index, (shard, epoch)) in self.shards.iter().zip(epochs).enumerate() {
            let charges = self.places.iter().zip(charges);
            let charges = charges.filter(|(place, charge)| place.shard == index && **charge != 0);
            let additions: Vec<_> = charges
                .map(|(place, charge)| place.addition(now, *charge))
                .collect();
            if !additions.is_empty() {
                charged.push((shard, epoch.0.get().cast_signed(), additions));
            }
        }
        // All lock them in the same order.
        charged.sort_by_key(|(shard, ..)| row::name(shard));
        let last = charged.len().saturating_sub(1);
        for (index, (_, epoch, additions)) in charged.iter().enumerate() {
            let columns = Columns::of(additions.iter().copied());
            let Columns {
                sizes,
                windows,
                keys,
                thousandths,
                lives,
                ..
            } = &columns;
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
                [epoch, &node, sizes, windows, keys, thousandths, lives];
            let charge = client.execute(statement, &parameters);
            if index < last {
                charge.await?;
                continue;
            }
            // On their way together: others wait for the locks.
            let (charge, commit) = join(charge, client.batch_execute("COMMIT")).await;
            charge?;
            return commit.map_err(Fault::AfterPush);
        }
        // There is nothing to commit.
        Ok(client.batch_execute("COMMIT").await?)
    }
}

impl Place<'_> {
    fn addition(&self, now: UnixMillis, charge: i64) -> Addition<'_> {
        let position = self.size.at(now);
        let size = Duration::from_millis(self.size.millis());
        let left = size.saturating_sub(Duration::from_millis(position.elapsed));
        Addition {
            key: self.key,
            size: self.size,
            window: position.number,
            thousandths: charge,
            life: left.saturating_add(size).saturating_add(CLOCK_MARGIN),
        }
    }
}

/// What is locked while it is decided about a key. All nodes must agree.
pub(super) fn lock(shard: &Shard, key: &[u8]) -> i64 {
    let mut name = shard.namespace.as_bytes().to_vec();
    name.extend(shard.number.to_be_bytes());
    let of_shard = i64::from(Shard::number_of(&name, u16::MAX)) << 16;
    LOCKS | of_shard | i64::from(Shard::number_of(key, LOCKS_OF_SHARD))
}
