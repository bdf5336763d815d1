//! The words of one sync in shared memory: of a namespace's shard with its store. What they mean together
//! is written in `lease`, `progress`, `batches` and `buffers`.

use crate::policy::reserve::Grants;
use crate::policy::window::UnixMillis;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Release};
use crate::table::words::fail::fail_point;
use crate::table::words::meta::NamespaceIndex;

/// The sync of one namespace and shard with its store.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct SyncSlot {
    /// Owner of the words: the namespace's index plus one, and the shard; 0: the slot is free.
    pub(crate) owner: AtomicU64,
    /// A [`LeaseWord`]: which worker syncs now.
    pub(super) lease: AtomicU64,
    /// Repair that is due, and epochs that were left.
    pub(crate) repair: AtomicU64,
    /// The store's epoch; 0: not known.
    pub(crate) epoch: AtomicU64,
    /// Position up to which the store's changes were seen; a first word of 0: none were.
    pub(crate) position: [AtomicU64; 2],
    /// The number of the last batch that was acknowledged, and whether the next one is sealed.
    pub(crate) batch: AtomicU64,
    /// Buffer of the next batch: see `buffers`.
    pub(crate) buffer: AtomicU64,
    /// [`Nonces`]: random bits of the last batch that was acknowledged, and of the next one.
    pub(crate) nonces: AtomicU64,
    /// Under which identity batches are sent, and until when the store knows that at least.
    pub(crate) standing: AtomicU64,
    /// Start of the last sync that ended well; 0: none did in this configuration.
    pub(crate) synced: AtomicU64,
    /// A [`ModeWord`]: what is fetched; or where the store decides, and nothing is, what it has charged ahead.
    pub(crate) mode: AtomicU64,
    /// A batch of one record, for want of a buffer.
    pub(crate) inline: Record,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<SyncSlot>() == 2 * 64);

/// A window of a counter in a batch.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Record(pub(crate) [AtomicU64; 4]);

/// The most records that a batch may have.
pub(crate) const MAX_RECORDS: usize = 320;

/// The owner of a slot: one more than the namespace's index and the shard.
pub(crate) fn owner_word(namespace: NamespaceIndex, shard: u16) -> u64 {
    (u64::from(namespace.0) << 16 | u64::from(shard)).wrapping_add(1)
}

impl SyncSlot {
    /// The namespace and shard that have the slot; `None`: it is free.
    pub(crate) fn owner(&self) -> Option<(NamespaceIndex, u16)> {
        let owner = self.owner.load(Acquire).checked_sub(1)?;
        Some((NamespaceIndex((owner >> 16) as u16), owner as u16))
    }

