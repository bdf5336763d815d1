//! Decisions: the counts are read, this side decides, and writes the charges if nobody has changed the shards since.

use core::time::Duration;

use super::Etcd;
use super::failure::EtcdFault;
use super::key::{self, ShardKeys};
use super::link::EtcdSession;
use super::shard::{FoundHead, NewTotals, change, now};
use super::wire::{KeyValues, Op, get, put};
use crate::policy::algorithm::{Level, LevelKind, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::store::contract::decision::{Answer, Certainty, Decided, Decider, Few, Question};
use crate::store::contract::error::StoreError;
use crate::store::contract::strategy::{CLOCK_MARGIN, Epoch, MAX_TOTAL, NodeId};
use crate::store::decide::asked::{AskedPlace, AskedPlaces};
use crate::store::decide::stored::{StoredCount, admitted};

impl Decider for Etcd {
    /// Not [`StoredKind::Log`]: a log of thousands of hits would be rewritten with each of them.
    const KINDS: &'static [StoredKind] = &[
        StoredKind::Windows,
        StoredKind::Level(LevelKind::Elastic),
        StoredKind::Level(LevelKind::Bucket(Hits::ZERO)),
    ];

    async fn decide(
        &mut self,
        node: NodeId,
        proposed: Epoch,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let (asked, now) = (AskedPlaces::new(questions), now());
        let (prefix, epochs) = (&self.prefix, &mut self.epochs);
        let exchange = async |session: &mut EtcdSession| {
            loop {
                let shards = asked.shards.iter().map(|shard| {
                    let epoch = epochs.get(*shard).copied().unwrap_or(proposed);
                    (ShardKeys::of(prefix, shard, epoch), epoch)
                });
                let (keys, expected): (Vec<_>, Vec<_>) = shards.unzip();
                let mut decision = ShardDecision { session, asked: &asked, keys: &keys, now };
                match decision.attempt(node, questions, &expected).await? {
                    Attempt::Decided(answers) => return Ok(Decided { now, answers }),
                    // The shard has another epoch, or has one only now.
                    Attempt::InEpoch(index, Some(epoch)) => {
                        let shard = asked.shards.get(index).map(|shard| (*shard).clone());
                        epochs.extend(shard.map(|shard| (shard, epoch)));
                    }
                    Attempt::InEpoch(index, None) => {
                        if let Some(keys) = keys.get(index) {
                            let found = FoundHead::read(decision.session, keys.head()).await?;
                            if found.head.is_none() {
                                found.open(decision.session, keys, proposed).await?;
                            }
                        }
                    }
                }
            }
        };
        self.link.exchange(exchange).await
    }
}

/// A decision on its way to its shards.
struct ShardDecision<'a, 'q> {
    session: &'a mut EtcdSession,
    asked: &'a AskedPlaces<'q>,
    keys: &'a [ShardKeys],
    now: UnixMillis,
}

/// The outcome of an attempt.
enum Attempt {
    Decided(Vec<Answer>),
    /// The shard with this index has this epoch, or none, and not the expected one.
    InEpoch(usize, Option<Epoch>),
}

impl ShardDecision<'_, '_> {
    /// Decides in the expected epochs.
    async fn attempt(
        &mut self,
        node: NodeId,
        questions: &[Question],
        expected: &[Epoch],
    ) -> Result<Attempt, EtcdFault> {
        let reads = self.reads();
        let mut found = self.session.read(reads.clone()).await?.reads();
        loop {
            let rest = found.split_off(self.keys.len().min(found.len()));
            let heads: Vec<_> = found.iter().map(FoundHead::of).collect();
            for (index, (found, expected)) in heads.iter().zip(expected).enumerate() {
                let epoch = found.head.map(|head| head.epoch);
                if epoch != Some(*expected) {
                    return Ok(Attempt::InEpoch(index, epoch));
                }
            }
            let before = match self.counts(&rest) {
                Ok(counts) => counts,
                Err(shard) => {
                    // Somebody else wrote one of the values.
                    if let (Some(head), Some(keys)) = (heads.get(shard), self.keys.get(shard)) {
                        head.end(self.session, keys).await?;
                    }
                    return Ok(Attempt::InEpoch(shard, None));
                }
            };
            let mut counts = before.clone();
            let answers = self.answers(questions, &mut counts);
            let changes = self.changes(node, &heads, &before, &counts).await?;
            if changes.is_empty() {
                return Ok(Attempt::Decided(answers));
            }
            let compare = heads.iter().zip(self.keys).map(|(head, keys)| head.is_unchanged(keys));
            let changed = self.session.change(compare.collect(), changes, &reads).await?;
            if changed.succeeded {
                return Ok(Attempt::Decided(answers));
            }
            found = changed.reads();
        }
    }

