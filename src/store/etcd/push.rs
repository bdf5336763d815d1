//! A push: a batch is applied, and other nodes' changes are returned.

use core::time::Duration;

use super::failure::EtcdFault;
use super::key::{Head, NodeState, ShardKeys};
use super::link::EtcdSession;
use super::shard::{FoundHead, change};
use super::wire::{KeyValues, Op, TxnAnswer, delete, get, names, page, put};
use crate::policy::hits::Hits;
use crate::policy::window::UnixSeconds;
use crate::store::contract::strategy::{
    Batch, Changes, Count, LONGEST_LIFE, LivingNodes, NODE_LIFE, Position, Pushed,
};
use crate::store::keyed::change::{LoggedChange, OthersCounters, changes_after};
use crate::store::keyed::decide::ChangedValues;
use crate::store::keyed::value::{self, now, sums};

/// Most diffs of a batch. The time of a transaction grows faster than their number: one of 500 takes
/// a slow etcd longer than its timeout.
pub(super) const MAX_DIFFS: usize = 100;

/// A batch on its way to a shard.
pub(super) struct Push<'a> {
    pub(super) session: &'a mut EtcdSession,
    pub(super) keys: &'a ShardKeys,
    pub(super) batch: &'a Batch,
    /// Most counters that are returned, but for those of one change.
    pub(super) limit: usize,
    /// Most changes that are read.
    pub(super) page: usize,
}

/// The answer to a batch, the living nodes, and the counters that it has made negative.
type AnsweredPush = (Pushed, Option<LivingNodes>, Vec<Count>);

/// The head and the node's row as they were read, before the answers to other reads.
struct FoundNode {
    head: FoundHead,
    /// `None` if somebody else wrote it.
    row: Option<NodeState>,
    rest: Vec<KeyValues>,
}

impl FoundNode {
    fn of(answer: TxnAnswer) -> Result<FoundNode, EtcdFault> {
        let mut reads = answer.reads().into_iter();
        let (Some(head), Some(row)) = (reads.next(), reads.next()) else {
            return Err(EtcdFault::misunderstood("kv/txn"));
        };
        let row = row.kvs.first().map_or(Some(NodeState::NONE), |it| NodeState::parse(&it.value));
        Ok(FoundNode { head: FoundHead::of(&head), row, rest: reads.collect() })
    }
}

