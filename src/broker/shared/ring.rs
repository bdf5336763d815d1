//! A queue in shared memory between a process that writes and one that reads, and its doorbell.
//! Neither process ever waits, and either can be killed at any instruction and replaced.
//!
//! A message can be read once it is complete, which one store publishes. Positions only grow.
//!
//! A reader may be replaced while it is stopped, and then continue. So a reader has read words only
//! if it can record that under its [term](super::tenure).

use super::tenure::{FencedWord, Replaced, Term};
use crate::table::words::atomic::{AtomicU64, Ordering, fence};
use crate::table::words::fail::fail_point;

/// A queue of messages, which consist of words. One process writes and one reads at a time.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'m> {
    /// Number of words read so far, modulo 2^48.
    head: FencedWord<'m>,
    /// Number of words written so far.
    tail: &'m AtomicU64,
    words: &'m [AtomicU64],
}

/// Words in a cache line. Words that different processes write are in different lines.
pub const CACHE_LINE: usize = 8;

impl<'m> Ring<'m> {
    /// Returns the words of memory for a ring of `capacity` words.
    pub const fn size(capacity: usize) -> usize {
        capacity.saturating_add(2 * CACHE_LINE)
    }

    /// Returns the ring in this memory, which must be zero at first; `None` if it is too small.
    pub fn over(memory: &'m [AtomicU64]) -> Option<Ring<'m>> {
        let (positions, words) = memory.split_at_checked(2 * CACHE_LINE)?;
        (!words.is_empty()).then_some(())?;
        Some(Ring {
            head: FencedWord::over(positions.first()?),
            tail: positions.get(CACHE_LINE)?,
            words,
        })
    }

    /// Writes all of `words`, or nothing if they do not fit. Returns whether it did.
    pub fn write(&self, words: &[u64]) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        // Pairs with the store in `read`: the words before `head` were read.
        let unread = between(self.head.get(Ordering::Acquire), tail);
        let left = (self.words.len() as u64).saturating_sub(unread);
        let count = words.len() as u64;
        if left < count {
            return false;
        }
        let (first, second) = self.places(tail, words.len());
        let (start, end) = words.split_at_checked(first.len()).unwrap_or((words, &[]));
        for (places, words) in [(first, start), (second, end)] {
            for (place, word) in places.iter().zip(words) {
                place.store(*word, Ordering::Relaxed);
            }
        }
        fail_point!("ring.written");
        self.tail.store(tail.wrapping_add(count), Ordering::Release);
        fail_point!("ring.published");
        true
    }

    /// Makes pending reads of earlier terms fail.
    ///
    /// # Errors
    ///
    /// [`Replaced`] if another reader has taken over since.
    pub fn take_over(&self, term: Term) -> Result<(), Replaced> {
        self.head.take(term)
    }

    /// Appends all unread words to `words`.
    ///
    /// # Errors
    ///
    /// [`Replaced`], without a change, if another reader has taken over.
    pub fn read(&self, term: Term, words: &mut Vec<u64>) -> Result<(), Replaced> {
        let head = self.head.own(term)?;
        let tail = self.tail.load(Ordering::Acquire);
        let unread = usize::try_from(between(head, tail)).unwrap_or(usize::MAX);
        if unread == 0 {
            return Ok(());
        }
        let before = words.len();
        let (first, second) = self.places(head, unread);
        for places in [first, second] {
            words.extend(places.iter().map(|place| place.load(Ordering::Relaxed)));
        }
        // If this fails, the writer may have overwritten the words.
        fail_point!("ring.reading");
        let read = self.head.replace(term, head, tail);
        fail_point!("ring.read");
        read.inspect_err(|Replaced| words.truncate(before))
    }

    /// Returns whether all words were read.
    pub fn is_empty(&self) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        between(self.head.get(Ordering::Relaxed), tail) == 0
    }

    /// Returns up to `count` places from a position on: those up to the end of the ring, and the
    /// rest from its start.
    fn places(&self, position: u64, count: usize) -> (&'m [AtomicU64], &'m [AtomicU64]) {
        // A head has 48 bits, and a tail has no more, unless its memory was damaged.
        let position = position & FencedWord::MAX;
        let start = position.checked_rem(self.words.len() as u64).unwrap_or(0);
        let (before, after) = self.words.split_at(start as usize);
        let first = after.len().min(count);
        let second = before.len().min(count.saturating_sub(first));
        (after.split_at(first).0, before.split_at(second).0)
    }
}

/// Returns the number of words between two positions.
fn between(head: u64, tail: u64) -> u64 {
    tail.wrapping_sub(head) & FencedWord::MAX
}

/// The doorbell: two words in shared memory that tell writers of rings when to wake their reader,
/// after a given number of messages.
///
/// Only the reader sets it. A writer may check it long after its message was read, and wake the
/// reader for nothing. If that unset the doorbell, a reader that sleeps again would not be woken.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell<'m> {
    /// Approximate number of written messages: a writer that was killed may not have counted its
    /// last ones, or counted some twice.
    written: &'m AtomicU64,
    /// Number of messages at which the reader is woken, in 48 bits.
    at: FencedWord<'m>,
}

