//! Layout of a zone's memory.
//!
//! ```text
//! header     magic, layout version, length, secret, identity
//! directory  namespaces: their names, and their last configurations
//! lines      event counters, by namespace and worker, by namespace, by worker, and by synced namespace
//! named      words with names
//! rates      rates that requests and callers have used
//! sync       the state of each sync with a store, by namespace and shard
//! batches    buffers for batches to stores, and the sync that owns each buffer
//! near       cells of counters near their limits
//! sketches   the most rejected keys, by namespace, while sketches last
//! tags       one word per bucket: a tag of 7 bits for each slot, a version of 8
//! dirty      a word per 48 slots: whether a synced counter has changed since its last flush
//! holders    the processes that hold requests
//! marks      a bit per slot: whether it may be a counter of holds
//! buckets    slots of 64 bytes, WAYS to a bucket
//! ```
//!
//! All-zero memory is a table without keys, so creating a table touches little of a large zone. All
//! positions are relative to the start, since processes may map the zone at different addresses.

use core::fmt;
use core::ptr::NonNull;

use super::events::{NamespaceLine, SharedLine, SyncLine, ZoneLine};
use super::near_cell::NearCell;
use super::sketch::{MAX_ENTRIES, SketchHead, SketchKey, Sketches};
use super::sync_slot::{MAX_RECORDS, Record, SyncSlot};
use crate::policy::namespace::MAX_NAME_LEN;
use crate::table::words::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::table::words::held::{HolderNumber, MARKS};
use crate::table::words::meta::NamespaceIndex;
use crate::table::words::slot::{Bucket, GROUP, Slot, WAYS};

/// A namespace: see `directory`.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct DirectoryEntry {
    /// Length of the name; 0 if the entry is free.
    pub(crate) len: AtomicU64,
    pub(super) name: [AtomicU64; MAX_NAME_LEN / 8],
    /// Number of the last configuration with this namespace.
    pub(crate) configured: AtomicU64,
    /// Number of the last configuration that synced it.
    pub(crate) synced: AtomicU64,
    /// Number of configurations that have synced it. Workers of an earlier one do not sync it any
    /// more.
    pub(crate) sync_generation: AtomicU64,
    /// 1 if counters of the entry's previous namespace may be left, otherwise 0.
    pub(crate) is_reused: AtomicU64,
    /// The number of the sketch of its rejected keys plus one; 0 if it has not claimed one.
    pub(crate) sketch: AtomicU64,
    /// The living nodes that share its store: a `NodesWord`.
    pub(crate) nodes: AtomicU64,
    /// Share that is pushed early: see `near_cell`.
    pub(crate) early: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<DirectoryEntry>() == 2 * 64);

/// A word with a name, or a free one: see `named`.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct NamedWord {
    /// Hash of the name with the zone's secret; 0 if the word is free.
    pub(super) id: AtomicU64,
    pub(super) value: AtomicU64,
}

/// Most recorded window sizes of callers in a zone. A reset does not reach keys in further sizes.
pub(crate) const COUNTED_SIZES: usize = 31;

/// A recorded rate: see `counted_sizes`.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct CountedRateWords {
    /// A `HitsWord`.
    pub(crate) hits: AtomicU64,
    /// A `SizeWord`.
    pub(crate) size: AtomicU64,
}

#[repr(C, align(64))]
struct Header {
    magic: AtomicU64,
    version: AtomicU64,
    len: AtomicU64,
    secret: [AtomicU64; 2],
    /// The size of the zone, from which the geometry is computed.
    size: AtomicU64,
    /// Number of the current configuration.
    configuration: AtomicU64,
    /// An `IdentityWord`: the node's identity for stores.
    identity: AtomicU64,
    /// Number of keys that were reset in the store.
    resets: AtomicU64,
    /// See `counted_sizes`.
    counted_sizes: [AtomicU64; COUNTED_SIZES],
}

/// "ratelimt" in ASCII.
const MAGIC: u64 = u64::from_be_bytes(*b"ratelimt");

/// Version of everything in this file, and of the meaning of the words in slots.
pub(super) const VERSION: u64 = 22;

