//! Decisions: the counts are read, this side decides, and writes the charges if nobody has changed the shards since.

use super::Etcd;
use super::failure::EtcdFault;
use super::key::ShardKeys;
use super::link::EtcdSession;
use super::shard::{FoundHead, change};
use super::wire::{Op, get};
use crate::policy::algorithm::StoredKind;
use crate::store::contract::decision::{Answer, Decided, Decider, Question};
use crate::store::contract::error::StoreError;
use crate::store::contract::strategy::{Epoch, NodeId};
use crate::store::keyed::decide::{KINDS, KeyedDecision};

impl Decider for Etcd {
    const KINDS: &'static [StoredKind] = KINDS;

    async fn decide(
        &mut self,
        node: NodeId,
        proposed: Epoch,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let decision = KeyedDecision::of(questions);
        let (prefix, epochs) = (&self.prefix, &mut self.epochs);
        let exchange = async |session: &mut EtcdSession| {
            loop {
                let shards = decision.asked.shards.iter().map(|shard| {
                    let epoch = epochs.get(*shard).copied().unwrap_or(proposed);
                    (ShardKeys::of(prefix, shard, epoch), epoch)
                });
                let (keys, expected): (Vec<_>, Vec<_>) = shards.unzip();
                match attempt(session, node, &decision, &keys, &expected).await? {
                    Attempt::Decided(answers) => return Ok(Decided { now: decision.now, answers }),
                    // The shard has another epoch, or has one only now.
                    Attempt::InEpoch(index, Some(epoch)) => {
                        let shard = decision.asked.shards.get(index).map(|shard| (*shard).clone());
                        epochs.extend(shard.map(|shard| (shard, epoch)));
                    }
                    Attempt::InEpoch(index, None) => {
                        if let Some(keys) = keys.get(index) {
                            let found = FoundHead::read(session, keys.head()).await?;
                            if found.head.is_none() {
                                found.open(session, keys, proposed).await?;
                            }
                        }
                    }
                }
            }
        };
        self.link.exchange(exchange).await
    }
}

/// The outcome of an attempt.
enum Attempt {
    Decided(Vec<Answer>),
    /// The shard with this index has this epoch, or none, and not the expected one.
    InEpoch(usize, Option<Epoch>),
}

/// Decides in the expected epochs of the shards.
async fn attempt(
    session: &mut EtcdSession,
    node: NodeId,
    decision: &KeyedDecision<'_>,
    keys: &[ShardKeys],
    expected: &[Epoch],
) -> Result<Attempt, EtcdFault> {
    let reads = reads(decision, keys);
    let mut found = session.read(reads.clone()).await?.reads();
    loop {
        let rest = found.split_off(keys.len().min(found.len()));
        let heads: Vec<_> = found.iter().map(FoundHead::of).collect();
        for (index, (found, expected)) in heads.iter().zip(expected).enumerate() {
            let epoch = found.head.map(|head| head.epoch);
            if epoch != Some(*expected) {
                return Ok(Attempt::InEpoch(index, epoch));
            }
        }
        let before = match decision.counts(rest.iter().map(|it| it.value())) {
            Ok(counts) => counts,
            Err(shard) => {
                // Somebody else wrote one of the values.
                if let (Some(head), Some(keys)) = (heads.get(shard), keys.get(shard)) {
                    head.end(session, keys).await?;
                }
                return Ok(Attempt::InEpoch(shard, None));
            }
        };
        let mut counts = before.clone();
        let answers = decision.answers(&mut counts);
        let mut ops = Vec::new();
        for (index, (keys, found)) in keys.iter().zip(&heads).enumerate() {
            let changed = decision.changed(index, &before, &counts);
            if let (Some(head), false) = (found.head, changed.is_empty()) {
                ops.extend(change(session, keys, head, (node, false), changed).await?);
            }
        }
        if ops.is_empty() {
            return Ok(Attempt::Decided(answers));
        }
        let compare = heads.iter().zip(keys).map(|(head, keys)| head.is_unchanged(keys));
        let changed = session.change(compare.collect(), ops, &reads).await?;
        if changed.succeeded {
            return Ok(Attempt::Decided(answers));
        }
        found = changed.reads();
    }
}

/// Returns the reads: the heads of the shards, and the keys of each place.
fn reads(decision: &KeyedDecision<'_>, keys: &[ShardKeys]) -> Vec<Op> {
    let mut reads: Vec<_> = keys.iter().map(|keys| get(keys.head())).collect();
    let names = decision.names().into_iter();
    reads.extend(names.filter_map(|(shard, name)| Some(get(keys.get(shard)?.of_epoch(name)))));
    if reads.is_empty() {
        // Finds out whether a quorum answers.
        reads.push(get("/"));
    }
    reads
}
