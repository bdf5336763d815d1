//! What a node knows of its sync with a store, for each namespace and shard: who syncs now, the batch
//! that is on its way, and what the store has acknowledged.
//!
//! All of it is in shared memory, so that whoever takes over from a worker that was killed goes on
//! where that one stopped. A worker that was only stopped, and wakes when another has taken over,
//! changes nothing any more: every write is a compare-and-swap from a value that was read before the
//! lease was looked at, as in [`claim`](super::claim), and who takes over changes every word in
//! turn before it relies on it, since its term is part of the words.

use super::CounterTable;
use super::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use super::buffers::{BufferWord, Buffers, MAX_RECORDS};
use super::changes::CounterRef;
use super::fail::fail_point;
use super::layout::{DirectoryEntry, Record, SyncSlot};
use super::meta::NamespaceIndex;
use super::stats::{Cycle, SyncLine, SyncStats};
use super::word::{Stamp, WindowCount};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};

/// Milliseconds of a clock that nobody sets: the time since the machine started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MonotonicMillis(pub u64);

/// The sync of one namespace and shard with its store.
#[derive(Clone, Copy, Debug)]
pub struct SyncState<'m> {
    slot: &'m SyncSlot,
    /// The number of the slot.
    index: usize,
    /// The namespace.
    entry: &'m DirectoryEntry,
    line: &'m SyncLine,
    buffers: Buffers<'m>,
    /// The configuration that this is of.
    sync_generation: u64,
}

/// The right to sync, until it is lost: [`SyncState::take_lease`].
#[derive(Debug)]
pub struct Lease<'m> {
    state: SyncState<'m>,
    term: u64,
}

/// Somebody else syncs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLost;

/// One window of a counter in a batch: the hits that the store gets, and how many of this node's it
/// has with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    /// The counter.
    pub counter: CounterRef,
    /// The number of the window.
    pub window: u64,
    /// What the store has of this node's hits once it has the batch.
    pub up_to: Hits,
    /// What the store is sent; negative if hits were given back.
    pub diff: Hits,
}

/// What tells one of this node's batches from all others of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchName {
    /// Its number, from 1; 0: what was before the first one.
    pub number: u64,
    /// 24 random bits.
    pub nonce: u32,
}

/// What has to be done before a namespace can go on syncing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing.
    None,
    /// Somebody stopped in the middle of a sync: look for what changed, in all counters.
    FindChanges,
    /// The store lost what it had: all that still matters is to be sent anew.
    SendAnew,
}

const FIND_CHANGES: u64 = 1;
const SEND_ANEW: u64 = 2;
/// Somebody who had lost the lease has noted what the store said: [`Lease::fetch_anew_if_due`].
const FETCH_ANEW: u64 = 4;

/// A lease's word: the term, then the time at which it ends, 0 if it was given back.
#[derive(Clone, Copy)]
pub(super) struct LeaseWord(pub(super) u64);

impl LeaseWord {
    const DEADLINE_BITS: u32 = 40;
    pub(super) const TERM_BITS: u32 = 64 - Self::DEADLINE_BITS;

    fn new(term: u64, deadline: u64) -> LeaseWord {
        let deadline = deadline & ((1 << Self::DEADLINE_BITS) - 1);
        LeaseWord(term << Self::DEADLINE_BITS | deadline)
    }

    pub(super) fn term(self) -> u64 {
        self.0 >> Self::DEADLINE_BITS
    }

    fn deadline(self) -> u64 {
        self.0 & ((1 << Self::DEADLINE_BITS) - 1)
    }
}

/// The word of the batches: how many the store has acknowledged, and of the next one, once it is
/// sealed, the tag of its records and their number; before, the tag of the lease's term.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchWord(pub(super) u64);

impl BatchWord {
    const COUNT_BITS: u32 = 12;
    const TAG_BITS: u32 = 16;

