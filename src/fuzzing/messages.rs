//! Messages of the broker's queues, in memory that another process has damaged.
//!
//! An input is the memory of a queue. The broker must read no message that no worker can write, and the queue must work
//! again once it is empty.

use crate::broker::shared::message::{Reader, messages, reply, write_ask, write_reply};
use crate::broker::{Ring, Term};
use crate::table::words::atomic::AtomicU64;

/// Reads the queue as both of its readers do.
pub fn run(data: &[u8]) {
    let memory = data.chunks_exact(8).map(|word| word.try_into().expect("eight bytes"));
    let memory: Vec<_> = memory.map(|word| AtomicU64::new(u64::from_le_bytes(word))).collect();
    let Some(ring) = Ring::over(&memory) else { return };
    let (term, mut words) = (Term::default(), Vec::new());
    if ring.read(term, &mut words).is_ok() {
        assert!(words.len() < memory.len() && ring.is_empty());
        let message = [1, 7];
        let mut read = Vec::new();
        if ring.write(&message) {
            assert_eq!(ring.read(term, &mut read), Ok(()));
            assert_eq!(read, message);
        }
    }
    let mut reader = Reader::default();
    for message in messages(&words) {
        let mut again = Vec::new();
        if let Some(ask) = reader.ask(message) {
            write_ask(&mut again, ask.decider, ask.id, ask.deadline, &ask.question);
            assert_eq!(Reader::default().ask(&again), Some(ask));
        }
        again.clear();
        if let Some(answer) = reply(message) {
            write_reply(&mut again, &answer);
            assert_eq!(reply(&again), Some(answer));
        }
    }
}
