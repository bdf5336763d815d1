//! Holds under loom: as `loom_tests`. A file of its own, since each thread is a process with a number.

use super::loom::{T, both, explore, key, table_and_counter};
use crate::policy::algorithm::{Algorithm, StoredKind};
use crate::policy::hits::{Hits, hits};
use crate::policy::window::{Clock, UnixMillis};
use crate::table::slots::insertion::Insertion;
use crate::table::words::held::HolderNumber;
use crate::table::words::meta::Meta;
use crate::table::*;

#[derive(Clone, Copy)]
struct Now;

impl Clock for Now {
    fn now(&self) -> UnixMillis {
        UnixMillis(T)
    }

    fn fresh(&self) -> UnixMillis {
        UnixMillis(T)
    }
}

#[derive(Clone, Copy)]
struct Fixture {
    table: &'static CounterTable<'static>,
    counter: Counter,
}

fn fixture() -> Fixture {
    let (table, counter) = table_and_counter();
    let kind = StoredKind::Holds;
    let meta = Meta::counter(counter.namespace, counter.size, kind);
    let counter = Counter { kind, meta, begins_with_hits: false, number_mask: 0, ..counter };
    Fixture { table, counter }
}

impl Fixture {
    fn take(self, holder: u16, limit: i64) -> Option<Receipt<'static>> {
        let (id, limit) = (self.counter.identity(key(1)), hits(limit));
        loop {
            let found = self.table.find_or_insert(&self.counter, id, Hits::ZERO, &Now);
            let Some(Insertion::Found(occupant)) = found else { panic!("no slot") };
            let admission = Admission::Within(limit, Algorithm::Concurrency);
            if let Some(counted) =
                self.table.hold_as(HolderNumber(holder), occupant, &Now, admission)
            {
                return counted.receipt;
            }
        }
    }

    fn release(self, holder: u16, receipt: &Receipt<'static>) -> bool {
        let occupant = self.table.occupant_of_hold(receipt);
        occupant.is_some_and(|it| self.table.release_as(HolderNumber(holder), it))
    }

    fn recover(self, holder: u16) {
        let found = self.table.find(self.counter.identity(key(1)));
        self.table.recover(found.unwrap(), HolderNumber(holder), || true);
    }

    fn held(self) -> i64 {
        let reading = self.table.read(&self.counter, key(1), &Now);
        Algorithm::Concurrency.rate(self.counter.size(), &reading).whole()
    }
}

#[test]
fn two_take_and_release_within_a_limit_of_one() {
    explore(3, || {
        let fixture = fixture();
        assert!(fixture.take(2, 0).is_none());
        let turn = move |holder| {
            let receipt = fixture.take(holder, 1);
            assert!(fixture.held() <= 1);
            receipt.is_some_and(|it| fixture.release(holder, &it))
        };
        let (one, two) = both(move || turn(0), move || turn(1));
        assert!(one || two);
        assert_eq!(fixture.held(), 0);
    });
}

#[test]
fn two_recover_while_a_third_takes_and_releases() {
    explore(2, || {
        let fixture = fixture();
        let held = fixture.take(0, 9).unwrap();
        fixture.take(1, 9).unwrap();
        fixture.take(1, 9).unwrap();
        both(
            move || {
                fixture.recover(1);
                fixture.take(0, 9).unwrap();
            },
            move || {
                fixture.recover(1);
                assert!(fixture.release(0, &held));
            },
        );
        assert_eq!(fixture.held(), 1);
        fixture.recover(0);
        assert_eq!(fixture.held(), 0);
    });
}

#[test]
fn a_counter_that_is_closed_takes_the_hold_in_its_next_occupancy_or_stays() {
    explore(3, || {
        let fixture = fixture();
        let receipt = fixture.take(0, 9).unwrap();
        assert!(fixture.release(0, &receipt));
        let (receipt, _) = both(
            move || fixture.take(0, 9).unwrap(),
            move || {
                let found = fixture.table.find(fixture.counter.identity(key(1)));
                if let Some(occupant) = found.filter(|it| it.close()) {
                    fixture.table.give_up(occupant);
                }
            },
        );
        assert_eq!(fixture.held(), 1);
        assert!(fixture.release(0, &receipt));
        assert_eq!(fixture.held(), 0);
    });
}
