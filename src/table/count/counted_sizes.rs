//! The windows and rates that callers use without a rule, or that a request chooses. A counter is
//! found only by its whole identity, so resetting a key resets it in all windows and rates recorded
//! here.
//!
//! A place that is freed gets the next version. So a process that was stopped before it changes the
//! place, and continues when others have freed it and use it again, changes nothing.

use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::fail::fail_point;
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

/// The namespace in the upper 16 bits, the place's version in the next 13, and the bits of a
/// window's size below; a size of 0 marks a free place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SizeWord(u64);

/// The number of hits of a rate in thousandths, and the version of the place in the lowest 13 bits.
/// 0 before the place's first use.
#[derive(Clone, Copy, PartialEq, Eq)]
struct HitsWord(u64);

const NAMESPACE: u32 = 48;
const SIZE_BITS: u32 = WindowSize::BITS;
const SIZE: u64 = (1 << SIZE_BITS) - 1;
const VERSION_BITS: u32 = NAMESPACE - SIZE_BITS;
const VERSION: u64 = (1 << VERSION_BITS) - 1;

impl SizeWord {
    fn load(word: &AtomicU64) -> SizeWord {
        SizeWord(word.load(Acquire))
    }

    fn is_free(self) -> bool {
        self.0 & SIZE == 0
    }

    fn version(self) -> u64 {
        self.0 >> SIZE_BITS & VERSION
    }

    /// Returns the word after a free place was taken.
    fn taken(self, namespace: NamespaceIndex, size: WindowSize) -> SizeWord {
        let version = self.version() << SIZE_BITS;
        SizeWord(u64::from(namespace.0) << NAMESPACE | version | size.bits())
    }

    /// Returns the word after the place was freed.
    fn freed(self) -> SizeWord {
        SizeWord((self.version().wrapping_add(1) & VERSION) << SIZE_BITS)
    }

    fn is_of(self, namespace: NamespaceIndex) -> bool {
        !self.is_free() && self.0 >> NAMESPACE == u64::from(namespace.0)
    }

    fn size(self) -> Option<WindowSize> {
        WindowSize::from_bits(self.0 & SIZE)
    }

    /// Takes the place of a word that was read, if it is free. Returns whether the word contains
    /// the size now.
    fn note(self, word: &AtomicU64, namespace: NamespaceIndex, size: WindowSize) -> bool {
        let new = self.taken(namespace, size).0;
        let known = match self.is_free() {
            true => word.compare_exchange(self.0, new, AcqRel, Acquire),
            false => Err(self.0),
        };
        known.is_ok() || known == Err(new)
    }
}

impl HitsWord {
    fn new(hits: u64, version: u64) -> HitsWord {
        HitsWord(hits << VERSION_BITS | version)
    }

    fn hits(self) -> u64 {
        self.0 >> VERSION_BITS
    }

    fn is_of(self, version: u64) -> bool {
        self.hits() != 0 && self.0 & VERSION == version
    }

    /// Returns whether the word is of the version before this one, so that it can be replaced.
    fn is_before(self, version: u64) -> bool {
        self.0 == 0 || self.is_of(version.wrapping_sub(1) & VERSION)
    }
}

impl CountedRateWords {
    /// Records a rate in this place. Returns false if the place has another rate.
    ///
    /// The hits are written first. If a process ends before it writes the size, other processes
    /// with the same number of hits use the place.
    fn note(&self, namespace: NamespaceIndex, hits: u64, size: WindowSize) -> bool {
        let place = SizeWord::load(&self.size);
        let known = HitsWord(self.hits.load(Acquire));
        let new = HitsWord::new(hits, place.version()).0;
        let known = match known.is_before(place.version()) {
            true => self.hits.compare_exchange(known.0, new, AcqRel, Acquire),
            false => Err(known.0),
        };
        fail_point!("rate.half_noted");
        (known.is_ok() || known == Err(new)) && place.note(&self.size, namespace, size)
    }

