//! A node's state of its sync with a store: pending repair, the store's epoch, the position in its
//! changes, and the identity under which the store knows this node.

use core::num::NonZeroU64;

use crate::policy::fnv::fnv1a;
use crate::policy::reserve::Grants;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::table::words::atomic::Ordering::{AcqRel, Acquire};
use crate::table::words::fail::fail_point;
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::lease::{Lease, LeaseLost};
use crate::table::zone::sync_slot::{
    BatchWord, FETCH_ANEW, FIND_CHANGES, ModeWord, RepairWord, SEND_ANEW, Standing, SyncSlot,
    VOID_RESERVES,
};
use crate::table::zone::sync_state::SyncState;

/// A repair that a namespace needs before it can go on syncing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing.
    None,
    /// A worker stopped in the middle of a sync: look for what changed, in all counters.
    FindChanges,
    /// All that still matters is to be sent anew: the store has nothing of this node.
    SendAnew {
        /// Whether it lost what it had, the charges of reserves included; otherwise, it forgot the node in due time.
        is_lost: bool,
    },
}

impl<'m> Lease<'m> {
    /// Returns the next repair.
    pub fn repair(&self) -> Repair {
        match RepairWord(self.state.slot.repair.load(Acquire)).flags() & !FETCH_ANEW {
            0 => Repair::None,
            flags if flags & SEND_ANEW != 0 => {
                Repair::SendAnew { is_lost: flags & VOID_RESERVES != 0 }
            }
            _ => Repair::FindChanges,
        }
    }

