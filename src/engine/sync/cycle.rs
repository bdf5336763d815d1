//! A sync cycle of one shard, from top to bottom: lease, changes, push and fetch, apply, release.
//!
//! Every hit of a living node reaches the store once, whatever happens to the worker, the store or
//! the connection meanwhile. The reasons are in [`crate::store::contract::strategy`] (a store
//! applies a batch once) and in [`crate::table::Lease`] (a sealed batch is sent again unchanged).

use core::num::NonZeroU64;
use core::time::Duration;

use super::shard_sync::{EarlyPush, Env, ShardSync};
use super::side_by_side::{beside, give_way};
use super::sync_outcome::{Report, SyncError};
use super::sync_search::Search;
use crate::policy::reserve::Grants;
use crate::policy::window::UnixMillis;
use crate::store::contract::strategy::{
    Batch, BatchId, Changes, ChangesKind as _, Count, CountsKind as _, Epoch, NODE_LIFE, NodeId,
    Position, Pushed, Strategy,
};
use crate::table::words::fail::fail_point;
use crate::table::{BatchName, BatchRecord, Counter, Lease, LeaseLost, MonotonicMillis, Repair};

/// The result of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// No further exchange is needed.
    Done,
    /// Another exchange is needed.
    More,
    /// No further exchange is needed, but the other nodes' counts must be read as a snapshot, in
    /// this epoch.
    Snapshot(Epoch),
    /// The exchange had no effect, or must be repeated in another way. Contains the store's answer.
    Setback(&'static str),
}

/// A store's counts of other nodes' hits, which are applied while the store works on the next
/// batch.
#[derive(Debug)]
struct StoreNews {
    /// The batch that this answers.
    records: Vec<BatchRecord>,
    counts: Vec<Count>,
    /// Position up to which these are all changes.
    position: Position,
    has_more: bool,
}

/// A batch to send.
struct Outgoing {
    /// `None` if nothing is pushed.
    name: Option<BatchName>,
    records: Vec<BatchRecord>,
    /// Whether there are more changes to push.
    changes_left: bool,
    /// Whether nodes that listen to the channel are notified.
    is_news: bool,
    /// Position up to which the store's changes are known.
    position: Option<Position>,
    /// Most records of the next batch; 0 if unknown.
    capacity: usize,
}

/// The state of a cycle: where its search for changes continues, and counts that are not applied
/// yet.
#[derive(Debug)]
struct CycleState {
    search: Search,
    news: Option<StoreNews>,
}

/// Time after its last push for which a node assumes that the store knows it. It is shorter than
/// what stores guarantee, since a batch may be a repetition of one that the store got earlier.
const KNOWN_FOR: Duration = Duration::from_secs(NODE_LIFE.as_secs() / 2);
/// Most counters that are fetched in one exchange.
const FETCH_LIMIT: usize = Batch::MAX_DIFFS;
/// Slots that are read before the lease is renewed; some milliseconds of work.
const LOOKED_AT: usize = 1 << 14;
/// Pause between purges of a store that has nothing left to purge, in milliseconds.
const PURGE_PAUSE: u64 = 10_000;
/// Number of pushed counters after which a store with more to purge is asked again.
const PURGE_SHARE: usize = Batch::MAX_DIFFS / 2;
/// Most counters of one cycle about which listening nodes are notified, in whole batches: a few
/// busy ones, not all of them.
const MAX_TOLD: usize = Batch::MAX_DIFFS;
/// Most exchanges without effect in one cycle: more than a failover or a race of nodes needs.
const MAX_SETBACKS: usize = 8;
/// Most exchanges in one cycle that only fetch concurrent changes. The next cycle, which pushes
/// again, fetches the rest.
const MAX_FETCHES: usize = 1000;
/// Most pages of a snapshot, and most empty pages in a row: more than the largest store needs, and
/// more than remain when most of its counters have expired.
const MAX_PAGES: usize = 1 << 17;
const MAX_EMPTY_PAGES: usize = 1000;