    fn new(acknowledged: u64, tag: u16, count: usize) -> BatchWord {
        let tag = u64::from(tag) << Self::COUNT_BITS;
        let number = acknowledged << (Self::COUNT_BITS + Self::TAG_BITS);
        BatchWord(number | tag | count as u64)
    }

    fn acknowledged(self) -> u64 {
        self.0 >> (Self::COUNT_BITS + Self::TAG_BITS)
    }

    pub(super) fn tag(self) -> u16 {
        (self.0 >> Self::COUNT_BITS) as u16
    }

    /// The number of records; 0: no batch is sealed.
    pub(super) fn count(self) -> usize {
        (self.0 & ((1 << Self::COUNT_BITS) - 1)) as usize
    }
}

/// The word of the nonces: of the last batch with an even number and of the last one with an odd
/// number, each acknowledged or sealed; and the term in which it was written.
#[derive(Clone, Copy)]
struct Nonces(u64);

impl Nonces {
    const NONCE_BITS: u32 = 24;
    const MASK: u64 = (1 << Self::NONCE_BITS) - 1;

    fn shift(number: u64) -> u32 {
        match number.is_multiple_of(2) {
            true => 0,
            false => Self::NONCE_BITS,
        }
    }

    fn of(self, number: u64) -> u32 {
        match number {
            0 => 0,
            _ => (self.0 >> Self::shift(number) & Self::MASK) as u32,
        }
    }

    fn with(self, number: u64, nonce: u32, tag: u16) -> Nonces {
        let shift = Self::shift(number);
        let other = self.0 & (Self::MASK << Self::shift(number.wrapping_add(1)));
        let tag = u64::from(tag) << (2 * Self::NONCE_BITS);
        Nonces(tag | other | (u64::from(nonce) & Self::MASK) << shift)
    }
}

/// The word of the repairs: flags of what has to be done, and above them the epochs that were left, 16
/// bits of each, the last one lowest. Another epoch that looks alike is given up needlessly, which
/// costs little.
#[derive(Clone, Copy)]
struct RepairWord(u64);

impl RepairWord {
    const BITS: u32 = 16;
    const FLAGS: u64 = (1 << Self::BITS) - 1;

    fn flags(self) -> u64 {
        self.0 & Self::FLAGS
    }

    fn bits_of(epoch: u64) -> u64 {
        // Well mixed, and not 0.
        (epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48).max(1)
    }

    fn has_left(self, epoch: u64) -> bool {
        let bits = Self::bits_of(epoch);
        [16, 32, 48]
            .iter()
            .any(|shift| self.0 >> shift & Self::FLAGS == bits)
    }

    /// Without the epoch that was left first, if there is no room for all.
    fn leaving(self, epoch: u64) -> RepairWord {
        if self.has_left(epoch) {
            return self;
        }
        let before = self.0 & !Self::FLAGS;
        let left = before << Self::BITS | Self::bits_of(epoch) << Self::BITS;
        RepairWord(left | self.flags())
    }

    /// Whether there may be more epochs that were left than are known.
    fn is_full(self) -> bool {
        self.0 >> 48 != 0
    }
}

/// The word of how this node stands with the store: its identity, and until when that is known to it,
/// in Unix seconds. Half a word each.
#[derive(Clone, Copy)]
struct Standing(u64);

impl Standing {
    fn identity(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn with_identity(self, identity: u32) -> Standing {
        Standing(u64::from(identity) << 32 | u64::from(self.0 as u32))
    }

    fn known_until(self) -> UnixMillis {
        UnixMillis(u64::from(self.0 as u32).saturating_mul(1000))
    }

    /// Of the first batch, what was before does not matter.
    fn known(self, is_first: bool, UnixMillis(until): UnixMillis) -> Standing {
        let until = u32::try_from(until / 1000).unwrap_or(u32::MAX);
        let before = if is_first { 0 } else { self.0 as u32 };
        Standing(u64::from(self.identity()) << 32 | u64::from(until.max(before)))
    }
}

/// The word of the zone's identity: the present one, and the last one of which the log was told.
#[derive(Clone, Copy)]
struct IdentityWord(u64);

impl IdentityWord {
    fn new(present: u32, told: u32) -> IdentityWord {
        IdentityWord(u64::from(told) << 32 | u64::from(present))
    }