/// The regions of a table in memory.
#[derive(Debug)]
pub(crate) struct Parts<'m> {
    pub(crate) secret: [u64; 2],
    /// Number of the current configuration.
    pub(crate) configuration: &'m AtomicU64,
    /// An `IdentityWord`: the node's identity for stores.
    pub(crate) identity: &'m AtomicU64,
    /// Number of keys that were reset in the store.
    pub(crate) resets: &'m AtomicU64,
    /// See `counted_sizes`.
    pub(crate) counted_sizes: &'m [AtomicU64],
    pub(crate) counted_rates: &'m [CountedRateWords],
    pub(crate) directory: &'m [DirectoryEntry],
    /// Definitions of the directory's namespaces by workers: see `definitions`.
    pub(crate) definitions: &'m [AtomicU64],
    /// A line for each worker and each namespace of the directory.
    pub(crate) namespace_lines: &'m [NamespaceLine],
    /// A line for each namespace.
    pub(crate) shared_lines: &'m [SharedLine],
    pub(crate) named: &'m [NamedWord],
    /// A line for each worker.
    pub(crate) zone_lines: &'m [ZoneLine],
    /// A line for each namespace of the directory.
    pub(crate) sync_lines: &'m [SyncLine],
    pub(crate) sync_slots: &'m [SyncSlot],
    /// The owner of each buffer.
    pub(crate) buffers: &'m [AtomicU64],
    /// The records of all buffers, the same number for each.
    pub(crate) records: &'m [Record],
    /// Counters near their limits.
    pub(crate) near: &'m [NearCell],
    pub(crate) sketches: Sketches<'m>,
    pub(crate) tags: &'m [AtomicU64],
    /// A word for each group of slots: see `dirty`.
    pub(crate) dirty: &'m [AtomicU64],
    /// The processes that hold requests.
    pub(crate) holders: &'m [AtomicU64],
    /// The marks of counters of holds: see `holders`.
    pub(crate) marks: &'m [AtomicU64],
    pub(crate) buckets: &'m [Bucket],
}

/// The reason why memory contains no usable table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The memory is too small.
    TooSmall,
    /// The memory is not aligned to 64 bytes.
    Misaligned,
    /// The memory contains no table.
    NotATable,
    /// The table has another layout version, or another length.
    OtherLayout,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LayoutError::TooSmall => "the memory is too small",
            LayoutError::Misaligned => "the memory is not aligned to 64 bytes",
            LayoutError::NotATable => "the memory holds no table",
            LayoutError::OtherLayout => "the memory holds a table of another layout",
        })
    }
}

impl core::error::Error for LayoutError {}

/// The room for one configuration in a zone. Previous configurations do not reduce it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneRoom {
    /// Number of namespaces.
    pub namespaces: usize,
    /// Number of shards of all synced namespaces together.
    pub shards: usize,
}

impl ZoneRoom {
    /// Returns the room in a zone of `size` bytes: for 64 namespaces in 1 MiB, each with the 16
    /// shards of a Redis Cluster.
    pub fn of(size: usize) -> ZoneRoom {
        let namespaces = (size >> 14).min(64).max(size >> 16);
        let shards = (size >> 10).min(1024).max(size >> 14);
        ZoneRoom {
            namespaces: namespaces.clamp(8, 1 << NamespaceIndex::BITS),
            shards: shards.clamp(16, 1 << 14),
        }
    }
}

/// Number of elements in each region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Geometry {
    directory: usize,
    workers: usize,
    named: usize,
    counted_rates: usize,
    sync_slots: usize,
    buffers: usize,
    /// Records of each buffer.
    records: usize,
    near: usize,
    sketches: usize,
    /// Entries of each sketch.
    sketch_entries: usize,
    holders: usize,
    buckets: usize,
}

