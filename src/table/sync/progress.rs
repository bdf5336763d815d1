//! A node's state of its sync with a store: the pending repair, the store's epoch, the position in
//! the store's changes, and the identity under which the store knows the node.

use core::num::NonZeroU64;

use crate::policy::fnv::fnv1a;
use crate::policy::reserve::Grants;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::table::words::atomic::Ordering::{AcqRel, Acquire};
use crate::table::words::fail::fail_point;
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::lease::{Lease, LeaseLost};
use crate::table::zone::sync_slot::{
    AHEAD, BatchWord, FETCH_ANEW, FIND_CHANGES, ModeWord, RepairWord, SEND_ANEW, Standing,
    SyncSlot, VOID_RESERVES,
};
use crate::table::zone::sync_state::SyncState;

/// A repair that a namespace needs before its next sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// No repair.
    None,
    /// A worker stopped during a sync, so all counters must be checked for changes.
    FindChanges,
    /// The store has no hits of this node, so all that still matter must be sent again.
    SendAnew {
        /// Whether the store lost its data, including the charges of reserves. Otherwise it removed
        /// the node after its time.
        is_lost: bool,
    },
}

impl<'m> Lease<'m> {
    /// Returns the next repair.
    pub fn repair(&self) -> Repair {
        let flags = RepairWord(self.state.slot.repair.load(Acquire)).flags();
        if flags & SEND_ANEW != 0 {
            Repair::SendAnew { is_lost: flags & VOID_RESERVES != 0 }
        } else if flags & FIND_CHANGES != 0 {
            Repair::FindChanges
        } else {
            Repair::None
        }
    }

    /// Records that the repair is done.
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