    fn present(self) -> u32 {
        self.0 as u32
    }

    fn told(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

const _: () = assert!(MAX_RECORDS < 1 << BatchWord::COUNT_BITS);

impl<'m> CounterTable<'m> {
    /// What tells this node from all others: random, and the same as long as the zone lives, unless
    /// another node turns out to have it too ([`Lease::take_identity`]).
    pub fn node(&self) -> [u64; 2] {
        self.node_of(IdentityWord(self.parts.identity.load(Acquire)).present())
    }

    fn node_of(&self, identity: u32) -> [u64; 2] {
        const NODE: u8 = 255;
        let [high, low] = self.hasher.mask(b"node", NODE, 0).0;
        [high ^ u64::from(identity), low]
    }

    /// Whether this node has another identity since this was last asked, by any worker: then this one
    /// is to tell.
    pub fn note_identity(&self) -> bool {
        let tell = |word| {
            let word = IdentityWord(word);
            let is_news = word.present() != word.told();
            is_news.then(|| IdentityWord::new(word.present(), word.present()).0)
        };
        let told = self.parts.identity.fetch_update(AcqRel, Acquire, tell);
        told.is_ok()
    }

    /// The identity that is taken in place of `old`: `random`, unless there is another one by now.
    fn identity_after(&self, old: u32, random: u32) -> u32 {
        let take = |word| {
            let word = IdentityWord(word);
            let is_old = word.present() == old;
            is_old.then(|| IdentityWord::new(random, word.told()).0)
        };
        match self.parts.identity.fetch_update(AcqRel, Acquire, take) {
            Ok(_) => random,
            Err(word) => IdentityWord(word).present(),
        }
    }

    /// The sync of `namespace` under a new configuration, in as many shards as its store has: from now
    /// on, nobody of an older one takes a lease of it. Shards that it has no more are begun anew
    /// should it have them again: what they know is of another store.
    ///
    /// `None` if the zone has no room for them beside those of this configuration's other
    /// namespaces; there is for those of [`ZoneRoom`](super::ZoneRoom) at least.
    pub fn sync_states(
        &self,
        namespace: NamespaceIndex,
        shards: u16,
    ) -> Option<Vec<SyncState<'m>>> {
        let (entry, line) = self.sync_of(namespace)?;
        entry.synced.store(self.configuration(), Relaxed);
        self.release_shards(namespace, shards);
        let sync_generation = entry.sync_generation.fetch_add(1, AcqRel).wrapping_add(1);
        let slots = self.slots_of(namespace, shards)?;
        let states = slots.into_iter().map(|(index, slot)| {
            slot.synced.store(0, Relaxed);
            SyncState {
                slot,
                index,
                entry,
                line,
                buffers: Buffers::of(&self.parts),
                sync_generation,
            }
        });
        Some(states.collect())
    }

    fn sync_of(&self, namespace: NamespaceIndex) -> Option<(&'m DirectoryEntry, &'m SyncLine)> {
        let lines: &'m [SyncLine] = self.parts.sync_lines;
        Some((self.entry(namespace)?, lines.get(namespace.get())?))
    }

    /// The slots of the first `shards` shards of a namespace, which gets those that it has not.
    fn slots_of(
        &self,
        namespace: NamespaceIndex,
        shards: u16,
    ) -> Option<Vec<(usize, &'m SyncSlot)>> {
        loop {
            let (mut own, mut free) = (vec![None; shards.into()], Vec::new());
            for (index, slot) in self.slots() {
                match slot.owner() {
                    Some((owner, shard)) if owner == namespace => {
                        if let Some(own) = own.get_mut(usize::from(shard)) {
                            *own = Some((index, slot));
                        }
                    }
                    Some(_) => {}
                    None => free.push((index, slot)),
                }
            }
            let missing = own.iter().filter(|own| own.is_none()).count();
            if missing > free.len() {
                self.release_oldest()?;
                continue;
            }
            let mut free = free.into_iter();
            for (shard, own) in (0..shards).zip(&mut own) {
                if own.is_none() {
                    *own = free.next();
                    let slot = own.map(|(_, slot)| slot);
                    slot?.owner.store(owner_word(namespace, shard), Release);
                    fail_point!("sync.owned");
                }
            }
            return own.into_iter().collect();
        }
    }

    fn slots(&self) -> impl Iterator<Item = (usize, &'m SyncSlot)> {
        let slots: &'m [SyncSlot] = self.parts.sync_slots;
        slots.iter().enumerate()
    }

    /// Releases the shards of the namespace that was not synced for the longest time, if there is one
    /// that this configuration does not sync.
    fn release_oldest(&self) -> Option<()> {
        let owners = self.slots().filter_map(|(_, slot)| slot.owner());
        let synced = owners.filter_map(|(owner, _)| {
            let synced = self.entry(owner)?.synced.load(Relaxed);
            (synced < self.configuration()).then_some((synced, owner))
        });
        let (_, oldest) = synced.min_by_key(|(synced, _)| *synced)?;
        self.release_shards(oldest, 0);
        Some(())
    }

    /// Releases the slots of a namespace but those of its first `shards` shards. Workers of the
    /// configurations before, which would go on with the former store, take its leases no more.
    pub(super) fn release_shards(&self, namespace: NamespaceIndex, shards: u16) {
        let is_beyond = |slot: &SyncSlot| {
            let owner = slot.owner();
            owner.is_some_and(|(owner, shard)| owner == namespace && shard >= shards)
        };
        let mut beyond = self.slots().filter(|(_, slot)| is_beyond(slot)).peekable();
        if beyond.peek().is_some() {
            // First: see `SyncState::take_lease`.
            let entry = self.entry(namespace);
            entry.inspect(|entry| {
                entry.sync_generation.fetch_add(1, AcqRel);
            });
            fail_point!("sync.superseded");
        }
        for (_, slot) in beyond {
            slot.begin_anew();
            slot.owner.store(0, Release);
            fail_point!("sync.disowned");
        }
    }
}

/// The owner of a slot: one more than the namespace's index and the shard.
fn owner_word(namespace: NamespaceIndex, shard: u16) -> u64 {
    (u64::from(namespace.0) << 16 | u64::from(shard)).wrapping_add(1)
}

impl SyncSlot {
    /// Whose the slot is.
    fn owner(&self) -> Option<(NamespaceIndex, u16)> {
        let owner = self.owner.load(Acquire).checked_sub(1)?;
        Some((NamespaceIndex((owner >> 16) as u16), owner as u16))
    }

