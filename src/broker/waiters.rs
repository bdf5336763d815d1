//! Waiters of an event loop, found by a number. No stale pointer is ever followed.

use std::collections::BTreeMap;

use crate::table::words::system::random_number;

/// A kind of asker. The lowest bits of a waiter's number are its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A request that rules limit.
    Request = 0,
    /// A caller of the library.
    Caller = 1,
    /// A request to the API.
    Api = 2,
    /// A reserve, which asks ahead of requests.
    Reserve = 3,
}

/// Number of kinds.
pub const KINDS: u64 = 4;

/// All waiters of one kind in this worker. Their memory depends on how many wait, not on how many
/// came since the oldest one.
#[derive(Debug)]
pub struct Waiters<T> {
    kind: Asker,
    /// The number of the next waiter; `None` before the first.
    next: Option<u64>,
    /// The waiters by number. Numbers only grow.
    waiting: BTreeMap<u64, T>,
}

impl Asker {
    /// Returns a first number of this kind, at random.
    pub fn first_id(self) -> u64 {
        // The highest bit is free for the numbers that follow.
        random_number().get() >> 1 & !(KINDS - 1) | self as u64
    }

    /// Returns the kind of a number.
    pub fn of(id: u64) -> Asker {
        match id % KINDS {
            0 => Asker::Request,
            1 => Asker::Caller,
            2 => Asker::Api,
            _ => Asker::Reserve,
        }
    }
}

impl<T> Waiters<T> {
    /// Creates an empty set of this kind.
    pub const fn of(kind: Asker) -> Waiters<T> {
        Waiters { kind, next: None, waiting: BTreeMap::new() }
    }

    /// Returns the number of the next waiter. It was not used before, neither by this worker nor by
    /// one that it replaced and that may still be answered.
    pub fn next_id(&mut self) -> u64 {
        let kind = self.kind;
        *self.next.get_or_insert_with(|| kind.first_id())
    }

    /// Adds a waiter, under the number that [`Waiters::next_id`] returned.
    pub fn add(&mut self, waiter: T) {
        let id = self.next_id();
        self.waiting.insert(id, waiter);
        self.next = Some(id.wrapping_add(KINDS));
    }

    /// Returns the waiter with this number.
    pub fn get(&self, id: u64) -> Option<&T> {
        self.waiting.get(&id)
    }

    /// Returns the waiter with this number.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.waiting.get_mut(&id)
    }

    /// Returns the waiter that has waited longest, and its number.
    pub fn oldest(&self) -> Option<(u64, &T)> {
        self.waiting.first_key_value().map(|(id, it)| (*id, it))
    }

    /// Returns the number of waiters.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes the waiter with this number.
    pub fn remove(&mut self, id: u64) -> Option<T> {
        self.waiting.remove(&id)
    }

    /// Returns the numbers of all waiters, the oldest first.
    pub fn ids(&self) -> Vec<u64> {
        self.waiting.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_is_found_by_its_number_until_it_is_removed() {
        let mut waiters = Waiters::of(Asker::Api);
        let ids = ["a", "b", "c"].map(|waiter| {
            let id = waiters.next_id();
            assert_eq!(waiters.next_id(), id);
            waiters.add(waiter);
            id
        });
        let [a, b, c] = ids;
        assert!(ids.iter().all(|id| Asker::of(*id) == Asker::Api));
        assert_eq!(waiters.ids(), ids);
        assert_eq!(waiters.oldest(), Some((a, &"a")));
        assert_eq!(waiters.remove(a), Some("a"));
        assert_eq!((waiters.remove(a), waiters.get(a)), (None, None));
        *waiters.get_mut(b).unwrap() = "d";
        assert_eq!(waiters.get(b), Some(&"d"));
        assert_eq!(waiters.oldest(), Some((b, &"d")));
        assert_eq!((waiters.get(c), waiters.get(c + KINDS)), (Some(&"c"), None));
    }

    #[test]
    fn removed_waiters_leave_nothing_behind_one_that_stays() {
        let mut waiters = Waiters::of(Asker::Request);
        let first = waiters.next_id();
        waiters.add(0);
        for number in 1..=1000 {
            let id = waiters.next_id();
            waiters.add(number);
            assert_eq!(waiters.remove(id), Some(number));
            assert_eq!(waiters.len(), 1);
        }
        assert_eq!(waiters.next_id(), first + 1001 * KINDS);
        assert_eq!(waiters.remove(first), Some(0));
        assert!(waiters.is_empty());
    }
}
