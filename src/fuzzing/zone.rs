//! A zone with damaged or foreign content, which is opened and counted in.
//!
//! An input is a byte that selects an intact zone, and changes of 11 bytes each: the kind, a place, and a value. A table that
//! opens must not panic, and must not loop. A key that is new to it is counted as in an intact one.

use core::cell::OnceCell;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

use super::T;
use crate::engine::{EarlyPush, Namespace, Syncer};
use crate::policy::algorithm::{Algorithm, LevelKind, StoredKind};
use crate::policy::hits::{Hits, hits};
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::strategy::*;
use crate::table::{
    Admission, Counter, CounterTable, HeldSweep, LookedAt, NamespaceStats, Outcome,
};
use crate::testing::answers::AnswerStore;
use crate::testing::table::{SharedTable, Time};

/// Sizes of the intact zones: the smallest, which is full, and one with sketches.
const SIZES: [usize; 2] = [7 * 4096, 32 * 4096];
/// Length of a change.
const CHANGE: usize = 11;
const MINUTE: u64 = 60_000;

thread_local! {
    static INTACT: [OnceCell<Vec<u8>>; 2] = const { [OnceCell::new(), OnceCell::new()] };
}

/// Damages a zone, opens it, and counts in it.
pub fn run(data: &[u8]) {
    let Some((&kind, changes)) = data.split_first() else { return };
    let which = usize::from(kind & 1);
    let mut image = INTACT.with(|it| it[which].get_or_init(|| intact(SIZES[which])).clone());
    if kind & 2 != 0 {
        // Nothing is left of it but its header.
        image[128..].fill(0);
    }
    for change in changes.chunks_exact(CHANGE) {
        damage(&mut image, change);
    }
    if let Some(shared) = SharedTable::of_image(&image) {
        use_all(&shared.table);
        let again = shared.open().expect("it was opened already");
        use_all(&again);
    }
}

/// Changes a word of the image.
fn damage(image: &mut [u8], change: &[u8]) {
    let [kind, low, high, value @ ..] = change else { return };
    let words = image.len() / 8;
    let place = |number: usize| number % words * 8;
    let at = place(usize::from(u16::from_le_bytes([*low, *high])));
    let value: [u8; 8] = value.try_into().expect("the rest of a change");
    let number = u64::from_le_bytes(value);
    match kind % 4 {
        0 => image[at..at + 8].copy_from_slice(&value),
        1 => image[at..at + 8].iter_mut().zip(value).for_each(|(byte, bits)| *byte ^= bits),
        // Another word.
        2 => {
            image.copy_within(place(number as u16 as usize)..place(number as u16 as usize) + 8, at)
        }
        // Several words.
        _ => {
            let end = (at + 8 * (1 + usize::from(value[0]))).min(image.len());
            image[at..end].fill(value[1]);
        }
    }
}

/// Returns the memory of an intact zone of this size, in which everything was used.
fn intact(size: usize) -> Vec<u8> {
    let shared = SharedTable::new(size);
    let table = &shared.table;
    use_all(table);
    let time = Time::at(T, 7);
    let namespace = Namespace::new("api", table).unwrap().synced(2).unwrap();
    for number in 0..size / 256 {
        let key = format!("{number}{}", "x".repeat(number % 180));
        table.add(
            &namespace.counter(minute()),
            table.key(key.as_bytes()),
            &time,
            hits(1),
            Admission::Unconditional,
        );
    }
    shared.image()
}

fn minute() -> WindowSize {
    WindowSize::from_millis(MINUTE).unwrap()
}

/// All kinds of counters, with an algorithm that reads them.
fn kinds() -> [(StoredKind, Algorithm); 6] {
    [
        (StoredKind::Windows, Algorithm::Sliding),
        (StoredKind::Windows, Algorithm::Fixed),
        (StoredKind::Level(LevelKind::Elastic), Algorithm::Elastic),
        (StoredKind::Level(LevelKind::Bucket(hits(10))), Algorithm::Bucket),
        (StoredKind::Log, Algorithm::Moving),
        (StoredKind::Holds, Algorithm::Concurrency),
    ]
}

/// Uses everything that a table has.
fn use_all(table: &CounterTable<'_>) {
    let time = Time::at(T, 3);
    table.set_worker(1);
    table.begin_configuration([(&b"api"[..], 2), (b"local", 0)].into_iter());
    for (name, shards) in [("api", 2), ("local", 0), ("new", 0)] {
        let Ok(namespace) = Namespace::new(name, table) else { continue };
        let Ok(namespace) = namespace.synced(shards) else { continue };
        let long = "y".repeat(199);
        for key in ["1x", "new", &long] {
            for (kind, algorithm) in kinds() {
                count(
                    table,
                    &namespace.counter_of(kind, minute()),
                    key.as_bytes(),
                    algorithm,
                    &time,
                );
            }
        }
        read(table, &namespace, &time);
        sync(&namespace, &time);
    }
    sweep(table, &time);
    // Everything has ended.
    time.unix.set(T + 10 * MINUTE);
    sweep(table, &time);
    count_a_new_key(table, &time);
}