    /// Forgets the store. Whoever has the lease has lost it.
    fn begin_anew(&self) {
        let next_term = |word| {
            let term = LeaseWord(word).term().wrapping_add(1);
            Some(LeaseWord::new(term, 0).0)
        };
        // Cannot fail: there is always a next term.
        let _ = self.lease.fetch_update(AcqRel, Acquire, next_term);
        fail_point!("sync.ended");
        // What the last holder was about to seal stays unsealed.
        let tag = LeaseWord(self.lease.load(Acquire)).term() as u16;
        let no_batch = BatchWord::new(0, tag, 0).0;
        let [position, _] = &self.position;
        for (word, value) in [
            (position, 0),
            (&self.batch, no_batch),
            (&self.epoch, 0),
            (&self.repair, 0),
            (&self.synced, 0),
        ] {
            word.store(value, Release);
            fail_point!("sync.forgotten");
        }
    }
}

impl<'m> SyncState<'m> {
    /// Whether there is a newer configuration, whose workers sync now.
    pub fn is_superseded(&self) -> bool {
        self.entry.sync_generation.load(Acquire) != self.sync_generation
    }

    /// Takes the lease for `lifetime` milliseconds, if nobody has it at `now`, and this is the newest
    /// configuration.
    pub fn take_lease(&self, now: MonotonicMillis, lifetime: u64) -> Option<Lease<'m>> {
        let word = &self.slot.lease;
        let old = LeaseWord(word.load(Acquire));
        // After the lease was looked at: where a slot is released, the generation changes first, then
        // the lease, so that either this sees it or the swap fails.
        if self.is_superseded() || old.deadline() > now.0 {
            return None;
        }
        let term = LeaseWord::new(old.term().wrapping_add(1), 0).term();
        let new = LeaseWord::new(term, now.0.saturating_add(lifetime));
        word.compare_exchange(old.0, new.0, AcqRel, Relaxed).ok()?;
        fail_point!("lease.taken");
        if old.deadline() != 0 {
            // It was not given back: what its holder had taken of the changes is lost with it.
            self.slot.repair.fetch_or(FIND_CHANGES, AcqRel);
            fail_point!("lease.marked");
        }
        let lease = Lease { state: *self, term };
        // From now on nobody else's swap of this word succeeds.
        let adopt = |word| match BatchWord(word) {
            batch if batch.count() == 0 => BatchWord::new(batch.acknowledged(), lease.tag(), 0).0,
            _ => word,
        };
        lease.replace(&self.slot.batch, adopt).ok()?;
        fail_point!("lease.adopted");
        Some(lease)
    }

