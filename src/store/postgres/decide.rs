//! Decisions: a transaction of two exchanges, between which this side decides.
//!
//! The first exchange locks the keys, and reads the clock and the counts; the second adds the
//! charges and commits. A key is locked until its charge is visible, and the clock is read under
//! the lock. So all decisions about a key are in one order, in which the clock never goes back, and
//! each sees all charges before it, including those in the previous window.
//!
//! The locks are not on rows, which may not exist yet, but on numbers that only deciders use. A
//! push does not wait for them, since adding to a count needs no order. Locks are taken in the
//! order of their numbers, and then rows in the order of a push, so that no deadlock is possible.

use futures_util::future::{join, join3, try_join_all};

use super::connection::{Connection, Fault, Prepared};
use super::levels::{self, LevelPlace};
use super::log_block::{FoundLog, LogChange};
use super::logs::{self, ChangedLog, Obstacles};
use super::push::{Addition, Columns, end_epoch};
use super::read::Read;
use super::{Postgres, row};
use crate::policy::algorithm::{Level, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::store::contract::decision::{
    Answer, AskedCounter, Certainty, Decided, Decider, Few, Question,
};
use crate::store::contract::error::StoreError;
use crate::store::contract::strategy::{Epoch, NodeId, Shard};
use crate::store::decide::asked::AskedPlaces;
use crate::store::decide::stored::{StoredCount, admitted};

/// Number of attempts. Before each further one, missing epochs were opened or unusable ones ended.
const ATTEMPTS: usize = 4;

/// Counts after the decisions, which must be written.
#[derive(Debug)]
struct DecidedCounts<'q> {
    decided: Decided,
    /// One for each place.
    counts: Vec<StoredCount>,
    waits: Vec<Wait<'q>>,
}

/// A reading of a full log, for which the time must be found when it has room.
#[derive(Debug)]
struct Wait<'q> {
    /// Index of the answer, and of the reading in it.
    reading: (usize, usize),
    asked: &'q AskedCounter,
    count: StoredCount,
    obstacle: logs::Obstacle,
}

impl Decider for Postgres {
    const KINDS: &'static [StoredKind] = StoredKind::ALL;

    async fn decide(
        &mut self,
        node: NodeId,
        proposed: Epoch,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let asked = AskedPlaces::new(questions);
        let now = &mut self.now;
        let exchange = async |connection: &Connection| {
            for _ in 0..ATTEMPTS {
                match asked.attempt(connection, questions, now, node, proposed).await {
                    Ok(Some(decided)) => return Ok(decided),
                    Ok(None) => {}
                    Err(fault) if fault.is_of_data() => asked.end_epochs(connection).await?,
                    Err(fault) => return Err(fault),
                }
            }
            Err(Fault::Misunderstood("read.sql"))
        };
        self.link.exchange(exchange).await
    }
}

impl<'q> AskedPlaces<'q> {
    /// Makes one attempt to decide and charge. `None` if a shard had no epoch, and has one now.
    async fn attempt(
        &self,
        connection: &Connection,
        questions: &'q [Question],
        now: &mut UnixMillis,
        node: NodeId,
        proposed: Epoch,
    ) -> Result<Option<Decided>, Fault> {
        let read = self.read(connection, questions, now).await?;
        let epochs: Option<Vec<Epoch>> = read.epochs.iter().copied().collect();
        let Some(epochs) = epochs else {
            self.open_epochs(connection, &read.epochs, proposed).await?;
            return Ok(None);
        };
        let outcome = self.decide(questions, &read);
        let mut obstacles = outcome.obstacles();
        if !self.are_charged {
            obstacles = read.obstacles;
        } else {
            let limits = logs::largest_limits(self, questions);
            let logs = self.changed_logs(&epochs, &read, &outcome.counts, &limits);
            let looked = logs::find_obstacles(connection, self, &mut obstacles);
            let changed = logs::change(connection, logs);
            let charged = self.charge(connection, node, &epochs, &read, &outcome.counts);
            // Sent together, in this order.
            let (looked, changed, charged) = join3(looked, changed, charged).await;
            looked.and(changed).and(charged)?;
        }
        Ok(Some(outcome.with_waits(&obstacles)))
    }

