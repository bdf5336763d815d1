//! Holds: limits on how many requests of a key are under way, in processes that are killed and stopped anywhere.

use proptest::prelude::*;

use crate::policy::algorithm::{Algorithm, StoredKind};
use crate::policy::hits::{Hits, hits};
use crate::table::slots::cells::total_word;
use crate::table::words::atomic::Ordering::Relaxed;
use crate::table::words::held::HolderNumber;
use crate::table::*;
use crate::testing::table::{
    Pass, Process, SharedTable, TestClock, die_everywhere, in_process, pause_everywhere,
};

const T: u64 = 1_700_000_000_000;
const LEN: usize = 1 << 20;
/// The smallest zone, which is soon full.
const SMALL: usize = 7 * 4096;

struct Fixture {
    shared: SharedTable,
    counter: Counter,
    clock: TestClock,
}

impl Fixture {
    fn new(len: usize) -> Fixture {
        let shared = SharedTable::new(len);
        let counter = shared.table.counter_in(b"default", StoredKind::Holds, 1000);
        Fixture { shared, counter, clock: TestClock::at(T) }
    }

    fn within(limit: i64) -> Admission {
        Admission::Within(hits(limit), Algorithm::Concurrency)
    }

    fn take(&self, key: &str, limit: i64) -> Counted<'static> {
        let table = &self.shared.table;
        table.add(
            &self.counter,
            table.key(key.as_bytes()),
            &self.clock,
            Hits::ONE,
            Self::within(limit),
        )
    }

    /// Takes a hold as the process with number `holder`.
    fn take_as(&self, holder: u16, key: &str, limit: i64) -> Option<Receipt<'static>> {
        let table = &self.shared.table;
        let id = self.counter.identity(table.key(key.as_bytes()));
        loop {
            use crate::table::slots::insertion::Insertion;
            let found = table.find_or_insert(&self.counter, id, Hits::ZERO, &self.clock);
            let Some(Insertion::Found(occupant)) = found else { panic!("no slot") };
            let admission = Self::within(limit);
            if let Some(counted) =
                table.hold_as(HolderNumber(holder), occupant, &self.clock, admission)
            {
                return counted.receipt;
            }
        }
    }

    fn release(&self, receipt: &Receipt<'static>) -> bool {
        self.shared.table.refund(&self.counter, receipt)
    }

    fn release_as(&self, holder: u16, receipt: &Receipt<'static>) -> bool {
        let table = &self.shared.table;
        let occupant = table.occupant_of_hold(receipt);
        occupant.is_some_and(|it| table.release_as(HolderNumber(holder), it))
    }

    fn held(&self, key: &str) -> i64 {
        let table = &self.shared.table;
        let reading = table.read(&self.counter, table.key(key.as_bytes()), &self.clock);
        Algorithm::Concurrency.rate(self.counter.size(), &reading).whole()
    }

    fn sum(&self) -> u64 {
        self.shared.table.held_in(self.counter.namespace())
    }

    /// Sweeps as a process does that looks until nothing is left to do.
    fn sweep(&self) {
        let mut sweep = HeldSweep::default();
        // Start times are compared in turn.
        for _ in 0..4 {
            if self.shared.table.look_at_holders(&mut sweep) {
                while self.shared.table.sweep_holds(&mut sweep, &self.clock) {}
            }
        }
    }
}

#[test]
fn as_many_as_the_limit_are_under_way() {
    let fixture = Fixture::new(LEN);
    let receipts: Vec<_> = (0..3).map(|_| fixture.take("k", 3).receipt.unwrap()).collect();
    let refused = fixture.take("k", 3);
    assert!(!refused.admitted && refused.receipt.is_none());
    assert_eq!((fixture.held("k"), fixture.held("other"), fixture.sum()), (3, 0, 3));
    assert!(!fixture.take("other", 0).admitted);
    for (left, receipt) in (0..3).rev().zip(&receipts) {
        assert!(fixture.release(receipt));
        assert_eq!(fixture.held("k"), left);
    }
    // A further release of the same hold takes nothing from others, and nothing below zero.
    assert!(!fixture.release(&receipts[0]));
    assert_eq!((fixture.held("k"), fixture.sum()), (0, 0));
}

#[test]
fn a_total_of_no_counter_is_no_obstacle() {
    let fixture = Fixture::new(SMALL);
    let table = &fixture.shared.table;
    let damaged = |key: &str| {
        fixture.take(key, 3);
        let occupant = table.find(fixture.counter.identity(table.key(key.as_bytes()))).unwrap();
        total_word(occupant.slot).store(u64::MAX, Relaxed);
    };
    damaged("k");
    assert!(fixture.take("k", 3).receipt.is_some());
    assert_eq!(fixture.held("k"), 1);
    // Each is evicted for the next one.
    (0..2 * table.capacity()).for_each(|number| damaged(&number.to_string()));
}