    /// Has the lease end at `now`, whoever has it, as if its holder had not come back in time.
    pub fn end_lease(&self, now: MonotonicMillis) {
        let word = &self.slot.lease;
        let old = LeaseWord(word.load(Acquire));
        if old.deadline() > now.0 {
            let new = LeaseWord::new(old.term(), now.0);
            // If it was renewed, taken or given back in this moment, its holder is alive.
            let _ = word.compare_exchange(old.0, new.0, AcqRel, Relaxed);
        }
    }

    /// How many records the batch has that is sealed, and may be on its way; 0: there is none.
    pub fn sealed_records(&self) -> usize {
        BatchWord(self.slot.batch.load(Acquire)).count()
    }

    /// Notes an exchange with the store, which took so many microseconds, for [`SyncState::stats`].
    pub fn count_exchange(&self, micros: u64) {
        self.line.exchanged(micros);
    }

    /// Notes that so many connections to the store were made.
    pub fn count_connects(&self, connects: u64) {
        self.line.connected(connects);
    }

    /// Notes what came of a cycle, for [`SyncState::stats`].
    pub fn count_cycle(&self, cycle: &Cycle) {
        self.line.count(cycle);
    }

    /// What came of all cycles so far, whoever did them.
    pub fn stats(&self) -> SyncStats {
        self.line.stats()
    }

    /// How many milliseconds ago, at `now`, the last sync of this node that ended well began.
    pub fn since_sync(&self, now: MonotonicMillis) -> u64 {
        now.0.saturating_sub(self.slot.synced.load(Relaxed))
    }
}

impl<'m> Lease<'m> {
    /// Keeps the lease for `lifetime` milliseconds from `now` on.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] if another has taken it.
    pub fn renew(&self, now: MonotonicMillis, lifetime: u64) -> Result<(), LeaseLost> {
        let new = LeaseWord::new(self.term, now.0.saturating_add(lifetime));
        self.replace(&self.state.slot.lease, |_| new.0)
    }

    /// Gives the lease back.
    pub fn release(self) {
        // Before: later, it is the next holder's.
        self.free_buffer();
        let released = LeaseWord::new(self.term, 0);
        // If it is lost, there is nothing to give back.
        let _ = self.replace(&self.state.slot.lease, |_| released.0);
        fail_point!("lease.released");
    }