impl<'m> ShardSync<'_, 'm> {
    /// Pushes changes and fetches the other nodes' changes. Returns `false` if another worker holds
    /// the lease.
    ///
    /// # Errors
    ///
    /// [`SyncError`]; the lease is released.
    pub(super) async fn sync(
        &self,
        strategy: &mut impl Strategy,
        surroundings: &impl Env,
        mut search: Search,
        report: &mut Report,
    ) -> Result<bool, SyncError> {
        let now = surroundings.monotonic();
        let Some(lease) = self.state.take_lease(now, self.lifetime) else {
            return Ok(false);
        };
        lease.record_holder(surroundings.process());
        // Counters may have become due after the changes were divided among the shards.
        search.also_in(self.take_due(surroundings.now()));
        let result = self.cycle(strategy, &lease, surroundings, search, report).await;
        if result.is_ok() {
            lease.record_synced(now);
        }
        let result = of_holder(&lease, result);
        // All taken changes are sealed, pushed or put back by now.
        lease.release();
        result.map(|()| true)
    }

    /// Pushes counters that are due, or pushes those near their limits and always fetches the other
    /// nodes' changes. Returns `false` if another worker holds the lease.
    ///
    /// # Errors
    ///
    /// [`SyncError`]; the lease is released.
    pub(super) async fn sync_early(
        &self,
        what: EarlyPush,
        strategy: &mut impl Strategy,
        surroundings: &impl Env,
        report: &mut Report,
    ) -> Result<bool, SyncError> {
        let now = surroundings.monotonic();
        let Some(lease) = self.state.take_lease(now, self.lifetime) else {
            return Ok(false);
        };
        lease.record_holder(surroundings.process());
        // If this worker ends from here on, the next one checks all counters.
        let due = self.take_due(surroundings.now());
        let search = match what {
            EarlyPush::Due => Search::early(due),
            // These include the due ones.
            EarlyPush::Near => Search::look(self.near_places()),
        };
        let result = self.cycle(strategy, &lease, surroundings, search, report).await;
        let result = of_holder(&lease, result);
        lease.release();
        result.map(|()| true)
    }

    async fn cycle(
        &self,
        strategy: &mut impl Strategy,
        lease: &Lease<'m>,
        surroundings: &impl Env,
        search: Search,
        report: &mut Report,
    ) -> Result<(), SyncError> {
        match self.only_pushes {
            true => lease.set_pushing_only()?,
            false => lease.set_windows(self.counters.iter().map(Counter::size))?,
        }
        // From the shards before this one.
        let pushed_before = report.pushed;
        let is_early = search.is_early;
        let mut in_hand = CycleState { search, news: None };
        let exchanged =
            self.exchange_all(strategy, lease, &mut in_hand, surroundings, report).await;
        in_hand.search.put_back(self.namespace.table());
        exchanged?;
        if let Some(news) = in_hand.news {
            self.record_news(lease, news, surroundings)?;
        }
        let pushed = report.pushed.saturating_sub(pushed_before);
        match is_early {
            true => Ok(()),
            false => self.purge(strategy, lease, surroundings, pushed).await,
        }
    }

    /// Exchanges batches, one after another, until there is nothing more to push or fetch.
    async fn exchange_all<S: Strategy>(
        &self,
        strategy: &mut S,
        lease: &Lease<'m>,
        in_hand: &mut CycleState,
        surroundings: &impl Env,
        report: &mut Report,
    ) -> Result<(), SyncError> {
        let (mut setbacks, mut fetches, mut told) = (0_usize, 0_usize, 0_usize);
        let mut has_asked = false;
        loop {
            if self.repair::<S>(lease, surroundings).await? {
                in_hand.search.put_back(self.namespace.table());
                in_hand.search = Search::everywhere();
            }
            self.void_lost::<S>(lease)?;
            let most = strategy.max_diffs();
            let mut batch = self.next_batch(lease, in_hand, has_asked, most, surroundings)?;
            let is_nothing = batch.records.is_empty() && !batch.changes_left;
            if in_hand.search.is_early && !in_hand.search.is_look && is_nothing {
                // Another cycle has pushed them meanwhile.
                return Ok(());
            }
            let (is_push, changes_left) = (batch.name.is_some(), batch.changes_left);
            batch.is_news = self.tells && is_push && told < MAX_TOLD;
            told = told.saturating_add(batch.records.len());
            let next = self.exchange(strategy, lease, batch, in_hand, surroundings, report).await?;
            lease.renew(surroundings.monotonic(), self.lifetime)?;
            // With a log, the position shows that.
            has_asked = matches!(next, Next::Snapshot(_));
            match next {
                Next::Setback(what) if setbacks >= MAX_SETBACKS => {
                    return Err(SyncError::NoProgress(what));
                }
                Next::Setback(_) => setbacks = setbacks.saturating_add(1),
                // The next exchange continues after this one.
                Next::Done | Next::More if changes_left && is_push => {}
                Next::Snapshot(_) if changes_left => {}
                // This exchange only asked, so the next one can push.
                Next::Done | Next::More if changes_left && setbacks >= MAX_SETBACKS => {
                    return Err(SyncError::NoProgress("nothing of what it was asked"));
                }
                Next::Done | Next::More if changes_left => setbacks = setbacks.saturating_add(1),
                Next::Done => return Ok(()),
                Next::Snapshot(_) if self.only_pushes => return Ok(()),
                // The snapshot includes all hits of this node.
                Next::Snapshot(epoch) => {
                    return self.fetch(strategy, lease, epoch, surroundings, report).await;
                }
                Next::More => {
                    fetches = fetches.saturating_add(1);
                    if fetches >= MAX_FETCHES {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Returns the next message to the store: a batch of at most `most` records, which is sealed,
    /// or a question without a batch.
    fn next_batch(
        &self,
        lease: &Lease<'m>,
        in_hand: &mut CycleState,
        has_asked: bool,
        most: usize,
        surroundings: &impl Env,
    ) -> Result<Outgoing, LeaseLost> {
        let table = self.namespace.table();
        let position = match &in_hand.news {
            // If everything must be fetched again, that happens after these news are recorded.
            Some(news) => Some(news.position),
            None => {
                lease.fetch_anew_if_due()?;
                lease.position().map(Position)
            }
        };
        let question = Outgoing {
            name: None,
            records: Vec::new(),
            changes_left: true,
            is_news: false,
            position: position.filter(|_| !self.only_pushes),
            capacity: 0,
        };
        if let Some((name, records)) = lease.sealed(table) {
            // A batch that was sealed before is sent first.
            let name = Some(name);
            return Ok(Outgoing { name, records, ..question });
        }
        if lease.acknowledged().number == 0 && position.is_none() && !has_asked {
            // The node may have been in this epoch before and left it. Then the store knows batches
            // of it, which this question finds out.
            return Ok(question);
        }
        let has_key = |key: &[u8]| self.has_key(key);
        let capacity = lease.batch_capacity()?.min(most);
        let (part, now) = (self.part(&has_key), surroundings.now());
        let search = &mut in_hand.search;
        let is_held = || lease.is_held();
        let (records, changes_left) = search.take_batch(table, part, capacity, now, &is_held)?;
        let name = match records.as_slice() {
            [] => None,
            records => Some(lease.seal(records, random_bits(surroundings))?),
        };
        Ok(Outgoing { name, records, changes_left, capacity, ..question })
    }

    /// Makes the store purge expired counters of the shard, unless it did so recently. It purges
    /// about as many counters as were `pushed`, so that it keeps up.
    async fn purge(
        &self,
        strategy: &mut impl Strategy,
        lease: &Lease<'m>,
        surroundings: &impl Env,
        pushed: usize,
    ) -> Result<(), SyncError> {
        let is_due = surroundings.monotonic() >= self.purge_at.get() || self.is_failing();
        if !is_due {
            return Ok(());
        }
        for _ in 0..=pushed / PURGE_SHARE {
            if !strategy.purge(&self.shard, surroundings.now()).await? {
                let next = surroundings.monotonic().0.saturating_add(PURGE_PAUSE);
                self.purge_at.set(MonotonicMillis(next));
                break;
            }
            lease.renew(surroundings.monotonic(), self.lifetime)?;
        }
        Ok(())
    }

    /// Makes the pending repair before a push. Returns whether there was one.
    async fn repair<S: Strategy>(
        &self,
        lease: &Lease<'m>,
        surroundings: &impl Env,
    ) -> Result<bool, LeaseLost> {
        let (table, now) = (self.namespace.table(), surroundings.now());
        let has_key = |key: &[u8]| self.has_key(key);
        let (part, is_held) = (self.part(&has_key), || lease.is_held());
        let repair = lease.repair();
        if repair == Repair::None {
            return Ok(false);
        }
        let has_reserves = repair == (Repair::SendAnew { is_lost: true }) && self.only_pushes;
        if has_reserves {
            // First, so that no hits of the reserves are given back afterwards.
            table.void_reserves(part.namespace, &is_held)?;
            if S::Counts::ARE_ABSOLUTE {
                table.give_up_given_back(part, &is_held)?;
            }
        }
        let all = table.slot_count();
        for start in (0_usize..all).step_by(LOOKED_AT) {
            if start > 0 {
                lease.renew(surroundings.monotonic(), self.lifetime)?;
                // Other tasks of the thread continue.
                give_way().await;
            }
            let slots = start..start.saturating_add(LOOKED_AT).min(all);
            match repair {
                Repair::None => {}
                Repair::FindChanges => table.find_changes(slots, part, now, &is_held)?,
                // Hits below zero belong to reserves.
                Repair::SendAnew { .. } if has_reserves => {
                    table.forget_charged(slots, part, now, &is_held)?;
                }
                Repair::SendAnew { .. } => table.forget_pushed(slots, part, now, &is_held)?,
            }
        }
        lease.repaired().map(|()| true)
    }

    /// Voids reserves whose charges the store has lost. Only while no batch is sealed, since one
    /// may give some of them back.
    fn void_lost<S: Strategy>(&self, lease: &Lease<'m>) -> Result<(), LeaseLost> {
        if lease.grants() != Grants::Lost || self.state.sealed_records() > 0 {
            return Ok(());
        }
        let has_key = |key: &[u8]| self.has_key(key);
        let (table, is_held) = (self.namespace.table(), || lease.is_held());
        let part = self.part(&has_key);
        table.void_reserves(part.namespace, &is_held)?;
        match S::Counts::ARE_ABSOLUTE {
            true => table.give_up_given_back(part, &is_held)?,
            false => table.withhold_given_back(part, &is_held)?,
        }
        lease.grants_voided()
    }

    /// Sends a batch, or only asks if there is none, and records the other nodes' hits in the
    /// answer. If there are more of them, the next exchange returns them.
    async fn exchange<S: Strategy>(
        &self,
        strategy: &mut S,
        lease: &Lease<'m>,
        outgoing: Outgoing,
        in_hand: &mut CycleState,
        surroundings: &impl Env,
        report: &mut Report,
    ) -> Result<Next, SyncError> {
        let Some(epoch) = NonZeroU64::new(lease.epoch()).map(Epoch) else {
            self.open_epoch(strategy, lease, None, surroundings).await?;
            return Ok(Next::Setback("no epoch"));
        };
        if lease.has_left(epoch.0.get()) {
            let left = Some(epoch);
            self.open_epoch(strategy, lease, left, surroundings).await?;
            return Ok(Next::Setback("an epoch that was left"));
        }
        let Outgoing { name, records, is_news, position, capacity, .. } = outgoing;
        let (table, now) = (self.namespace.table(), surroundings.now());
        let (asked_at, grants) = (surroundings.monotonic(), lease.grants());
        let batch = Batch {
            node: NodeId(lease.node(table)),
            epoch,
            lives_for: self.life(asked_at),
            previous: batch_id(lease.acknowledged()),
            id: name.map(batch_id),
            position,
            grants: self.only_pushes.then_some(grants),
            diffs: records.iter().filter_map(|record| self.diff(record, now)).collect(),
            is_news,
        };
        // Epoch and numbers are of one moment: in another holder's epoch, this batch would be a new
        // one.
        fail_point!("batch.made");
        lease.confirm_held()?;
        let servers = strategy.servers();
        let pushed = strategy.push_diffs(&self.shard, &batch, FETCH_LIMIT);
        let pushed = self.timed(pushed, servers, surroundings);
        let (pushed, noted) = beside(pushed, || {
            let has_key = |key: &[u8]| self.has_key(key);
            let part = self.part(&has_key);
            let is_held = || lease.is_held();
            let search = &mut in_hand.search;
            search.gather_ahead(table, part, capacity, now, &is_held)?;
            let news = in_hand.news.take();
            news.map_or(Ok(()), |news| self.record_news(lease, news, surroundings))
        })
        .await;
        noted?;
        let pushed = pushed?;
        fail_point!("sync.answered");
        // If this worker was stopped for long, the answer is outdated.
        lease.confirm_applied()?;
        let (changes, store_now) = match pushed {
            Pushed::Applied { changes, now } => (changes, now),
            Pushed::OtherEpoch(other) => {
                self.enter_epoch(lease, other)?;
                return Ok(Next::Setback("another epoch"));
            }
            Pushed::NoEpoch => {
                self.open_epoch(strategy, lease, None, surroundings).await?;
                return Ok(Next::Setback("no epoch"));
            }
            Pushed::Forgotten if now >= lease.known_until() => {
                // All data of this node in the store has expired. Unpushed hits are sent again.
                lease.enter_epoch(epoch.0.get())?;
                return Ok(Next::Setback("an unknown node"));
            }
            Pushed::Twin => {
                let is_former_self = self.may_be_a_former_self(lease);
                // Absolute counts of the former identity stay under it.
                if is_former_self || S::Counts::ARE_ABSOLUTE {
                    let known = Some(epoch);
                    self.open_epoch(strategy, lease, known, surroundings).await?;
                }
                lease.take_identity(table, random_bits(surroundings))?;
                if is_former_self {
                    // Not logged, since the other node may be this one before a reload.
                    let _ = table.record_identity();
                }
                return Ok(Next::Setback("another node of the same identity"));
            }
            Pushed::Lost | Pushed::Forgotten => {
                let lost = Some(epoch);
                self.open_epoch(strategy, lease, lost, surroundings).await?;
                return Ok(Next::Setback("lost writes"));
            }
        };
        if batch.grants.is_some() && strategy.has_lost_grants() {
            lease.lose_grants(grants);
        }
        if batch.lives_for.is_some() {
            self.record_living(strategy.living(), asked_at);
        }
        report.pushed = report.pushed.saturating_add(batch.diffs.len());
        report.clock_offset = offset(store_now, now, surroundings.now());

        // This node's hits first, since the totals in the answer include them.
        if !records.is_empty() {
            lease.run_ahead()?;
        }
        for BatchRecord { counter, window, up_to, diff } in &records {
            let pushed = (up_to.minus(*diff), *up_to);
            table.advance_pushed(*counter, *window, pushed, &|| lease.is_held())?;
        }
        if let Some(BatchName { number, .. }) = name {
            let life = batch.life().saturating_add(KNOWN_FOR);
            let life = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
            lease.acknowledge(number, UnixMillis(now.0.saturating_add(life)))?;
            self.undo_resets(&records, strategy.overdrawn());
        }
        let Some(changes) = changes.logged() else {
            return Ok(Next::Snapshot(epoch));
        };
        match changes {
            Changes::Since { counts, position, has_more } => {
                report.fetched = report.fetched.saturating_add(counts.len());
                let has_news = !counts.is_empty() || batch.position != Some(position);
                let news = StoreNews { records, counts, position, has_more };
                match has_more {
                    true => in_hand.news = Some(news),
                    false => self.record_news(lease, news, surroundings)?,
                }
                Ok(match has_more {
                    true if has_news || name.is_some() => Next::More,
                    true => Next::Setback("that there is more"),
                    false => Next::Done,
                })
            }
            Changes::Behind { position } if self.only_pushes => {
                lease.set_position(Some(position.0))?;
                Ok(Next::Done)
            }
            Changes::Behind { position } => {
                self.fetch(strategy, lease, epoch, surroundings, report).await?;
                lease.catch_up(position.0)?;
                Ok(Next::Setback("that all is to be fetched"))
            }
        }
    }

    /// Records a store's counts of other nodes' hits.
    fn record_news(
        &self,
        lease: &Lease<'m>,
        news: StoreNews,
        surroundings: &impl Env,
    ) -> Result<(), LeaseLost> {
        let StoreNews { records, counts, position, has_more } = news;
        let is_all = self.record_counts(lease, &counts, surroundings)?;
        self.count_excess(&records, surroundings.now());
        lease.confirm_applied()?;
        match (has_more, is_all) {
            (true, _) => lease.set_position(Some(position.0)),
            (false, true) => lease.catch_up(position.0),
            // The next exchange returns the rest again.
            (false, false) => Ok(()),
        }
    }

    /// Records the other nodes' hits. Returns whether all of them could be recorded.
    fn record_counts(
        &self,
        lease: &Lease<'m>,
        counts: &[Count],
        surroundings: &impl Env,
    ) -> Result<bool, LeaseLost> {
        lease.begin_to_apply()?;
        let is_all = self.apply(counts, surroundings, &|| lease.is_held());
        if is_all.is_err() {
            lease.confirm_applied()?;
        }
        is_all
    }

    /// Returns whether the store may know this node from an earlier visit to the epoch that the
    /// node has no record of.
    fn may_be_a_former_self(&self, lease: &Lease<'m>) -> bool {
        let has_just_entered = lease.acknowledged().number == 0 && lease.position().is_none();
        has_just_entered && lease.may_have_left_more()
    }

    /// Enters an epoch that this node opens, or another one at the same time.
    async fn open_epoch(
        &self,
        strategy: &mut impl Strategy,
        lease: &Lease<'m>,
        instead_of: Option<Epoch>,
        surroundings: &impl Env,
    ) -> Result<(), SyncError> {
        let proposed = Epoch(surroundings.random());
        let servers = strategy.servers();
        let epoch = strategy.open_epoch(&self.shard, instead_of, proposed);
        let epoch = self.timed(epoch, servers, surroundings).await?;
        fail_point!("epoch.opened");
        self.enter_epoch(lease, epoch)?;
        Ok(())
    }

    /// Enters an epoch, unless the node is in it. A former primary may be back with all
    /// acknowledged data.
    fn enter_epoch(&self, lease: &Lease<'m>, Epoch(epoch): Epoch) -> Result<(), LeaseLost> {
        if epoch.get() == lease.epoch() {
            return Ok(());
        }
        lease.enter_epoch(epoch.get())
    }

    /// Fetches all counters that matter, page by page.
    async fn fetch<S: Strategy>(
        &self,
        strategy: &mut S,
        lease: &Lease<'m>,
        epoch: Epoch,
        surroundings: &impl Env,
        report: &mut Report,
    ) -> Result<(), SyncError> {
        let now = surroundings.now();
        let windows = self.counters.iter().flat_map(|counter| {
            let number = counter.size().at(now).number;
            let near = [number.wrapping_sub(1), number, number.wrapping_add(1)];
            near.map(|number| (counter.size(), number))
        });
        let windows: Vec<_> = windows.collect();
        let mut step = S::Step::default();
        let mut empty_pages = 0_usize;
        for _ in 0..MAX_PAGES {
            let servers = strategy.servers();
            let page = strategy.get_counters(&self.shard, epoch, &windows, step);
            let (counts, next) = self.timed(page, servers, surroundings).await?;
            fail_point!("sync.fetched");
            lease.confirm_applied()?;
            report.fetched = report.fetched.saturating_add(counts.len());
            self.record_counts(lease, &counts, surroundings)?;
            lease.confirm_applied()?;
            lease.renew(surroundings.monotonic(), self.lifetime)?;
            empty_pages = match counts.as_slice() {
                [] => empty_pages.saturating_add(1),
                _ => 0,
            };
            match next {
                None => return Ok(()),
                Some(_) if empty_pages >= MAX_EMPTY_PAGES => break,
                Some(next) => step = next,
            }
        }
        Err(SyncError::NoProgress("that there is another page"))
    }
}

/// Returns the result of a cycle. If the lease is lost, the worker was stopped for long, and any
/// failure is due to that.
fn of_holder(lease: &Lease<'_>, result: Result<(), SyncError>) -> Result<(), SyncError> {
    match result {
        Err(_) if !lease.is_held() => Err(SyncError::LeaseLost),
        result => result,
    }
}

fn batch_id(BatchName { number, nonce }: BatchName) -> BatchId {
    BatchId::new(number, nonce)
}

fn random_bits(surroundings: &impl Env) -> u32 {
    (surroundings.random().get() >> 32) as u32
}

/// Returns a lower bound of the milliseconds by which the store's clock is ahead. The store read
/// its clock between `asked` and `answered`, at an unknown moment.
fn offset(theirs: UnixMillis, asked: UnixMillis, answered: UnixMillis) -> i64 {
    let ours = theirs.max(asked).min(answered.max(asked));
    let difference = i128::from(theirs.0).saturating_sub(i128::from(ours.0));
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_read_during_an_exchange_is_no_clock_error() {
        for (theirs, asked, answered, expected) in [
            (1000, 1000, 1000, 0),
            (1000, 1000, 3000, 0),
            (3000, 1000, 3000, 0),
            (900, 1000, 3000, -100),
            (3100, 1000, 3000, 100),
            // This node's clock was set back meanwhile.
            (1000, 1000, 500, 0),
        ] {
            let [theirs, asked, answered] = [theirs, asked, answered].map(UnixMillis);
            assert_eq!(offset(theirs, asked, answered), expected);
        }
    }
}
