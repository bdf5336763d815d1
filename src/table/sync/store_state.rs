//! Whether a store is up, as the node's workers know it together: one worker reports that it is
//! lost, and one that it is back.
//!
//! Each namespace uses the store separately, and so does the broker, which asks it about requests.
//! The store counts as lost while one of these users finds it lost.

use crate::table::zone::named::Named;

/// The state of a store, shared by the node's workers.
#[derive(Clone, Copy, Debug)]
pub struct StoreState<'m> {
    word: Named<'m>,
    /// The configuration that this state belongs to.
    generation: u64,
}

/// A change of a store's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreTransition {
    /// The store succeeded for the first time.
    Connected,
    /// The store failed, and has never succeeded.
    Unreached,
    /// The store failed.
    Lost,
    /// The store succeeds again.
    Back,
}

/// A store's state at a moment, for [`StoreState::note`].
#[derive(Clone, Copy, Debug)]
pub struct StoreMoment(StoreWord);

impl StoreMoment {
    /// Returns the state after one more return.
    pub fn back(self) -> StoreMoment {
        StoreMoment(self.0.back())
    }
}

/// ```text
///  63        51   50       49       48     40  39      0
/// +------------+--------+---------+-----------+---------+
/// | generation | is off | reached |  returns  | failing |
/// +------------+--------+---------+-----------+---------+
/// ```
///
/// `failing` has a bit for each user that finds the store lost. `returns` is the number of times that
/// it was reached first or has come back, modulo 512.
#[derive(Clone, Copy, Debug)]
struct StoreWord(u64);

const FAILING: u64 = (1 << StoreState::USERS) - 1;
const RETURN: u64 = 1 << StoreState::USERS;
const RETURNS: u64 = REACHED - RETURN;
const REACHED: u64 = 1 << 49;
const IS_OFF: u64 = 1 << 50;
const GENERATION: u32 = 51;

impl StoreWord {
    fn generation(self) -> u64 {
        self.0 >> GENERATION
    }

    fn is_lost(self) -> bool {
        self.0 & FAILING != 0
    }

    /// Returns the word under a new configuration with these users: a lost store is lost to each of
    /// them until it finds the store up.
    fn next(self, users: u64) -> StoreWord {
        let failing = if self.is_lost() { users & FAILING } else { 0 };
        let generation = self.generation().wrapping_add(1) << GENERATION;
        StoreWord(generation | self.0 & (REACHED | IS_OFF | RETURNS) | failing)
    }

    fn returns(self) -> u64 {
        self.0 & RETURNS
    }

    fn succeeded(self, user: u64) -> StoreWord {
        let is_first = self.0 & REACHED == 0;
        // A user that did not reach the store before has not lost it.
        let finds_it = if is_first { FAILING } else { user };
        let now = StoreWord((self.0 | REACHED) & !finds_it);
        match is_first || self.is_lost() && !now.is_lost() {
            true => now.back(),
            false => now,
        }
    }

    /// Returns the word after one more return.
    fn back(self) -> StoreWord {
        let returns = self.0.wrapping_add(RETURN) & RETURNS;
        StoreWord(self.0 & !(RETURNS | FAILING) | returns)
    }

    fn failed(self, user: u64) -> StoreWord {
        StoreWord(self.0 | user)
    }
}

impl<'m> StoreState<'m> {
    /// Number of users that are distinguished. Users with higher numbers share bits.
    pub const USERS: u32 = 40;

