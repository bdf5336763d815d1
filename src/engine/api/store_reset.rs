//! Setting a key to zero where the store decides.
//!
//! The store is asked what it has. Of what has no windows, it is asked again if it has any, to give all of that back.
//! Of windows the node makes a reset as it does elsewhere: its next sync takes that to the store, at most once, and the
//! call is answered when it has. A sync goes before, too: the node is in the store's present epoch then, and does not take
//! the reset for one of an epoch that is gone.
//!
//! Two nodes that do so at the same time subtract the same hits twice, which makes the total less than zero. So
//! each then has the store count again what it subtracted, if the total is that: the first one that asks is
//! granted it.

use core::time::Duration;

use super::counting::Counting;
use super::error::ApiError;
use super::key::check_key;
use super::request::CountersCall;
use super::reset::{CounterBody, KeyCounter, counters_of, reset_body};
use crate::engine::{BoundLimit, Deciders, Namespace};
use crate::policy::algorithm::{Algorithm, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::key::counted_name;
use crate::policy::limit::{Burst, Limit};
use crate::policy::window::Clock;
use crate::store::contract::decision::{Answer, AskedLimit, Few, Question};

/// The next step of a call once its store has answered.
#[derive(Debug)]
pub enum AfterStore {
    /// The call is answered with this body.
    Body(String),
    /// The call is answered once the namespace was synced.
    Sync,
    /// The call has another question for the store.
    Ask,
}

/// A key that is to be set to zero.
#[derive(Debug)]
pub struct StoreReset<'n, 'm> {
    key: Vec<u8>,
    namespace: &'n Namespace<'m>,
    /// The counters, by their names, which are asked about in turn: each name may be another decider's.
    named: Vec<NamedReset<'m>>,
    /// Number of counters about which the store has answered.
    answered: usize,
    /// The counters that had hits.
    had: Vec<CounterBody>,
}

/// The counters of one name.
#[derive(Debug)]
struct NamedReset<'m> {
    /// Names under which they are counted: the key, and the counter's name.
    counted: Vec<u8>,
    /// The counters, and each as a limit has it.
    counters: Vec<(KeyCounter, BoundLimit<'m>)>,
    /// Hits that are subtracted from the present windows of the counters with these indexes.
    subtracted: Vec<(usize, Hits)>,
    /// The indexes of those that the store has to give back, once it has told what it has.
    given_back: Option<Vec<usize>>,
}

impl<'n, 'm> StoreReset<'n, 'm> {
    pub(super) fn new(
        call: &CountersCall,
        namespace: &'n Namespace<'m>,
        counting: &Counting<'_>,
    ) -> Result<Self, ApiError> {
        let key = &call.read.key;
        check_key(key)?;
        if let Some(algorithm) = call.algorithm {
            counting.check(algorithm)?;
        }
        let counters = counters_of(call, namespace, counting)?;
        let named = counters.chunk_by(|one, other| one.name == other.name);
        let named = named.map(|counters| NamedReset {
            counted: counters
                .first()
                .map(|it| counted_name(key, it.name.as_deref()).to_vec())
                .unwrap_or_default(),
            counters: counters
                .iter()
                .map(|counter| (counter.clone(), bound(counter, namespace)))
                .collect(),
            subtracted: Vec::new(),
            given_back: None,
        });
        Ok(StoreReset {
            key: key.clone(),
            namespace,
            named: named.collect(),
            answered: 0,
            had: Vec::new(),
        })
    }

    /// Returns the number of the decider, and what it is asked: about the counters of the next name.
    pub(super) fn question(&self, store: Deciders) -> Option<(usize, Question)> {
        let named = self.named.get(self.answered)?;
        let key = self.namespace.table().key(&named.counted);
        let counter = |bound: &BoundLimit<'_>, charge| {
            store.counter(bound, bound.counter.kind(), key, charge)
        };
        let question = Question {
            counters: match &named.given_back {
                None => {
                    let all = named.counters.iter();
                    all.map(|(_, bound)| counter(bound, Hits::ZERO)).collect()
                }
                Some(indexes) => {
                    let some = indexes.iter().filter_map(|index| named.counters.get(*index));
                    // The store takes no more than there is.
                    some.map(|(_, bound)| counter(bound, Hits::MIN)).collect()
                }
            },
            ..Question::nothing()
        };
        let decider = store.number_of(&named.counted);
        Some((decider, question)).filter(|(_, it)| it.can_be_asked())
    }

    /// Sets the counters to zero of which the store says this.
    pub(super) fn answered(
        &mut self,
        answer: &Answer,
        clock: &impl Clock,
    ) -> Result<AfterStore, ApiError> {
        if let Some(named) = self.named.get_mut(self.answered)
            && named.note(answer, self.namespace, &mut self.had, clock)
        {
            return Ok(AfterStore::Ask);
        }
        if let Some(named) = self.named.get(self.answered) {
            for (counter, _) in &named.counters {
                counter.reset(&self.key, self.namespace, clock)?;
            }
        }
        self.answered = self.answered.saturating_add(1);
        if self.answered < self.named.len() {
            return Ok(AfterStore::Ask);
        }
        Ok(match self.needs_sync() {
            true => AfterStore::Sync,
            false => AfterStore::Body(self.done()),
        })
    }

    /// Whether a sync takes some of it to the store.
    pub(super) fn needs_sync(&self) -> bool {
        let mut counters = self.named.iter().flat_map(|named| &named.counters);
        counters.any(|(it, _)| it.algorithm.kind() == StoredKind::Windows)
    }

    /// Returns the questions to the store when the reset is there: they count again what was
    /// subtracted, if the total is less than zero.
    pub(super) fn repairs(&self, store: Deciders) -> Vec<(usize, Question)> {
        let repairs = self.named.iter().flat_map(|named| {
            let subtracted = named.subtracted.iter();
            let subtracted = subtracted.filter(|(_, hits)| *hits > Hits::ZERO);
            subtracted.filter_map(move |(index, hits)| {
                let (_, bound) = named.counters.get(*index)?;
                let key = self.namespace.table().key(&named.counted);
                let counter = store.counter(bound, StoredKind::Windows, key, *hits);
                let limit = AskedLimit {
                    counter: 0,
                    algorithm: Algorithm::Fixed,
                    hits: Hits::from_thousandths(-1),
                    cost: *hits,
                };
                let question = Question {
                    counters: Few::from_iter([counter]),
                    limits: Few::from_iter([limit]),
                    ..Question::nothing()
                };
                Some((store.number_of(&named.counted), question))
            })
        });
        repairs.collect()
    }

    /// Returns the answer, once the key is zero in the store.
    pub(super) fn done(&mut self) -> String {
        // What the store refused before is no reason to refuse any more.
        self.namespace.table().record_reset();
        reset_body(core::mem::take(&mut self.had))
    }

    /// Counts in the namespace how long the store took.
    pub(super) fn count_wait(&self, time: Duration) {
        let mut counters = self.named.iter().flat_map(|named| &named.counters);
        if let Some((_, bound)) = counters.next() {
            bound.count_wait(time);
        }
    }
}

