//! The namespaces of a zone, and their entries in the directory.
//!
//! A namespace keeps its entry until another namespace needs it: unused entries are taken first,
//! then those whose namespaces were configured least recently. So workers of the previous
//! configuration mostly find their entries unchanged while they drain. Otherwise they lose their
//! sync leases, and hits that they count there are lost, since a counter is found by its whole
//! identity and not by the entry of its namespace.
//!
//! Entries are reassigned when a configuration begins, or when a worker defines a namespace
//! (`definitions`), in one process at a time.

use super::words::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use super::words::fail::fail_point;
use super::words::meta::{Meta, NamespaceIndex};
use super::zone::counter_table::CounterTable;
use super::zone::directory::cut;
use super::zone::events::{EventWords, NamespaceLine};
use super::zone::layout::DirectoryEntry;

/// Length of an entry's name while it is being written.
const BUSY: u64 = u64::MAX;

impl<'m> CounterTable<'m> {
    /// Begins a configuration with these namespaces and their numbers of shards (0 for a local
    /// one). Their entries stay; entries that only other namespaces use are reassigned as needed.
    /// Returns the configuration's number.
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

    /// Finds or creates the directory entry of the namespace `name`, which is cut after 64 bytes.
    ///
    /// Returns `None` if all entries belong to namespaces of this configuration. There are at least
    /// as many entries as [`ZoneRoom`](super::ZoneRoom) says.
    pub fn namespace(&self, name: &[u8]) -> Option<NamespaceIndex> {
        let (index, entry) = self.entry_for(name)?;
        entry.configured.store(self.configuration(), Relaxed);
        Some(index)
    }

    /// Finds or creates the entry of a namespace. A new entry may still have the number of a
    /// configuration that used it for another namespace.
    pub(super) fn entry_for(&self, name: &[u8]) -> Option<(NamespaceIndex, &'m DirectoryEntry)> {
        let name = cut(name);
        self.entry_named(name).or_else(|| self.make_entry(name))
    }

    /// Removes what the zone may have of a namespace from an earlier configuration. Only one process at
    /// a time may call this, before it begins a configuration.
    pub fn start_anew(&self, name: &[u8]) {
        let name = cut(name);
        if let Some((index, entry)) = self.entry_named(name) {
            self.reuse_entry(index, entry, name);
        }
    }

    /// Gives an entry to the namespace `name`, without anything of the one that has it. Returns `None`
    /// if another process is doing the same.
    fn reuse_entry(
        &self,
        index: NamespaceIndex,
        entry: &DirectoryEntry,
        name: &[u8],
    ) -> Option<()> {
        let len = entry.len.load(Acquire);
        entry.len.compare_exchange(len, BUSY, AcqRel, Relaxed).ok()?;
        if len != 0 {
            self.retire(index, entry);
        }
        entry.set_name(name);
        Some(())
    }

    /// Gives the namespace `name` the entry that was configured least recently.
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
        // Unused entries come first, in their order.
        entries.sort_by_key(|(last, ..)| *last);
        entries.into_iter().find_map(|(_, index, entry)| {
            self.reuse_entry(index, entry, name).map(|()| (index, entry))
        })
    }

    /// Removes all data of an entry's namespace from the zone.
    fn retire(&self, index: NamespaceIndex, entry: &DirectoryEntry) {
        entry.is_reused.store(1, Release);
        fail_point!("namespace.retired");
        self.release_shards(index, 0);
        self.drop_counters(index);
        self.namespace_lines(index).iter().for_each(EventWords::clear);
        fail_point!("namespace.cleared");
        let line = self.parts.sync_lines.get(index.get());
        line.into_iter().for_each(EventWords::clear);
        let line = self.parts.shared_lines.get(index.get());
        line.into_iter().for_each(EventWords::clear);
        self.release_sketches(index, entry);
        entry.synced.store(0, Relaxed);
        entry.nodes.store(0, Relaxed);
        entry.early.store(0, Relaxed);
        self.forget_counted_sizes(index);
        let definition = self.parts.definitions.get(index.get());
        definition.into_iter().for_each(|it| it.store(0, Release));
        fail_point!("namespace.forgotten");
    }

    /// Frees the slots of all counters of a namespace. This reads every slot that was ever used,
    /// which takes about 0.1 s in a full zone of 1 GiB.
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