impl<'m> Doorbell<'m> {
    /// Returns the doorbell in these words, which must be zero at first: any message wakes the
    /// reader.
    pub fn over(written: &'m AtomicU64, at: &'m AtomicU64) -> Doorbell<'m> {
        let at = FencedWord::over(at);
        Doorbell { written, at }
    }

    /// Wakes the reader when `messages` more are written. The reader must check the rings once more
    /// before it sleeps, since earlier messages do not wake it. If it then waits for more, it must
    /// set the doorbell again.
    ///
    /// # Errors
    ///
    /// [`Replaced`], as for all that the reader does.
    pub fn set(self, term: Term, messages: u64) -> Result<(), Replaced> {
        // Counted messages can be read.
        let written = self.written.load(Ordering::Acquire);
        let at = written.saturating_add(messages);
        self.at.set(term, at)?;
        fail_point!("bell.set");
        // Pairs with the fence in `record_written`: either the writer sees `at`, or the reader sees
        // the messages.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Unsets the doorbell, while the reader is working and checks the rings itself.
    pub fn unset(self, term: Term) -> Result<(), Replaced> {
        self.at.set(term, FencedWord::MAX)
    }

    /// Makes pending writes of readers of earlier terms fail. The reader checks the rings itself
    /// until it sets the doorbell.
    pub fn take_over(self, term: Term) -> Result<(), Replaced> {
        self.at.take(term)
    }

    /// Counts written messages, at least those of this call; counting one twice only wakes the
    /// reader early. Returns whether the reader must be woken.
    pub fn record_written(self, messages: u64) -> bool {
        let before = self.written.fetch_add(messages, Ordering::Release);
        fail_point!("bell.counted");
        fence(Ordering::SeqCst);
        before.saturating_add(messages) >= self.at.get(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn memory(capacity: usize) -> Vec<AtomicU64> {
        (0..Ring::size(capacity)).map(|_| AtomicU64::new(0)).collect()
    }

    fn read(ring: &Ring<'_>) -> Vec<u64> {
        let mut words = Vec::new();
        ring.read(Term::default(), &mut words).unwrap();
        words
    }

    #[test]
    fn messages_are_read_once_and_in_order() {
        let memory = memory(5);
        let ring = Ring::over(&memory).unwrap();
        assert!(read(&ring).is_empty());
        let mut next = 0;
        // Each time from another position, and across the end.
        for count in [3, 5, 1, 0, 4, 5, 2] {
            let words: Vec<u64> = (next..next + count).collect();
            next += count;
            assert!(ring.write(&words));
            assert_eq!(ring.is_empty(), words.is_empty());
            assert_eq!(read(&ring), words);
            assert!(ring.is_empty() && read(&ring).is_empty());
        }
    }

    #[test]
    fn a_message_without_room_is_not_written_at_all() {
        let memory = memory(5);
        let ring = Ring::over(&memory).unwrap();
        assert!(ring.write(&[1, 2, 3]));
        assert!(!ring.write(&[4, 5, 6]));
        assert!(ring.write(&[7, 8]));
        assert!(!ring.write(&[9]));
        assert_eq!(read(&ring), [1, 2, 3, 7, 8]);
        assert!(ring.write(&[4, 5, 6]));
        assert_eq!(read(&ring), [4, 5, 6]);
        assert!(!ring.write(&[0; 6]));
    }

    #[test]
    fn a_queue_with_a_damaged_tail_works_again_once_it_is_empty() {
        let memory = memory(7);
        let ring = Ring::over(&memory).unwrap();
        memory[CACHE_LINE].store(u64::MAX - 7, Ordering::Relaxed);
        read(&ring);
        assert!(ring.is_empty() && ring.write(&[1, 2]));
        assert_eq!(read(&ring), [1, 2]);
    }

    #[test]
    fn a_replaced_reader_reads_nothing() {
        let memory = memory(5);
        let ring = Ring::over(&memory).unwrap();
        let [one, two] = [1, 2].map(Term::of);
        ring.take_over(one).unwrap();
        assert!(ring.write(&[1, 2]));
        ring.take_over(two).unwrap();
        let mut words = vec![7];
        assert_eq!(ring.read(one, &mut words), Err(Replaced));
        assert_eq!(ring.take_over(one), Err(Replaced));
        assert_eq!(ring.read(two, &mut words), Ok(()));
        assert_eq!(words, [7, 1, 2]);
    }

    #[test]
    fn memory_that_is_too_small_is_no_ring() {
        let memory = memory(1);
        assert!(Ring::over(&memory).is_some());
        assert!(Ring::over(&memory[1..]).is_none());
        assert!(Ring::over(&memory[..3]).is_none());
    }
}
