//! The reset of a key in a synchronous namespace.
//!
//! The store is asked for its counts first. For levels and logs with hits, a second question refunds all of them. For
//! windows, the node makes a reset as in other namespaces: its next sync pushes the negative diffs, at most once, and
//! then the call is answered. Another sync precedes the questions, so that the node is in the store's current epoch:
//! entering a new one would void the diffs.
//!
//! Two nodes that reset a key at the same time subtract the same hits twice, which makes the total negative. Each node
//! therefore asks the store to add its hits again if the total is negative; the store does so for the first that asks.

use core::time::Duration;

use super::counting::Counting;
use super::json::ApiError;
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

/// The next step of a call after an answer of its store.
#[derive(Debug)]
pub enum AfterStore {
    /// Answer the call with this body.
    Body(String),
    /// Sync the namespace, then answer the call.
    Sync,
    /// Ask the store another question.
    Ask,
}

/// A key to be set to zero.
#[derive(Debug)]
pub struct StoreReset<'n, 'm> {
    key: Vec<u8>,
    namespace: &'n Namespace<'m>,
    /// The counters, grouped by name. One name is asked about after the other, since each may have another decider.
    named: Vec<NamedReset<'m>>,
    /// The number of names about which the store has answered.
    answered: usize,
    /// The counters that had hits.
    had: Vec<CounterBody>,
}

/// The counters of a key with one name.
#[derive(Debug)]
struct NamedReset<'m> {
    /// The counted name: of the key in the counter with this name.
    counted: Vec<u8>,
    /// The counters, each with a limit that identifies it to the store.
    counters: Vec<(KeyCounter, BoundLimit<'m>)>,
    /// Hits subtracted from the current windows of the counters with these indexes.
    subtracted: Vec<(usize, Hits)>,
    /// The indexes of the counters that the store has to refund; `None` until it has reported its counts.
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

    /// Returns the question about the counters of the next name, and the number of its decider.
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
                    // The store refunds no more than it has.
                    some.map(|(_, bound)| counter(bound, Hits::MIN)).collect()
                }
            },
            ..Question::nothing()
        };
        let decider = store.number_of(&named.counted);
        Some((decider, question)).filter(|(_, it)| it.can_be_asked())
    }

    /// Processes the store's answer about the counters of one name, and sets them to zero.
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

    /// Whether a part of the reset needs a sync to reach the store.
    pub(super) fn needs_sync(&self) -> bool {
        let mut counters = self.named.iter().flat_map(|named| &named.counters);
        counters.any(|(it, _)| it.algorithm.kind() == StoredKind::Windows)
    }

    /// Returns the questions to be asked after the sync: they add what was subtracted if the total is negative.
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

    /// Returns the answer when the key is zero in the store.
    pub(super) fn done(&mut self) -> String {
        // Rejections that were remembered from the store are no longer valid.
        self.namespace.table().record_reset();
        reset_body(core::mem::take(&mut self.had))
    }

    /// Counts the time for which the call waited for the store.
    pub(super) fn count_wait(&self, time: Duration) {
        let mut counters = self.named.iter().flat_map(|named| &named.counters);
        if let Some((_, bound)) = counters.next() {
            bound.count_wait(time);
        }
    }
}

impl NamedReset<'_> {
    /// Records the store's answer, and adds the counters that had hits to `had`. Returns whether the store has to be
    /// asked again, for refunds.
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
                    bound.record_store(key, reading, None, clock);
                }
            }
            return false;
        }
        let mut given_back = Vec::new();
        let readings = self.counters.iter().zip(&answer.readings);
        for (index, ((counter, bound), reading)) in readings.enumerate() {
            bound.record_store(key, reading, None, clock);
            let body = counter.body(reading);
            match counter.algorithm.kind() {
                StoredKind::Windows => self.subtracted.push((index, reading.windows().current)),
                StoredKind::Level(_) | StoredKind::Log if body.is_some() => given_back.push(index),
                // No store has holds.
                StoredKind::Level(_) | StoredKind::Log | StoredKind::Holds => {}
            }
            had.extend(body);
        }
        let has_any = !given_back.is_empty();
        self.given_back = Some(given_back);
        has_any
    }
}

/// Returns a limit that identifies a counter to the store.
fn bound<'m>(counter: &KeyCounter, namespace: &Namespace<'m>) -> BoundLimit<'m> {
    let limit = Limit {
        name: "".into(),
        size: counter.size,
        algorithm: counter.algorithm,
        burst: Burst { rate: Some(counter.rate), ..Burst::default() },
        of_rule: None,
    };
    BoundLimit::new(limit, namespace, [])
}
