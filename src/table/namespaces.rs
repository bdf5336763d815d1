//! The namespaces of a zone: which places of the directory are theirs, and for how long.
//!
//! A place stays its namespace's until another one needs it: first those are taken that were never
//! used, then those that no configuration has had for the longest time. So the workers of the
//! configuration before find theirs unchanged while they drain, in all but extreme cases; and when
//! they do not, they lose the leases of what they sync, and what they count there is lost:
//! it is by its whole identity that a counter is known, not by its namespace's place.
//!
//! Places change hands where a configuration begins, or where a worker defines a namespace (`definitions`), in one
//! process at a time. Others know theirs by then.

use super::words::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use super::words::fail::fail_point;
use super::words::meta::{Meta, NamespaceIndex};
use super::zone::counter_table::CounterTable;
use super::zone::directory::cut;
use super::zone::event_lines::{NamespaceLine, SharedLine};
use super::zone::layout::DirectoryEntry;
use super::zone::sync_line::SyncLine;

/// The length of an entry whose name is being written.
const BUSY: u64 = u64::MAX;

impl<'m> CounterTable<'m> {
    /// Begins a configuration that has these namespaces, each of them synced in so many shards (0: not
    /// at all): what they have in the zone stays theirs; of what only other namespaces have, as much
    /// is used again as is needed. Returns its number.
    pub fn begin_configuration<'n>(
        &self,
        namespaces: impl Iterator<Item = (&'n [u8], u16)>,
    ) -> u64 {
        let before = self.parts.configuration.fetch_add(1, AcqRel);
        let configuration = before.wrapping_add(1);
        self.retry_sketches();
        self.forget_due();
        for (name, shards) in namespaces {
            let Some((index, entry)) = self.entry_named(cut(name)) else {
                continue;
            };
            entry.configured.store(configuration, Relaxed);
            if shards > 0 {
                entry.synced.store(configuration, Relaxed);
                self.release_shards(index, shards);
            }
        }
        configuration
    }

    /// Finds or makes the directory entry of the namespace `name` (at most 64 bytes; longer
    /// ones are cut).
    ///
    /// Returns `None` if the directory is full of namespaces of this configuration: it has room for
    /// those of [`ZoneRoom`](super::ZoneRoom) at least.
    pub fn namespace(&self, name: &[u8]) -> Option<NamespaceIndex> {
        let (index, entry) = self.entry_for(name)?;
        entry.configured.store(self.configuration(), Relaxed);
        Some(index)
    }

    /// Finds or makes the entry of a namespace. One that is new may still have the number of a configuration that
    /// had another namespace there.
    pub(super) fn entry_for(&self, name: &[u8]) -> Option<(NamespaceIndex, &'m DirectoryEntry)> {
        let name = cut(name);
        self.entry_named(name).or_else(|| self.make_entry(name))
    }

    /// Gives the namespace `name` the entry that was not configured for the longest time.
    fn make_entry(&self, name: &[u8]) -> Option<(NamespaceIndex, &'m DirectoryEntry)> {
        let last_configured = |entry: &DirectoryEntry| match entry.len.load(Acquire) {
            0 => None,
            _ => Some(entry.configured.load(Relaxed)),
        };
        let configuration = self.configuration();
        let mut entries: Vec<_> = self
            .entries()
            .map(|(index, entry)| (last_configured(entry), index, entry))
            .filter(|(last, ..)| last.is_none_or(|last| last < configuration))
            .collect();
        // Those that were never used first, and of them the first.
        entries.sort_by_key(|(last, ..)| *last);
        entries.into_iter().find_map(|(_, index, entry)| {
            let len = entry.len.load(Acquire);
            let taken = entry.len.compare_exchange(len, BUSY, AcqRel, Relaxed);
            // If it fails, another process is taking it.
            taken.ok()?;
            if len != 0 {
                self.retire(index, entry);
            }
            entry.set_name(name);
            Some((index, entry))
        })
    }

    /// Forgets all that the namespace in an entry had in the zone.
    fn retire(&self, index: NamespaceIndex, entry: &DirectoryEntry) {
        entry.is_reused.store(1, Release);
        fail_point!("namespace.retired");
        self.release_shards(index, 0);
        self.drop_counters(index);
        let (start, workers) = (self.lines_of(index), self.parts.zone_lines.len());
        let lines = self.parts.namespace_lines;
        let lines = lines.get(start..start.saturating_add(workers));
        lines.into_iter().flatten().for_each(NamespaceLine::clear);
        fail_point!("namespace.cleared");
        let line = self.parts.sync_lines.get(index.get());
        line.into_iter().for_each(SyncLine::clear);
        let line = self.parts.shared_lines.get(index.get());
        line.into_iter().for_each(SharedLine::clear);
        self.release_sketches(index, entry);
        entry.synced.store(0, Relaxed);
        entry.nodes.store(0, Relaxed);
        entry.early.store(0, Relaxed);
        self.forget_counted_sizes(index);
        let definition = self.parts.definitions.get(index.get());
        definition.into_iter().for_each(|it| it.store(0, Release));
        fail_point!("namespace.forgotten");
    }

    /// Gives the places of all counters of a namespace free. That takes a look at every place that
    /// was ever used: some 0.1 s in a full zone of 1 GiB.
    fn drop_counters(&self, namespace: NamespaceIndex) {
        let lines = self.lines_of(namespace);
        for (tags, bucket) in self.parts.tags.iter().zip(self.parts.buckets) {
            // Memory that was never used stays untouched.
            if tags.load(Relaxed) == 0 {
                continue;
            }
            for slot in bucket {
                let meta = slot.meta();
                if meta.is_counter() && meta.namespace() == namespace {
                    let free = Meta::free(meta.generation().next());
                    if slot.replace_meta(meta, free).is_ok() {
                        self.count(lines, NamespaceLine::removed);
                        fail_point!("namespace.dropped");
                    }
                }
            }
        }
    }
}
