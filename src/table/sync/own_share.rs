//! The share of a limit that a node admits alone while the store is down, in a namespace with
//! `on_loss share`. It is the node's share of the key's hits at the store's last answer, or one
//! node's [equal share](crate::policy::share) if that is more.
//!
//! The share is computed from two counts that do not change while the store is down: the store's
//! count of this node's hits, and of the others'. A push records that others have no hits, if that
//! is so. If both counts are gone, since the key was not counted for two windows, only the number
//! of nodes is known.

use crate::policy::algorithm::{Algorithm, Reading, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::share::equal_share;
use crate::policy::window::Clock;
use crate::table::slots::admission::{Admission, Counted};
use crate::table::slots::columns::{WindowColumns, load};
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::fail::fail_point;
use crate::table::words::slot::Occupant;
use crate::table::words::word::{Stamp, WindowCount};
use crate::table::zone::counter::{Counter, Key};
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::sync_state::{NodesWord, SyncState};

impl<'m> CounterTable<'m> {
    /// Returns whether nodes admit only their shares in the namespace of a synced counter.
    #[inline(always)]
    pub(crate) fn is_alone(&self, counter: &Counter) -> bool {
        let entry = self.parts.directory.get(counter.namespace.get());
        entry.is_some_and(|entry| NodesWord(entry.nodes.load(Relaxed)).is_alone())
    }

    /// Refuses a hit under a limit of which this node has used its share. `None` if it has not, or
    /// shares do not apply.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse_alone(
        &self,
        occupant: Occupant<'m>,
        counter: &Counter,
        clock: &impl Clock,
        value: Hits,
        admission: Admission,
    ) -> Option<Counted<'m>> {
        let Admission::Within(limit, algorithm) = admission else {
            return None;
        };
        let (limit, asked) = ((limit, algorithm), (Hits::ZERO, value));
        let (admits, columns) = self.look_at_share(occupant, counter, clock, limit, asked);
        (!admits).then(|| Counted::refused(columns.reading()))
    }

    /// Returns whether this node's share of a limit refuses the cost in `asked`, in addition to the
    /// hits that it has counted, but without those in `asked` that are included already. `false` if
    /// shares do not apply.
    pub(crate) fn refuses_alone(
        &self,
        counter: &Counter,
        key: Key<'_>,
        limit: (Hits, Algorithm),
        asked: (Hits, Hits),
        clock: &impl Clock,
    ) -> bool {
        if !(counter.is_synced && self.is_alone(counter)) {
            return false;
        }
        let occupant = self.find(counter.identity(key));
        occupant.is_some_and(|it| !self.look_at_share(it, counter, clock, limit, asked).0)
    }

    /// Returns whether the share of a limit admits hits; also returns the hits that were counted.
    fn look_at_share(
        &self,
        occupant: Occupant<'m>,
        counter: &Counter,
        clock: &impl Clock,
        (limit, algorithm): (Hits, Algorithm),
        (included, cost): (Hits, Hits),
    ) -> (bool, WindowColumns<'m>) {
        let (size, now) = (counter.size, clock.now());
        if occupant.is_old(size, now) {
            occupant.wake(size, now);
        }
        let columns = WindowColumns::read_ahead(occupant, size, now);
        let before = columns.at.number.wrapping_sub(1);
        let (previous, _) = occupant.slot.local_columns(before);
        let previous = load(previous).hits_of(Stamp::new(before, occupant.meta.generation()));
        let own = WindowCounts::of(columns.at, columns.counted, previous);
        let most = self.share_of(occupant, counter, (limit, algorithm), columns.at.number);
        let own = Reading::from(own).minus(included);
        (algorithm.admits(size, &own, most, cost), columns)
    }

    /// Returns this node's share of a limit in a window, in hits.
    fn share_of(
        &self,
        occupant: Occupant<'m>,
        counter: &Counter,
        (limit, algorithm): (Hits, Algorithm),
        window: u64,
    ) -> Hits {
        let (own, others) = self.last_told(occupant);
        let all = own.plus_at_least_zero(others);
        let product = i128::from(limit.thousandths()).saturating_mul(own.thousandths().into());
        let known = product.checked_div(all.thousandths().into()).unwrap_or_default();
        let known = Hits::from_thousandths(i64::try_from(known).unwrap_or(i64::MAX));
        let nodes = self.entry(counter.namespace).map_or(0, |entry| entry.nodes.load(Relaxed));
        let nodes = NodesWord(nodes);
        let node = (nodes.place(), nodes.count());
        known.max(equal_share(limit, algorithm, node, window))
    }

    /// Returns the store's counts of this node's hits and of the others' hits, in the windows of
    /// its last answer.
    fn last_told(&self, occupant: Occupant<'m>) -> (Hits, Hits) {
        if self.first_part(occupant).is_none() {
            return (Hits::ZERO, Hits::ZERO);
        }
        let parities = [0, 1].into_iter();
        let columns = parities.map(|parity| self.pushed_word(occupant, parity));
        let columns = columns.zip(&occupant.slot.remote);
        columns.fold((Hits::ZERO, Hits::ZERO), |(own, others), (pushed, remote)| {
            let remote = load(remote);
            match is_after(pushed.stamp(), remote.stamp()) {
                // The others' hits of that window do not count any more.
                true => (own, others),
                false => (
                    own.plus_at_least_zero(pushed.hits_of(remote.stamp())),
                    others.plus_at_least_zero(remote.hits()),
                ),
            }
        })
    }

    /// Records that others have no hits in a window whose push was acknowledged, unless their hits
    /// are known.
    pub(super) fn record_alone(&self, occupant: Occupant<'m>, number: u64) {
        let (remote, _) = occupant.slot.remote_columns(number);
        let generation = occupant.meta.generation();
        let (old, stamp) = (load(remote), Stamp::new(number, generation));
        let is_unknown = old == WindowCount::empty(generation) || is_after(stamp, old.stamp());
        if is_unknown && occupant.is_there() {
            let new = WindowCount::new(stamp, Hits::ZERO);
            // If the exchange fails, their hits are known by now.
            let _ = remote.compare_exchange(old.bits(), new.bits(), AcqRel, Acquire);
            fail_point!("share.recorded");
        }
    }
}

/// Returns whether a stamp belongs to a later window than another stamp of the same column.
fn is_after(one: Stamp, other: Stamp) -> bool {
    one.bits().wrapping_sub(other.bits()).cast_signed() > 0
}

impl SyncState<'_> {
    /// Sets whether nodes admit only their shares, as they do while the store is down.
    pub fn set_alone(&self, is_alone: bool) {
        let nodes = &self.entry.nodes;
        match is_alone {
            true => nodes.fetch_or(NodesWord::ALONE, AcqRel),
            false => nodes.fetch_and(!NodesWord::ALONE, AcqRel),
        };
    }
}