    /// Notes which process has the lease, for [`SyncState::stats`].
    pub fn note_holder(&self, process: u32) {
        self.state.line.held_by(process);
    }

    /// Notes that a sync that began at `start` has ended well.
    pub fn note_synced(&self, start: MonotonicMillis) {
        self.state.slot.synced.store(start.0, Relaxed);
    }

    /// Whether nobody else has taken the lease.
    fn is_held(&self) -> bool {
        LeaseWord(self.state.slot.lease.load(Acquire)).term() == self.term
    }

    /// Replaces a word while the lease is held.
    fn replace(&self, word: &AtomicU64, new: impl Fn(u64) -> u64) -> Result<(), LeaseLost> {
        loop {
            // Before the lease is looked at: see above.
            let old = word.load(Acquire);
            if !self.is_held() {
                return Err(LeaseLost);
            }
            if word
                .compare_exchange(old, new(old), AcqRel, Relaxed)
                .is_ok()
            {
                return Ok(());
            }
        }
    }

    /// What tells this term's records from those of others.
    fn tag(&self) -> u16 {
        self.term as u16
    }

    /// What has to be done first.
    pub fn repair(&self) -> Repair {
        match RepairWord(self.state.slot.repair.load(Acquire)).flags() & !FETCH_ANEW {
            0 => Repair::None,
            flags if flags & SEND_ANEW != 0 => Repair::SendAnew,
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
            word & !(FIND_CHANGES | SEND_ANEW)
        })?;
        fail_point!("sync.repaired");
        Ok(())
    }