/// Counts a key under a limit, gives that back, and resets it.
fn count(
    table: &CounterTable<'_>,
    counter: &Counter,
    key: &[u8],
    algorithm: Algorithm,
    time: &Time,
) {
    let key = table.key(key);
    for _ in 0..2 {
        let counted =
            table.add(counter, key, time, Hits::ONE, Admission::Within(hits(100), algorithm));
        table.count_outcome(counter, Outcome::Passed);
        if let Some(receipt) = &counted.receipt {
            table.refund(counter, receipt);
        }
        if counter.kind() != StoredKind::Holds {
            table.add(counter, key, time, hits(2), Admission::Unconditional);
        }
    }
    table.count_rejected_key(counter, key, UnixMillis(time.unix.seen.get()));
    let reading = table.read(counter, key, time);
    let rate = algorithm.rate(counter.size(), &reading);
    assert!(rate <= Hits::MAX, "{rate:?}");
    table.reset(counter, key, time);
}

/// Reads everything about a namespace.
fn read(table: &CounterTable<'_>, namespace: &Namespace<'_>, time: &Time) {
    let (index, now) = (namespace.index(), UnixMillis(T));
    let NamespaceStats { .. } = table.namespace_stats(index);
    table.zone_stats();
    table.top_rejected(index, now);
    table.pending(now, LookedAt::BOUNDED).of(index);
    table.held_in(index);
    table.counted_sizes(index);
    table.counted_rates(index);
    let all = 0..table.capacity() as usize;
    for counter in table.named_counters(index, all, |_, _| true, time) {
        assert!(counter.name.len() <= 1 << 16, "{} bytes of a name", counter.name.len());
    }
}

/// Syncs a namespace with a store that agrees to everything.
fn sync(namespace: &Namespace<'_>, time: &Time) {
    let Some(syncer) = Syncer::new(namespace, &[minute()], Duration::from_secs(3)) else { return };
    let syncer = syncer.living_for(Duration::from_secs(60)).telling();
    let mut store = AnswerStore::<Changes, Added>::answering(agree, |_| None);
    for _ in 0..2 {
        let _ = polled(syncer.sync(&mut store, time));
        let _ = polled(syncer.sync_early(EarlyPush::Due, &mut store, time));
        let _ = polled(syncer.sync_early(EarlyPush::Near, &mut store, time));
        // A lease that a dead worker left has ended.
        time.monotonic.set(time.monotonic.get() + 100_000);
    }
}

/// Returns the result of a future that waits for nothing.
fn polled<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    for _ in 0..1000 {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return result;
        }
    }
    panic!("nothing to wait for");
}

/// Gives back what ended processes held.
fn sweep(table: &CounterTable<'_>, time: &Time) {
    let mut sweep = HeldSweep::default();
    for _ in 0..3 {
        if table.look_at_holders(&mut sweep) {
            while table.sweep_holds(&mut sweep, time) {}
        }
    }
}

/// Counts a key that was never counted.
fn count_a_new_key(table: &CounterTable<'_>, time: &Time) {
    let Ok(namespace) = Namespace::new("after", table) else { return };
    let counter = namespace.counter(minute());
    for number in 0..3 {
        let name = format!("after {number}");
        let key = table.key(name.as_bytes());
        table.reset(&counter, key, time);
        for expected in 1..4 {
            let counted = table.add(&counter, key, time, hits(1), Admission::Unconditional);
            // A damaged zone may have no place for it.
            if table.has(&counter, key) {
                assert!(counted.receipt.is_some(), "it is not counted");
                let counts = counted.reading.windows();
                assert_eq!(counts.current, hits(expected));
                assert_eq!(table.read(&counter, key, time).windows(), counts);
            }
        }
    }
}

/// Applies a batch, in a store that has nothing.
fn agree(batch: &Batch, _: usize) -> Pushed {
    assert!(batch.diffs.len() <= Batch::MAX_DIFFS, "{} diffs", batch.diffs.len());
    let [sequence, tag] = batch.position.map_or([0, 0], |Position(words)| words);
    let position = Position([sequence.saturating_add(1).min(u64::MAX - 1), tag]);
    let changes = Changes::Since { counts: Vec::new(), position, has_more: false };
    Pushed::Applied { changes, now: UnixMillis(T) }
}
