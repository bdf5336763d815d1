//! Counts, reads and refunds hits in levels, for limits without windows.

use crate::policy::algorithm::{Algorithm, Level, LevelKind, Reading};
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, WindowSize};
use crate::table::slots::admission::{Admission, Counted, Receipt};
use crate::table::slots::insertion::relax;
use crate::table::slots::level::LevelState;
use crate::table::words::fail::fail_point;
use crate::table::words::slot::Occupant;
use crate::table::words::word::Stamp;
use crate::table::zone::counter::{Counter, Key};
use crate::table::zone::counter_table::CounterTable;

/// Returns the stamp that distinguishes a level from earlier ones of the slot and the counter.
fn stamp(kind: LevelKind, level: &Level, occupant: Occupant<'_>) -> Stamp {
    let era = kind.era(level);
    Stamp::new(era.wrapping_mul(2), occupant.meta.generation())
}

/// Replaces `state` of a counter with `level`. Returns false if another process has changed the
/// counter, or the slot has another occupant, with which the change was lost.
#[inline(always)]
fn change_level(occupant: Occupant<'_>, state: &LevelState<'_>, level: &Level) -> bool {
    let is_changed = state.replace(occupant, level);
    fail_point!("level.changed");
    is_changed && occupant.is_there()
}

/// Creates the receipt of hits whose count made `level`.
#[inline]
fn receipt<'m>(kind: LevelKind, occupant: Occupant<'m>, level: &Level, value: Hits) -> Receipt<'m> {
    let [column, _] = &occupant.slot.local;
    Receipt { column, stamp: stamp(kind, level, occupant), value }
}

/// Reads of an invalid state after which the counter is given up; some tenths of a second.
const MOST_LOOKS: u32 = if cfg!(loom) { 2 } else { 10_000_000 };

impl<'m> CounterTable<'m> {
    /// Counts `value` hits of `key`, above zero, in a level within `limit`, but only in the most
    /// frequent case: the counter is in its home slot and no other process interferes. `kind` is
    /// that of the algorithm at the limit's rate. Otherwise returns `None` and counts nothing.
    // Always inlined, so that each kind of level has only the code that it needs.
    #[inline(always)]
    pub fn add_to_level_at_home(
        &self,
        counter: &Counter,
        kind: LevelKind,
        key: &Key<'_>,
        clock: &impl Clock,
        value: Hits,
        (limit, algorithm): (Hits, Algorithm),
    ) -> Option<Counted<'m>> {
        let id = counter.identity(*key);
        let occupant = self.home(id)?;
        if !occupant.meta.is_level() || !occupant.slot.has_identity(id) {
            return None;
        }
        let (size, now) = (counter.size, clock.now());
        let state = LevelState::read(occupant).ok()?;
        let before = kind.reading(size, state.level, now);
        if !algorithm.admits(size, &before, limit, value) {
            return self.add_to_level(kind, occupant, size, clock, Hits::ZERO, Admission::Refused);
        }
        let (level, reading) = kind.after_hit_on(size, state.level, before, now, value);
        if !change_level(occupant, &state, &level) {
            return None;
        }
        occupant.touch(now);
        let receipt = receipt(kind, occupant, &level, value);
        Some(Counted { reading, admitted: true, receipt: Some(receipt) })
    }

    /// Counts `value` hits in a level if `admission` allows it, and applies the effects of a
    /// refused hit. `None`, without counting, if the slot has another occupant by now.
    #[cold]
    #[inline(never)]
    pub(super) fn add_to_level(
        &self,
        kind: LevelKind,
        occupant: Occupant<'m>,
        size: WindowSize,
        clock: &impl Clock,
        value: Hits,
        admission: Admission,
    ) -> Option<Counted<'m>> {
        while let Some(state) = self.level_of(occupant) {
            let now = clock.now();
            let before = kind.reading(size, state.level, now);
            let admitted = admission.admits(size, &before, value);
            let counted = match admission {
                _ if !admitted => Hits::ZERO,
                Admission::Filling(most) => kind.filling(&before, most, value),
                _ => value,
            };
            let (level, reading) = kind.after_hit_on(size, state.level, before, now, counted);
            let is_done = match level == state.level {
                true => occupant.is_there(),
                false => change_level(occupant, &state, &level),
            };
            if is_done {
                occupant.touch(now);
                return Some(Counted {
                    reading,
                    admitted,
                    receipt: admitted.then(|| receipt(kind, occupant, &level, counted)),
                });
            }
        }
        None
    }

    /// Sets the level of `key` to the store's, unless another process changes it at this moment, or
    /// a full table has no slot for it.
    pub fn set_level(&self, counter: &Counter, key: Key<'_>, level: Level, clock: &impl Clock) {
        let id = counter.identity(key);
        let occupant = self.find(id);
        let Some(occupant) = occupant.or_else(|| self.insert_gently(counter, id, clock)) else {
            return;
        };
        if let Ok(state) = LevelState::read(occupant)
            && level != state.level
            && state.replace(occupant, &level)
        {
            occupant.touch(clock.now());
        }
    }

    /// Refunds hits of a level, unless the level has ended or is gone. Returns whether it did.
    pub(super) fn refund_to_level(
        &self,
        kind: LevelKind,
        size: WindowSize,
        receipt: &Receipt<'m>,
    ) -> bool {
        let Some(slot) = self.slot_at(self.index_of(receipt.column)) else {
            return false;
        };
        loop {
            let occupant = Occupant::of(slot);
            if !occupant.meta.is_level() {
                return false;
            }
            let Some(state) = self.level_of(occupant) else {
                continue;
            };
            let level = state.level;
            if stamp(kind, &level, occupant) != receipt.stamp {
                return false;
            }
            let level = kind.without_hit(size, level, state.before(), receipt.value);
            if state.replace(occupant, &level) {
                fail_point!("level.given_back");
                return true;
            }
        }
    }

    /// Reads the level of `key`; zero without a counter.
    pub(super) fn read_level(
        &self,
        kind: LevelKind,
        counter: &Counter,
        key: Key<'_>,
        clock: &impl Clock,
    ) -> Reading {
        let now = clock.now();
        loop {
            let Some(occupant) = self.find(counter.identity(key)) else {
                return kind.reading(counter.size, Level::default(), now);
            };
            let state = self.level_of(occupant);
            if let Some(state) = state.filter(|_| occupant.is_there()) {
                return kind.reading(counter.size, state.level, now);
            }
        }
    }

    /// Reads the current state of a counter. `None` if the slot has another occupant by now.
    ///
    /// Words that form no state belong to a change in progress. If they stay, a process was stopped
    /// during a change, until a later occupant of the slot had exactly the word that this process
    /// was about to replace. No process would ever change such words again, so a counter whose
    /// words are invalid for far longer than a change takes is given up.
    fn level_of(&self, occupant: Occupant<'m>) -> Option<LevelState<'m>> {
        let (mut last, mut looks) = (None, 0_u32);
        while occupant.is_there() {
            match LevelState::read(occupant) {
                Ok(state) => return Some(state),
                Err(unsettled) if last.as_ref() == Some(&unsettled) => {
                    looks = looks.saturating_add(1);
                    if looks == MOST_LOOKS {
                        self.give_up(occupant);
                    }
                }
                Err(unsettled) => (last, looks) = (Some(unsettled), 0),
            }
            relax();
        }
        None
    }
}
