//! A node's knowledge of a store, for all its workers: one of them reports that it is lost, and one
//! that it is back.
//!
//! Namespaces have to do with it one by one, and so has the broker, which asks it about requests: the store is
//! lost as long as one of them finds it so.

use crate::table::zone::named::Named;

/// A node's knowledge of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreState<'m> {
    word: Named<'m>,
    /// The configuration that this is of.
    generation: u64,
}

/// A change in the knowledge of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreTransition {
    /// It did what it was asked, for the first time.
    Connected,
    /// It did not, and never has.
    Unreached,
    /// It did not.
    Lost,
    /// It does again.
    Back,
}

/// ```text
///  63        51   50       49       48       47      0
/// +------------+--------+---------+--------+----------+
/// | generation | is off | reached |        | failing  |
/// +------------+--------+---------+--------+----------+
/// ```
///
/// `failing`: the users that find it lost, a bit each.
#[derive(Clone, Copy)]
struct StoreWord(u64);

const FAILING: u64 = (1 << StoreState::USERS) - 1;
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
    /// them until it finds the store there.
    fn next(self, users: u64) -> StoreWord {
        let failing = if self.is_lost() { users & FAILING } else { 0 };
        let generation = self.generation().wrapping_add(1) << GENERATION;
        StoreWord(generation | self.0 & (REACHED | IS_OFF) | failing)
    }

    fn noted(self, user: u64, is_there: bool) -> StoreWord {
        StoreWord(match is_there {
            // A user that did not reach it before has not lost it.
            true if self.0 & REACHED == 0 => (self.0 | REACHED) & !FAILING,
            true => self.0 & !user,
            false => self.0 | user,
        })
    }
}

impl<'m> StoreState<'m> {
    /// Number of users of a store that are told apart, each with a number below; further ones share
    /// numbers.
    pub const USERS: u32 = 48;

    /// The state that `word` has, under a new configuration whose users with these numbers will [note](Self::note) what
    /// they find: those of older ones say nothing any more.
    pub fn new(word: Named<'m>, users: impl Iterator<Item = usize>) -> StoreState<'m> {
        let users = users.fold(0, |users, user| users | StoreState::bit(user));
        let changed = word.update(|old| Some(StoreWord(old).next(users).0));
        let now = changed.map_or(0, |(_, new)| new);
        StoreState { word, generation: StoreWord(now).generation() }
    }

    /// Joins those that keep it in `word`: for one more process of the present configuration.
    pub fn join(word: Named<'m>) -> StoreState<'m> {
        StoreState { word, generation: StoreWord(word.get()).generation() }
    }

    /// Notes whether the store did what user number `user` asked of it. Returns what is new in that,
    /// which no other worker gets.
    pub fn note(&self, user: usize, is_there: bool) -> Option<StoreTransition> {
        let user = StoreState::bit(user);
        let (old, new) = self.update(|word| word.noted(user, is_there))?;
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

    /// Notes whether the store's clock is far from this node's. Returns whether that is news.
    pub fn record_clock(&self, is_off: bool) -> bool {
        let noted = self.update(|StoreWord(word)| {
            StoreWord(match is_off {
                true => word | IS_OFF,
                false => word & !IS_OFF,
            })
        });
        noted.is_some()
    }

    /// Whether the store does what it is asked; `None` if it has never been asked.
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
    fn one_tells_that_a_store_is_lost_and_one_that_it_is_back() {
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
            // Two find it lost: it is back when both find it so.
            (1, false),
            (0, true),
            (47, false),
            (1, true),
            (0, true),
            (47, true),
        ] {
            told.extend(state.note(user, is_there));
        }
        use StoreTransition::{Back, Connected, Lost, Unreached};
        assert_eq!(told, [Unreached, Connected, Lost, Back]);
        assert_eq!(state.is_up(), Some(true));
        assert!(!state.record_clock(false));
        assert!(state.record_clock(true) && !state.record_clock(true) && state.record_clock(false));
    }

    #[test]
    fn a_new_configuration_goes_on_with_what_is_known() {
        let shared = SharedTable::new(1 << 20);
        let old = state(&shared);
        assert_eq!(old.note(3, true), Some(StoreTransition::Connected));
        assert_eq!(old.note(3, false), Some(StoreTransition::Lost));
        let new = state(&shared);
        // No user of the older one is there to tell otherwise.
        assert_eq!(old.note(3, true), None);
        assert_eq!((new.note(0, false), new.is_up()), (None, Some(false)));
        // What one of its users finds says nothing of what another one needs.
        assert_eq!((new.note(0, true), new.is_up()), (None, Some(false)));
        assert_eq!(new.note(3, true), Some(StoreTransition::Back));
        assert_eq!(old.note(3, false), None);
        assert_eq!(new.is_up(), Some(true));
    }
}
