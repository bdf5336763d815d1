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
use super::word::{Stamp, Word};
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;

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
    generation: u64,
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

const _: () = assert!(MAX_RECORDS < 1 << BatchWord::COUNT_BITS);

impl<'m> CounterTable<'m> {
    /// What tells this node from all others: random, and the same as long as the zone lives.
    pub fn node(&self) -> [u64; 2] {
        const NODE: u8 = 255;
        self.hasher.mask(b"node", NODE, 0).0
    }

    /// The sync of `namespace` under a new configuration, in as many shards as its store has: from now
    /// on, nobody of an older one takes a lease of it. Shards that it has no more are begun anew
    /// should it have them again: what they know is of another store.
    ///
    /// `None` if the zone has no room for them beside those of this configuration's other
    /// namespaces; there is for those of [`Room`](super::Room) at least.
    pub fn sync_states(
        &self,
        namespace: NamespaceIndex,
        shards: u16,
    ) -> Option<Vec<SyncState<'m>>> {
        let (entry, line) = self.sync_of(namespace)?;
        entry.synced.store(self.configuration(), Relaxed);
        self.release_shards(namespace, shards);
        let generation = entry.generation.fetch_add(1, AcqRel).wrapping_add(1);
        let slots = self.slots_of(namespace, shards)?;
        let states = slots.into_iter().map(|(index, slot)| {
            slot.synced.store(0, Relaxed);
            SyncState {
                slot,
                index,
                entry,
                line,
                buffers: Buffers::of(&self.parts),
                generation,
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
                entry.generation.fetch_add(1, AcqRel);
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
        self.entry.generation.load(Acquire) != self.generation
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
        match self.state.slot.repair.load(Acquire) & !FETCH_ANEW {
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
        self.replace(&self.state.slot.repair, |flags| flags & FETCH_ANEW)?;
        fail_point!("sync.repaired");
        Ok(())
    }

    /// To be called before the position is looked at: forgets it, if somebody who had lost the lease
    /// has noted totals ([`Lease::is_still_held`]), which may be older than what was fetched since.
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
        // First: who takes over in between sends anew, in this epoch or in the former.
        self.replace(repair, |flags| flags | SEND_ANEW)?;
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
        self.is_still_held()
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

    /// To be called when what the store said has been noted with counters.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] if another has taken the lease meanwhile: some of it may be older than what that
    /// one noted. So this node will fetch everything once more.
    pub fn is_still_held(&self) -> Result<(), LeaseLost> {
        if self.is_held() {
            return Ok(());
        }
        // Not the position itself: who has the lease may be about to write a later one.
        self.state.slot.repair.fetch_or(FETCH_ANEW, AcqRel);
        Err(LeaseLost)
    }

    /// The number of the last batch that the store has acknowledged in this epoch.
    pub fn acknowledged(&self) -> u64 {
        BatchWord(self.state.slot.batch.load(Acquire)).acknowledged()
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
    /// Returns its number.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn seal(&self, records: &[BatchRecord]) -> Result<u64, LeaseLost> {
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
        let before = self.acknowledged();
        let sealed = BatchWord::new(before, tag, records.len());
        self.replace(&self.state.slot.batch, |_| sealed.0)?;
        fail_point!("batch.sealed");
        Ok(before.wrapping_add(1))
    }

    /// The batch that is sealed, perhaps by an earlier holder of the lease: its number, and those of
    /// its records whose counters are still there.
    pub fn sealed(&self, table: &CounterTable<'m>) -> Option<(u64, Vec<BatchRecord>)> {
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
        Some((batch.acknowledged().wrapping_add(1), records.collect()))
    }

    /// Notes that the store has batch `number`, which was sealed: its amounts were noted with the
    /// counters before.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn acknowledge(&self, number: u64) -> Result<(), LeaseLost> {
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
        let (index, salt) = self.counter.index_and_salt();
        let counter = u64::from(index) << 32 | u64::from(salt) << 16;
        let tag = Stamp::from_bits(tag);
        let window = Hits::from_upper_bits(self.window << 16);
        [
            counter | u64::from(tag.bits()),
            Word::new(tag, window).bits(),
            Word::new(tag, self.up_to).bits(),
            Word::new(tag, self.diff).bits(),
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
            up_to: Word::from_bits(up_to).hits(),
            diff: Word::from_bits(diff).hits(),
        })
    }
}