    /// Notes that what had to be done first is done.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn repaired(&self) -> Result<(), LeaseLost> {
        self.replace(&self.state.slot.repair, |word| {
            word & !(FIND_CHANGES | SEND_ANEW | VOID_RESERVES)
        })?;
        fail_point!("sync.repaired");
        Ok(())
    }

    /// Forgets the position if a worker that had lost the lease has applied an answer
    /// ([`Lease::confirm_applied`]), which may be older than what was fetched since. To be called before
    /// the position is looked at.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn fetch_anew_if_due(&self) -> Result<(), LeaseLost> {
        let flags = &self.state.slot.repair;
        if flags.load(Acquire) & FETCH_ANEW != 0 {
            // In this order: if this worker stops in between, it is due still.
            self.set_position(None)?;
            self.replace(flags, |flags| flags & !FETCH_ANEW)?;
        }
        Ok(())
    }

    /// The epoch of the store, as this node knows it; 0 before it does.
    pub fn epoch(&self) -> u64 {
        self.state.slot.epoch.load(Acquire)
    }

    /// Goes over to another epoch, in which the store has nothing of this node yet. All of it is to
    /// be sent anew, of which [`Lease::repair`] will tell.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn enter_epoch(&self, epoch: u64) -> Result<(), LeaseLost> {
        let SyncSlot { repair, batch, position, epoch: current, mode, .. } = self.state.slot;
        let before = BatchWord(batch.load(Acquire));
        let may_be_known = before.acknowledged() != 0 || before.count() != 0;
        let left = Some(self.epoch()).filter(|left| may_be_known && ![0, epoch].contains(left));
        // A store that forgot the node still has what it charged ahead.
        let is_lost = if epoch == self.epoch() { 0 } else { VOID_RESERVES };
        // First: a worker that takes over in between sends anew, in this epoch, or in another one if the store is
        // in the former again.
        self.replace(repair, |word| {
            let word = RepairWord(word);
            left.map_or(word, |left| word.leaving(left)).0 | SEND_ANEW | is_lost
        })?;
        fail_point!("epoch.marked");
        let [first, _] = position;
        self.replace(first, |_| 0)?;
        fail_point!("epoch.position");
        let sealed = BatchWord(batch.load(Acquire));
        self.replace(batch, |_| BatchWord::new(0, self.tag(), 0).0)?;
        fail_point!("epoch.batch");
        self.free_buffer_of(sealed);
        if is_lost != 0 {
            self.replace(mode, |word| match ModeWord(word).is_fetching() {
                true => word,
                false => ModeWord::pushing(Grants::None).0,
            })?;
            fail_point!("epoch.grants");
        }
        self.replace(current, |_| epoch)?;
        fail_point!("epoch.entered");
        Ok(())
    }

    /// Notes that what the store had charged ahead and lost is void here.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn grants_voided(&self) -> Result<(), LeaseLost> {
        self.replace(&self.state.slot.mode, |word| match ModeWord(word).grants() {
            Grants::Lost => ModeWord::pushing(Grants::None).0,
            Grants::None | Grants::UpTo(_) => word,
        })?;
        fail_point!("grants.voided");
        Ok(())
    }

    /// Returns the state of charges that the store made ahead.
    pub fn grants(&self) -> Grants {
        self.state.grants()
    }

    /// Notes that the store has lost what it had charged ahead, where that was `before`.
    pub fn lose_grants(&self, before: Grants) {
        self.state.record_grants(before, Grants::Lost);
    }

    /// Whether this node was in the epoch before, and left it, or was about to. The store may have some
    /// of its batches then, and it is not known any more of which hits.
    pub fn has_left(&self, epoch: u64) -> bool {
        RepairWord(self.state.slot.repair.load(Acquire)).has_left(epoch)
    }

    /// Whether there may be other epochs that were left than [`Lease::has_left`] knows of: some were
    /// forgotten, or another configuration had the sync, which may have had another place for it.
    pub fn may_have_left_more(&self) -> bool {
        let is_full = RepairWord(self.state.slot.repair.load(Acquire)).is_full();
        is_full || self.state.sync_generation > 1
    }

    /// The identity of this node, as far as this sync is concerned: others of the zone may
    /// not have noticed yet that another node has the same identity.
    pub fn node(&self, table: &CounterTable<'m>) -> [u64; 2] {
        self.state.node(table)
    }

    /// Takes another identity, since some other node has this one too: `random`, or that which another
    /// sync of the zone took for that reason. What the store has of this node stays; the batch that is
    /// sealed becomes the first one.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn take_identity(&self, table: &CounterTable<'m>, random: u32) -> Result<(), LeaseLost> {
        let SyncSlot { standing, batch, .. } = self.state.slot;
        let old = Standing(standing.load(Acquire)).identity();
        let new = table.identity_after(old, random);
        fail_point!("identity.taken");
        // In this order: under the old identity, a first batch is not applied either.
        self.replace(batch, |word| {
            let word = BatchWord(word);
            BatchWord::new(0, word.tag(), word.count()).0
        })?;
        fail_point!("identity.batch");
        self.replace(standing, |word| Standing(word).with_identity(new).0)?;
        fail_point!("identity.changed");
        Ok(())
    }

    /// Until when the store knows this node at least.
    pub fn known_until(&self) -> UnixMillis {
        Standing(self.state.slot.standing.load(Acquire)).known_until()
    }

    /// Returns the position up to which this node has seen the store's changes; `None` if it has to
    /// fetch everything.
    pub fn position(&self) -> Option<[u64; 2]> {
        let [first, second] = self.state.slot.position.each_ref();
        let first = first.load(Acquire).checked_sub(1)?;
        Some([first, second.load(Acquire)])
    }

    /// Notes how far this node has seen the store's changes.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn set_position(&self, position: Option<[u64; 2]>) -> Result<(), LeaseLost> {
        let [first, second] = &self.state.slot.position;
        // Not half of the old and half of the new one.
        self.replace(first, |_| 0)?;
        fail_point!("sync.position.left");
        if let Some([one, two]) = position {
            self.replace(second, |_| two)?;
            fail_point!("sync.position.second");
            self.replace(first, |_| one.saturating_add(1))?;
            fail_point!("sync.position.first");
        }
        self.confirm_applied()
    }

    /// Notes which windows are fetched, by their `sizes`: if they were others, what was fetched up to
    /// the position is not enough.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn set_windows(&self, sizes: impl Iterator<Item = WindowSize>) -> Result<(), LeaseLost> {
        let new = ModeWord::fetching(fnv1a(sizes.map(WindowSize::millis)));
        let mode = &self.state.slot.mode;
        if mode.load(Acquire) != new.0 {
            self.set_position(None)?;
            self.replace(mode, |_| new.0)?;
        }
        Ok(())
    }

    /// Notes that nothing is fetched, since the store decides: what was fetched before has to be again when it is of use.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn set_pushing_only(&self) -> Result<(), LeaseLost> {
        let mode = &self.state.slot.mode;
        if ModeWord(mode.load(Acquire)).is_fetching() {
            self.set_position(None)?;
            self.replace(mode, |_| ModeWord::pushing(Grants::None).0)?;
        }
        Ok(())
    }

    /// Confirms that a store's answer was applied to the counters under this lease: to be called after
    /// that.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] if another worker has taken the lease meanwhile: the answer may be older than what that
    /// one applied. So this marks the sync, and the node fetches everything once more.
    pub fn confirm_applied(&self) -> Result<(), LeaseLost> {
        if self.is_held() {
            return Ok(());
        }
        // Not the position itself: the lease's holder may be about to write a later one.
        self.state.slot.repair.fetch_or(FETCH_ANEW, AcqRel);
        Err(LeaseLost)
    }
}

impl<'m> SyncState<'m> {
    /// The epoch that the store is in, and up to where this node has seen its changes, as they were at one
    /// moment. `None` before it has.
    pub fn reach(&self) -> Option<(NonZeroU64, [u64; 2])> {
        let [first, second] = self.slot.position.each_ref();
        let before = first.load(Acquire);
        let (epoch, second) = (self.slot.epoch.load(Acquire), second.load(Acquire));
        // It is 0 in between, before either of the two is changed.
        let is_at_once = first.load(Acquire) == before;
        let position = [before.checked_sub(1)?, second];
        NonZeroU64::new(epoch).filter(|_| is_at_once).map(|epoch| (epoch, position))
    }

    /// The identity of this node, as [`Lease::node`] tells it.
    pub fn node(&self, table: &CounterTable<'m>) -> [u64; 2] {
        table.node_of(Standing(self.slot.standing.load(Acquire)).identity())
    }

    /// Has the next holder of the lease fetch everything, whatever the node's position is.
    pub fn fetch_anew(&self) {
        self.slot.repair.fetch_or(FETCH_ANEW, AcqRel);
    }
}