impl Geometry {
    /// Computes the geometry of a region of `len` bytes in a zone of `size` bytes.
    fn of(len: usize, size: usize) -> Result<Geometry, LayoutError> {
        let ZoneRoom { namespaces, shards } = ZoneRoom::of(size);
        // Twice as many, or 64 more, so that entries of the previous configuration stay for a
        // while.
        let directory = (size >> 13).clamp(namespaces, namespaces.saturating_add(64));
        let directory = directory.min(1 << NamespaceIndex::BITS);
        let workers = (size >> 18).clamp(2, 16);
        let entry = size_of::<DirectoryEntry>()
            .saturating_add(size_of::<AtomicU64>())
            .saturating_add(size_of::<SharedLine>())
            .saturating_add(size_of::<SyncLine>())
            .saturating_add(workers.saturating_mul(size_of::<NamespaceLine>()));
        // A thousand policies, and the stores.
        let named = (size >> 10).min(1100);
        // Requests choose few rates, such as one for each plan.
        let counted_rates = (size >> 13).clamp(2, 64);
        // One percent of the memory. A small zone has 16 buffers, and small batches.
        let share = (len / 100).checked_div(size_of::<Record>()).unwrap_or_default();
        let records = (share / 16).clamp(8, MAX_RECORDS);
        let buffers = share.checked_div(records).unwrap_or_default();
        let buffers = buffers.clamp(1, 1024);
        let buffer =
            size_of::<AtomicU64>().saturating_add(records.saturating_mul(size_of::<Record>()));
        // A thousand in 4 MiB. Even in the largest zone, all can be scanned in some microseconds.
        let near = (size >> 12).clamp(8, 4096);
        let (sketches, sketch_entries) = sketches_of(len, directory);
        // 256 processes in 1 MiB, of which those of previous configurations take some.
        let holders = (size >> 12).clamp(16, HolderNumber::MOST);
        let fixed = size_of::<Header>()
            .saturating_add(near.saturating_mul(size_of::<NearCell>()))
            .saturating_add(sketches.saturating_mul(sketch_len(sketch_entries)))
            .saturating_add(directory.saturating_mul(entry))
            .saturating_add(workers.saturating_mul(size_of::<ZoneLine>()))
            .saturating_add(named.saturating_mul(size_of::<NamedWord>()))
            .saturating_add(counted_rates.saturating_mul(size_of::<CountedRateWords>()))
            .saturating_add(shards.saturating_mul(size_of::<SyncSlot>()))
            .saturating_add(buffers.saturating_mul(buffer))
            .saturating_add(holders.saturating_mul(size_of::<AtomicU64>()))
            // Upper bound for aligning the directory, the lines of namespaces and of the zone, the heads of
            // sketches and the buckets, and for rounding up.
            .saturating_add(align_of::<Slot>().saturating_mul(5))
            .saturating_add(size_of::<[AtomicU64; 2]>());
        let bucket = size_of::<AtomicU64>().saturating_add(size_of::<Bucket>());
        let bucket = bucket.saturating_add(size_of::<AtomicU64>().saturating_mul(WAYS) / MARKS);
        // Several buckets share a word of dirty bits.
        let sharing = GROUP / WAYS;
        let group = bucket.saturating_mul(sharing).saturating_add(size_of::<AtomicU64>());
        let buckets = len
            .saturating_sub(fixed)
            .saturating_mul(sharing)
            .checked_div(group)
            .unwrap_or_default()
            // A slot's index plus one must fit into 32 bits.
            .min((u32::MAX as usize / WAYS).saturating_sub(1));
        // A key needs two different buckets.
        if buckets < 2 {
            return Err(LayoutError::TooSmall);
        }
        Ok(Geometry {
            directory,
            workers,
            named,
            counted_rates,
            sync_slots: shards,
            buffers,
            records,
            near,
            sketches,
            sketch_entries,
            holders,
            buckets,
        })
    }
}

/// Returns the size in bytes of a sketch with `entries` entries.
const fn sketch_len(entries: usize) -> usize {
    let words = size_of::<[AtomicU64; 2]>().saturating_add(size_of::<AtomicU32>());
    let entry = words.saturating_add(size_of::<SketchKey>());
    size_of::<SketchHead>().saturating_add(entries.saturating_mul(entry))
}

/// Returns the number of sketches in a region of `len` bytes, for at most this number of
/// namespaces, and the number of their entries. They take 1 %. A small zone has 4 sketches with
/// fewer entries, and the smallest zones have none.
fn sketches_of(len: usize, namespaces: usize) -> (usize, usize) {
    const LEAST: usize = 4;
    const LEAST_ENTRIES: usize = 16;
    let share = len / 100;
    let entry = sketch_len(1).saturating_sub(sketch_len(0));
    let entries = (share / LEAST).saturating_sub(sketch_len(0));
    let entries = entries.checked_div(entry).unwrap_or_default();
    match entries {
        0..LEAST_ENTRIES => (0, 0),
        _ => {
            let entries = entries.min(MAX_ENTRIES);
            let sketches = share.checked_div(sketch_len(entries)).unwrap_or_default();
            (sketches.min(namespaces), entries)
        }
    }
}

