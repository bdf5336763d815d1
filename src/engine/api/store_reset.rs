//! Setting a key to zero where the store decides.
//!
//! Of what has no windows, the store gives back all that it has, in the step in which it is asked. Of windows
//! it tells what it has, of which the node makes a reset as it does elsewhere: its next sync takes that to the
//! store, at most once, and the call is answered when it has. A sync goes before, too: the node is in the store's
//! present epoch then, and does not take the reset for one of an epoch that is gone.
//!
//! Two nodes that do so at the same time subtract the same hits twice, which makes the total less than zero. So
//! each then has the store count again what it subtracted, if the total is that: the first one that asks is
//! granted it.

use core::time::Duration;

use super::super::{BoundLimit, Deciders, Namespace, RateLimiting};
use super::counting::Counting;
use super::error::ApiError;
use super::key::{check_key, not_accounted, read};
use super::request::{KeyCall, ResetCall};
use super::reset::{KeyCounter, counters, first_of};
use crate::policy::algorithm::{Algorithm, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::key::counted_name;
use crate::policy::limit::{Burst, Limit};
use crate::policy::window::{Clock, WindowSize};
use crate::store::decision::{Answer, AskedLimit, Few, Question};

/// A key that is to be set to zero.
#[derive(Debug)]
pub struct StoreReset<'n, 'm> {
    /// Of what is answered, and its window.
    first: KeyCall,
    size: WindowSize,
    namespace: &'n Namespace<'m>,
    /// The counters, as limits have them.
    counters: Vec<BoundLimit<'m>>,
    /// What is subtracted from the present windows of those with these indexes.
    subtracted: Vec<(usize, Hits)>,
}

impl<'n, 'm> StoreReset<'n, 'm> {
    pub(super) fn new(
        call: &ResetCall,
        namespace: &'n Namespace<'m>,
        counting: &Counting<'_>,
    ) -> Result<Self, ApiError> {
        check_key(&call.read.key)?;
        if let Some(algorithm) = call.algorithm {
            counting.check(algorithm)?;
        }
        let counters = counters(call, namespace, counting)?;
        let first = first_of(call, &counters);
        let size = counting.window_of(&first)?;
        let bound = |counter: &KeyCounter| {
            let limit = Limit {
                name: "".into(),
                size: counter.size,
                algorithm: counter.algorithm,
                burst: Burst {
                    rate: Some(counter.rate),
                    ..Burst::default()
                },
            };
            BoundLimit::new(limit, namespace, [])
        };
        Ok(StoreReset {
            first,
            size,
            namespace,
            counters: counters.iter().map(bound).collect(),
            subtracted: Vec::new(),
        })
    }

    /// The number of the decider, and what it is asked.
    pub(super) fn question(&self, store: Deciders) -> Option<(usize, Question)> {
        let name = counted_name(&self.first.key, self.first.counter.as_deref());
        let key = self.namespace.table().key(&name);
        let counters = self.counters.iter().map(|bound| {
            let kind = bound.counter.kind();
            let charge = match kind {
                StoredKind::Windows => Hits::ZERO,
                // Of what is given back, it takes no more than there is.
                StoredKind::Level(_) | StoredKind::Log => Hits::MIN,
            };
            store.counter(bound, kind, key, charge)
        });
        let question = Question {
            counters: counters.collect(),
            ..Question::nothing()
        };
        Some((store.number_of(&name), question)).filter(|(_, it)| it.can_be_asked())
    }

    /// Sets the key to zero of which the store says this; returns whether a sync is to take that there.
    pub(super) fn answered(
        &mut self,
        answer: &Answer,
        clock: &impl Clock,
    ) -> Result<bool, ApiError> {
        let KeyCall { key, counter, .. } = &self.first;
        let name = counted_name(key, counter.as_deref());
        for (index, (bound, reading)) in self.counters.iter().zip(&answer.readings).enumerate() {
            bound.note_store(self.namespace.table().key(&name), reading, clock);
            let Limit {
                algorithm,
                size,
                burst,
                ..
            } = bound.limit;
            if algorithm.kind() == StoredKind::Windows {
                self.subtracted.push((index, reading.windows().current));
            }
            let library = RateLimiting::new(self.namespace).in_counter(counter.as_deref());
            library
                .at_rate(burst.rate.unwrap_or_default())
                .reset(key, algorithm.kind(), size, clock)
                .map_err(not_accounted)?;
        }
        Ok(self.needs_sync())
    }

    /// Whether a sync takes some of it to the store.
    pub(super) fn needs_sync(&self) -> bool {
        let mut kinds = self.counters.iter().map(|it| it.limit.algorithm.kind());
        kinds.any(|kind| kind == StoredKind::Windows)
    }

    /// What the store is asked when the reset is there: to count again what was subtracted, if the total is less
    /// than zero.
    pub(super) fn repairs(&self, store: Deciders) -> Vec<(usize, Question)> {
        let name = counted_name(&self.first.key, self.first.counter.as_deref());
        let key = self.namespace.table().key(&name);
        let subtracted = self.subtracted.iter();
        let subtracted = subtracted.filter(|(_, hits)| *hits > Hits::ZERO);
        let repair = |(index, hits): &(usize, Hits)| {
            let bound = self.counters.get(*index)?;
            let counter = store.counter(bound, StoredKind::Windows, key, *hits);
            let limit = AskedLimit {
                counter: 0,
                algorithm: Algorithm::Fixed,
                // With them, it is then less than they are.
                hits: hits.minus(Hits::from_thousandths(1)),
                cost: *hits,
            };
            let question = Question {
                counters: Few::from_iter([counter]),
                limits: Few::from_iter([limit]),
                ..Question::nothing()
            };
            Some((store.number_of(&name), question))
        };
        subtracted.filter_map(repair).collect()
    }

    /// What is then read: the key is zero in the store.
    pub(super) fn read(&self, clock: &impl Clock) -> Result<String, ApiError> {
        // What the store refused before is no reason to refuse any more.
        self.namespace.table().note_reset();
        read(&self.first, self.namespace, self.size, clock)
    }

    /// Counts in the namespace how long the store took.
    pub(super) fn count_wait(&self, time: Duration) {
        if let Some(bound) = self.counters.first() {
            bound.count_wait(time);
        }
    }
}
