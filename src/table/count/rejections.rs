//! The most rejected keys of a namespace. A namespace gets a sketch with its first rejection, if
//! one is free.

use crate::policy::window::UnixMillis;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::table::words::fail::fail_point;
use crate::table::words::meta::NamespaceIndex;
use crate::table::zone::counter::{Counter, Key};
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::layout::DirectoryEntry;
use crate::table::zone::sketch::{RejectedKey, Sketch};

/// Value of an entry whose namespace gets no sketch.
const NONE: u64 = u64::MAX;

/// The sketch of a namespace's rejections.
enum Followed {
    /// No sketch was needed yet.
    NotYet,
    /// None: all sketches belong to other namespaces.
    ByNone,
    /// The number of the sketch.
    By(u64),
}

/// The most rejected keys of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopRejected {
    /// Keys by descending counts, also those whose count has fallen to 0.
    pub keys: Vec<RejectedKey>,
    /// The most by which a count can be too small.
    pub missed: u64,
    /// Most keys that are tracked; 0 if the zone has no room for a sketch.
    pub followed: usize,
}

impl<'m> CounterTable<'m> {
    /// Counts a rejection of `key`, in the namespace of `counter`.
    pub fn count_rejected_key(&self, counter: &Counter, key: Key<'_>, now: UnixMillis) {
        let Some(entry) = self.entry(counter.namespace) else {
            return;
        };
        if let Some(sketch) = self.sketch_of(counter.namespace, entry) {
            let [hash, _] = key.hash.0;
            sketch.count(hash.max(1), key.bytes, now);
        }
    }

    /// Returns the most rejected keys of `namespace` in the last minutes.
    pub fn top_rejected(&self, namespace: NamespaceIndex, now: UnixMillis) -> TopRejected {
        let sketches = &self.parts.sketches;
        let followed = self.entry(namespace).map(DirectoryEntry::followed);
        let entries = sketches.counts.len().checked_div(sketches.heads.len());
        match followed {
            None | Some(Followed::ByNone) => TopRejected::default(),
            Some(Followed::NotYet) => {
                TopRejected { followed: entries.unwrap_or_default(), ..TopRejected::default() }
            }
            Some(Followed::By(index)) => {
                let sketch = usize::try_from(index).ok().and_then(|it| sketches.get(it));
                let (keys, missed) = sketch.map(|it| it.top(now)).unwrap_or_default();
                TopRejected { keys, missed, followed: entries.unwrap_or_default() }
            }
        }
    }

    fn sketch_of(&self, namespace: NamespaceIndex, entry: &DirectoryEntry) -> Option<Sketch<'m>> {
        let followed = match entry.followed() {
            Followed::NotYet => self.claim_sketch(namespace, entry),
            known => known,
        };
        match followed {
            Followed::By(index) => self.parts.sketches.get(usize::try_from(index).ok()?),
            Followed::NotYet | Followed::ByNone => None,
        }
    }

    /// Claims a free sketch for a namespace. If a process was killed while it claimed one, the
    /// namespace finds that one again.
    #[cold]
    fn claim_sketch(&self, namespace: NamespaceIndex, entry: &DirectoryEntry) -> Followed {
        let mine = owner_word(namespace);
        let heads = (0..).zip(self.parts.sketches.heads);
        let mut owned = heads.filter_map(|(index, head)| {
            let claimed = head.owner.compare_exchange(0, mine, AcqRel, Acquire);
            fail_point!("sketch.claimed");
            let is_mine = claimed.is_ok() || claimed == Err(mine);
            is_mine.then_some(index)
        });
        let word = owned.next().map_or(NONE, |index: u64| index.saturating_add(1));
        // If another process was first, its sketch is the namespace's.
        let noted = entry.sketch.compare_exchange(0, word, AcqRel, Acquire);
        fail_point!("sketch.noted");
        Followed::of_word(noted.map_or_else(|other| other, |_| word))
    }

    /// Releases the sketches of a namespace that is removed.
    pub(crate) fn release_sketches(&self, namespace: NamespaceIndex, entry: &DirectoryEntry) {
        entry.sketch.store(0, Release);
        let sketches = &self.parts.sketches;
        let indices = 0..sketches.heads.len();
        for sketch in indices.filter_map(|index| sketches.get(index)) {
            if sketch.head.owner.load(Acquire) == owner_word(namespace) {
                sketch.clear();
            }
        }
    }

    /// Lets namespaces without a sketch try again, since others may have released theirs.
    pub(crate) fn retry_sketches(&self) {
        for entry in self.parts.directory {
            let _ = entry.sketch.compare_exchange(NONE, 0, Relaxed, Relaxed);
        }
    }
}

fn owner_word(namespace: NamespaceIndex) -> u64 {
    (namespace.get() as u64).saturating_add(1)
}

impl Followed {
    fn of_word(word: u64) -> Followed {
        match word {
            0 => Followed::NotYet,
            NONE => Followed::ByNone,
            word => Followed::By(word.wrapping_sub(1)),
        }
    }
}

impl DirectoryEntry {
    fn followed(&self) -> Followed {
        Followed::of_word(self.sketch.load(Acquire))
    }
}
