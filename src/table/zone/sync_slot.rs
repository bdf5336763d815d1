//! The words of one sync in shared memory: of a namespace's shard with its store. `lease`,
//! `progress`, `batches` and `buffers` describe their use.

use crate::policy::reserve::Grants;
use crate::policy::window::UnixMillis;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Release};
use crate::table::words::fail::fail_point;
use crate::table::words::meta::NamespaceIndex;

/// The words of one sync.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct SyncSlot {
    /// Owner of the words: the namespace's index plus one, and the shard; 0: the slot is free.
    pub(crate) owner: AtomicU64,
    /// A [`LeaseWord`]: the lease of the worker that syncs.
    pub(super) lease: AtomicU64,
    /// A [`RepairWord`]: pending repairs, and left epochs.
    pub(crate) repair: AtomicU64,
    /// The store's epoch; 0 if it is unknown.
    pub(crate) epoch: AtomicU64,
    /// Position up to which the store's changes were read. A first word of 0 stands for no
    /// position.
    pub(crate) position: [AtomicU64; 2],
    /// A [`BatchWord`]: the last acknowledged batch, and the next one.
    pub(crate) batch: AtomicU64,
    /// A [`BufferWord`]: the buffer of the next batch.
    pub(crate) buffer: AtomicU64,
    /// [`Nonces`]: random bits of the last acknowledged batch, and of the next one.
    pub(crate) nonces: AtomicU64,
    /// A [`Standing`]: the identity of the batches, and the time until which the store knows it at
    /// least.
    pub(crate) standing: AtomicU64,
    /// Start of the last successful sync; 0 if there was none in this configuration.
    pub(crate) synced: AtomicU64,
    /// A [`ModeWord`]: the fetched windows; or, if the store decides, its charges for reserves.
    pub(crate) mode: AtomicU64,
    /// The record of a batch without a buffer.
    pub(crate) inline: Record,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<SyncSlot>() == 2 * 64);

/// A window of a counter in a batch.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Record(pub(crate) [AtomicU64; 4]);

/// Most records of a batch.
pub(crate) const MAX_RECORDS: usize = 320;

/// Returns the owner's word: the namespace's index plus one, and the shard.
pub(crate) fn owner_word(namespace: NamespaceIndex, shard: u16) -> u64 {
    (u64::from(namespace.0) << 16 | u64::from(shard)).wrapping_add(1)
}

impl SyncSlot {
    /// Returns the namespace and shard that own the slot; `None` if it is free.
    pub(crate) fn owner(&self) -> Option<(NamespaceIndex, u16)> {
        let owner = self.owner.load(Acquire).checked_sub(1)?;
        Some((NamespaceIndex((owner >> 16) as u16), owner as u16))
    }

    /// Clears the state of the store. The holder of the lease loses it.
    pub(crate) fn begin_anew(&self) {
        let next_term = |word| {
            let term = LeaseWord(word).term().wrapping_add(1);
            Some(LeaseWord::new(term, 0).0)
        };
        // There is always a next term, so this cannot fail.
        let _ = self.lease.fetch_update(AcqRel, Acquire, next_term);
        fail_point!("sync.ended");
        // A batch that the last holder was about to seal stays unsealed.
        let tag = LeaseWord(self.lease.load(Acquire)).term() as u16;
        let no_batch = BatchWord::new(0, tag, 0).0;
        let [position, _] = &self.position;
        for (word, value) in [
            (position, 0),
            (&self.batch, no_batch),
            (&self.epoch, 0),
            // That holder may be about to clear bits of changed counters, which the next one sets.
            (&self.repair, FIND_CHANGES),
            (&self.synced, 0),
        ] {
            word.store(value, Release);
            fail_point!("sync.forgotten");
        }
    }
}

/// A flag of [`SyncSlot::repair`]: changes were lost with a lease, and all counters must be
/// checked.
pub(crate) const FIND_CHANGES: u64 = 1;
/// All hits that still matter must be sent again.
pub(crate) const SEND_ANEW: u64 = 2;
/// A worker that had lost the lease has applied an answer: see `Lease::confirm_applied`.
pub(crate) const FETCH_ANEW: u64 = 4;
/// With [`SEND_ANEW`]: the store is in another epoch, and has lost its charges for reserves.
pub(crate) const VOID_RESERVES: u64 = 8;
/// The store has acknowledged hits of this node in changes after the position: see `Lease::run_ahead`.
pub(crate) const AHEAD: u64 = 16;

/// The state of a sync that depends on its mode. For a sync that fetches: a hash of the fetched
/// window sizes, with the highest bit set. For one that only pushes: its [`Grants`] as a word.
#[derive(Clone, Copy)]
pub(crate) struct ModeWord(pub(crate) u64);

impl ModeWord {
    const FETCHES: u64 = 1 << 63;

