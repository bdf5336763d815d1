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
use super::changes::CounterRef;
use super::fail::fail_point;
use super::layout::{Record, SyncSlot};
use super::meta::NamespaceIndex;
use super::stats::{Cycle, SyncStats};
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
    records: &'m [Record],
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
struct LeaseWord(u64);

impl LeaseWord {
    const DEADLINE_BITS: u32 = 40;

    fn new(term: u64, deadline: u64) -> LeaseWord {
        let deadline = deadline & ((1 << Self::DEADLINE_BITS) - 1);
        LeaseWord(term << Self::DEADLINE_BITS | deadline)
    }

    fn term(self) -> u64 {
        self.0 >> Self::DEADLINE_BITS
    }

    fn deadline(self) -> u64 {
        self.0 & ((1 << Self::DEADLINE_BITS) - 1)
    }
}

/// The word of the batches: how many the store has acknowledged, and of the next one, once it is
/// sealed, the term in which it was and the number of its records.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BatchWord(u64);

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

    fn tag(self) -> u16 {
        (self.0 >> Self::COUNT_BITS) as u16
    }

    /// The number of records; 0: no batch is sealed.
    fn count(self) -> usize {
        (self.0 & ((1 << Self::COUNT_BITS) - 1)) as usize
    }
}

/// The most records that a batch may have.
pub(super) const MAX_RECORDS: usize = 320;
const _: () = assert!(MAX_RECORDS < 1 << BatchWord::COUNT_BITS);

impl<'m> CounterTable<'m> {
    /// What tells this node from all others: random, and the same as long as the zone lives.
    pub fn node(&self) -> [u64; 2] {
        const NODE: u8 = 255;
        self.hasher.mask(b"node", NODE, 0).0
    }

    /// The sync of `namespace`, the part of it that is in `shard`; `None` if the zone has no room
    /// for the syncs of so many.
    pub fn sync_state(&self, namespace: NamespaceIndex, shard: u16) -> Option<SyncState<'m>> {
        let owner = (u64::from(namespace.0) << 16 | u64::from(shard)).wrapping_add(1);
        let slots: &'m [SyncSlot] = self.parts.sync_slots;
        let records: &'m [Record] = self.parts.records;
        let is_or_becomes_ours = |slot: &SyncSlot| {
            let taken = slot.owner.compare_exchange(0, owner, AcqRel, Acquire);
            taken.is_ok() || taken == Err(owner)
        };
        let index = slots.iter().position(is_or_becomes_ours)?;
        let per_slot = records.len().checked_div(slots.len())?;
        let start = index.checked_mul(per_slot)?;
        let slot = slots.get(index)?;
        Some(SyncState {
            slot,
            records: records.get(start..start.checked_add(per_slot)?)?,
            generation: slot.generation.load(Acquire),
        })
    }

    /// The sync of `namespace` in as many shards as its store has; `None` if the zone has no room for
    /// them, of which none is taken then. Shards that it has no more are begun anew should it have
    /// them again: what they know is of another store.
    pub fn sync_states(
        &self,
        namespace: NamespaceIndex,
        shards: u16,
    ) -> Option<Vec<SyncState<'m>>> {
        let slots: &'m [SyncSlot] = self.parts.sync_slots;
        let shard_of = |slot: &SyncSlot| {
            let owner = slot.owner.load(Acquire).checked_sub(1)?;
            (owner >> 16 == u64::from(namespace.0)).then_some(owner as u16)
        };
        let is_usable = |slot: &&SyncSlot| {
            slot.owner.load(Acquire) == 0 || shard_of(slot).is_some_and(|shard| shard < shards)
        };
        if slots.iter().filter(is_usable).count() < usize::from(shards) {
            return None;
        }
        for slot in slots {
            if shard_of(slot).is_some_and(|shard| shard >= shards) {
                slot.begin_anew();
            }
        }
        let states = (0..shards).map(|shard| self.sync_state(namespace, shard));
        states.collect()
    }
}

