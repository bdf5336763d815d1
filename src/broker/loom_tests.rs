//! The broker's own code under loom, as the table's is.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{Breaker, Circuit, Doorbell, Ring};
use crate::table::MonotonicMillis;
use crate::table::loom_tests::{explore, leak};

#[test]
fn what_is_read_of_a_ring_is_what_was_written() {
    explore(3, || {
        let ring = Ring::over(leak(Ring::size(2))).unwrap();
        let writer = thread::spawn(move || {
            // The second finds room only where the first was read, and takes its place.
            [[1, 2], [3, 4]].map(|words| ring.write(&words))
        });
        let mut words = Vec::new();
        ring.read(&mut words);
        let written = writer.join().unwrap();
        ring.read(&mut words);
        let whole: &[u64] = match written {
            [true, true] => &[1, 2, 3, 4],
            _ => &[1, 2],
        };
        assert_eq!(words, whole);
    });
}

#[test]
fn who_sleeps_is_woken_when_so_much_was_written_as_it_waits_for() {
    // Both messages at once, or one and then the other.
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
                    if doorbell.note_written(1) {
                        *bell.0.lock().unwrap() = true;
                        bell.1.notify_one();
                    }
                })
            });
            let mut words = Vec::new();
            let mut look = || {
                rings.iter().for_each(|ring| ring.read(&mut words));
                words.len()
            };
            for wanted in steps {
                doorbell.unset();
                let mut found = look();
                while found < *wanted {
                    doorbell.set((wanted - found) as u64);
                    let before = found;
                    found = look();
                    // It may be rung for what was found before.
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
fn of_those_that_find_a_breaker_half_open_one_is_told_unless_it_is_closed() {
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
        // A caller was told, and made nothing of it: it is closed.
        assert_eq!(breaker.look(now), Circuit::Closed);
    });
}