    fn rate_of(&self, namespace: NamespaceIndex) -> Option<CountedRate> {
        let size = SizeWord::load(&self.size);
        // Changes only after the size was freed.
        let hits = HitsWord(self.hits.load(Acquire));
        let hits = Some(hits).filter(|it| it.is_of(size.version()))?.hits();
        Some(CountedRate {
            hits: Hits::from_thousandths(i64::try_from(hits).ok()?),
            size: size.size().filter(|_| size.is_of(namespace))?,
        })
    }
}

impl CounterTable<'_> {
    /// Records that callers use windows of this size in a namespace.
    pub fn record_counted_size(&self, namespace: NamespaceIndex, size: WindowSize) {
        let mut places = self.parts.counted_sizes.iter();
        // Without a free place, the size is not recorded.
        let _ = places.any(|place| SizeWord::load(place).note(place, namespace, size));
    }

    /// Records that callers use this rate in a namespace.
    pub fn record_counted_rate(&self, namespace: NamespaceIndex, rate: CountedRate) {
        let hits = rate.hits.thousandths().unsigned_abs();
        if hits > 0 {
            let mut places = self.parts.counted_rates.iter();
            // As for a size.
            let _ = places.any(|place| place.note(namespace, hits, rate.size));
        }
    }

    /// Returns the recorded window sizes of a namespace.
    pub fn counted_sizes(&self, namespace: NamespaceIndex) -> Vec<WindowSize> {
        let places = self.parts.counted_sizes.iter();
        let words = places.map(SizeWord::load);
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
        let sizes = self.parts.counted_sizes.iter();
        let rates = self.parts.counted_rates.iter().map(|rate| &rate.size);
        for place in sizes.chain(rates) {
            let word = SizeWord::load(place);
            if word.is_of(namespace) {
                fail_point!("size.forgetting");
                // If the exchange fails, another process has freed the place.
                let _ = place.compare_exchange(word.0, word.freed().0, AcqRel, Relaxed);
                fail_point!("size.forgotten");
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::hits::hits;
    use crate::table::zone::layout::COUNTED_SIZES;
    use crate::testing::table::{Pass, SharedTable, pause_everywhere};

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

    /// A process is stopped anywhere in a change of records, and continues when others have freed
    /// its places, and use them again.
    #[test]
    fn a_process_that_is_stopped_changes_no_later_record() {
        let size = |millis| WindowSize::from_millis(millis).unwrap();
        let (used, rate) = (size(1000), CountedRate { hits: hits(5), size: size(1000) });
        let record = |table: &CounterTable<'_>, namespace| {
            table.record_counted_size(namespace, used);
            table.record_counted_rate(namespace, rate);
        };
        let indices = [0, 1].map(NamespaceIndex);
        let [a, b] = indices;
        let prepare = || {
            let shared = SharedTable::new(1 << 20);
            record(&shared.table, a);
            shared
        };
        // Other processes forget the records of the one namespace, and use the places for another.
        let meanwhile = |shared: &SharedTable, _: Pass| {
            shared.table.forget_counted_sizes(a);
            record(&shared.table, b);
        };
        let check = |shared: &SharedTable| {
            let table = &shared.table;
            assert_eq!((table.counted_sizes(b), table.counted_rates(b)), (vec![used], vec![rate]));
            // No place is lost.
            indices.iter().for_each(|it| table.forget_counted_sizes(*it));
            assert!(indices.iter().all(|it| table.counted_rates(*it).is_empty()));
            for whole in 1..100 {
                table.record_counted_rate(a, CountedRate { hits: hits(whole), ..rate });
                table.record_counted_size(b, size(whole.unsigned_abs()));
            }
            assert_eq!(table.counted_rates(a).len(), 64);
            assert_eq!(table.counted_sizes(b).len(), COUNTED_SIZES);
        };
        let forget = |shared: &SharedTable| shared.table.forget_counted_sizes(a);
        let points = ["size.forgetting", "size.forgotten"];
        pause_everywhere(prepare, forget, &points, meanwhile, check);

        let prepare = || SharedTable::new(1 << 20);
        let note = |shared: &SharedTable| shared.table.record_counted_rate(a, rate);
        pause_everywhere(prepare, note, &["rate.half_noted"], meanwhile, check);
    }
}
