//! The windows and rates that callers use without a rule, or that a request chooses. A counter is
//! found only by its whole identity, so resetting a key resets it in all windows and rates recorded
//! here.

use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::table::words::meta::NamespaceIndex;
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::layout::CountedRateWords;

/// A rate: a number of hits in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedRate {
    /// Number of hits.
    pub hits: Hits,
    /// Size of the window.
    pub size: WindowSize,
}

/// The namespace in the upper 16 bits, and a window's size in milliseconds below. 0 marks a free
/// place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SizeWord(u64);

const NAMESPACE: u32 = 48;

impl SizeWord {
    fn new(namespace: NamespaceIndex, size: WindowSize) -> SizeWord {
        SizeWord(u64::from(namespace.0) << NAMESPACE | size.millis())
    }

    fn is_of(self, namespace: NamespaceIndex) -> bool {
        self.0 != 0 && self.0 >> NAMESPACE == u64::from(namespace.0)
    }

    fn size(self) -> Option<WindowSize> {
        WindowSize::from_millis(self.0 & ((1 << NAMESPACE) - 1))
    }
}

impl CountedRateWords {
    /// Records a rate in this place. Returns false if the place has another rate.
    ///
    /// The hits are written first. If a process ends before it writes the size, other processes
    /// with the same number of hits use the place.
    fn note(&self, hits: u64, SizeWord(size): SizeWord) -> bool {
        let known = match self.hits.load(Acquire) {
            0 => self.hits.compare_exchange(0, hits, AcqRel, Acquire),
            known => Err(known),
        };
        if known.is_err() && known != Err(hits) {
            return false;
        }
        let known = match self.size.load(Acquire) {
            0 => self.size.compare_exchange(0, size, AcqRel, Acquire),
            known => Err(known),
        };
        known.is_ok() || known == Err(size)
    }

    fn rate_of(&self, namespace: NamespaceIndex) -> Option<CountedRate> {
        let size = SizeWord(self.size.load(Acquire));
        let hits = i64::try_from(self.hits.load(Acquire)).ok();
        let hits = hits.filter(|hits| *hits > 0)?;
        Some(CountedRate {
            hits: Hits::from_thousandths(hits),
            size: size.size().filter(|_| size.is_of(namespace))?,
        })
    }
}

impl CounterTable<'_> {
    /// Records that callers use windows of this size in a namespace.
    pub fn record_counted_size(&self, namespace: NamespaceIndex, size: WindowSize) {
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

    /// Records that callers use this rate in a namespace.
    pub fn record_counted_rate(&self, namespace: NamespaceIndex, rate: CountedRate) {
        let hits = rate.hits.thousandths().unsigned_abs();
        let size = SizeWord::new(namespace, rate.size);
        if hits > 0 {
            let mut places = self.parts.counted_rates.iter();
            // Without a free place, the rate is not recorded.
            let _ = places.any(|place| place.note(hits, size));
        }
    }

    /// Returns the recorded window sizes of a namespace.
    pub fn counted_sizes(&self, namespace: NamespaceIndex) -> Vec<WindowSize> {
        let places = self.parts.counted_sizes.iter();
        let words = places.map(|place| SizeWord(place.load(Acquire)));
        let of_namespace = words.filter(|word| word.is_of(namespace));
        of_namespace.filter_map(SizeWord::size).collect()
    }

    /// Returns the recorded rates of a namespace.
    pub fn counted_rates(&self, namespace: NamespaceIndex) -> Vec<CountedRate> {
        let places = self.parts.counted_rates.iter();
        places.filter_map(|place| place.rate_of(namespace)).collect()
    }

    /// Removes the records of a namespace.
    pub(crate) fn forget_counted_sizes(&self, namespace: NamespaceIndex) {
        // Returns whether the place was the namespace's. If the exchange fails, another process has
        // removed it.
        let forget = |place: &AtomicU64| {
            let word = place.load(Acquire);
            let is_of = SizeWord(word).is_of(namespace);
            is_of && place.compare_exchange(word, 0, AcqRel, Relaxed).is_ok()
        };
        for place in self.parts.counted_sizes {
            forget(place);
        }
        for CountedRateWords { hits, size } in self.parts.counted_rates {
            if forget(size) {
                // A rate that is recorded at this moment is lost until it is recorded again.
                hits.store(0, Release);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::hits::hits;
    use crate::table::zone::layout::COUNTED_SIZES;
    use crate::testing::table::SharedTable;

    #[test]
    fn sizes_are_recorded_once_while_there_is_room() {
        let shared = SharedTable::new(1 << 20);
        let table = &shared.table;
        let [a, b] = [b"a", b"b"].map(|name| table.namespace(name).unwrap());
        let size = |millis| WindowSize::from_millis(millis).unwrap();
        let sizes = [1000, WindowSize::MAX_MILLIS].map(size);
        for size in sizes.iter().chain(&sizes) {
            table.record_counted_size(a, *size);
        }
        assert_eq!(table.counted_sizes(a), sizes);
        assert_eq!(table.counted_sizes(b), []);
        for millis in 1..100 {
            table.record_counted_size(b, size(millis));
        }
        assert_eq!(table.counted_sizes(b).len(), COUNTED_SIZES - sizes.len());
        table.forget_counted_sizes(b);
        assert_eq!(table.counted_sizes(b), []);
        assert_eq!(table.counted_sizes(a), sizes);
    }

    #[test]
    fn rates_are_recorded_once_while_there_is_room() {
        let shared = SharedTable::new(1 << 20);
        let table = &shared.table;
        let [a, b] = [b"a", b"b"].map(|name| table.namespace(name).unwrap());
        let rate = |whole, millis| CountedRate {
            hits: hits(whole),
            size: WindowSize::from_millis(millis).unwrap(),
        };
        let rates = [rate(5, 1000), rate(5, 60_000), rate(7, 1000)];
        for rate in rates.iter().chain(&rates).chain(&[rate(0, 1000)]) {
            table.record_counted_rate(a, *rate);
        }
        assert_eq!(table.counted_rates(a), rates);
        assert_eq!(table.counted_rates(b), []);
        (1..100).for_each(|whole| table.record_counted_rate(b, rate(whole, 1000)));
        assert_eq!(table.counted_rates(b).len(), 64 - rates.len());
        table.forget_counted_sizes(b);
        assert_eq!(table.counted_rates(b), []);
        assert_eq!(table.counted_rates(a), rates);
    }
}
