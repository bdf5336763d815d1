//! Assignment of a zone's [`SyncSlot`]s to syncs.

use crate::table::words::atomic::Ordering::{AcqRel, Relaxed, Release};
use crate::table::words::fail::fail_point;
use crate::table::words::meta::NamespaceIndex;
use crate::table::zone::buffers::Buffers;
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::sync_slot::{SyncSlot, owner_word};
use crate::table::zone::sync_state::SyncState;

impl<'m> CounterTable<'m> {
    /// Begins the sync of `namespace` under a new configuration, with the store's number of shards.
    /// From now on, no worker of an older configuration takes a lease of it. Shards that the store
    /// does not have any more are released, since their state belongs to another store.
    ///
    /// `None` if the zone has no room for them next to this configuration's other namespaces. There
    /// is room for those of [`ZoneRoom`](crate::table::ZoneRoom) at least.
    pub fn sync_states(
        &self,
        namespace: NamespaceIndex,
        shards: u16,
    ) -> Option<Vec<SyncState<'m>>> {
        let entry = self.entry(namespace)?;
        entry.synced.store(self.configuration(), Relaxed);
        self.release_shards(namespace, shards);
        let sync_generation = entry.sync_generation.fetch_add(1, AcqRel).wrapping_add(1);
        let slots = self.slots_of(namespace, shards)?;
        slots.iter().for_each(|(_, slot)| slot.synced.store(0, Relaxed));
        self.states_of(namespace, sync_generation, slots)
    }

    /// Joins the sync of `namespace` for another process of the current configuration, without
    /// interrupting the others. If no process has begun it, or the number of shards differs, works
    /// as [`CounterTable::sync_states`].
    ///
    /// Only one process at a time may call this.
    pub fn join_sync(&self, namespace: NamespaceIndex, shards: u16) -> Option<Vec<SyncState<'m>>> {
        let entry = self.entry(namespace)?;
        let owned = self.slots().filter_map(|(index, slot)| {
            let (owner, shard) = slot.owner()?;
            (owner == namespace).then_some((shard, (index, slot)))
        });
        let mut owned: Vec<_> = owned.collect();
        owned.sort_by_key(|(shard, ..)| *shard);
        let is_whole = owned.iter().map(|(shard, ..)| *shard).eq(0..shards);
        if !is_whole || shards == 0 {
            return self.sync_states(namespace, shards);
        }
        entry.synced.store(self.configuration(), Relaxed);
        let sync_generation = entry.sync_generation.load(Relaxed);
        let slots = owned.into_iter().map(|(_, slot)| slot);
        self.states_of(namespace, sync_generation, slots)
    }

    /// Returns the syncs of a namespace that have these slots.
    fn states_of(
        &self,
        namespace: NamespaceIndex,
        sync_generation: u64,
        slots: impl IntoIterator<Item = (usize, &'m SyncSlot)>,
    ) -> Option<Vec<SyncState<'m>>> {
        let entry = self.entry(namespace)?;
        let line = self.parts.sync_lines.get(namespace.get())?;
        let buffers = Buffers::of(&self.parts);
        let state =
            |(index, slot)| SyncState { slot, index, entry, line, buffers, sync_generation };
        Some(slots.into_iter().map(state).collect())
    }

    /// Returns the slots of the first `shards` shards of a namespace, and assigns the missing ones.
    fn slots_of(
        &self,
        namespace: NamespaceIndex,
        shards: u16,
    ) -> Option<Vec<(usize, &'m SyncSlot)>> {
        // Each turn but the last releases a namespace, of which there is a finite number, or finds
        // that a process that was stopped meanwhile has taken a slot.
        'again: loop {
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
                    let (_, slot) = (*own)?;
                    let word = owner_word(namespace, shard);
                    let taken = slot.owner.compare_exchange(0, word, AcqRel, Relaxed);
                    if taken.is_err() {
                        continue 'again;
                    }
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

    /// Releases the shards of the least recently synced namespace that this configuration does not
    /// sync; `None` without one.
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

    /// Releases the slots of a namespace, except for its first `shards` shards. Workers of previous
    /// configurations, which would use the former store, cannot take its leases any more.
    pub(crate) fn release_shards(&self, namespace: NamespaceIndex, shards: u16) {
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
