//! Questions and answers as messages of words, for the processes of one node.
//!
//! All processes have the same build; nothing here is stored or sent to another node. A message
//! begins with its length, so that messages can follow each other.

use std::sync::Arc;

use crate::policy::algorithm::{Algorithm, Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::contract::decision::{
    Answer, AskedCounter, AskedLimit, Certainty, Few, KeyBytes, Question,
};
use crate::store::contract::strategy::Shard;

/// A question to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The number of the decider.
    pub decider: usize,
    /// The number of the request; `None` if no answer is needed.
    pub id: Option<u64>,
    /// Deadline of the request, in milliseconds of the system's monotonic clock.
    pub deadline: u64,
    /// The question itself.
    pub question: Question,
}

/// An answer to a worker: the number of the request, and the answer; `None` if the store has
/// failed.
pub type Reply = (u64, Option<Answer>);

/// Appends the message of a question to `words`; see [`Ask`].
pub fn write_ask(
    words: &mut Vec<u64>,
    decider: usize,
    id: Option<u64>,
    deadline: u64,
    question: &Question,
) {
    let Question { counts_rejected, counters, limits } = question;
    message(words, |words| {
        words.extend([
            decider as u64,
            id.is_some().into(),
            id.unwrap_or(0),
            deadline,
            u64::from(*counts_rejected),
            counters.len() as u64,
            limits.len() as u64,
        ]);
        for counter in counters {
            words.extend([
                counter.shard.number.into(),
                counter.kind.to_word(),
                counter.size.bits(),
                counter.cost.thousandths().cast_unsigned(),
            ]);
            write_bytes(words, counter.shard.namespace.as_bytes());
            write_bytes(words, &counter.key);
        }
        for limit in limits {
            words.extend([
                limit.counter as u64,
                limit.algorithm.wire_id().into(),
                limit.hits.thousandths().cast_unsigned(),
                limit.cost.thousandths().cast_unsigned(),
            ]);
        }
    });
}

/// Appends the message of a reply to `words`.
pub fn write_reply(words: &mut Vec<u64>, (id, answer): &Reply) {
    message(words, |words| {
        words.extend([*id, answer.is_some().into()]);
        let Some(Answer { admitted, readings, certainty }) = answer else {
            return;
        };
        words.extend([certainty.to_word(), admitted.len() as u64, readings.len() as u64]);
        words.extend(admitted.iter().map(|it| u64::from(*it)));
        for reading in readings {
            words.extend(reading.to_words());
        }
    });
}

/// Appends a message that `write` writes, with its length in front.
fn message(words: &mut Vec<u64>, write: impl FnOnce(&mut Vec<u64>)) {
    let start = words.len();
    words.push(0);
    write(words);
    let length = words.len().saturating_sub(start).saturating_sub(1);
    if let Some(first) = words.get_mut(start) {
        *first = length as u64;
    }
}

/// Appends bytes: their length, and eight of them in each word.
fn write_bytes(words: &mut Vec<u64>, bytes: &[u8]) {
    words.push(bytes.len() as u64);
    words.extend(bytes.chunks(8).map(|bytes| {
        let mut word = [0; 8];
        for (place, byte) in word.iter_mut().zip(bytes) {
            *place = *byte;
        }
        u64::from_le_bytes(word)
    }));
}

/// Returns the complete messages in `words`, each of which begins with its length.
pub fn messages(words: &[u64]) -> impl Iterator<Item = &[u64]> {
    let mut left = words;
    core::iter::from_fn(move || {
        let length = usize::try_from(*left.first()?).ok()?;
        let (message, others) = left.split_at_checked(length.checked_add(1)?)?;
        left = others;
        Some(message)
    })
}

/// Parses messages.
#[derive(Debug, Default)]
pub struct Reader {
    /// The names of namespaces, of which there are few, so that messages share them.
    namespaces: Vec<Arc<str>>,
    bytes: Vec<u8>,
}

impl Reader {
    /// Parses a question; `None` if [`write_ask`] did not write it.
    pub fn ask(&mut self, message: &[u64]) -> Option<Ask> {
        let mut words = Words(message);
        words.next()?;
        let [decider, has_id, id, deadline, counts_rejected, counters, limits] = words.take()?;
        let mut question =
            Question { counts_rejected: counts_rejected != 0, ..Question::nothing() };
        for _ in 0..counters {
            question.counters.push(self.counter(&mut words)?);
        }
        for _ in 0..limits {
            question.limits.push(limit(&mut words)?);
        }
        Some(Ask {
            decider: usize::try_from(decider).ok()?,
            id: (has_id != 0).then_some(id),
            deadline,
            question,
        })
    }

    fn counter(&mut self, words: &mut Words<'_>) -> Option<AskedCounter> {
        let [shard, kind, size, cost] = words.take()?;
        let namespace = words.bytes(&mut self.bytes)?;
        let mut known = self.namespaces.iter();
        let namespace = match known.find(|it| it.as_bytes() == namespace) {
            Some(known) => known.clone(),
            None => {
                let new: Arc<str> = str::from_utf8(namespace).ok()?.into();
                self.namespaces.push(new.clone());
                new
            }
        };
        Some(AskedCounter {
            shard: Shard { namespace, number: u16::try_from(shard).ok()? },
            key: KeyBytes::from_slice(words.bytes(&mut self.bytes)?),
            kind: StoredKind::from_word(kind)?,
            size: WindowSize::from_bits(size)?,
            cost: hits(cost),
        })
    }
}

