//! A shard of a namespace, which changes only as a whole: each change writes the head, if nobody else has written it
//! since the change began to read.

use core::time::Duration;
use std::collections::BTreeMap;

use serde_json::Value;

use super::failure::EtcdFault;
use super::key::{Head, LoggedChange, ShardKeys, change_name};
use super::link::EtcdSession;
use super::wire::{KeyValues, Op, delete, get, is_at, put};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::strategy::{Count, Epoch, NodeId};
use crate::table::words::system::unix_millis;

/// Time for which changes are kept for nodes to catch up. A node that needs older ones fetches all counters.
const CHANGE_LIFE: Duration = Duration::from_secs(60);

/// Counters by size and number of their windows and their keys: their totals in thousandths, and the time for which
/// each matters.
pub(super) type NewTotals<'a> = BTreeMap<(WindowSize, u64, &'a [u8]), (i64, Duration)>;

/// Returns the time by this machine's clock, since etcd does not tell its own.
pub(super) fn now() -> UnixMillis {
    UnixMillis(unix_millis())
}

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

/// Returns the operations that change a shard with this head: they write the head, the totals and the change.
pub(super) async fn change(
    session: &mut EtcdSession,
    keys: &ShardKeys,
    head: Head,
    (node, is_news): (NodeId, bool),
    totals: NewTotals<'_>,
) -> Result<Vec<Op>, EtcdFault> {
    // Without counters, there is nothing to be read, but others must notice that the shard was written.
    let number = head.number.saturating_add(u64::from(!totals.is_empty()));
    let mut ops = vec![put(keys.head(), Head { number, ..head }.to_value(), 0)];
    if totals.is_empty() {
        return Ok(ops);
    }
    let mut counts = Vec::with_capacity(totals.len());
    for ((size, window, key), (total, life)) in totals {
        let lease = session.lease(life).await?;
        ops.push(put(keys.counter(size, window, key), total.to_string(), lease));
        let total = Hits::from_thousandths(total);
        counts.push(Count { key: key.into(), size, window, total });
    }
    let change = LoggedChange { number, node, is_news, counts }.to_value();
    let lease = session.lease(CHANGE_LIFE).await?;
    if is_news {
        ops.push(put(keys.news(), &change, lease));
    }
    ops.push(put(keys.changes() + &change_name(number), change, lease));
    Ok(ops)
}
