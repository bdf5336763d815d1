//! What waits for the event loop to come back to it, found again by a number: never by a pointer that
//! was elsewhere meanwhile.

use core::ptr::NonNull;
use std::collections::VecDeque;

use super::random::random;

/// All of one kind that wait in this worker. Each removes itself when it is dropped.
pub(super) struct Waiters<T> {
    /// The number of the first of them; `None` until there was one.
    first_id: Option<u64>,
    /// In the order of their numbers, with gaps where one waits no more.
    waiting: VecDeque<Option<NonNull<T>>>,
}

impl<T> Waiters<T> {
    pub(super) const fn new() -> Waiters<T> {
        Waiters {
            first_id: None,
            waiting: VecDeque::new(),
        }
    }

    /// The number of the next one, which no other had, neither of this worker nor of one before it whose
    /// place it took: that may still be answered.
    pub(super) fn next_id(&mut self) -> u64 {
        let first = self.first_id.get_or_insert_with(|| {
            let [first, _] = random().unwrap_or_default();
            first
        });
        first.wrapping_add(self.waiting.len() as u64)
    }

    /// Adds one, under the number of [`Waiters::next_id`].
    pub(super) fn add(&mut self, waiter: NonNull<T>) {
        self.waiting.push_back(Some(waiter));
    }

    /// The one of this number.
    pub(super) fn get(&self, id: u64) -> Option<NonNull<T>> {
        let index = id.wrapping_sub(self.first_id?);
        *self.waiting.get(usize::try_from(index).ok()?)?
    }

    /// The one of this number does not wait any more.
    pub(super) fn remove(&mut self, id: u64) {
        let Some(first) = &mut self.first_id else {
            return;
        };
        let index = usize::try_from(id.wrapping_sub(*first)).ok();
        if let Some(place) = index.and_then(|index| self.waiting.get_mut(index)) {
            *place = None;
        }
        while let Some(None) = self.waiting.front() {
            self.waiting.pop_front();
            *first = first.wrapping_add(1);
        }
    }

    /// The numbers of all of them.
    pub(super) fn ids(&self) -> Vec<u64> {
        let ids = (0..self.waiting.len() as u64).filter_map(|index| {
            let id = self.first_id?.wrapping_add(index);
            self.get(id).map(|_| id)
        });
        ids.collect()
    }
}