    /// Returns the word of a sync that fetches windows with this hash.
    pub(crate) fn fetching(hash: u64) -> ModeWord {
        // Differs from the word of lost grants, which is all ones.
        ModeWord((hash | Self::FETCHES) & !1)
    }

    /// Returns the word of a sync that only pushes.
    pub(crate) fn pushing(grants: Grants) -> ModeWord {
        ModeWord(grants.to_word())
    }

    /// Returns the state of the store's charges for reserves. A sync that fetches has none.
    pub(crate) fn grants(self) -> Grants {
        match self.is_fetching() {
            true => Grants::None,
            false => Grants::from_word(self.0),
        }
    }

    /// Returns whether this is of a sync that fetches.
    pub(crate) fn is_fetching(self) -> bool {
        self.0 & Self::FETCHES != 0 && self.0 != Grants::Lost.to_word()
    }
}

/// The word of a lease: its term, and the time at which it ends, which is 0 after a release. In the lease of a sync, the
/// lowest bit of that time is set from when the holder applies a store's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseWord(pub(crate) u64);

impl LeaseWord {
    pub(super) const DEADLINE_BITS: u32 = 40;
    pub(super) const TERM_BITS: u32 = 64 - Self::DEADLINE_BITS;
    const APPLIES: u64 = 1;

    pub(crate) fn new(term: u64, deadline: u64) -> LeaseWord {
        let deadline = deadline & ((1 << Self::DEADLINE_BITS) - 1);
        LeaseWord(term << Self::DEADLINE_BITS | deadline)
    }

    /// Creates the word of a sync's lease, which ends at `deadline` or a millisecond before.
    pub(super) fn of_sync(term: u64, deadline: u64, applies: bool) -> LeaseWord {
        let deadline = match applies {
            true => deadline.saturating_sub(1) | Self::APPLIES,
            false => deadline & !Self::APPLIES,
        };
        LeaseWord::new(term, deadline)
    }

    /// Returns the term after this one.
    pub(super) fn next_term(self) -> u64 {
        LeaseWord::new(self.term().wrapping_add(1), 0).term()
    }

    /// Returns whether the holder has begun to apply a store's answer.
    pub(super) fn applies(self) -> bool {
        self.0 & Self::APPLIES != 0
    }

    pub(crate) fn term(self) -> u64 {
        self.0 >> Self::DEADLINE_BITS
    }

    pub(crate) fn deadline(self) -> u64 {
        self.0 & ((1 << Self::DEADLINE_BITS) - 1)
    }
}

/// The word of the batches: the number of acknowledged ones; and for the next one, once it is
/// sealed, the tag and the number of its records, or before that, the tag of the lease's term.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchWord(pub(crate) u64);

impl BatchWord {
    pub(super) const COUNT_BITS: u32 = 12;
    pub(super) const TAG_BITS: u32 = 16;

    pub(crate) fn new(acknowledged: u64, tag: u16, count: usize) -> BatchWord {
        let tag = u64::from(tag) << Self::COUNT_BITS;
        let number = acknowledged << (Self::COUNT_BITS + Self::TAG_BITS);
        BatchWord(number | tag | count as u64)
    }

    pub(crate) fn acknowledged(self) -> u64 {
        self.0 >> (Self::COUNT_BITS + Self::TAG_BITS)
    }

    pub(crate) fn tag(self) -> u16 {
        (self.0 >> Self::COUNT_BITS) as u16
    }

    /// Returns the number of records; 0 if no batch is sealed.
    pub(crate) fn count(self) -> usize {
        (self.0 & ((1 << Self::COUNT_BITS) - 1)) as usize
    }
}

/// The nonces of the last batch with an even number and of the last one with an odd number, each
/// acknowledged or sealed; and the term in which they were written.
#[derive(Clone, Copy)]
pub(crate) struct Nonces(pub(crate) u64);

impl Nonces {
    pub(super) const NONCE_BITS: u32 = 24;
    pub(super) const MASK: u64 = (1 << Self::NONCE_BITS) - 1;

    pub(super) fn shift(number: u64) -> u32 {
        match number.is_multiple_of(2) {
            true => 0,
            false => Self::NONCE_BITS,
        }
    }

    pub(crate) fn of(self, number: u64) -> u32 {
        match number {
            0 => 0,
            _ => (self.0 >> Self::shift(number) & Self::MASK) as u32,
        }
    }

    pub(crate) fn with(self, number: u64, nonce: u32, tag: u16) -> Nonces {
        let shift = Self::shift(number);
        let other = self.0 & (Self::MASK << Self::shift(number.wrapping_add(1)));
        let tag = u64::from(tag) << (2 * Self::NONCE_BITS);
        Nonces(tag | other | (u64::from(nonce) & Self::MASK) << shift)
    }
}