    /// Ends the epochs of all shards, because one of them has data that somebody else wrote, and
    /// rolls the transaction back.
    async fn end_epochs(&self, connection: &Connection) -> Result<(), Fault> {
        if self.are_charged {
            connection.client.batch_execute("ROLLBACK").await?;
        }
        for shard in &self.shards {
            end_epoch(connection, shard, None).await?;
        }
        Ok(())
    }

    /// Opens an epoch for each shard without one, and ends the transaction, so that the next one
    /// sees what all see.
    async fn open_epochs(
        &self,
        connection: &Connection,
        epochs: &[Option<Epoch>],
        proposed: Epoch,
    ) -> Result<(), Fault> {
        let client = &connection.client;
        if self.are_charged {
            client.batch_execute("ROLLBACK").await?;
        }
        let begin = connection.statement(Prepared::BeginEpoch)?;
        let mut next = proposed.0.get().cast_signed();
        for (shard, _) in self.shards.iter().zip(epochs).filter(|(_, it)| it.is_none()) {
            let (namespace, number) = row::name(shard);
            // The present row is not a valid epoch.
            end_epoch(connection, shard, Some(0)).await?;
            client.execute(begin, &[&namespace, &number, &next]).await?;
            // No two shards may have the same epoch, since counters belong to epochs.
            next = match next.wrapping_add(1) {
                0 => 1,
                next => next,
            };
        }
        Ok(())
    }

    /// Decides about questions in their order.
    fn decide(&self, questions: &'q [Question], read: &Read) -> DecidedCounts<'q> {
        let now = read.now;
        let mut counts = read.counts.clone();
        let mut answers = Vec::with_capacity(questions.len());
        let mut waits = Vec::new();
        for (question, slots) in self.with_slots(questions) {
            let admitted = admitted(question, slots, &counts, now);
            let is_charged = question.counts_rejected || admitted.iter().all(|it| *it);
            let mut readings = Few::new();
            for (index, (counter, slot)) in question.counters.iter().zip(slots).enumerate() {
                let Some(stored) = counts.get_mut(*slot) else {
                    continue;
                };
                stored.ask(question, index, is_charged, now);
                let mut count = *stored;
                if let Some(excess) = count.obstacle(question, index) {
                    let hits = read.logs.get(slot).map_or(0, FoundLog::hits);
                    waits.push(Wait {
                        reading: (answers.len(), index),
                        asked: counter,
                        count,
                        obstacle: (*slot, hits.saturating_sub(excess)),
                    });
                }
                readings.push(count.reading(counter, now));
            }
            answers.push(Answer { admitted, readings, certainty: Certainty::Settled });
        }
        DecidedCounts { decided: Decided { now, answers }, counts, waits }
    }

    /// Writes the changes of the counts since `read`, and commits.
    async fn charge(
        &self,
        connection: &Connection,
        node: NodeId,
        epochs: &[Epoch],
        read: &Read,
        counts: &[StoredCount],
    ) -> Result<(), Fault> {
        let levels = self.set_levels(connection, epochs, read, counts);
        // Sent together, in this order.
        let (levels, added) = join(levels, self.add(connection, node, epochs, read, counts)).await;
        levels.and(added)
    }

    /// Returns the logs that have changed.
    fn changed_logs(
        &self,
        epochs: &[Epoch],
        read: &Read,
        counts: &[StoredCount],
        limits: &[Hits],
    ) -> Vec<ChangedLog<'q>> {
        let logs = read.logs.iter().filter_map(|(index, found)| {
            let place = *self.places.get(*index)?;
            let StoredCount::Log(log) = counts.get(*index)? else {
                return None;
            };
            let change = found.change_to(log, read.now, *limits.get(*index)?);
            (change != LogChange::default()).then_some(ChangedLog {
                epoch: *epochs.get(place.shard)?,
                place,
                found: *found,
                change,
            })
        });
        logs.collect()
    }