#[test]
fn a_counter_without_holds_is_freed_and_starts_anew() {
    let fixture = Fixture::new(LEN);
    let old = fixture.take("k", 3).receipt.unwrap();
    assert!(fixture.release(&old));
    let held = fixture.take("held", 3).receipt.unwrap();
    fixture.clock.set(T + 20_000);
    let mut sweep = HeldSweep::default();
    let looks = (0..40).filter(|_| fixture.shared.table.look_at_holders(&mut sweep)).count();
    assert_eq!(looks, 1);
    assert!(!fixture.shared.table.sweep_holds(&mut sweep, &fixture.clock));
    let has = |key: &str| {
        let table = &fixture.shared.table;
        table.has(&fixture.counter, table.key(key.as_bytes()))
    };
    assert!(!has("k") && has("held"));
    assert!(!fixture.release(&old));
    assert!(fixture.take("k", 1).admitted);
    assert_eq!(fixture.sum(), 2);
    assert!(fixture.release(&held));
}

#[test]
fn a_counter_with_holds_is_evicted_last() {
    let fixture = Fixture::new(SMALL);
    let receipt = fixture.take("k", 3).receipt.unwrap();
    let windows = fixture.shared.table.counter_in(b"default", StoredKind::Windows, 1000);
    let table = &fixture.shared.table;
    for n in 0..5000_u32 {
        let key = format!("crowd {n}");
        let key = table.key(key.as_bytes());
        table.add(&windows, key, &fixture.clock, hits(5), Admission::Unconditional);
    }
    assert_eq!(fixture.held("k"), 1);
    assert!(fixture.release(&receipt));
    // A crowd that holds does evict; what is gone is not released a second time.
    let crowd: Vec<_> = (0..5000).map(|n| fixture.take(&format!("crowd {n}"), 3).receipt).collect();
    assert!(fixture.sum() < 5000);
    for (n, receipt) in crowd.iter().enumerate() {
        let (before, key) = (fixture.sum(), format!("crowd {n}"));
        let was_held = fixture.held(&key) == 1;
        assert_eq!(fixture.release(receipt.as_ref().unwrap()), was_held);
        assert_eq!(fixture.sum(), before - u64::from(was_held));
    }
    assert_eq!(fixture.sum(), 0);
}

#[test]
fn the_holds_of_a_killed_process_are_given_back() {
    let fixture = Fixture::new(LEN);
    let own = fixture.take("k", 10).receipt.unwrap();
    let process = Process::start(|| {
        for key in ["k", "k", "other"] {
            assert!(fixture.take(key, 10).admitted);
        }
        // SAFETY: stops this process, and has no other effect.
        unsafe { libc::raise(libc::SIGSTOP) };
    });
    assert!(process.wait_for_stop());
    // A stopped process has not ended.
    fixture.sweep();
    assert_eq!((fixture.held("k"), fixture.held("other"), fixture.sum()), (3, 1, 4));
    process.signal(libc::SIGKILL);
    assert_eq!(process.wait(), Some(libc::SIGKILL));
    fixture.sweep();
    assert_eq!((fixture.held("k"), fixture.held("other"), fixture.sum()), (1, 0, 1));
    assert!(fixture.release(&own));
    // Its number is free again.
    in_process(|| {
        assert!(fixture.take("k", 1).admitted);
        assert_eq!(fixture.shared.table.holder(), Some(HolderNumber(1)));
    });
    fixture.sweep();
    assert_eq!(fixture.sum(), 0);
}

/// Takes and releases as a process with a high number does, whose cells are in a block.
fn use_as(fixture: &Fixture, holder: u16) {
    let receipts = [(); 2].map(|()| fixture.take_as(holder, "k", 10).unwrap());
    assert!(fixture.release_as(holder, &receipts[0]));
    let _ = fixture.take_as(holder, "new", 10).unwrap();
}

const POINTS: &[&str] = &[
    "hold.block.claimed",
    "hold.block.linked",
    "hold.block.published",
    "hold.block.written",
    "hold.completed",
    "hold.marked",
    "hold.released",
    "hold.taken",
];

#[test]
fn a_process_that_dies_anywhere_leaves_nothing_held() {
    // The first process has a cell in the slot, the other one in a block.
    for holder in [1, 7] {
        die_everywhere(
            || {
                let fixture = Fixture::new(LEN);
                let _ = fixture.take_as(0, "k", 10).unwrap();
                fixture
            },
            |fixture| use_as(fixture, holder),
            if holder == 1 { &POINTS[4..] } else { POINTS },
            |fixture, point| {
                let [held, other] = ["k", "new"].map(|key| fixture.held(key));
                assert!((1..=3).contains(&held) && (0..=1).contains(&other), "{point}");
                // Two recoveries of which one is in the middle of the other.
                recover(fixture, holder);
                recover(fixture, holder);
                assert_eq!((fixture.held("k"), fixture.held("new"), fixture.sum()), (1, 0, 1));
                // The counter goes on.
                let receipt = fixture.take_as(holder, "k", 2).unwrap();
                assert!(fixture.take_as(holder, "k", 2).is_none());
                assert!(fixture.release_as(holder, &receipt));
                assert_eq!(fixture.held("k"), 1);
            },
        );
    }
}

