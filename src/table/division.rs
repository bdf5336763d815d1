//! Which counters a sync is about: those of a namespace, or of one shard of it. The table knows no
//! shards: it is told of which keys they are.

use super::CounterTable;
use super::atomic::Ordering::Acquire;
use super::changes::Change;
use super::meta::NamespaceIndex;
use super::slot::Occupant;

/// Tells which keys are meant.
pub type HasKey<'p> = &'p dyn Fn(&[u8]) -> bool;

/// The counters that a sync is about.
#[derive(Clone, Copy)]
pub struct Part<'p> {
    /// Those of this namespace.
    pub namespace: NamespaceIndex,
    /// Of them, those whose keys are such; `None`: all.
    pub has_key: Option<HasKey<'p>>,
}

/// All of a namespace.
impl From<NamespaceIndex> for Part<'_> {
    fn from(namespace: NamespaceIndex) -> Self {
        Part {
            namespace,
            has_key: None,
        }
    }
}

impl Part<'_> {
    pub(super) fn has(&self, change: &Change) -> bool {
        change.namespace == self.namespace && self.has_key.is_none_or(|has| has(&change.key))
    }
}

impl<'m> CounterTable<'m> {
    /// Divides the changes of `namespace` among shards, by what `shard_of` says of their keys: for each
    /// shard the groups that have any, with a bit for each, as
    /// [`take_changes_at`](Self::take_changes_at) takes them. That takes none, and may leave out what
    /// changes meanwhile.
    pub fn divide_changes(
        &self,
        namespace: NamespaceIndex,
        shards: u16,
        shard_of: impl Fn(&[u8]) -> u16,
    ) -> Vec<Vec<(usize, u64)>> {
        let mut divided = vec![Vec::<(usize, u64)>::new(); shards.into()];
        for (group, word) in self.parts.changes.iter().enumerate() {
            let mut changed = word.load(Acquire);
            while changed != 0 {
                let bit = changed & changed.wrapping_neg();
                let index = group.saturating_mul(64);
                let index = index.saturating_add(changed.trailing_zeros() as usize);
                changed &= !bit;
                let Some(slot) = self.slot_at(index) else {
                    continue;
                };
                let meta = slot.meta();
                let is_counter = meta.is_counter() && meta.is_synced();
                if is_counter && meta.namespace() != namespace {
                    continue;
                }
                // What is no counter any more, or has no name, is nobody's: so it is the first one's,
                // who finds out.
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

    /// Whether a counter is in `part`; `otherwise` if that depends on its name and it has none.
    pub(super) fn is_in(&self, part: Part<'_>, occupant: Occupant<'m>, otherwise: bool) -> bool {
        if occupant.meta.namespace() != part.namespace {
            return false;
        }
        match part.has_key {
            Some(has) => self.name_of(occupant).map_or(otherwise, |key| has(&key)),
            None => true,
        }
    }
}