    /// Writes the levels that have changed.
    async fn set_levels(
        &self,
        connection: &Connection,
        epochs: &[Epoch],
        read: &Read,
        counts: &[StoredCount],
    ) -> Result<(), Fault> {
        let places = (0..).zip(&self.places).filter_map(LevelPlace::of);
        let mut levels: Vec<Vec<(LevelPlace<'_>, Level)>> = vec![Vec::new(); epochs.len()];
        for place in places {
            let (before, after) = (read.counts.get(place.index), counts.get(place.index));
            let of_shard = levels.get_mut(place.shard).filter(|_| before != after);
            if let (Some(of_shard), Some(StoredCount::Level(level))) = (of_shard, after) {
                of_shard.push((place, *level));
            }
        }
        let set = epochs.iter().zip(&mut levels).filter_map(|(epoch, levels)| {
            levels.sort_by_key(|(place, _)| (place.measure, place.key));
            (!levels.is_empty()).then(|| levels::set(connection, *epoch, levels))
        });
        try_join_all(set).await.map(drop)
    }

    /// Adds the charges, and commits.
    async fn add(
        &self,
        connection: &Connection,
        node: NodeId,
        epochs: &[Epoch],
        read: &Read,
        counts: &[StoredCount],
    ) -> Result<(), Fault> {
        let now = read.now;
        let client = &connection.client;
        let statement = connection.statement(Prepared::Charge)?;
        let node = node.to_string();
        let mut charged: Vec<(&Shard, i64, Vec<Addition<'_>>)> = Vec::new();
        for (index, (shard, epoch)) in self.shards.iter().zip(epochs).enumerate() {
            let counts = read.counts.iter().zip(counts);
            let charges = counts.map(|(before, after)| after.charged_since(before));
            let charges = self.places.iter().zip(charges);
            let charges = charges.filter(|(place, charge)| place.shard == index && *charge != 0);
            let additions: Vec<_> = charges
                .map(|(place, charge)| {
                    let (window, life) = place.window(now);
                    Addition { key: place.key, size: place.size, window, thousandths: charge, life }
                })
                .collect();
            if !additions.is_empty() {
                charged.push((shard, epoch.0.get().cast_signed(), additions));
            }
        }
        // In the same order in all transactions, which lock the rows.
        charged.sort_by_key(|(shard, ..)| row::name(shard));
        let last = charged.len().saturating_sub(1);
        for (index, (_, epoch, additions)) in charged.iter().enumerate() {
            let columns = Columns::of(additions.iter().copied());
            let Columns { sizes, windows, keys, thousandths, lives, .. } = &columns;
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
                [epoch, &node, sizes, windows, keys, thousandths, lives];
            let charge = client.execute(statement, &parameters);
            if index < last {
                charge.await?;
                continue;
            }
            // Sent together, since others wait for the locks.
            let (charge, commit) = join(charge, client.batch_execute("COMMIT")).await;
            charge?;
            return commit.map_err(Fault::AfterPush);
        }
        // Only levels were charged, or nothing.
        client.batch_execute("COMMIT").await.map_err(Fault::AfterPush)
    }
}

impl DecidedCounts<'_> {
    /// Returns the obstacles whose times must be found.
    fn obstacles(&self) -> Obstacles {
        let waits = self.waits.iter();
        waits.map(|wait| (wait.obstacle, 0)).collect()
    }

    /// Returns the decisions, with the times of `obstacles` in the readings.
    fn with_waits(mut self, obstacles: &Obstacles) -> Decided {
        let now = self.decided.now;
        for wait in &mut self.waits {
            let at = obstacles.get(&wait.obstacle).copied().unwrap_or_default();
            wait.count.record_obstacle(wait.asked.size, at, now);
            let (answer, index) = wait.reading;
            let answer = self.decided.answers.get_mut(answer);
            if let Some(reading) = answer.and_then(|it| it.readings.get_mut(index)) {
                *reading = wait.count.reading(wait.asked, now);
            }
        }
        self.decided
    }
}