/// Gives back what the process with number `holder` holds.
fn recover(fixture: &Fixture, holder: u16) {
    let table = &fixture.shared.table;
    table.each_counter_of_holds(|it| table.recover(it, HolderNumber(holder), || true));
}

#[test]
fn a_recovery_that_dies_or_is_stopped_does_no_harm() {
    let prepare = || {
        let fixture = Fixture::new(LEN);
        for key in ["k", "k", "other"] {
            let _ = fixture.take_as(7, key, 10).unwrap();
        }
        let _ = fixture.take_as(0, "k", 10).unwrap();
        fixture
    };
    let points = &["hold.completed", "hold.recovered", "hold.recovering"];
    die_everywhere(
        prepare,
        |fixture| recover(fixture, 7),
        points,
        |fixture, _| {
            recover(fixture, 7);
            assert_eq!((fixture.held("k"), fixture.held("other")), (1, 0));
        },
    );
    pause_everywhere(
        prepare,
        |fixture| recover(fixture, 7),
        points,
        |fixture, pass| {
            recover(fixture, 7);
            assert_eq!((fixture.held("k"), fixture.held("other")), (1, 0));
            // A later process has the number by now, which the stopped one does not take for the former.
            if pass == Pass::Last {
                let _ = fixture.take_as(2, "k", 10).unwrap();
            }
        },
        |fixture| {
            assert!((1..=2).contains(&fixture.held("k")) && fixture.held("other") == 0);
        },
    );
}

#[test]
fn a_process_that_is_stopped_anywhere_counts_once() {
    for holder in [1, 7] {
        pause_everywhere(
            || Fixture::new(LEN),
            |fixture| use_as(fixture, holder),
            if holder == 1 { &POINTS[4..] } else { POINTS },
            |fixture, _| {
                for _ in 0..2 {
                    let receipt = fixture.take_as(0, "k", 100).unwrap();
                    assert!(fixture.release_as(0, &receipt));
                    let _ = fixture.take_as(8, "k", 100).unwrap();
                }
            },
            |fixture| {
                assert_eq!((fixture.held("k"), fixture.held("new"), fixture.sum()), (3, 1, 4));
                recover(fixture, holder);
                assert_eq!((fixture.held("k"), fixture.held("new")), (2, 0));
                recover(fixture, 8);
                assert_eq!(fixture.sum(), 0);
            },
        );
    }
}

/// The counter in which other nodes are told, and what it says in the current window.
fn told(fixture: &Fixture) -> (Counter, i64) {
    let table = &fixture.shared.table;
    let told = table.counter_in(b"default", StoredKind::Windows, 2500).synced(true);
    let key = table.key(b"told");
    let reading = table.read(&told, key, &fixture.clock);
    (told, reading.windows().current.whole())
}

#[test]
fn a_process_that_dies_or_is_stopped_while_it_tells_is_corrected_by_the_next_one() {
    let prepare = || Fixture::new(LEN);
    let scenario = |fixture: &Fixture| {
        let (table, (told, _)) = (&fixture.shared.table, told(fixture));
        for _ in 0..2 {
            let receipt = fixture.take("k", 10).receipt.unwrap();
            table.tell_hold(&told, table.key(b"told"), &receipt, &fixture.clock);
        }
        assert!(fixture.release(&fixture.take("k", 10).receipt.unwrap()));
    };
    let correct = |fixture: &Fixture| {
        let (table, (told, _)) = (&fixture.shared.table, told(fixture));
        let receipt = fixture.take("k", 10).receipt.unwrap();
        table.tell_hold(&told, table.key(b"told"), &receipt, &fixture.clock);
        assert_eq!(self::told(fixture).1, fixture.held("k"));
        fixture.clock.set(T + 2500);
        table.tell_all(told.namespace(), &fixture.clock);
        assert_eq!(self::told(fixture).1, fixture.held("k"));
        fixture.sweep();
        fixture.clock.set(T);
        assert!(fixture.release(&receipt));
        assert_eq!(fixture.held("k"), 0);
        assert_eq!(self::told(fixture).1, 0);
        fixture.clock.set(T + 2500);
        assert_eq!(self::told(fixture).1, 0);
    };
    let points = &["hold.linked", "hold.told", "hold.taken", "hold.released"];
    die_everywhere(prepare, scenario, points, |fixture, _| correct(fixture));
    pause_everywhere(
        prepare,
        scenario,
        points,
        |fixture, _| {
            let (table, (told, _)) = (&fixture.shared.table, told(fixture));
            let receipt = fixture.take("k", 10).receipt.unwrap();
            table.tell_hold(&told, table.key(b"told"), &receipt, &fixture.clock);
        },
        |fixture| {
            assert_eq!((fixture.held("k"), told(fixture).1), (3, 3));
        },
    );
}