/// Returns the number of words with the dirty bits of `buckets` buckets.
pub(super) const fn dirty_words(buckets: usize) -> usize {
    buckets.saturating_mul(WAYS).div_ceil(GROUP)
}

/// Splits a region into parts, from its start.
struct Carver {
    region: NonNull<[u8]>,
    used: usize,
}

impl Carver {
    /// Returns the next `count` values of `T`.
    ///
    /// # Safety
    ///
    /// During `'m`, the region is valid for reads and writes, and is accessed only through the
    /// returned references. The bytes at this place are valid values of `T`, which consists of
    /// atomics only.
    unsafe fn next<'m, T>(&mut self, count: usize) -> Result<&'m [T], LayoutError> {
        let start = self.used.next_multiple_of(align_of::<T>());
        let end = size_of::<T>()
            .checked_mul(count)
            .and_then(|size| start.checked_add(size))
            .filter(|&end| end <= self.region.len())
            .ok_or(LayoutError::TooSmall)?;
        self.used = end;
        // SAFETY: `start..end` is within the region, and the region is aligned to 64 bytes, so
        // `start` is aligned for `T`. The caller vouches for the rest.
        Ok(unsafe {
            core::slice::from_raw_parts(self.region.cast::<u8>().add(start).cast().as_ptr(), count)
        })
    }
}