    /// To be called before the position is looked at: forgets it, if somebody who had lost the lease
    /// has noted totals ([`Lease::confirm_applied`]), which may be older than what was fetched since.
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
        let SyncSlot {
            repair,
            batch,
            position,
            epoch: current,
            ..
        } = self.state.slot;
        let before = BatchWord(batch.load(Acquire));
        let may_be_known = before.acknowledged() != 0 || before.count() != 0;
        let left = Some(self.epoch()).filter(|left| may_be_known && ![0, epoch].contains(left));
        // First: who takes over in between sends anew, in this epoch, or in another one if the store is
        // in the former again.
        self.replace(repair, |word| {
            let word = RepairWord(word);
            left.map_or(word, |left| word.leaving(left)).0 | SEND_ANEW
        })?;
        fail_point!("epoch.marked");
        let [first, _] = position;
        self.replace(first, |_| 0)?;
        fail_point!("epoch.position");
        let sealed = BatchWord(batch.load(Acquire));
        self.replace(batch, |_| BatchWord::new(0, self.tag(), 0).0)?;
        fail_point!("epoch.batch");
        self.free_buffer_of(sealed);
        self.replace(current, |_| epoch)?;
        fail_point!("epoch.entered");
        Ok(())
    }

    /// Whether this node was in the epoch before, and left it, or was about to. The store may have some
    /// of its batches then, and nobody knows any more of which hits.
    pub fn has_left(&self, epoch: u64) -> bool {
        RepairWord(self.state.slot.repair.load(Acquire)).has_left(epoch)
    }

    /// Whether there may be other epochs that were left than [`Lease::has_left`] knows of: some were
    /// forgotten, or another configuration had the sync, which may have had another place for it.
    pub fn may_have_left_more(&self) -> bool {
        let is_full = RepairWord(self.state.slot.repair.load(Acquire)).is_full();
        is_full || self.state.sync_generation > 1
    }

    /// What tells this node from all others, as far as this sync is concerned: others of the zone may
    /// not have noticed yet that another node has the same identity.
    pub fn node(&self, table: &CounterTable<'m>) -> [u64; 2] {
        table.node_of(Standing(self.state.slot.standing.load(Acquire)).identity())
    }

    /// Takes another identity, since some other node has this one too: `random`, or that which another
    /// sync of the zone took for that reason. What the store has of this node stays; the batch that is
    /// sealed becomes the first one.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn take_identity(&self, table: &CounterTable<'m>, random: u32) -> Result<(), LeaseLost> {
        let SyncSlot {
            standing, batch, ..
        } = self.state.slot;
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

    /// How far this node has seen the store's changes; `None` if it has to fetch everything.
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
        // FNV-1a, by words.
        let hash = sizes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, size| {
            (hash ^ size.millis()).wrapping_mul(0x100_0000_01b3)
        });
        let windows = &self.state.slot.windows;
        if windows.load(Acquire) != hash {
            self.set_position(None)?;
            self.replace(windows, |_| hash)?;
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
        // Not the position itself: who has the lease may be about to write a later one.
        self.state.slot.repair.fetch_or(FETCH_ANEW, AcqRel);
        Err(LeaseLost)
    }

    /// The last batch that the store has acknowledged in this epoch.
    pub fn acknowledged(&self) -> BatchName {
        self.batch_name(BatchWord(self.state.slot.batch.load(Acquire)).acknowledged())
    }

    fn batch_name(&self, number: u64) -> BatchName {
        let nonces = Nonces(self.state.slot.nonces.load(Acquire));
        BatchName {
            number,
            nonce: nonces.of(number),
        }
    }

    /// The most records that the next batch may have: one at least. While no batch is sealed.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn batch_capacity(&self) -> Result<usize, LeaseLost> {
        let (records, _) = self.room()?;
        Ok(records.len().min(MAX_RECORDS))
    }

    /// Where the next batch is to be written down, and the tag of its records.
    fn room(&self) -> Result<(&'m [Record], u16), LeaseLost> {
        let SyncState {
            slot,
            index,
            buffers,
            ..
        } = self.state;
        let claimed = match self.claimed_buffer() {
            Some(claimed) => Some(claimed),
            None => {
                let claimed = buffers.claim(index, self.term);
                let word = BufferWord::new(claimed.map(|(buffer, _)| buffer), self.tag());
                self.replace(&slot.buffer, |_| word.0)?;
                fail_point!("buffer.noted");
                claimed
            }
        };
        let records = claimed.and_then(|(buffer, claim)| Some((buffers.records(buffer)?, claim)));
        Ok(records.unwrap_or((core::slice::from_ref(&slot.inline), self.tag())))
    }

    /// The buffer that was claimed in this term, and the number of the claim.
    fn claimed_buffer(&self) -> Option<(usize, u16)> {
        let SyncState {
            slot,
            index,
            buffers,
            ..
        } = self.state;
        let word = BufferWord(slot.buffer.load(Acquire));
        let buffer = word.buffer().filter(|_| word.tag() == self.tag())?;
        Some((buffer, buffers.claim_of(buffer, index, self.term)?))
    }

    /// Gives the buffer back that was claimed in this term, if no batch in it is sealed.
    fn free_buffer(&self) {
        if self.state.sealed_records() == 0 {
            if let Some((buffer, claim)) = self.claimed_buffer() {
                self.state.buffers.release(buffer, self.state.index, claim);
            }
        }
    }

    /// Gives the buffer back of a batch that was sealed, in whatever term, and is no more.
    fn free_buffer_of(&self, batch: BatchWord) {
        let word = BufferWord(self.state.slot.buffer.load(Acquire));
        if let (Some(buffer), 1..) = (word.buffer(), batch.count()) {
            // Its tag is the number of the claim.
            let SyncState { index, buffers, .. } = self.state;
            buffers.release(buffer, index, batch.tag());
        }
    }

    /// Writes a batch down, so that whatever happens it is sent with just these amounts, and once:
    /// at least one record, and at most [`Lease::batch_capacity`]. No other batch may be sealed.
    /// `nonce`, of which 24 bits count, is random. Returns its name.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn seal(&self, records: &[BatchRecord], nonce: u32) -> Result<BatchName, LeaseLost> {
        let (places, tag) = self.room()?;
        let records = records
            .get(..places.len().min(MAX_RECORDS))
            .unwrap_or(records);
        for (place, record) in places.iter().zip(records) {
            for (word, value) in place.0.iter().zip(record.to_words(tag)) {
                self.replace(word, |_| value)?;
                fail_point!("batch.written");
            }
        }
        let before = BatchWord(self.state.slot.batch.load(Acquire)).acknowledged();
        let number = before.wrapping_add(1);
        self.replace(&self.state.slot.nonces, |word| {
            Nonces(word).with(number, nonce, tag).0
        })?;
        fail_point!("batch.named");
        let sealed = BatchWord::new(before, tag, records.len());
        self.replace(&self.state.slot.batch, |_| sealed.0)?;
        fail_point!("batch.sealed");
        Ok(self.batch_name(number))
    }

    /// The batch that is sealed, perhaps by an earlier holder of the lease: its name, and those of
    /// its records whose counters are still there, which may be none.
    pub fn sealed(&self, table: &CounterTable<'m>) -> Option<(BatchName, Vec<BatchRecord>)> {
        let batch = BatchWord(self.state.slot.batch.load(Acquire));
        if batch.count() == 0 {
            return None;
        }
        let SyncState { slot, buffers, .. } = self.state;
        let buffer = BufferWord(slot.buffer.load(Acquire)).buffer();
        let records = match buffer {
            Some(buffer) => buffers.records(buffer)?,
            None => core::slice::from_ref(&slot.inline),
        };
        let records = records.iter().take(batch.count());
        let records = records.filter_map(|record| {
            let words = record.0.each_ref().map(|word| word.load(Acquire));
            BatchRecord::from_words(words, batch.tag(), table)
        });
        let name = self.batch_name(batch.acknowledged().wrapping_add(1));
        Some((name, records.collect()))
    }

    /// Notes that the store has batch `number`, which was sealed: its amounts were noted with the
    /// counters before. So the store knows this node until `known_until` at least.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn acknowledge(&self, number: u64, known_until: UnixMillis) -> Result<(), LeaseLost> {
        self.replace(&self.state.slot.standing, |word| {
            Standing(word).known(number == 1, known_until).0
        })?;
        fail_point!("batch.known");
        let sealed = BatchWord(self.state.slot.batch.load(Acquire));
        let is_it = |batch: BatchWord| batch.acknowledged().wrapping_add(1) == number;
        self.replace(&self.state.slot.batch, |old| {
            if is_it(BatchWord(old)) {
                BatchWord::new(number, self.tag(), 0).0
            } else {
                old
            }
        })?;
        fail_point!("batch.acknowledged");
        if is_it(sealed) {
            self.free_buffer_of(sealed);
        }
        Ok(())
    }
}

impl BatchRecord {
    /// Four words, each with the tag in its lowest 16 bits.
    fn to_words(self, tag: u16) -> [u64; 4] {
        let (index, generation) = self.counter.index_and_generation();
        let counter = u64::from(index) << 32 | u64::from(generation) << 16;
        let tag = Stamp::from_bits(tag);
        let window = Hits::from_upper_bits(self.window << 16);
        [
            counter | u64::from(tag.bits()),
            WindowCount::new(tag, window).bits(),
            WindowCount::new(tag, self.up_to).bits(),
            WindowCount::new(tag, self.diff).bits(),
        ]
    }

    /// `None` if the counter is gone, or the words are not of the batch with the tag.
    fn from_words(words: [u64; 4], tag: u16, table: &CounterTable<'_>) -> Option<BatchRecord> {
        if words.iter().any(|&word| word as u16 != tag) {
            return None;
        }
        let [counter, window, up_to, diff] = words;
        Some(BatchRecord {
            counter: table.counter_ref((counter >> 32) as u32, (counter >> 16) as u16)?,
            window: window >> 16,
            up_to: WindowCount::from_bits(up_to).hits(),
            diff: WindowCount::from_bits(diff).hits(),
        })
    }
}