    /// Creates the state in `word` for a new configuration. Users with these numbers will
    /// [report](Self::note) to it; users of older configurations are ignored.
    pub fn new(word: Named<'m>, users: impl Iterator<Item = usize>) -> StoreState<'m> {
        let users = users.fold(0, |users, user| users | StoreState::bit(user));
        let changed = word.update(|old| Some(StoreWord(old).next(users).0));
        let now = changed.map_or(0, |(_, new)| new);
        StoreState { word, generation: StoreWord(now).generation() }
    }

    /// Opens the state in `word` for another process of the current configuration.
    pub fn join(word: Named<'m>) -> StoreState<'m> {
        StoreState { word, generation: StoreWord(word.get()).generation() }
    }

    /// Forgets that other users than these found the store lost: those that callers define, whose
    /// workers may have been killed. Others find it lost again.
    pub fn forget_others(&self, users: impl Iterator<Item = usize>) {
        let users = users.fold(0, |users, user| users | StoreState::bit(user));
        self.update(|StoreWord(word)| StoreWord(word & (users | !FAILING)));
    }

    /// Returns the state of the store now, for [`note`](Self::note).
    pub fn moment(&self) -> StoreMoment {
        StoreMoment(StoreWord(self.word.get()))
    }

    /// Records whether an operation of user `user`, which began at `since`, succeeded. That is
    /// ignored if the store has come back since then, and a success also if the store was lost
    /// since then. Returns the transition, if there is one, to only one of the workers.
    pub fn note(&self, user: usize, since: StoreMoment, is_there: bool) -> Option<StoreTransition> {
        let (user, StoreMoment(since)) = (StoreState::bit(user), since);
        let (old, new) = self.update(|word| match is_there {
            _ if word.returns() != since.returns() => word,
            true if word.is_lost() && !since.is_lost() => word,
            true => word.succeeded(user),
            false => word.failed(user),
        })?;
        let is_reached = old.0 & REACHED != 0;
        match (old.is_lost(), new.is_lost()) {
            _ if is_there && !is_reached => Some(StoreTransition::Connected),
            (false, true) if is_reached => Some(StoreTransition::Lost),
            (false, true) => Some(StoreTransition::Unreached),
            (true, false) => Some(StoreTransition::Back),
            _ => None,
        }
    }

    fn bit(user: usize) -> u64 {
        1 << (user as u32 % Self::USERS)
    }

    /// Records whether the store's clock is far from this node's. Returns whether that has changed.
    pub fn record_clock(&self, is_off: bool) -> bool {
        let noted = self.update(|StoreWord(word)| {
            StoreWord(match is_off {
                true => word | IS_OFF,
                false => word & !IS_OFF,
            })
        });
        noted.is_some()
    }

    /// Returns whether the store succeeds; `None` if it was never asked.
    pub fn is_up(&self) -> Option<bool> {
        let word = StoreWord(self.word.get());
        match word.is_lost() {
            true => Some(false),
            false => (word.0 & REACHED != 0).then_some(true),
        }
    }

    fn update(&self, change: impl Fn(StoreWord) -> StoreWord) -> Option<(StoreWord, StoreWord)> {
        let changed = self.word.update(|old| {
            let old = StoreWord(old);
            (old.generation() == self.generation).then(|| change(old).0)
        });
        changed.map(|(old, new)| (StoreWord(old), StoreWord(new)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::NameKind;
    use crate::testing::table::SharedTable;

    fn state(shared: &SharedTable) -> StoreState<'_> {
        let name = (NameKind::Store, ["main", "127.0.0.1:6379"]);
        let words = shared.table.claim_words([name].into_iter());
        StoreState::new(words[0].unwrap(), [0, 3].into_iter())
    }

    #[test]
    fn one_worker_reports_the_loss_and_one_the_return() {
        let shared = SharedTable::new(1 << 20);
        let state = state(&shared);
        assert_eq!(state.is_up(), None);
        let mut told = Vec::new();
        for (user, is_there) in [
            (0, false),
            (1, false),
            (0, false),
            (1, true),
            (0, true),
            (0, true),
            // Two users find it lost, so it is back when both find it up.
            (1, false),
            (0, true),
            (39, false),
            (1, true),
            (0, true),
            (39, true),
        ] {
            told.extend(state.note(user, state.moment(), is_there));
        }
        use StoreTransition::{Back, Connected, Lost, Unreached};
        assert_eq!(told, [Unreached, Connected, Lost, Back]);
        assert_eq!(state.is_up(), Some(true));
        assert!(!state.record_clock(false));
        assert!(state.record_clock(true) && !state.record_clock(true) && state.record_clock(false));
    }

    #[test]
    fn a_result_of_before_the_last_return_is_none_of_now() {
        let shared = SharedTable::new(1 << 20);
        let state = state(&shared);
        use StoreTransition::{Back, Connected, Lost, Unreached};
        let unasked = state.moment();
        assert_eq!(state.note(0, unasked, false), Some(Unreached));
        let unreached = state.moment();
        assert_eq!(state.note(0, unreached, true), Some(Connected));
        assert_eq!(state.note(1, unreached, false), None);
        // More returns than are distinguished.
        for _ in 0..600 {
            let up = state.moment();
            assert_eq!(state.note(0, up, false), Some(Lost));
            // A success of before the loss.
            assert_eq!(state.note(0, up, true), None);
            let lost = state.moment();
            assert_eq!(state.note(0, lost, true), Some(Back));
            assert_eq!(state.note(1, up, false), None);
            assert_eq!(state.note(1, lost, false), None);
            assert_eq!(state.is_up(), Some(true));
        }
        let up = state.moment();
        assert_eq!(state.note(0, up, false), Some(Lost));
        let lost = state.moment();
        assert_eq!(state.note(0, lost, true), Some(Back));
        assert_eq!(state.note(0, lost.back(), false), Some(Lost));
        assert_eq!(state.note(0, lost, true), None);
        assert_eq!(state.is_up(), Some(false));
    }

    #[test]
    fn a_new_configuration_keeps_the_known_state() {
        let shared = SharedTable::new(1 << 20);
        let note =
            |state: StoreState<'_>, user, is_there| state.note(user, state.moment(), is_there);
        let old = state(&shared);
        assert_eq!(note(old, 3, true), Some(StoreTransition::Connected));
        assert_eq!(note(old, 3, false), Some(StoreTransition::Lost));
        let new = state(&shared);
        // The older user is gone, and cannot report otherwise.
        assert_eq!(note(old, 3, true), None);
        assert_eq!((note(new, 0, false), new.is_up()), (None, Some(false)));
        // One user's success says nothing about another user's needs.
        assert_eq!((note(new, 0, true), new.is_up()), (None, Some(false)));
        assert_eq!(note(new, 3, true), Some(StoreTransition::Back));
        assert_eq!(note(old, 3, false), None);
        assert_eq!(new.is_up(), Some(true));
    }

    #[test]
    fn a_loss_that_only_a_killed_worker_knew_of_is_forgotten() {
        let shared = SharedTable::new(1 << 20);
        let state = state(&shared);
        for user in [3, 38] {
            state.note(user, state.moment(), true);
            state.note(user, state.moment(), false);
        }
        state.forget_others([0, 3].into_iter());
        assert_eq!(state.is_up(), Some(false));
        assert_eq!(state.note(3, state.moment(), true), Some(StoreTransition::Back));
        assert_eq!(state.is_up(), Some(true));
    }
}