impl<'m> Parts<'m> {
    /// Creates a new table in `region`, which must be all zero.
    ///
    /// # Safety
    ///
    /// During `'m`, `region` is valid for reads and writes in all processes that share it, and is
    /// accessed only through tables.
    pub(super) unsafe fn create(
        region: NonNull<[u8]>,
        size: usize,
        secret: [u64; 2],
    ) -> Result<Parts<'m>, LayoutError> {
        // SAFETY: by the caller's contract; zero is a valid value of every part.
        let (header, parts) = unsafe { Self::carve(region, size, secret)? };
        let [k0, k1] = secret;
        header.secret[0].store(k0, Ordering::Relaxed);
        header.secret[1].store(k1, Ordering::Relaxed);
        header.len.store(region.len() as u64, Ordering::Relaxed);
        header.size.store(size as u64, Ordering::Relaxed);
        header.version.store(VERSION, Ordering::Relaxed);
        // Last, so that a table with the magic number is complete. Pairs with the load in `open`.
        header.magic.store(MAGIC, Ordering::Release);
        Ok(parts)
    }

    /// Opens the table in `region`.
    ///
    /// # Safety
    ///
    /// See [`Parts::create`].
    pub(super) unsafe fn open(
        region: NonNull<[u8]>,
        size: usize,
    ) -> Result<Parts<'m>, LayoutError> {
        // SAFETY: by the caller's contract; every byte pattern is a valid value of every part.
        let (header, mut parts) = unsafe { Self::carve(region, size, [0; 2])? };
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(LayoutError::NotATable);
        }
        if header.version.load(Ordering::Relaxed) != VERSION
            || header.len.load(Ordering::Relaxed) != region.len() as u64
            || header.size.load(Ordering::Relaxed) != size as u64
        {
            return Err(LayoutError::OtherLayout);
        }
        let [k0, k1] = &header.secret;
        parts.secret = [k0.load(Ordering::Relaxed), k1.load(Ordering::Relaxed)];
        Ok(parts)
    }

    /// # Safety
    ///
    /// See [`Parts::create`]. The bytes need not be zero, since the parts consist of atomic
    /// integers, for which every byte pattern is valid.
    unsafe fn carve(
        region: NonNull<[u8]>,
        size: usize,
        secret: [u64; 2],
    ) -> Result<(&'m Header, Parts<'m>), LayoutError> {
        if !region.cast::<Slot>().is_aligned() {
            return Err(LayoutError::Misaligned);
        }
        let geometry = Geometry::of(region.len(), size)?;
        let entries = geometry.sketches.saturating_mul(geometry.sketch_entries);
        let mut carver = Carver { region, used: 0 };
        // SAFETY: by the caller's contract, for each part; `next` returns places that do not
        // overlap.
        unsafe {
            let header = carver.next::<Header>(1)?.first().ok_or(LayoutError::TooSmall)?;
            let parts = Parts {
                secret,
                configuration: &header.configuration,
                resets: &header.resets,
                counted_sizes: &header.counted_sizes,
                counted_rates: carver.next(geometry.counted_rates)?,
                identity: &header.identity,
                directory: carver.next(geometry.directory)?,
                definitions: carver.next(geometry.directory)?,
                namespace_lines: carver
                    .next(geometry.directory.saturating_mul(geometry.workers))?,
                shared_lines: carver.next(geometry.directory)?,
                named: carver.next(geometry.named)?,
                zone_lines: carver.next(geometry.workers)?,
                sync_lines: carver.next(geometry.directory)?,
                sync_slots: carver.next(geometry.sync_slots)?,
                buffers: carver.next(geometry.buffers)?,
                records: carver.next(geometry.buffers.saturating_mul(geometry.records))?,
                near: carver.next(geometry.near)?,
                sketches: Sketches {
                    heads: carver.next(geometry.sketches)?,
                    hashes: carver.next(entries)?,
                    counts: carver.next(entries)?,
                    keys: carver.next(entries)?,
                    hints: carver.next(entries)?,
                },
                tags: carver.next(geometry.buckets)?,
                dirty: carver.next(dirty_words(geometry.buckets))?,
                holders: carver.next(geometry.holders)?,
                marks: carver.next(geometry.buckets.saturating_mul(WAYS).div_ceil(MARKS))?,
                buckets: carver.next(geometry.buckets)?,
            };
            Ok((header, parts))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_of_any_size_is_used_well() {
        // The smallest zone has 8 pages, of which nginx uses at least one.
        for (len, percent) in [
            (7 * 4096, 58),
            (100_000, 65),
            // 64 namespaces with 16 shards each take an eighth of it.
            (1 << 20, 71),
            (10 << 20, 90),
            (64 << 20, 91),
            (1 << 30, 94),
            (1 << 37, 97),
        ] {
            let geometry = Geometry::of(len, len).unwrap();
            let slots = geometry.buckets * WAYS * size_of::<Slot>();
            assert!(slots * 100 >= len * percent, "{len}: {geometry:?}");
        }
        assert_eq!(Geometry::of(1024, 1024), Err(LayoutError::TooSmall));
        assert_eq!(Geometry::of(0, 0), Err(LayoutError::TooSmall));
    }

    #[test]
    fn parts_fit_into_a_region_of_any_size() {
        let layout = std::alloc::Layout::from_size_align(1 << 20, 64).unwrap();
        // SAFETY: the layout has a size.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        let memory = NonNull::new(memory).unwrap();
        for len in (7 * 4096..=layout.size()).step_by(8) {
            let region = NonNull::slice_from_raw_parts(memory, len);
            // SAFETY: the region is zero, within the memory, and used by this test only.
            let carved = unsafe { Parts::carve(region, len, [0; 2]) };
            assert!(carved.is_ok(), "{len}: {:?}", Geometry::of(len, len));
        }
        // SAFETY: the memory was allocated with this layout, and nothing uses it any more.
        unsafe { std::alloc::dealloc(memory.as_ptr(), layout) };
    }

    #[test]
    fn room_grows_with_the_zone() {
        for (size, namespaces, shards) in [
            (32 << 10, 8, 32),
            (256 << 10, 16, 256),
            (1 << 20, 64, 1024),
            (10 << 20, 160, 1024),
            (64 << 20, 1024, 4096),
            (1 << 30, 1024, 16_384),
        ] {
            assert_eq!(ZoneRoom::of(size), ZoneRoom { namespaces, shards }, "{size}");
            let geometry = Geometry::of(size, size).unwrap();
            assert!(geometry.directory >= namespaces, "{geometry:?}");
            assert!(geometry.buffers >= 16 || size < 1 << 20, "{geometry:?}");
        }
    }
}