    /// Clears the position if a worker that had lost the lease has applied an answer
    /// ([`Lease::confirm_applied`]), which may be older than later ones. To be called before the
    /// position is read.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn fetch_anew_if_due(&self) -> Result<(), LeaseLost> {
        let flags = &self.state.slot.repair;
        if flags.load(Acquire) & FETCH_ANEW != 0 {
            // In this order, so that the mark stays if this worker stops in between.
            self.set_position(None)?;
            self.replace(flags, |flags| flags & !FETCH_ANEW)?;
        }
        Ok(())
    }

    /// Returns the store's epoch; 0 while it is unknown.
    pub fn epoch(&self) -> u64 {
        self.state.slot.epoch.load(Acquire)
    }

    /// Enters another epoch, in which the store has no hits of this node. All hits must be sent
    /// again, as [`Lease::repair`] then returns.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn enter_epoch(&self, epoch: u64) -> Result<(), LeaseLost> {
        let SyncSlot { repair, batch, position, epoch: current, mode, .. } = self.state.slot;
        let before = BatchWord(batch.load(Acquire));
        let may_be_known = before.acknowledged() != 0 || before.count() != 0;
        let left = Some(self.epoch()).filter(|left| may_be_known && ![0, epoch].contains(left));
        // In the same epoch, the store has only removed the node, and still has its charges.
        let is_lost = if epoch == self.epoch() { 0 } else { VOID_RESERVES };
        // First, so that a worker that takes over in between sends all hits again, in this epoch,
        // or in another one if the store is in the former again.
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

    /// Records that the charges which the store has lost are voided here.
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

    /// Returns the state of the store's charges for reserves.
    pub fn grants(&self) -> Grants {
        self.state.grants()
    }

    /// Records that the store has lost its charges for reserves, if their state is `before`.
    pub fn lose_grants(&self, before: Grants) {
        self.state.record_grants(before, Grants::Lost);
    }

    /// Returns whether this node was in that epoch before and left it, or was about to. The store
    /// may then have some of its batches, but the node does not know which hits they contain.
    pub fn has_left(&self, epoch: u64) -> bool {
        RepairWord(self.state.slot.repair.load(Acquire)).has_left(epoch)
    }

    /// Returns whether there may be more left epochs than [`Lease::has_left`] knows: some were
    /// dropped, or another configuration synced and may have used another slot.
    pub fn may_have_left_more(&self) -> bool {
        let is_full = RepairWord(self.state.slot.repair.load(Acquire)).is_full();
        is_full || self.state.sync_generation > 1
    }

    /// Returns the identity of this node in this sync. Other syncs of the zone may not know yet
    /// that another node has the same identity.
    pub fn node(&self, table: &CounterTable<'m>) -> [u64; 2] {
        self.state.node(table)
    }

    /// Takes another identity, since another node has this one too. It is `random`, or the one that
    /// another sync of the zone took for that reason. The hits that the store has of this node
    /// stay; the sealed batch becomes the first one.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn take_identity(&self, table: &CounterTable<'m>, random: u32) -> Result<(), LeaseLost> {
        let SyncSlot { standing, batch, .. } = self.state.slot;
        let old = Standing(standing.load(Acquire)).identity();
        let new = table.identity_after(old, random);
        fail_point!("identity.taken");
        // In this order: the store does not apply a first batch under the old identity, either.
        self.replace(batch, |word| {
            let word = BatchWord(word);
            BatchWord::new(0, word.tag(), word.count()).0
        })?;
        fail_point!("identity.batch");
        self.replace(standing, |word| Standing(word).with_identity(new).0)?;
        fail_point!("identity.changed");
        Ok(())
    }

    /// Returns the time until which the store knows this node at least.
    pub fn known_until(&self) -> UnixMillis {
        Standing(self.state.slot.standing.load(Acquire)).known_until()
    }

    /// Returns the position up to which this node has read the store's changes; `None` if it must
    /// fetch everything.
    pub fn position(&self) -> Option<[u64; 2]> {
        let [first, second] = self.state.slot.position.each_ref();
        let first = first.load(Acquire).checked_sub(1)?;
        Some([first, second.load(Acquire)])
    }

    /// Sets the position up to which this node has read the store's changes.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn set_position(&self, position: Option<[u64; 2]>) -> Result<(), LeaseLost> {
        let [first, second] = &self.state.slot.position;
        // Cleared first, so that no reader combines the old and the new words.
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

    /// Records that the store has acknowledged hits of this node, in changes that may be after the position. To be
    /// called before the hits are recorded as pushed.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn run_ahead(&self) -> Result<(), LeaseLost> {
        self.replace(&self.state.slot.repair, |word| word | AHEAD)?;
        fail_point!("sync.ahead");
        Ok(())
    }

    /// Sets the position like [`Lease::set_position`], to one up to which the store has all acknowledged hits of this
    /// node.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn catch_up(&self, position: [u64; 2]) -> Result<(), LeaseLost> {
        self.set_position(Some(position))?;
        self.replace(&self.state.slot.repair, |word| word & !AHEAD)?;
        fail_point!("sync.caught_up");
        Ok(())
    }

    /// Records the `sizes` of the fetched windows. Clears the position if they have changed, since
    /// the windows fetched so far are then incomplete.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn set_windows(&self, sizes: impl Iterator<Item = WindowSize>) -> Result<(), LeaseLost> {
        let new = ModeWord::fetching(fnv1a(sizes.map(WindowSize::bits)));
        let mode = &self.state.slot.mode;
        if mode.load(Acquire) != new.0 {
            self.set_position(None)?;
            self.replace(mode, |_| new.0)?;
            fail_point!("mode.fetching");
        }
        Ok(())
    }

    /// Records that nothing is fetched, since the store decides. A later sync that fetches starts
    /// again.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn set_pushing_only(&self) -> Result<(), LeaseLost> {
        let mode = &self.state.slot.mode;
        if ModeWord(mode.load(Acquire)).is_fetching() {
            self.set_position(None)?;
            self.replace(mode, |_| ModeWord::pushing(Grants::None).0)?;
            fail_point!("mode.pushing");
        }
        Ok(())
    }

    /// Confirms that a store's answer was applied to the counters under this lease. To be called
    /// afterwards.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] if another worker has taken the lease. It may have applied a newer answer
    /// before, so this marks the sync, and the node fetches everything again.
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
    /// Returns the store's epoch and the position up to which this node has read its changes, as of
    /// one moment. `None` before there is a position.
    pub fn reach(&self) -> Option<(NonZeroU64, [u64; 2])> {
        let [first, second] = self.slot.position.each_ref();
        let before = first.load(Acquire);
        let (epoch, second) = (self.slot.epoch.load(Acquire), second.load(Acquire));
        // The first word is 0 while either of the two changes.
        let is_at_once = first.load(Acquire) == before;
        let position = [before.checked_sub(1)?, second];
        NonZeroU64::new(epoch).filter(|_| is_at_once).map(|epoch| (epoch, position))
    }

    /// Returns whether the store may have acknowledged hits of this node in changes after the position.
    pub fn is_ahead(&self) -> bool {
        RepairWord(self.slot.repair.load(Acquire)).flags() & AHEAD != 0
    }

    /// Returns the identity of this node, as [`Lease::node`] does.
    pub fn node(&self, table: &CounterTable<'m>) -> [u64; 2] {
        table.node_of(Standing(self.slot.standing.load(Acquire)).identity())
    }

    /// Makes the next holder of the lease fetch everything.
    pub fn fetch_anew(&self) {
        self.slot.repair.fetch_or(FETCH_ANEW, AcqRel);
    }
}
