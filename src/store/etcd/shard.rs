//! A shard of a namespace, which changes only as a whole: each change writes the head, if nobody else has written it
//! since the change began to read.

use serde_json::Value;

use super::failure::EtcdFault;
use super::key::{Head, ShardKeys};
use super::link::EtcdSession;
use super::wire::{KeyValues, Op, delete, get, is_at, put};
use crate::store::contract::strategy::{Epoch, NodeId};
use crate::store::keyed::change::{CHANGE_LIFE, LoggedChange};
use crate::store::keyed::decide::ChangedValues;

/// A head as it was read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FoundHead {
    /// `None` if there is none, or somebody else wrote it.
    pub(super) head: Option<Head>,
    /// Revision of its last change; zero without one.
    revision: i64,
}

impl FoundHead {
    pub(super) async fn read(session: &mut EtcdSession, key: &str) -> Result<FoundHead, EtcdFault> {
        let answer = session.read(vec![get(key)]).await?.reads();
        Ok(answer.first().map(FoundHead::of).unwrap_or_default())
    }

    pub(super) fn of(answer: &KeyValues) -> FoundHead {
        answer.kvs.first().map_or(FoundHead::default(), |found| FoundHead {
            head: Head::parse(&found.value),
            revision: found.mod_revision,
        })
    }

    /// Returns the comparison that nobody has written the head since.
    pub(super) fn is_unchanged(&self, keys: &ShardKeys) -> Value {
        is_at(keys.head(), self.revision)
    }

    /// Opens an epoch, unless the head has changed.
    pub(super) async fn open(
        &self,
        session: &mut EtcdSession,
        keys: &ShardKeys,
        epoch: Epoch,
    ) -> Result<bool, EtcdFault> {
        let opened = put(keys.head(), Head { epoch, number: 0 }.to_value(), 0);
        let opened = session.change(vec![self.is_unchanged(keys)], vec![opened], &[]).await?;
        Ok(opened.succeeded)
    }

    /// Ends an epoch with values that somebody else wrote, unless the head has changed.
    pub(super) async fn end(
        &self,
        session: &mut EtcdSession,
        keys: &ShardKeys,
    ) -> Result<(), EtcdFault> {
        let compare = vec![self.is_unchanged(keys)];
        session.change(compare, vec![delete(keys.head())], &[]).await.map(drop)
    }
}

/// Returns the operations that change a shard with this head: they write the head, the values and the change.
pub(super) async fn change(
    session: &mut EtcdSession,
    keys: &ShardKeys,
    head: Head,
    by: (NodeId, bool),
    ChangedValues { totals, levels }: ChangedValues<'_>,
) -> Result<Vec<Op>, EtcdFault> {
    // Without counters, there is nothing to be read, but others must notice that the shard was written.
    let number = head.number.saturating_add(u64::from(!totals.is_empty()));
    let mut ops = vec![put(keys.head(), Head { number, ..head }.to_value(), 0)];
    if !totals.is_empty() {
        let change = LoggedChange::new(number, by, &totals).to_value();
        let lease = session.lease(CHANGE_LIFE).await?;
        let (_, is_news) = by;
        if is_news {
            ops.push(put(keys.news(), &change, lease));
        }
        ops.push(put(keys.change(number), change, lease));
    }
    for (name, (total, life)) in totals {
        let lease = session.lease(life).await?;
        ops.push(put(keys.counter(name), total.to_string(), lease));
    }
    for (name, (level, life)) in levels {
        let lease = session.lease(life).await?;
        ops.push(put(keys.of_epoch(name), level, lease));
    }
    Ok(ops)
}