/// Parses an answer; `None` if [`write_reply`] did not write it.
pub fn reply(message: &[u64]) -> Option<Reply> {
    let mut words = Words(message);
    words.next()?;
    let [id, is_answer] = words.take()?;
    if is_answer == 0 {
        return Some((id, None));
    }
    let [certainty, admitted, readings] = words.take()?;
    let mut answer = Answer {
        admitted: Few::new(),
        readings: Few::new(),
        certainty: Certainty::from_word(certainty)?,
    };
    for _ in 0..admitted {
        answer.admitted.push(words.next()? != 0);
    }
    for _ in 0..readings {
        answer.readings.push(Reading::from_words(words.take()?));
    }
    Some((id, Some(answer)))
}

fn limit(words: &mut Words<'_>) -> Option<AskedLimit> {
    let [counter, algorithm, limit, cost] = words.take()?;
    Some(AskedLimit {
        counter: usize::try_from(counter).ok()?,
        algorithm: Algorithm::from_wire_id(algorithm)?,
        hits: hits(limit),
        cost: hits(cost),
    })
}

fn hits(thousandths: u64) -> Hits {
    Hits::from_thousandths(thousandths.cast_signed())
}

/// The words of a message that are not parsed yet.
struct Words<'w>(&'w [u64]);

impl Words<'_> {
    fn next(&mut self) -> Option<u64> {
        self.take().map(|[word]: [u64; 1]| word)
    }

    fn take<const N: usize>(&mut self) -> Option<[u64; N]> {
        let (first, others) = self.0.split_first_chunk()?;
        self.0 = others;
        Some(*first)
    }

    /// Parses bytes into `place`.
    fn bytes<'b>(&mut self, place: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        let length = usize::try_from(self.next()?).ok()?;
        let (words, others) = self.0.split_at_checked(length.div_ceil(8))?;
        self.0 = others;
        place.clear();
        for word in words {
            place.extend_from_slice(&word.to_le_bytes());
        }
        place.get(..length)
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::policy::algorithm::{LevelKind, StoredKind, WindowCounts};

    fn counter(namespace: &str, key: &[u8], cost: i64) -> AskedCounter {
        AskedCounter {
            shard: Shard { namespace: namespace.into(), number: 513 },
            key: key.into(),
            kind: StoredKind::Windows,
            size: WindowSize::from_millis(60_000).unwrap(),
            cost: Hits::from_thousandths(cost),
        }
    }

    fn counter_of(kind: StoredKind) -> AskedCounter {
        AskedCounter { kind, ..counter("default", b"k", 1000) }
    }

    fn limit(counter: usize, algorithm: Algorithm) -> AskedLimit {
        AskedLimit {
            counter,
            algorithm,
            hits: Hits::from_thousandths(i64::MAX),
            cost: Hits::from_thousandths(1500),
        }
    }

    fn asks() -> Vec<Ask> {
        let ask = Ask { decider: 0, id: None, deadline: 0, question: Question::nothing() };
        let long = [b'x'; 65_535];
        let question = Question {
            counts_rejected: true,
            counters: smallvec![
                counter("default", b"k", -1000),
                counter("ü", b"12345678", i64::MAX),
                counter("default", &long, 0),
                counter_of(StoredKind::Level(LevelKind::Bucket(Hits::MAX))),
                counter_of(StoredKind::Log),
            ],
            limits: smallvec![
                limit(2, Algorithm::Sliding),
                limit(0, Algorithm::Fixed),
                limit(3, Algorithm::Bucket),
                limit(4, Algorithm::Moving),
            ],
        };
        let mut asks = vec![ask.clone()];
        asks.extend([(7, 0), (usize::MAX, u64::MAX)].map(|(decider, id)| Ask {
            decider,
            id: Some(id),
            deadline: u64::MAX,
            question: question.clone(),
        }));
        asks.push(ask);
        asks
    }

    fn words_of(asks: &[Ask]) -> Vec<u64> {
        let mut words = Vec::new();
        for ask in asks {
            write_ask(&mut words, ask.decider, ask.id, ask.deadline, &ask.question);
        }
        words
    }

    #[test]
    fn questions_are_read_as_they_were_written() {
        let (asks, mut reader) = (asks(), Reader::default());
        let words = words_of(&asks);
        let read: Option<Vec<Ask>> = messages(&words).map(|it| reader.ask(it)).collect();
        assert_eq!(read.unwrap(), asks);
        assert_eq!(reader.namespaces.len(), 2);
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        let reading = |window| {
            Reading::from(WindowCounts {
                window,
                current: Hits::from_thousandths(-1),
                previous: Hits::from_thousandths(i64::MAX),
                elapsed: 59_999,
            })
        };
        let answer = Answer {
            admitted: smallvec![true, false, true],
            readings: smallvec![reading(1), reading(u64::MAX)],
            certainty: Certainty::Raced,
        };
        let nothing = Answer {
            admitted: smallvec![],
            readings: smallvec![],
            certainty: Certainty::Unsettled,
        };
        let replies = [(1, Some(answer)), (u64::MAX, None), (3, Some(nothing))];
        let mut words = Vec::new();
        for reply in &replies {
            write_reply(&mut words, reply);
        }
        let read: Option<Vec<Reply>> = messages(&words).map(reply).collect();
        assert_eq!(read.unwrap(), replies);
    }

    #[test]
    fn incomplete_messages_are_not_read() {
        let (words, mut reader) = (words_of(&asks()), Reader::default());
        for message in messages(&words) {
            let end = message.len();
            for cut in (0..end.min(99)).chain(end - 7..end) {
                let cut = &message[..cut];
                assert!(reader.ask(cut).is_none());
                assert!(messages(cut).next().is_none());
            }
        }
    }
}