    /// Forgets the store. The holder of the lease has lost it.
    pub(crate) fn begin_anew(&self) {
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

/// A flag of [`SyncSlot::repair`]: changes were lost with a lease, and are to be looked for.
pub(crate) const FIND_CHANGES: u64 = 1;
/// All that still matters is to be sent anew.
pub(crate) const SEND_ANEW: u64 = 2;
/// A worker that had lost the lease applied an answer: see `Lease::confirm_applied`.
pub(crate) const FETCH_ANEW: u64 = 4;
/// With [`SEND_ANEW`]: the store has lost what it had charged ahead, as it is in another epoch.
pub(crate) const VOID_RESERVES: u64 = 8;

/// A sync's memory that depends on its mode. Where others' counts are fetched: a hash of the window
/// sizes that are fetched, with the highest bit. Where the node only pushes: [`Grants`] as a word.
#[derive(Clone, Copy)]
pub(crate) struct ModeWord(pub(crate) u64);

impl ModeWord {
    const FETCHES: u64 = 1 << 63;

    /// The word of a sync that fetches windows of which this is a hash.
    pub(crate) fn fetching(hash: u64) -> ModeWord {
        // Never the word of lost grants, which is all ones.
        ModeWord((hash | Self::FETCHES) & !1)
    }

    /// The word of a sync that only pushes.
    pub(crate) fn pushing(grants: Grants) -> ModeWord {
        ModeWord(grants.to_word())
    }

    /// Returns what the store has charged ahead: nothing, if the sync fetches.
    pub(crate) fn grants(self) -> Grants {
        match self.is_fetching() {
            true => Grants::None,
            false => Grants::from_word(self.0),
        }
    }

    /// Whether it is of a sync that fetches.
    pub(crate) fn is_fetching(self) -> bool {
        self.0 & Self::FETCHES != 0 && self.0 != Grants::Lost.to_word()
    }
}

/// A lease's word: the term, then the time at which it ends, 0 if it was given back.
#[derive(Clone, Copy)]
pub(crate) struct LeaseWord(pub(crate) u64);

impl LeaseWord {
    pub(super) const DEADLINE_BITS: u32 = 40;
    pub(super) const TERM_BITS: u32 = 64 - Self::DEADLINE_BITS;

    pub(crate) fn new(term: u64, deadline: u64) -> LeaseWord {
        let deadline = deadline & ((1 << Self::DEADLINE_BITS) - 1);
        LeaseWord(term << Self::DEADLINE_BITS | deadline)
    }

    pub(crate) fn term(self) -> u64 {
        self.0 >> Self::DEADLINE_BITS
    }

    pub(crate) fn deadline(self) -> u64 {
        self.0 & ((1 << Self::DEADLINE_BITS) - 1)
    }
}

/// The word of the batches: how many the store has acknowledged, and of the next one, once it is
/// sealed, the tag of its records and their number; before, the tag of the lease's term.
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

    /// The number of records; 0: no batch is sealed.
    pub(crate) fn count(self) -> usize {
        (self.0 & ((1 << Self::COUNT_BITS) - 1)) as usize
    }
}

/// The word of the nonces: of the last batch with an even number and of the last one with an odd
/// number, each acknowledged or sealed; and the term in which it was written.
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

/// The word of the repairs: flags of what has to be done, 12 bits of the term in which the lease was last taken
/// from a worker that had not given it back, and above them the epochs that were left, 16 bits of each, the last one
/// lowest. Another epoch that looks alike is given up needlessly, which
/// costs little.
#[derive(Clone, Copy)]
pub(crate) struct RepairWord(pub(crate) u64);

impl RepairWord {
    pub(super) const BITS: u32 = 16;
    /// All but the epochs.
    const LOWEST: u64 = (1 << Self::BITS) - 1;
    const FLAGS: u64 = FIND_CHANGES | SEND_ANEW | FETCH_ANEW | VOID_RESERVES;

    pub(crate) fn flags(self) -> u64 {
        self.0 & Self::FLAGS
    }

    /// The word when the lease was taken from a worker that may still be about to replace it.
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

    /// Without the epoch that was left first, if there is no room for all.
    pub(crate) fn leaving(self, epoch: u64) -> RepairWord {
        if self.has_left(epoch) {
            return self;
        }
        let before = self.0 & !Self::LOWEST;
        let left = before << Self::BITS | Self::bits_of(epoch) << Self::BITS;
        RepairWord(left | self.0 & Self::LOWEST)
    }

    /// Whether there may be more epochs that were left than are known.
    pub(crate) fn is_full(self) -> bool {
        self.0 >> 48 != 0
    }
}

/// The word of how this node stands with the store: its identity, and until when that is known to it,
/// in Unix seconds. Half a word each.
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

    /// Notes the life of the identity. With the first batch, the former one does not matter.
    pub(crate) fn known(self, is_first: bool, UnixMillis(until): UnixMillis) -> Standing {
        let until = u32::try_from(until / 1000).unwrap_or(u32::MAX);
        let before = if is_first { 0 } else { self.0 as u32 };
        Standing(u64::from(self.identity()) << 32 | u64::from(until.max(before)))
    }
}

/// The word of a buffer: one more than the index of the sync that has it, 0 if none has; the term of
/// its lease; and the number of the claim.
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

/// The word of a sync with the buffer that it has: one more than its index, 0 for the record of its own;
/// and the tag of the term in which it was written.
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
