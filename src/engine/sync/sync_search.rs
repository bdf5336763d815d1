//! The search of a cycle for changes, and the next batch, which is gathered while the store works
//! on the one before.

use crate::policy::window::UnixMillis;
use crate::store::contract::strategy::Batch;
use crate::table::{BatchRecord, Change, CounterTable, IsHeld, LeaseLost, Part};

/// In a batch with room for so many records, no counter's windows are divided: what is in one batch is in no
/// other that is gathered before that one is acknowledged.
const WHOLE: usize = 8;

/// The places where a cycle looks for changes, in this order: a change behind it is for the next
/// cycle.
#[derive(Debug)]
pub(super) struct Search {
    /// The places, as the table tells them; `None`: everywhere.
    places: Option<Vec<(usize, u64)>>,
    /// Number of groups that were looked at.
    next: usize,
    /// Bits of the next group that were not looked at: a counter that changes over and over keeps
    /// no other waiting.
    left: u64,
    /// Whether this is all that a cycle is for: others' changes are looked at if there is something to push.
    pub(super) is_early: bool,
    /// Whether others' changes are looked at in any case.
    pub(super) is_look: bool,
    /// Changes gathered for the next batch.
    gathered: Option<GatheredChanges>,
}

/// The changes for a batch.
#[derive(Debug)]
struct GatheredChanges {
    records: Vec<BatchRecord>,
    /// Whether there are more.
    has_more: bool,
}

impl Search {
    /// In the whole table.
    pub(super) fn everywhere() -> Search {
        Search::at(None)
    }

    /// In these places: groups, and which of their bits.
    pub(super) fn in_places(places: Vec<(usize, u64)>) -> Search {
        Search::at(Some(places))
    }

    /// In those places alone, before the time for the others.
    pub(super) fn early(places: Vec<(usize, u64)>) -> Search {
        Search { is_early: true, ..Search::at(Some(places)) }
    }

    /// In those places alone, and in any case at what others changed.
    pub(super) fn look(places: Vec<(usize, u64)>) -> Search {
        Search { is_look: true, ..Search::early(places) }
    }

    /// In those places, too, if it is not everywhere. It has not begun.
    pub(super) fn also_in(&mut self, places: Vec<(usize, u64)>) {
        let Some(known) = &mut self.places else {
            return;
        };
        for (group, bits) in places {
            match known.binary_search_by_key(&group, |(group, _)| *group) {
                Ok(index) => {
                    if let Some((_, all)) = known.get_mut(index) {
                        *all |= bits;
                    }
                }
                Err(index) => known.insert(index, (group, bits)),
            }
        }
    }

    fn at(places: Option<Vec<(usize, u64)>>) -> Search {
        Search { places, next: 0, left: u64::MAX, is_early: false, is_look: false, gathered: None }
    }

    /// The place that is next, in a table of so many groups.
    fn place(&self, groups: usize) -> Option<(usize, u64)> {
        let (group, bits) = match &self.places {
            Some(places) => *places.get(self.next)?,
            None => (self.next < groups).then_some((self.next, u64::MAX))?,
        };
        Some((group, bits & self.left))
    }

    fn advance(&mut self) {
        self.next = self.next.saturating_add(1);
        self.left = u64::MAX;
    }

    /// The changes of a part of the table for the next batch, of at most so many records, and whether
    /// there are more.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`], as of all that gathers: the worker that took over finds what was gathered.
    pub(super) fn take_batch(
        &mut self,
        table: &CounterTable<'_>,
        part: Part<'_>,
        capacity: usize,
        now: UnixMillis,
        is_held: IsHeld<'_>,
    ) -> Result<(Vec<BatchRecord>, bool), LeaseLost> {
        let GatheredChanges { mut records, mut has_more } = match self.gathered.take() {
            Some(gathered) => gathered,
            None => self.gather(table, part, capacity, now, is_held)?,
        };
        // There may be less room than there was.
        if records.len() > capacity {
            let records = records.split_off(capacity);
            self.gathered = Some(GatheredChanges { records, has_more });
            has_more = true;
        }
        Ok((records, has_more))
    }

    /// Gathers changes for the next batch, in which there is room for so many: while the one before is on its
    /// way, so that [`Search::take_batch`] has them at once. What is not taken then is to be
    /// [put back](Search::put_back).
    pub(super) fn gather_ahead(
        &mut self,
        table: &CounterTable<'_>,
        part: Part<'_>,
        capacity: usize,
        now: UnixMillis,
        is_held: IsHeld<'_>,
    ) -> Result<(), LeaseLost> {
        if self.gathered.is_none() && capacity >= WHOLE {
            self.gathered = Some(self.gather(table, part, capacity, now, is_held)?);
        }
        Ok(())
    }

    /// Has what was gathered be found again.
    pub(super) fn put_back(&mut self, table: &CounterTable<'_>) {
        for record in self.gathered.take().into_iter().flat_map(|it| it.records) {
            table.record_again(record.counter);
        }
    }

    fn gather(
        &mut self,
        table: &CounterTable<'_>,
        part: Part<'_>,
        capacity: usize,
        now: UnixMillis,
        is_held: IsHeld<'_>,
    ) -> Result<GatheredChanges, LeaseLost> {
        let capacity = capacity.min(Batch::MAX_DIFFS);
        let mut key_bytes: usize = 0;
        let mut records = Vec::new();
        let mut is_full = false;
        while let Some(place) = self.place(table.change_groups()) {
            table.take_changes_at(place, part, now, is_held, |change| {
                let len = records.len().saturating_add(change.windows.len());
                let bytes = key_bytes.saturating_add(change.key.len());
                let fits = len <= capacity && bytes <= Batch::MAX_KEY_BYTES;
                // Of the first one, there may be room for one window only.
                let is_whole = fits || records.is_empty() && change.windows.len() <= capacity;
                if is_whole || records.is_empty() {
                    key_bytes = bytes;
                    records.extend(records_of(&change).take(capacity));
                }
                if !is_whole {
                    if !is_full {
                        self.left = change.counter.bits_from();
                    }
                    is_full = true;
                    table.record_again(change.counter);
                }
            })?;
            if is_full {
                break;
            }
            self.advance();
        }
        Ok(GatheredChanges { records, has_more: is_full })
    }
}

fn records_of(change: &Change) -> impl Iterator<Item = BatchRecord> + '_ {
    change.windows.iter().map(|window| BatchRecord {
        counter: change.counter,
        window: window.number,
        up_to: window.local,
        diff: window.local.minus(window.pushed),
    })
}
