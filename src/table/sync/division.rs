//! Divides a namespace's changes among its shards.

use crate::table::slots::dirty::{bits_of, slot_of};
use crate::table::words::meta::NamespaceIndex;
use crate::table::words::slot::Occupant;
use crate::table::zone::counter::Part;
use crate::table::zone::counter_table::CounterTable;

impl<'m> CounterTable<'m> {
    /// Divides the changes of `namespace` among its shards, which `shard_of` returns for their
    /// keys. For each shard returns the groups with changes, and a bit for each counter, for
    /// [`take_changes_at`](Self::take_changes_at). Takes no changes, and may miss those made
    /// meanwhile.
    pub fn divide_changes(
        &self,
        namespace: NamespaceIndex,
        shards: u16,
        shard_of: impl Fn(&[u8]) -> u16,
    ) -> Vec<Vec<(usize, u64)>> {
        let mut divided = vec![Vec::<(usize, u64)>::new(); shards.into()];
        for (group, word) in self.parts.dirty.iter().enumerate() {
            let mut changed = bits_of(word);
            while changed != 0 {
                let bit = changed & changed.wrapping_neg();
                let index = slot_of(group, changed);
                changed &= !bit;
                let Some(slot) = self.slot_at(index) else {
                    continue;
                };
                let meta = slot.meta();
                let is_counter = meta.is_counter() && meta.is_synced();
                if is_counter && meta.namespace() != namespace {
                    continue;
                }
                // A slot without a counter or a name is passed to the first shard, which handles
                // that.
                let key = self.name_of(Occupant { slot, meta }).filter(|_| is_counter);
                let shard = key.map_or(0, |key| shard_of(&key));
                let Some(places) = divided.get_mut(usize::from(shard)) else {
                    continue;
                };
                match places.last_mut() {
                    Some((last, bits)) if *last == group => *bits |= bit,
                    _ => places.push((group, bit)),
                }
            }
        }
        divided
    }

    /// Returns whether a counter is in `part`; `otherwise` if that depends on its name and it has
    /// none.
    pub(crate) fn is_in(&self, part: Part<'_>, occupant: Occupant<'m>, otherwise: bool) -> bool {
        if occupant.meta.namespace() != part.namespace {
            return false;
        }
        match part.has_key {
            Some(has) => self.name_of(occupant).map_or(otherwise, |key| has(&key)),
            None => true,
        }
    }
}
