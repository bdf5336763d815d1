//! In which windows, and at which rates, callers have counted of which no rule tells: a counter is found only by what
//! it is named by, so that a key is set to zero in all that are noted here.

use super::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use super::counter_table::CounterTable;
use super::meta::NamespaceIndex;
use crate::policy::window::WindowSize;

/// The size of a window, or the time of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedSize {
    /// Of a window, of any algorithm.
    Window(WindowSize),
    /// Of a rate.
    Rate(WindowSize),
}

/// ```text
///  63       48      47     46      0
/// +-----------+---------+-----------+
/// | namespace | is rate | millis    |
/// +-----------+---------+-----------+
/// ```
///
/// 0: the place is free.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SizeWord(u64);

const NAMESPACE: u32 = 48;
const IS_RATE: u64 = 1 << 47;

impl SizeWord {
    fn new(namespace: NamespaceIndex, size: CountedSize) -> SizeWord {
        let (is_rate, size) = match size {
            CountedSize::Window(size) => (0, size),
            CountedSize::Rate(size) => (IS_RATE, size),
        };
        SizeWord(u64::from(namespace.0) << NAMESPACE | is_rate | size.millis())
    }

    fn is_of(self, namespace: NamespaceIndex) -> bool {
        self.0 != 0 && self.0 >> NAMESPACE == u64::from(namespace.0)
    }

    fn size(self) -> Option<CountedSize> {
        let size = WindowSize::from_millis(self.0 & (IS_RATE - 1))?;
        Some(match self.0 & IS_RATE {
            0 => CountedSize::Window(size),
            _ => CountedSize::Rate(size),
        })
    }
}

impl CounterTable<'_> {
    /// Notes that callers count so in a namespace.
    pub fn note_counted_size(&self, namespace: NamespaceIndex, size: CountedSize) {
        let SizeWord(word) = SizeWord::new(namespace, size);
        for place in self.parts.counted_sizes {
            let found = match place.load(Acquire) {
                0 => place.compare_exchange(0, word, AcqRel, Acquire),
                known => Err(known),
            };
            if found.is_ok() || found == Err(word) {
                return;
            }
        }
    }

    /// What was noted of a namespace.
    pub fn counted_sizes(&self, namespace: NamespaceIndex) -> Vec<CountedSize> {
        let places = self.parts.counted_sizes.iter();
        let words = places.map(|place| SizeWord(place.load(Acquire)));
        let of_namespace = words.filter(|word| word.is_of(namespace));
        of_namespace.filter_map(SizeWord::size).collect()
    }

    /// Forgets what was noted of a namespace.
    pub(super) fn forget_counted_sizes(&self, namespace: NamespaceIndex) {
        for place in self.parts.counted_sizes {
            let word = place.load(Acquire);
            if SizeWord(word).is_of(namespace) {
                // If it fails, another process has done so.
                let _ = place.compare_exchange(word, 0, AcqRel, Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::layout::COUNTED_SIZES;
    use super::super::testing::SharedTable;
    use super::*;

    #[test]
    fn sizes_are_noted_once_as_long_as_there_is_room() {
        let shared = SharedTable::new(1 << 20);
        let table = &shared.table;
        let [a, b] = [b"a", b"b"].map(|name| table.namespace(name).unwrap());
        let size = |millis| WindowSize::from_millis(millis).unwrap();
        let sizes = [
            CountedSize::Window(size(1000)),
            CountedSize::Rate(size(1000)),
            CountedSize::Window(size(WindowSize::MAX_MILLIS)),
        ];
        for size in sizes.iter().chain(&sizes) {
            table.note_counted_size(a, *size);
        }
        assert_eq!(table.counted_sizes(a), sizes);
        assert_eq!(table.counted_sizes(b), []);
        for millis in 1..100 {
            table.note_counted_size(b, CountedSize::Window(size(millis)));
        }
        assert_eq!(table.counted_sizes(b).len(), COUNTED_SIZES - sizes.len());
        table.forget_counted_sizes(b);
        assert_eq!(table.counted_sizes(b), []);
        assert_eq!(table.counted_sizes(a), sizes);
    }
}
