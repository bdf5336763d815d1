//! A push: a batch is applied, and other nodes' changes are returned.

use core::ops::RangeInclusive;
use std::collections::BTreeSet;

use super::head::ShardHead;
use super::shard::{Item, ShardSession};
use crate::policy::hits::Hits;
use crate::store::contract::error::Failure;
use crate::store::contract::strategy::{
    Batch, CLOCK_MARGIN, Changes, Count, LivingNodes, NODE_LIFE, Position, Pushed,
};
use crate::store::keyed::change::{OthersCounters, PAGE, changes_after};
use crate::store::keyed::decide::ChangedValues;
use crate::store::keyed::name;
use crate::store::keyed::value::{NewTotals, now, overdrawn, sums, total};

/// The answer to a batch, the living nodes, and the counters that it has made negative.
type PushOutcome = (Pushed, Option<LivingNodes>, Vec<Count>);

/// Applies a batch, unless it was applied before. Returns up to `limit` counters of other nodes.
pub(super) async fn push(
    session: &mut ShardSession<'_>,
    batch: &Batch,
    limit: usize,
) -> Result<PushOutcome, Failure> {
    let diffs = batch.sums();
    loop {
        let found = session.head().await?;
        let head = match &found.head {
            None => return Ok((Pushed::NoEpoch, None, Vec::new())),
            Some(head) if head.epoch != batch.epoch => {
                return Ok((Pushed::OtherEpoch(head.epoch), None, Vec::new()));
            }
            Some(head) => head,
        };
        let last = head.last_of(batch.node);
        let is_next = batch.id.is_some() && last == batch.previous;
        if !is_next && last != batch.last() {
            return Ok((batch.misfit(last), None, Vec::new()));
        }
        let now = now();
        let diffs = if last == batch.last() { &NewTotals::new() } else { &diffs };
        let counters: Vec<_> = diffs.keys().map(|it| name::counter(*it)).collect();
        let numbers = numbers_after(head, batch);
        let changes = numbers.clone().map(|it| name::change(it).into());
        let names: Vec<_> = counters.into_iter().chain(changes).collect();
        let mut before = session.read(head, &names).await?;
        let changes = before.split_off(diffs.len());
        let totals = before.iter().map(|it| total(it.value.as_deref()));
        let totals = sums(batch, diffs, totals);
        let Some(totals) = totals.filter(|_| !has_lost(batch, diffs, &before)) else {
            session.end(&found).await?;
            continue;
        };
        let mut next = head.next(now);
        let living = batch.lives_for.map(|life| next.live(batch.node, life, now));
        if last != batch.last() {
            let life = batch.life().max(NODE_LIFE).saturating_add(NODE_LIFE);
            let row = next.node(batch.node);
            row.last = batch.last();
            let until = now.0.saturating_add(u64::try_from(life.as_millis()).unwrap_or(u64::MAX));
            row.until = row.until.max(until);
        }
        let own = totals.clone();
        if batch.lives_for.is_some() || last != batch.last() {
            let changed = ChangedValues { totals, levels: Vec::new() };
            let by = (batch.node, batch.is_news);
            if !session.change(&found, next, by, changed).await? {
                continue;
            }
        }
        let changes = answer(session, head, batch, limit, &own, &changes).await?;
        return Ok((Pushed::Applied { changes, now }, living, overdrawn(&own)));
    }
}

/// Returns whether a counter does not exist of which this node has pushed hits.
fn has_lost(batch: &Batch, diffs: &NewTotals<'_>, before: &[Item]) -> bool {
    let is_missing = |item: &Item| item.value.is_none();
    let missing = diffs.keys().zip(before).filter(|(_, item)| is_missing(item));
    let missing: BTreeSet<_> = missing.map(|(name, _)| *name).collect();
    // An item of an ended window may be gone.
    let mut pushed =
        batch.diffs.iter().filter(|it| it.expires_in > CLOCK_MARGIN && it.local != it.diff);
    pushed.any(|it| missing.contains(&(it.size, it.window, &*it.key)))
}

/// Returns the numbers of the changes that are read for a batch.
fn numbers_after(head: &ShardHead, batch: &Batch) -> RangeInclusive<u64> {
    match batch.position {
        Some(Position([after, epoch])) if epoch == head.epoch.0.get() => {
            let first = after.saturating_add(1);
            first..=head.number.min(after.saturating_add(PAGE as u64))
        }
        _ => RangeInclusive::new(1, 0),
    }
}

/// Returns the changes of others in the answer to a batch, which was applied to a shard with this head, and whose
/// counters have the totals `own` since. `changes` are those that [`numbers_after`] names.
async fn answer(
    session: &mut ShardSession<'_>,
    head: &ShardHead,
    batch: &Batch,
    limit: usize,
    own: &NewTotals<'_>,
    changes: &[Item],
) -> Result<Changes, Failure> {
    let last = head.number.saturating_add(u64::from(!own.is_empty()));
    let present = ShardHead { number: last, writes: Vec::new(), ..head.clone() };
    let position = present.position();
    let after = batch.position.filter(|Position([_, epoch])| *epoch == head.epoch.0.get());
    let has_more = *numbers_after(head, batch).end() < head.number;
    let changes = after.and_then(|Position([after, _])| {
        let values = changes.iter().map(|it| it.value.as_deref());
        changes_after(after, head.number, values, has_more)
    });
    let Some(changes) = changes else {
        return Ok(Changes::Behind { position });
    };
    let mut others = OthersCounters::of(&changes, batch.node, limit, has_more);
    if others.has_more {
        // Later changes, some of which are the node's own, have changed these totals.
        let names: Vec<_> = others.names.iter().map(|it| name::counter(*it)).collect();
        let found = session.read(&present, &names).await?;
        let totals = found.iter().map(|it| total(it.value.as_deref()).unwrap_or_default());
        let totals = totals.map(Hits::from_thousandths);
        others.totals = others.names.iter().copied().zip(totals).collect();
    } else {
        let own = own.iter().map(|(name, (total, _))| (*name, Hits::from_thousandths(*total)));
        others.totals.extend(own);
    }
    let position = match others.last.filter(|_| others.has_more) {
        Some(last) => ShardHead { number: last, ..present }.position(),
        None => position,
    };
    Ok(Changes::Since { counts: others.counts(), position, has_more: others.has_more })
}