    /// Returns the reads: the heads of the shards, and the keys of each place.
    fn reads(&self) -> Vec<Op> {
        let mut reads: Vec<_> = self.keys.iter().map(|keys| get(keys.head())).collect();
        for place in &self.asked.places {
            let Some(keys) = self.keys.get(place.shard) else { continue };
            let (window, _) = place.window(self.now);
            let counter = |window| get(keys.counter(place.size, window, place.key));
            match place.kind {
                StoredKind::Level(_) => reads.push(get(keys.level(place))),
                _ => reads.extend([counter(window), counter(window.saturating_sub(1))]),
            }
        }
        if reads.is_empty() {
            // Finds out whether a quorum answers.
            reads.push(get("/"));
        }
        reads
    }

    /// Parses the counts of the places. Fails with the index of a shard in which somebody else wrote one.
    fn counts(&self, found: &[KeyValues]) -> Result<Vec<StoredCount>, usize> {
        let mut found = found.iter();
        let places = self.asked.places.iter();
        let counts = places.map(|place| {
            let mut next = || found.next();
            let count = match place.kind {
                StoredKind::Level(_) => next().and_then(key::level),
                _ => {
                    let [current, previous] = [next(), next()].map(|it| it.and_then(key::total));
                    current
                        .zip(previous)
                        .map(|(current, previous)| StoredCount::windows(current, previous))
                }
            };
            count.ok_or(place.shard)
        });
        counts.collect()
    }

    /// Decides about questions in their order, and charges them in `counts`.
    fn answers(&self, questions: &[Question], counts: &mut [StoredCount]) -> Vec<Answer> {
        let now = self.now;
        let answers = self.asked.with_slots(questions).map(|(question, slots)| {
            let admitted = admitted(question, slots, counts, now);
            let is_charged = question.counts_rejected || admitted.iter().all(|it| *it);
            let mut readings = Few::new();
            for (index, (counter, slot)) in question.counters.iter().zip(slots).enumerate() {
                if let Some(count) = counts.get_mut(*slot) {
                    count.ask(question, index, is_charged, now);
                    readings.push(count.reading(counter, now));
                }
            }
            Answer { admitted, readings, certainty: Certainty::Settled }
        });
        answers.collect()
    }

    /// Returns the operations that write the counts that have changed.
    async fn changes(
        &mut self,
        node: NodeId,
        heads: &[FoundHead],
        before: &[StoredCount],
        after: &[StoredCount],
    ) -> Result<Vec<Op>, EtcdFault> {
        let mut ops = Vec::new();
        for (index, (keys, found)) in self.keys.iter().zip(heads).enumerate() {
            let (mut totals, mut levels) = (NewTotals::new(), Vec::new());
            let counts = self.asked.places.iter().zip(before.iter().zip(after));
            for (place, (before, after)) in counts.filter(|(place, _)| place.shard == index) {
                match after {
                    _ if before == after => {}
                    StoredCount::Windows { current, .. } => {
                        let (window, life) = place.window(self.now);
                        let total = (*current).clamp(-MAX_TOTAL, MAX_TOTAL);
                        totals.insert((place.size, window, place.key), (total, life));
                    }
                    StoredCount::Level(level) => {
                        let lease = self.session.lease(life_of(place, level)).await?;
                        levels.push(put(keys.level(place), key::level_value(level), lease));
                    }
                    StoredCount::Log(_) => {}
                }
            }
            if let Some(head) = found.head
                && !(totals.is_empty() && levels.is_empty())
            {
                ops.extend(change(self.session, keys, head, (node, false), totals).await?);
                ops.extend(levels);
            }
        }
        Ok(ops)
    }
}

/// Returns the time for which a level matters.
fn life_of(place: &AskedPlace<'_>, level: &Level) -> Duration {
    let millis = match place.kind {
        // The time until the bucket is empty.
        StoredKind::Level(LevelKind::Bucket(_)) => level.mark.millis().0.saturating_sub(level.at.0),
        _ => place.size.millis(),
    };
    Duration::from_millis(millis).saturating_add(CLOCK_MARGIN)
}
