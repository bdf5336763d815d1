//! Decisions from the counts that were read.

use crate::policy::window::UnixMillis;
use crate::store::contract::decision::{Answer, Certainty, Few, Question};
use crate::store::decide::asked::AskedPlaces;
use crate::store::decide::stored::{StoredCount, admitted};

/// Decides about questions in their order. `counts` are the counts of the places, which the
/// decisions change.
///
/// In the second decision, after other deciders' charges were read, questions that were refused at
/// `first` stay refused, since nothing was charged for them.
pub(crate) fn answers(
    asked: &AskedPlaces<'_>,
    questions: &[Question],
    counts: &mut [StoredCount],
    now: UnixMillis,
    first: &[Answer],
) -> Vec<Answer> {
    let mut first = first.iter();
    let mut answers = Vec::with_capacity(questions.len());
    for (question, slots) in asked.with_slots(questions) {
        let refused = first.next().filter(|it| it.admitted.contains(&false));
        let admitted = match refused {
            Some(refused) => refused.admitted.clone(),
            None => admitted(question, slots, counts, now),
        };
        let is_charged = question.counts_rejected || !admitted.contains(&false);
        let mut readings = Few::new();
        for (index, (counter, slot)) in question.counters.iter().zip(slots).enumerate() {
            if let Some(count) = counts.get_mut(*slot) {
                count.ask(question, index, is_charged, now);
                readings.push(count.reading(counter, now));
            }
        }
        answers.push(Answer { admitted, readings, certainty: Certainty::Settled });
    }
    answers
}