impl SyncSlot {
    /// Forgets the store. Whoever has the lease has lost it, and nobody of a configuration that had the
    /// shard takes it again: workers that end would go on with the former store.
    fn begin_anew(&self) {
        self.generation.fetch_add(1, AcqRel);
        let next_term = |word| {
            let term = LeaseWord(word).term().wrapping_add(1);
            Some(LeaseWord::new(term, 0).0)
        };
        // Cannot fail: there is always a next term.
        let _ = self.lease.fetch_update(AcqRel, Acquire, next_term);
        let [position, _] = &self.position;
        for word in [position, &self.batch, &self.epoch, &self.synced] {
            word.store(0, Release);
        }
    }
}

impl<'m> SyncState<'m> {
    /// The same sync under a new configuration: from now on, nobody of an older one takes the lease.
    pub fn reconfigured(self) -> Self {
        let before = self.slot.generation.fetch_add(1, AcqRel);
        self.slot.synced.store(0, Relaxed);
        SyncState {
            generation: before.wrapping_add(1),
            ..self
        }
    }

    /// Whether there is a newer configuration, whose workers sync now.
    pub fn is_superseded(&self) -> bool {
        self.slot.generation.load(Acquire) != self.generation
    }

    /// Takes the lease for `lifetime` milliseconds, if nobody has it at `now`, and this is the newest
    /// configuration.
    pub fn take_lease(&self, now: MonotonicMillis, lifetime: u64) -> Option<Lease<'m>> {
        if self.is_superseded() {
            return None;
        }
        let word = &self.slot.lease;
        let old = LeaseWord(word.load(Acquire));
        if old.deadline() > now.0 {
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

    /// Notes whether the store is there. Returns whether it was lost, or came back, since it was last
    /// noted by any worker: then this one is to tell.
    pub fn note_store(&self, is_there: bool) -> bool {
        let lost = u64::from(!is_there);
        self.slot.is_lost.swap(lost, AcqRel) != lost
    }

    /// Notes whether the store's clock is far from this node's. Returns whether that is news, likewise.
    pub fn note_clock(&self, is_off: bool) -> bool {
        let off = u64::from(is_off);
        self.slot.is_off.swap(off, AcqRel) != off
    }

    /// How many records the batch has that is sealed, and may be on its way; 0: there is none.
    pub fn sealed_records(&self) -> usize {
        BatchWord(self.slot.batch.load(Acquire)).count()
    }

    /// Notes an exchange with the store, which took so many microseconds, for [`SyncState::stats`].
    pub fn count_exchange(&self, micros: u64) {
        self.slot.line.exchanged(micros);
    }

    /// Notes that so many connections to the store were made.
    pub fn count_connects(&self, connects: u64) {
        self.slot.line.connected(connects);
    }

    /// Notes what came of a cycle, for [`SyncState::stats`].
    pub fn count_cycle(&self, cycle: &Cycle) {
        self.slot.line.count(cycle);
    }

    /// What came of all cycles so far, whoever did them.
    pub fn stats(&self) -> SyncStats {
        self.slot.line.stats()
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
        let released = LeaseWord::new(self.term, 0);
        // If it is lost, there is nothing to give back.
        let _ = self.replace(&self.state.slot.lease, |_| released.0);
        fail_point!("lease.released");
    }

    /// Notes which process has the lease, for [`SyncState::stats`].
    pub fn note_holder(&self, process: u32) {
        self.state.slot.line.held_by(process);
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
        self.replace(batch, |_| BatchWord::new(0, self.tag(), 0).0)?;
        fail_point!("epoch.batch");
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

    /// The most records that a batch may have.
    pub fn batch_capacity(&self) -> usize {
        self.state.records.len().min(MAX_RECORDS)
    }

    /// Writes a batch down, so that whatever happens it is sent with just these amounts, and once:
    /// at least one record, and at most [`Lease::batch_capacity`]. No other batch may be sealed.
    /// Returns its number.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn seal(&self, records: &[BatchRecord]) -> Result<u64, LeaseLost> {
        let tag = self.tag();
        let records = records.get(..self.batch_capacity()).unwrap_or(records);
        for (place, record) in self.state.records.iter().zip(records) {
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
        let records = self.state.records.iter().take(batch.count());
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
        self.replace(&self.state.slot.batch, |old| {
            if BatchWord(old).acknowledged().wrapping_add(1) == number {
                BatchWord::new(number, self.tag(), 0).0
            } else {
                old
            }
        })?;
        fail_point!("batch.acknowledged");
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