#[test]
fn a_number_of_a_process_that_dies_while_it_is_freed_is_freed_later() {
    die_everywhere(
        || {
            let fixture = Fixture::new(LEN);
            in_process(|| {
                for _ in 0..3 {
                    assert!(fixture.take("k", 10).admitted);
                }
            });
            assert_eq!(fixture.held("k"), 3);
            fixture
        },
        Fixture::sweep,
        &["hold.completed", "hold.recovered", "hold.recovering", "holder.freed"],
        |fixture, _| {
            fixture.sweep();
            assert_eq!((fixture.held("k"), fixture.sum()), (0, 0));
            assert_eq!(fixture.shared.table.holder(), Some(HolderNumber(0)));
        },
    );
}

#[test]
fn many_processes_never_exceed_the_limit_and_end_at_zero() {
    const LIMIT: i64 = 5;
    let fixture = Fixture::new(LEN);
    let work = |kills: bool| {
        let processes: Vec<_> = (0..6)
            .map(|n| {
                Process::start(|| {
                    let mut held: Vec<Receipt<'static>> = Vec::new();
                    for turn in 0..20_000_u32 {
                        let key = ["a", "b", "c"][(turn % 3) as usize];
                        let counted = fixture.take(key, LIMIT);
                        assert!(fixture.held(key) <= LIMIT);
                        held.extend(counted.receipt);
                        if turn % 7 >= 3
                            && let Some(receipt) = held.pop()
                        {
                            assert!(fixture.release(&receipt));
                        }
                    }
                    let is_killed = kills && n % 2 == 0;
                    if !is_killed {
                        held.iter().for_each(|receipt| assert!(fixture.release(receipt)));
                    }
                })
            })
            .collect();
        processes.into_iter().for_each(|process| assert_eq!(process.wait(), None));
    };
    work(false);
    assert_eq!(fixture.sum(), 0);
    work(true);
    fixture.sweep();
    assert_eq!(fixture.sum(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Take { holder: u16, key: usize, limit: i64 },
    Release { holder: u16, key: usize },
    Recover { holder: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    let (holder, key) = (prop::sample::select(&[0_u16, 1, 2, 3, 9, 900][..]), 0..3_usize);
    prop_oneof![
        5 => (holder.clone(), key.clone(), 0..6_i64)
            .prop_map(|(holder, key, limit)| Step::Take { holder, key, limit }),
        3 => (holder.clone(), key).prop_map(|(holder, key)| Step::Release { holder, key }),
        1 => holder.prop_map(|holder| Step::Recover { holder }),
    ]
}

proptest! {
    /// Any sequence of steps counts as a list of holds does.
    #[test]
    fn holds_are_a_list(steps in prop::collection::vec(step(), 0..200)) {
        const KEYS: [&str; 3] = ["a", "b", "c"];
        let fixture = Fixture::new(LEN);
        // The naive model: who holds which key.
        let mut model: Vec<(u16, usize)> = Vec::new();
        let mut receipts: Vec<Option<Receipt<'static>>> = vec![None, None, None];
        for step in steps {
            match step {
                Step::Take { holder, key, limit } => {
                    let held = model.iter().filter(|it| it.1 == key).count();
                    let receipt = fixture.take_as(holder, KEYS[key], limit);
                    prop_assert_eq!(receipt.is_some(), (held as i64) < limit);
                    if receipt.is_some() {
                        model.push((holder, key));
                        receipts[key] = receipt;
                    }
                }
                Step::Release { holder, key } => {
                    let place = model.iter().position(|it| *it == (holder, key));
                    // All receipts of a key are the same, since no counter is evicted.
                    let is_released = receipts[key].as_ref().is_some_and(|it| fixture.release_as(holder, it));
                    prop_assert_eq!(is_released, place.is_some());
                    place.map(|place| model.remove(place));
                }
                Step::Recover { holder } => {
                    recover(&fixture, holder);
                    model.retain(|it| it.0 != holder);
                }
            }
            for (key, name) in KEYS.iter().enumerate() {
                let held = model.iter().filter(|it| it.1 == key).count();
                prop_assert_eq!(fixture.held(name), held as i64);
            }
            prop_assert_eq!(fixture.sum(), model.len() as u64);
        }
    }
}
