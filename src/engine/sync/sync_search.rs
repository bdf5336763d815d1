//! A cycle's search for changes, and the next batch, which is gathered while the store works on the
//! current one.

use crate::policy::window::UnixMillis;
use crate::store::contract::strategy::Batch;
use crate::table::{BatchRecord, Change, CounterTable, IsHeld, LeaseLost, Part};

/// In a batch with room for this many records, the windows of a counter are never split, so a
/// counter is in only one of the batches gathered before an acknowledgment.
const WHOLE: usize = 8;

/// The places that a cycle searches, in this order. Changes at earlier places are left to the next
/// cycle.
#[derive(Debug)]
pub(super) struct Search {
    /// The places, as the table returned them; `None` for all.
    places: Option<Vec<(usize, u64)>>,
    /// Number of groups that were searched.
    next: usize,
    /// Bits of the next group that were not searched, so that a counter that changes all the time
    /// does not block others.
    left: u64,
    /// Whether the cycle has no other purpose. Then other nodes' changes are fetched only if there
    /// is something to push.
    pub(super) is_early: bool,
    /// Whether other nodes' changes are fetched in any case.
    pub(super) is_look: bool,
    /// Changes that were gathered for the next batch.
    gathered: Option<GatheredChanges>,
}

/// Changes for a batch.
#[derive(Debug)]
struct GatheredChanges {
    records: Vec<BatchRecord>,
    /// Whether there are more changes.
    has_more: bool,
}

impl Search {
    /// Searches the whole table.
    pub(super) fn everywhere() -> Search {
        Search::at(None)
    }

    /// Searches these places: groups, and bits in them.
    pub(super) fn in_places(places: Vec<(usize, u64)>) -> Search {
        Search::at(Some(places))
    }

    /// Searches these places for an early push.
    pub(super) fn early(places: Vec<(usize, u64)>) -> Search {
        Search { is_early: true, ..Search::at(Some(places)) }
    }

    /// Searches these places, and fetches other nodes' changes in any case.
    pub(super) fn look(places: Vec<(usize, u64)>) -> Search {
        Search { is_look: true, ..Search::early(places) }
    }

    /// Adds places to a search that has not begun, unless it is everywhere.
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

    /// Returns the next place, in a table with this number of groups.
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

    /// Takes the changes of a part of the table for the next batch, with at most `capacity`
    /// records. Returns them, and whether there are more.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`]. The worker that has taken over finds the changes.
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
        // The next batch may have fewer records than were gathered.
        if records.len() > capacity {
            let records = records.split_off(capacity);
            self.gathered = Some(GatheredChanges { records, has_more });
            has_more = true;
        }
        Ok((records, has_more))
    }

    /// Gathers changes for the next batch while the current one is in flight, so that
    /// [`Search::take_batch`] has them at once. Changes that are not taken must be [put
    /// back](Search::put_back).
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

    /// Marks gathered changes as changed again.
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
                // A batch may have room for only one window of its first counter.
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