impl NamedReset<'_> {
    /// Notes what the store says, and adds the counters that had hits to `had`. Returns whether the store is to be asked
    /// again, to give some back.
    fn note(
        &mut self,
        answer: &Answer,
        namespace: &Namespace<'_>,
        had: &mut Vec<CounterBody>,
        clock: &impl Clock,
    ) -> bool {
        let key = namespace.table().key(&self.counted);
        if let Some(indexes) = &self.given_back {
            for (index, reading) in indexes.iter().zip(&answer.readings) {
                if let Some((_, bound)) = self.counters.get(*index) {
                    bound.record_store(key, reading, clock);
                }
            }
            return false;
        }
        let mut given_back = Vec::new();
        let readings = self.counters.iter().zip(&answer.readings);
        for (index, ((counter, bound), reading)) in readings.enumerate() {
            bound.record_store(key, reading, clock);
            let body = counter.body(reading);
            match counter.algorithm.kind() {
                StoredKind::Windows => self.subtracted.push((index, reading.windows().current)),
                StoredKind::Level(_) | StoredKind::Log if body.is_some() => given_back.push(index),
                StoredKind::Level(_) | StoredKind::Log => {}
            }
            had.extend(body);
        }
        let has_any = !given_back.is_empty();
        self.given_back = Some(given_back);
        has_any
    }
}

/// Returns a counter as a limit has it.
fn bound<'m>(counter: &KeyCounter, namespace: &Namespace<'m>) -> BoundLimit<'m> {
    let limit = Limit {
        name: "".into(),
        size: counter.size,
        algorithm: counter.algorithm,
        burst: Burst { rate: Some(counter.rate), ..Burst::default() },
    };
    BoundLimit::new(limit, namespace, [])
}
