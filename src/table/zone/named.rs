//! Words with names: a policy's rejections, or a node's state of a store.
//!
//! The names are those of one configuration. The process that starts the configuration claims a
//! word for each name, and frees those of unused names. A word keeps its value while its name is
//! used. A worker of an older configuration detects that a word belongs to another name, and does
//! not change it.

use super::counter_table::CounterTable;
use super::layout::NamedWord;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::table::words::fail::fail_point;

/// A kind of named words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A store, by its name and address.
    Store,
    /// The listener of a store's channel, by the store's name and address.
    Channel,
    /// A policy, by its namespace and name.
    Policy,
    /// The budget of exchanges with a store, by the store's name and address.
    Budget,
}

/// A word, as it was found.
#[derive(Clone, Copy, Debug)]
pub struct Named<'m> {
    word: &'m NamedWord,
    id: u64,
}

impl NameKind {
    /// Returns the number of a kind, which separates its names from everything else that is hashed
    /// with the zone's secret.
    fn tag(self) -> u8 {
        match self {
            NameKind::Store => 254,
            NameKind::Policy => 253,
            NameKind::Channel => 252,
            NameKind::Budget => 251,
        }
    }
}

impl<'m> CounterTable<'m> {
    /// Claims a word for each name, in their order, and frees the words of all other names. There
    /// is one word for each KiB of the zone, at most 1100.
    ///
    /// Only one process at a time may call this.
    pub fn claim_words<'n>(
        &self,
        names: impl Iterator<Item = (NameKind, [&'n str; 2])>,
    ) -> Vec<Option<Named<'m>>> {
        let ids: Vec<u64> = names.map(|(kind, name)| self.word_id(kind, name)).collect();
        let used: std::collections::HashSet<u64> = ids.iter().copied().collect();
        for word in self.parts.named {
            if !used.contains(&word.id.load(Acquire)) {
                word.id.store(0, Release);
                fail_point!("word.freed");
            }
        }
        ids.into_iter().map(|id| self.claim_word(id)).collect()
    }

    /// Claims a word for one more name of the current configuration; `None` if none is free.
    ///
    /// Only one process at a time may call this, and none may claim other words meanwhile.
    pub fn join_word(&self, kind: NameKind, name: [&str; 2]) -> Option<Named<'m>> {
        self.claim_word(self.word_id(kind, name))
    }

    fn claim_word(&self, id: u64) -> Option<Named<'m>> {
        if let Some(known) = self.word_of(id) {
            return Some(known);
        }
        let free = self.word_of(0)?.word;
        // In this order, so that a process that finds the name finds its own value.
        free.value.store(0, Relaxed);
        fail_point!("word.cleared");
        free.id.store(id, Release);
        fail_point!("word.claimed");
        Some(Named { word: free, id })
    }

    /// Returns the word of a name; `None` without one.
    pub fn named(&self, kind: NameKind, name: [&str; 2]) -> Option<Named<'m>> {
        self.word_of(self.word_id(kind, name))
    }

    fn word_of(&self, id: u64) -> Option<Named<'m>> {
        let words: &'m [NamedWord] = self.parts.named;
        let word = words.iter().find(|word| word.id.load(Acquire) == id)?;
        Some(Named { word, id })
    }

    fn word_id(&self, kind: NameKind, [first, second]: [&str; 2]) -> u64 {
        // Hashed with the length, so that the end of the first part is unambiguous.
        let name = [first.as_bytes(), second.as_bytes()].concat();
        let mask = self.hasher.mask(&name, kind.tag(), first.len() as u64);
        let [id, _] = mask.0;
        id.max(1)
    }
}

impl Named<'_> {
    /// Returns the value; 0 if the word belongs to another name by now.
    pub fn get(&self) -> u64 {
        match self.is_ours() {
            true => self.word.value.load(Acquire),
            false => 0,
        }
    }

    /// Adds one to the value.
    pub fn count(&self) {
        if self.is_ours() {
            self.word.value.fetch_add(1, Relaxed);
        }
    }

    /// Replaces the value with `change`'s result atomically; `None` leaves it. Returns the old and
    /// the new value.
    pub(crate) fn update(&self, change: impl Fn(u64) -> Option<u64>) -> Option<(u64, u64)> {
        if !self.is_ours() {
            return None;
        }
        let mut old = self.word.value.load(Acquire);
        loop {
            let new = change(old).filter(|new| *new != old)?;
            match self.word.value.compare_exchange(old, new, AcqRel, Acquire) {
                Ok(_) => return Some((old, new)),
                Err(other) => old = other,
            }
        }
    }

    /// Returns whether the word still belongs to this name. A count at the moment of its release
    /// may go to the next name.
    fn is_ours(&self) -> bool {
        self.word.id.load(Acquire) == self.id
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::table::SharedTable;

    const POLICY: NameKind = NameKind::Policy;

    #[test]
    fn a_word_keeps_its_value_as_long_as_its_name_is_used() {
        let shared = SharedTable::new(1 << 20);
        let table = &shared.table;
        let claim = |names: &[[&'static str; 2]]| {
            table.claim_words(names.iter().map(|name| (POLICY, *name)))
        };
        let first = claim(&[["api", "a"], ["api", "b"], ["ap", "ib"]]);
        let [a, b, c] = first.as_slice() else {
            panic!("{first:?}");
        };
        a.unwrap().count();
        b.unwrap().count();
        table.named(POLICY, ["api", "b"]).unwrap().count();
        let values = [a, b, c].map(|word| word.unwrap().get());
        assert_eq!(values, [1, 2, 0]);

        let second = claim(&[["api", "new"], ["api", "b"], ["api", "other"]]);
        // From the previous configuration.
        a.unwrap().count();
        let values: Vec<_> = second.iter().map(|word| word.unwrap().get()).collect();
        assert_eq!(values, [0, 2, 0]);
        assert!(table.named(POLICY, ["api", "a"]).is_none());
        assert!(table.named(NameKind::Store, ["api", "b"]).is_none());
        claim(&[["api", "a"]]);
        assert_eq!(table.named(POLICY, ["api", "a"]).unwrap().get(), 0);
    }

    #[test]
    fn the_number_of_words_is_limited() {
        let shared = SharedTable::new(64 << 10);
        let names: Vec<_> = (0..100).map(|number: u32| number.to_string()).collect();
        for _ in 0..2 {
            let names = names.iter().map(|name| (POLICY, ["api", name.as_str()]));
            let words = shared.table.claim_words(names);
            let count = words.iter().take_while(|word| word.is_some()).count();
            assert!((60..=64).contains(&count), "{count}");
        }
    }
}
