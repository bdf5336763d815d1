//! Batches to a store: they are sealed, sent until the store answers, and acknowledged.

use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::table::words::atomic::Ordering::Acquire;
use crate::table::words::fail::fail_point;
use crate::table::words::word::{Stamp, WindowCount};
use crate::table::zone::counter_table::{CounterRef, CounterTable};
use crate::table::zone::lease::{Lease, LeaseLost};
use crate::table::zone::sync_slot::{BatchWord, BufferWord, MAX_RECORDS, Nonces, Standing};
use crate::table::zone::sync_state::SyncState;

/// One window of a counter in a batch: the difference for the store, and the hits that the store
/// then has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    /// The counter.
    pub counter: CounterRef,
    /// The number of the window.
    pub window: u64,
    /// Hits of this node that the store has after the batch.
    pub up_to: Hits,
    /// Difference for the store; negative if hits were given back.
    pub diff: Hits,
}

/// The name of a batch of this node, unique in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchName {
    /// Its number, from 1. 0 stands for the state before the first batch.
    pub number: u64,
    /// 24 random bits.
    pub nonce: u32,
}

impl<'m> Lease<'m> {
    /// Returns the last batch that the store has acknowledged in this epoch.
    pub fn acknowledged(&self) -> BatchName {
        self.batch_name(BatchWord(self.state.slot.batch.load(Acquire)).acknowledged())
    }

    fn batch_name(&self, number: u64) -> BatchName {
        let nonces = Nonces(self.state.slot.nonces.load(Acquire));
        BatchName { number, nonce: nonces.of(number) }
    }

    /// Returns the most records of the next batch, at least one. To be called while no batch is
    /// sealed.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn batch_capacity(&self) -> Result<usize, LeaseLost> {
        let (records, _) = self.room()?;
        Ok(records.len().min(MAX_RECORDS))
    }

    /// Seals a batch, so that it is always sent with exactly these records, and counted once. It
    /// has at least one record and at most [`Lease::batch_capacity`]. No other batch may be sealed.
    /// `nonce` is random, of which 24 bits are used. Returns the batch's name.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn seal(&self, records: &[BatchRecord], nonce: u32) -> Result<BatchName, LeaseLost> {
        let (places, tag) = self.room()?;
        let records = records.get(..places.len().min(MAX_RECORDS)).unwrap_or(records);
        for (place, record) in places.iter().zip(records) {
            for (word, value) in place.0.iter().zip(record.to_words(tag)) {
                self.replace(word, |_| value)?;
                fail_point!("batch.written");
            }
        }
        let before = BatchWord(self.state.slot.batch.load(Acquire)).acknowledged();
        let number = before.wrapping_add(1);
        self.replace(&self.state.slot.nonces, |word| Nonces(word).with(number, nonce, tag).0)?;
        fail_point!("batch.named");
        let sealed = BatchWord::new(before, tag, records.len());
        self.replace(&self.state.slot.batch, |_| sealed.0)?;
        fail_point!("batch.sealed");
        Ok(self.batch_name(number))
    }

    /// Returns the sealed batch, which an earlier holder of the lease may have sealed: its name,
    /// and the records whose counters still exist, which may be none. `None` without a sealed
    /// batch.
    pub fn sealed(&self, table: &CounterTable<'m>) -> Option<(BatchName, Vec<BatchRecord>)> {
        let (acknowledged, records) = self.state.sealed(table)?;
        Some((self.batch_name(acknowledged.wrapping_add(1)), records))
    }

    /// Records that the store has acknowledged the sealed batch `number`, whose records were stored
    /// with the counters before. The store thus knows this node until `known_until` at least.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn acknowledge(&self, number: u64, known_until: UnixMillis) -> Result<(), LeaseLost> {
        self.replace(&self.state.slot.standing, |word| {
            Standing(word).known(number == 1, known_until).0
        })?;
        fail_point!("batch.known");
        let sealed = BatchWord(self.state.slot.batch.load(Acquire));
        let is_it = |batch: BatchWord| batch.acknowledged().wrapping_add(1) == number;
        self.replace(&self.state.slot.batch, |old| {
            if is_it(BatchWord(old)) { BatchWord::new(number, self.tag(), 0).0 } else { old }
        })?;
        fail_point!("batch.acknowledged");
        if is_it(sealed) {
            self.free_buffer_of(sealed);
        }
        Ok(())
    }
}

impl<'m> SyncState<'m> {
    /// Returns the records of the sealed batch, which may be in flight, whose counters still exist.
    /// `None` without a sealed batch.
    pub fn on_its_way(&self, table: &CounterTable<'m>) -> Option<Vec<BatchRecord>> {
        self.sealed(table).map(|(_, records)| records)
    }

    /// Returns the number of the last acknowledged batch.
    pub fn acknowledged(&self) -> u64 {
        BatchWord(self.slot.batch.load(Acquire)).acknowledged()
    }

    /// Returns the number of the last acknowledged batch, and the records of the sealed one, if
    /// there is one.
    fn sealed(&self, table: &CounterTable<'m>) -> Option<(u64, Vec<BatchRecord>)> {
        let SyncState { slot, buffers, .. } = self;
        let batch = BatchWord(slot.batch.load(Acquire));
        if batch.count() == 0 {
            return None;
        }
        let buffer = BufferWord(slot.buffer.load(Acquire)).buffer();
        let records = match buffer {
            Some(buffer) => buffers.records(buffer)?,
            None => core::slice::from_ref(&slot.inline),
        };
        let records = records.iter().take(batch.count());
        let records = records.filter_map(|record| {
            let words = record.0.each_ref().map(|word| word.load(Acquire));
            BatchRecord::from_words(words, batch.tag(), table)
        });
        Some((batch.acknowledged(), records.collect()))
    }
}

impl BatchRecord {
    /// Encodes the record as four words, each with the tag in its lowest 16 bits.
    fn to_words(self, tag: u16) -> [u64; 4] {
        let (index, generation) = self.counter.index_and_generation();
        let counter = u64::from(index) << 32 | u64::from(generation) << 16;
        let tag = Stamp::from_bits(tag);
        let window = Hits::from_upper_bits(self.window << 16);
        [
            counter | u64::from(tag.bits()),
            WindowCount::new(tag, window).bits(),
            WindowCount::new(tag, self.up_to).bits(),
            WindowCount::new(tag, self.diff).bits(),
        ]
    }

    /// Decodes a record. `None` if the counter is gone, or the words have another tag.
    fn from_words(words: [u64; 4], tag: u16, table: &CounterTable<'_>) -> Option<BatchRecord> {
        if words.iter().any(|&word| word as u16 != tag) {
            return None;
        }
        let [counter, window, up_to, diff] = words;
        Some(BatchRecord {
            counter: table.counter_ref((counter >> 32) as u32, (counter >> 16) as u16)?,
            window: window >> 16,
            up_to: WindowCount::from_bits(up_to).hits(),
            diff: WindowCount::from_bits(diff).hits(),
        })
    }
}
