//! What waits for the event loop to come back to it, found again by a number: never by a pointer that
//! was elsewhere meanwhile.

use std::collections::VecDeque;

use crate::table::system::random;

/// What may ask a store. The lowest bits of its number tell them apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// A request that rules limit.
    Request = 0,
    /// A caller of the library.
    Caller = 1,
    /// A request to the API.
    Api = 2,
    /// What asks ahead, for requests to come.
    Reserve = 3,
}

/// How many numbers in a row are of different kinds.
pub(super) const KINDS: u64 = 4;

/// All of one kind that wait in this worker.
pub(super) struct Waiters<T> {
    kind: Asker,
    /// The number of the first of them; `None` until there was one.
    first_id: Option<u64>,
    /// In the order of their numbers, with gaps where one waits no more.
    waiting: VecDeque<Option<T>>,
}

impl Asker {
    /// A number of this kind to begin with, which no other had.
    pub(super) fn first_id(self) -> u64 {
        let [first, _] = random().unwrap_or_default();
        first & !(KINDS - 1) | self as u64
    }

    /// Whose number this is.
    pub(super) fn of(id: u64) -> Asker {
        match id % KINDS {
            0 => Asker::Request,
            1 => Asker::Caller,
            2 => Asker::Api,
            _ => Asker::Reserve,
        }
    }
}

impl<T> Waiters<T> {
    pub(super) const fn of(kind: Asker) -> Waiters<T> {
        Waiters {
            kind,
            first_id: None,
            waiting: VecDeque::new(),
        }
    }

    /// The number of the next one, which no other had, neither of this worker nor of one before it whose
    /// place it took: that may still be answered.
    pub(super) fn next_id(&mut self) -> u64 {
        let kind = self.kind;
        let first = self.first_id.get_or_insert_with(|| kind.first_id());
        let before = self.waiting.len() as u64;
        first.wrapping_add(before.wrapping_mul(KINDS))
    }

    /// Adds one, under the number of [`Waiters::next_id`].
    pub(super) fn add(&mut self, waiter: T) {
        self.waiting.push_back(Some(waiter));
    }

    fn index(&self, id: u64) -> Option<usize> {
        let distance = id.wrapping_sub(self.first_id?);
        let index = distance.is_multiple_of(KINDS).then_some(distance / KINDS)?;
        usize::try_from(index).ok()
    }

    /// The one of this number.
    pub(super) fn get(&self, id: u64) -> Option<&T> {
        self.waiting.get(self.index(id)?)?.as_ref()
    }

    /// The one of this number, to be changed.
    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let index = self.index(id)?;
        self.waiting.get_mut(index)?.as_mut()
    }

    /// The one that has waited longest, and its number; `None`: none waits.
    pub(super) fn oldest(&self) -> Option<(u64, &T)> {
        // There is no gap before the first.
        Some((self.first_id?, self.waiting.front()?.as_ref()?))
    }

    /// How many there are, with the gaps.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The one of this number does not wait any more.
    pub(super) fn remove(&mut self, id: u64) -> Option<T> {
        let index = self.index(id)?;
        let removed = self.waiting.get_mut(index)?.take();
        while let Some(None) = self.waiting.front() {
            self.waiting.pop_front();
            self.first_id = self.first_id.map(|first| first.wrapping_add(KINDS));
        }
        removed
    }

    /// The numbers of all of them.
    pub(super) fn ids(&self) -> Vec<u64> {
        let ids = (0..self.waiting.len() as u64).filter_map(|index| {
            let id = self.first_id?.wrapping_add(index.wrapping_mul(KINDS));
            self.get(id).map(|_| id)
        });
        ids.collect()
    }
}