impl Push<'_> {
    /// Applies the batch, unless it was applied before.
    pub(super) async fn run(mut self) -> Result<AnsweredPush, EtcdFault> {
        let asked = self.questions().await?;
        if self.batch.id.is_none() {
            let answer = self.session.read(self.reads(asked)).await?;
            return self.answer(FoundNode::of(answer)?).await;
        }
        let diffs = self.batch.sums();
        let counters = diffs.keys().map(|name| self.keys.counter(*name));
        let read = self.reads(counters.map(get));
        let mut found = FoundNode::of(self.session.read(read.clone()).await?)?;
        loop {
            let (head, row) = match self.check(&found) {
                Some(Ok(fits)) => fits,
                Some(Err(answer)) => return Ok((answer, None, Vec::new())),
                None => return self.give_up(found.head).await,
            };
            if row.last == self.batch.last() {
                let answer = self.session.read(self.reads(asked)).await?;
                return self.answer(FoundNode::of(answer)?).await;
            }
            let before = found.rest.iter().map(|it| value::total(it.value()));
            let Some(totals) = sums(self.batch, &diffs, before) else {
                return self.give_up(found.head).await;
            };
            let overdrawn = value::overdrawn(&totals);
            let by = (self.batch.node, self.batch.is_news);
            let changed = ChangedValues { totals, levels: Vec::new() };
            let mut success = change(self.session, self.keys, head, by, changed).await?;
            success.push(self.row_after(row).await?);
            success.extend(self.reads(asked.iter().cloned()));
            let compare = vec![found.head.is_unchanged(self.keys)];
            let applied = self.session.change(compare, success, &read).await?;
            let has_applied = applied.succeeded;
            found = FoundNode::of(applied)?;
            if has_applied {
                let (pushed, living, _) = self.answer(found).await?;
                return Ok((pushed, living, overdrawn));
            }
        }
    }

    /// Returns the reads of which [`FoundNode`] has the answers.
    fn reads(&self, more: impl IntoIterator<Item = Op>) -> Vec<Op> {
        let first = [get(self.keys.head()), get(self.keys.node(self.batch.node))];
        first.into_iter().chain(more).collect()
    }

    /// Returns the operations that read the changes, record the node's life, and read the living nodes.
    async fn questions(&mut self) -> Result<Vec<Op>, EtcdFault> {
        let mut asked = Vec::new();
        if let Some(Position([number, _])) = self.batch.position {
            asked.push(page(self.keys.changes(), &self.keys.change(number), self.page));
        }
        if let Some(life) = self.batch.lives_for {
            let own = self.keys.life(self.batch.node);
            asked.push(match life {
                Duration::ZERO => delete(own),
                life => put(own, "", self.session.lease(life.min(LONGEST_LIFE)).await?),
            });
            asked.push(names(self.keys.lives()));
        }
        Ok(asked)
    }

    /// Returns the head and the node's row, if the batch can be applied or was applied, and otherwise the answer to it.
    /// `None` if somebody else wrote the row.
    fn check(&self, found: &FoundNode) -> Option<Result<(Head, NodeState), Pushed>> {
        let batch = self.batch;
        Some(match found.head.head {
            None => Err(Pushed::NoEpoch),
            Some(head) if head.epoch != batch.epoch => Err(Pushed::OtherEpoch(head.epoch)),
            Some(head) => {
                let row = found.row?;
                let is_next = batch.id.is_some() && row.last == batch.previous;
                let fits = is_next || row.last == batch.last();
                if fits { Ok((head, row)) } else { Err(batch.misfit(row.last)) }
            }
        })
    }

    /// Ends the epoch, in which there is a value that somebody else wrote.
    async fn give_up(&mut self, head: FoundHead) -> Result<AnsweredPush, EtcdFault> {
        head.end(self.session, self.keys).await?;
        Ok((Pushed::NoEpoch, None, Vec::new()))
    }

    /// Returns the operation that writes the node's row. It is kept until all counts of the node have ended, and then
    /// as long as the contract says; a day longer, so that batches which are sent again then are of ended windows.
    async fn row_after(&mut self, before: NodeState) -> Result<Op, EtcdFault> {
        let now = UnixSeconds::of(now()).0;
        let life = self.batch.life().max(NODE_LIFE).saturating_add(NODE_LIFE).as_secs();
        let until = before.until.max(now.saturating_add(life));
        let lease = self.session.lease(Duration::from_secs(until.saturating_sub(now))).await?;
        let row = NodeState { last: self.batch.last(), until };
        Ok(put(self.keys.node(self.batch.node), row.to_value(), lease))
    }

    /// Returns the answer to the batch, if it was applied, from those to its questions.
    async fn answer(&mut self, found: FoundNode) -> Result<AnsweredPush, EtcdFault> {
        let head = match self.check(&found) {
            Some(Ok((head, _))) => head,
            Some(Err(answer)) => return Ok((answer, None, Vec::new())),
            None => return self.give_up(found.head).await,
        };
        let mut rest = found.rest.iter();
        let seen = self.batch.position.zip(self.batch.position.and_then(|_| rest.next()));
        let lives = self.batch.lives_for.zip(rest.next());
        let living = lives.map(|(life, lives)| {
            let own = self.keys.life(self.batch.node);
            let names = lives.kvs.iter().map(|it| it.key.as_slice());
            let (mut count, mut place) = (u64::from(life > Duration::ZERO), 0_u64);
            for name in names.filter(|name| *name != own.as_bytes()) {
                count = count.saturating_add(1);
                place = place.saturating_add(u64::from(name < own.as_bytes()));
            }
            LivingNodes { count, place: Some(place) }
        });
        let seen = seen.filter(|(Position([_, epoch]), _)| *epoch == head.epoch.0.get());
        let changes = seen.and_then(|(Position([after, _]), answer)| {
            let values = answer.kvs.iter().map(|it| Some(&*it.value));
            Some((changes_after(after, head.number, values, answer.more)?, answer.more))
        });
        let changes = match changes {
            Some((changes, has_more)) => self.part(head, &changes, has_more).await?,
            None => Changes::Behind { position: head.position() },
        };
        Ok((Pushed::Applied { changes, now: now() }, living, Vec::new()))
    }

    /// Returns the counters that other nodes changed, up to the limit.
    async fn part(
        &mut self,
        head: Head,
        changes: &[LoggedChange],
        has_more: bool,
    ) -> Result<Changes, EtcdFault> {
        let mut others = OthersCounters::of(changes, self.batch.node, self.limit, has_more);
        if others.has_more {
            // Later changes, some of which are the node's own, have changed these totals.
            let read = others.names.iter().map(|name| get(self.keys.counter(*name)));
            let present = self.session.read(read.collect()).await?.reads();
            let present = present.iter().map(|it| value::total(it.value()).unwrap_or_default());
            let present = present.map(Hits::from_thousandths);
            others.totals = others.names.iter().copied().zip(present).collect();
        }
        let position = Head { number: others.last.unwrap_or(head.number), ..head }.position();
        Ok(Changes::Since { counts: others.counts(), position, has_more: others.has_more })
    }
}
