//! Tests the broker's own code with loom, like the table's.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::broker::{Breaker, Circuit, Doorbell, Replaced, Ring, Tenure, TenureLooks, Term};
use crate::table::MonotonicMillis;
use crate::table::tests::loom::{explore, leak};

const TERM: Term = Term::of(0);

#[test]
fn a_ring_is_read_as_it_was_written() {
    explore(3, || {
        let ring = Ring::over(leak(Ring::size(2))).unwrap();
        let writer = thread::spawn(move || {
            // The second message fits only after the first one was read, and takes its place.
            [[1, 2], [3, 4]].map(|words| ring.write(&words))
        });
        let mut words = Vec::new();
        let mut read = || ring.read(TERM, &mut words).unwrap();
        read();
        let written = writer.join().unwrap();
        read();
        let whole: &[u64] = match written {
            [true, true] => &[1, 2, 3, 4],
            _ => &[1, 2],
        };
        assert_eq!(words, whole);
    });
}

#[test]
fn a_sleeping_reader_is_woken_when_enough_was_written() {
    // Both messages at once, or one after the other.
    for steps in [&[2][..], &[1, 2]] {
        explore(3, move || {
            let [written, at] = leak(2) else { panic!() };
            let doorbell = Doorbell::over(written, at);
            let rings = [(); 2].map(|()| Ring::over(leak(Ring::size(1))).unwrap());
            let bell = Arc::new((Mutex::new(false), Condvar::new()));
            let writers = rings.map(|ring| {
                let bell = bell.clone();
                thread::spawn(move || {
                    assert!(ring.write(&[1]));
                    if doorbell.record_written(1) {
                        *bell.0.lock().unwrap() = true;
                        bell.1.notify_one();
                    }
                })
            });
            let mut words = Vec::new();
            let mut look = || {
                let mut rings = rings.iter();
                rings.try_for_each(|ring| ring.read(TERM, &mut words)).unwrap();
                words.len()
            };
            for wanted in steps {
                doorbell.unset(TERM).unwrap();
                let mut found = look();
                while found < *wanted {
                    doorbell.set(TERM, (wanted - found) as u64).unwrap();
                    let before = found;
                    found = look();
                    // It may be rung for messages that were read before.
                    while found == before {
                        let mut is_rung = bell.0.lock().unwrap();
                        while !*is_rung {
                            is_rung = bell.1.wait(is_rung).unwrap();
                        }
                        *is_rung = false;
                        drop(is_rung);
                        found = look();
                    }
                }
            }
            for writer in writers {
                writer.join().unwrap();
            }
        });
    }
}

#[test]
fn one_process_that_finds_a_breaker_half_open_probes_unless_it_is_closed() {
    explore(3, || {
        let [word] = leak(1) else { panic!() };
        let breaker = Breaker::over(word);
        breaker.open(MonotonicMillis(1));
        let now = MonotonicMillis(Breaker::PAUSE + 2);
        let closes = thread::spawn(move || breaker.close());
        let look = move || breaker.look(now);
        let others = [(); 2].map(|()| thread::spawn(look));
        let found = others.map(|it| it.join().unwrap());
        let is_told = |it: &&Circuit| **it == Circuit::HalfOpen;
        assert!(found.iter().filter(is_told).count() <= 1);
        closes.join().unwrap();
        // A caller was told, and did nothing: the circuit is closed.
        assert_eq!(breaker.look(now), Circuit::Closed);
    });
}

#[test]
fn a_replaced_reader_of_a_ring_takes_nothing_of_the_other() {
    explore(3, || {
        let ring = Ring::over(leak(Ring::size(2))).unwrap();
        let [first, second] = [1, 2].map(Term::of);
        ring.take_over(first).unwrap();
        assert!(ring.write(&[1, 2]));
        let stopped = thread::spawn(move || {
            let mut words = Vec::new();
            let read = ring.read(first, &mut words);
            assert!(read.is_ok() || words.is_empty());
            words
        });
        let mut words = Vec::new();
        ring.take_over(second).unwrap();
        ring.read(second, &mut words).unwrap();
        // In the places of those that were read.
        assert!(ring.write(&[3, 4]));
        ring.read(second, &mut words).unwrap();
        let mut all = stopped.join().unwrap();
        all.extend(words);
        assert_eq!(all, [1, 2, 3, 4]);
    });
}

#[test]
fn a_broker_that_was_replaced_keeps_no_writer_from_waking_the_other() {
    explore(3, || {
        let [written, at] = leak(2) else { panic!() };
        let doorbell = Doorbell::over(written, at);
        let ring = Ring::over(leak(Ring::size(1))).unwrap();
        let [first, second] = [1, 2].map(Term::of);
        doorbell.take_over(first).unwrap();
        let stopped = thread::spawn(move || doorbell.unset(first));
        let writer = thread::spawn(move || {
            assert!(ring.write(&[1]));
            doorbell.record_written(1)
        });
        doorbell.take_over(second).unwrap();
        ring.take_over(second).unwrap();
        doorbell.set(second, 1).unwrap();
        let mut words = Vec::new();
        ring.read(second, &mut words).unwrap();
        let is_rung = writer.join().unwrap();
        assert!(is_rung || !words.is_empty());
        let _: Result<(), Replaced> = stopped.join().unwrap();
    });
}

#[test]
fn one_waiting_process_replaces_a_stopped_broker() {
    explore(3, || {
        let [word] = leak(1) else { panic!() };
        let tenure = Tenure::over(word);
        let (term, _) = tenure.look(&mut TenureLooks::new(9), true).unwrap();
        let take = move || {
            let mut looks = TenureLooks::new(9);
            (0..=9).find_map(|_| tenure.look(&mut looks, false))
        };
        let beats = thread::spawn(move || tenure.beat(term, true));
        let other = thread::spawn(take);
        let terms = [take(), other.join().unwrap()].map(|it| it.map(|(term, _)| term));
        let is_beaten = beats.join().unwrap().is_ok();
        // A process that looked during a beat starts again.
        assert_eq!(is_beaten && terms == [None; 2], tenure.is_of(term));
        assert!(terms[0].is_none() || terms[0] != terms[1]);
    });
}