/// The word of the repairs: flags of pending repairs; 11 bits of the term in which the lease was
/// last taken from a worker that had not released it; and above them 16 bits of each left epoch,
/// the last one lowest. A different epoch with the same 16 bits is left for no reason, which costs
/// little.
#[derive(Clone, Copy)]
pub(crate) struct RepairWord(pub(crate) u64);

impl RepairWord {
    pub(super) const BITS: u32 = 16;
    /// All bits below the epochs.
    const LOWEST: u64 = (1 << Self::BITS) - 1;
    const FLAGS: u64 = FIND_CHANGES | SEND_ANEW | FETCH_ANEW | VOID_RESERVES | AHEAD;

    pub(crate) fn flags(self) -> u64 {
        self.0 & Self::FLAGS
    }

    /// Returns the word after the lease was taken from a worker that may still be about to replace
    /// it.
    pub(super) fn taken_over(self, tag: u16) -> RepairWord {
        let tag = u64::from(tag) << Self::FLAGS.count_ones() & Self::LOWEST;
        RepairWord(self.0 & !(Self::LOWEST & !Self::FLAGS) | tag)
    }

    pub(super) fn bits_of(epoch: u64) -> u64 {
        // Well mixed, and not 0.
        (epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48).max(1)
    }

    pub(crate) fn has_left(self, epoch: u64) -> bool {
        let bits = Self::bits_of(epoch);
        [16, 32, 48].iter().any(|shift| self.0 >> shift & Self::LOWEST == bits)
    }

    /// Returns the word with one more left epoch. Drops the oldest one if there is no room.
    pub(crate) fn leaving(self, epoch: u64) -> RepairWord {
        if self.has_left(epoch) {
            return self;
        }
        let before = self.0 & !Self::LOWEST;
        let left = before << Self::BITS | Self::bits_of(epoch) << Self::BITS;
        RepairWord(left | self.0 & Self::LOWEST)
    }

    /// Returns whether there may be more left epochs than the word contains.
    pub(crate) fn is_full(self) -> bool {
        self.0 >> 48 != 0
    }
}

/// The node's standing with the store: its identity in one half of the word, and in the other the
/// time, in Unix seconds, until which the store knows it.
#[derive(Clone, Copy)]
pub(crate) struct Standing(pub(crate) u64);

impl Standing {
    pub(crate) fn identity(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn with_identity(self, identity: u32) -> Standing {
        Standing(u64::from(identity) << 32 | u64::from(self.0 as u32))
    }

    pub(crate) fn known_until(self) -> UnixMillis {
        UnixMillis(u64::from(self.0 as u32).saturating_mul(1000))
    }

    /// Extends the time until which the store knows the identity. The first batch replaces the
    /// former time.
    pub(crate) fn known(self, is_first: bool, UnixMillis(until): UnixMillis) -> Standing {
        let until = u32::try_from(until / 1000).unwrap_or(u32::MAX);
        let before = if is_first { 0 } else { self.0 as u32 };
        Standing(u64::from(self.identity()) << 32 | u64::from(until.max(before)))
    }
}

/// The word of a buffer: the index of the owning sync plus one, or 0; the term of its lease; and
/// the number of the claim.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnerWord(pub(super) u64);

impl OwnerWord {
    pub(super) const CLAIM_BITS: u32 = 16;
    pub(super) const TERM_BITS: u32 = LeaseWord::TERM_BITS;

    pub(super) fn new(slot: u64, term: u64, claim: u16) -> OwnerWord {
        let slot = slot << (Self::TERM_BITS + Self::CLAIM_BITS);
        OwnerWord(slot | term << Self::CLAIM_BITS | u64::from(claim))
    }

    pub(super) fn slot(self) -> u64 {
        self.0 >> (Self::TERM_BITS + Self::CLAIM_BITS)
    }

    pub(super) fn term(self) -> u64 {
        (self.0 >> Self::CLAIM_BITS) & ((1 << Self::TERM_BITS) - 1)
    }

    pub(super) fn claim(self) -> u16 {
        self.0 as u16
    }
}

/// The word of a sync's buffer: the buffer's index plus one, or 0 for the sync's own record; and
/// the tag of the term in which it was written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferWord(pub(crate) u64);

impl BufferWord {
    pub(super) fn new(buffer: Option<usize>, tag: u16) -> BufferWord {
        let buffer = buffer.map_or(0, |index| (index as u64).wrapping_add(1));
        BufferWord(buffer << 16 | u64::from(tag))
    }

    pub(crate) fn buffer(self) -> Option<usize> {
        usize::try_from(self.0 >> 16).ok()?.checked_sub(1)
    }

    pub(super) fn tag(self) -> u16 {
        self.0 as u16
    }
}

const _: () = assert!(MAX_RECORDS < 1 << BatchWord::COUNT_BITS);
