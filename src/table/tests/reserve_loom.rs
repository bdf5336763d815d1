//! Reserves under loom: as `loom_tests`.

use loom::thread;

use super::loom::{SIZE, T, key, table_and_counter};
use crate::policy::hits::hits;
use crate::policy::window::{Clock, UnixMillis};
use crate::table::count::reserve::Reserve;
use crate::table::*;

const WINDOW: u64 = T / SIZE;

struct Now;

impl Clock for Now {
    fn now(&self) -> UnixMillis {
        UnixMillis(T)
    }

    fn fresh(&self) -> UnixMillis {
        UnixMillis(T)
    }
}

fn reserve() -> (&'static CounterTable<'static>, Reserve) {
    let (table, counter) = table_and_counter();
    let reserve = Reserve::over(counter, counter.identity(key(1)));
    assert!(table.grant(&reserve, hits(2), WINDOW, &Now));
    (table, reserve)
}

#[test]
fn two_spend_and_a_third_grants() {
    loom::model(|| {
        let (table, reserve) = reserve();
        let spend = move || {
            let spent = table.spend(&reserve, hits(2), UnixMillis(T));
            i64::from(spent.is_some())
        };
        let other = thread::spawn(spend);
        let grants = thread::spawn(move || table.grant(&reserve, hits(2), WINDOW, &Now));
        let spent = spend() + other.join().unwrap();
        assert!(grants.join().unwrap());
        let left = table.reserved(&reserve, WINDOW, UnixMillis(T)).left();
        assert!(spent >= 1);
        assert_eq!(left, hits(4 - 2 * spent));
    });
}

#[test]
fn one_spends_while_the_rest_is_given_back() {
    loom::model(|| {
        let (table, reserve) = reserve();
        let spends = thread::spawn(move || {
            let spent = table.spend(&reserve, hits(1), UnixMillis(T));
            let is_spent = spent.is_some();
            if let Some(receipt) = spent.and_then(|it| it.receipt) {
                // Another limit has refused.
                assert!(table.put_back(&reserve, &receipt));
            }
            is_spent
        });
        let drained = table.drain(&reserve, WINDOW, UnixMillis(T));
        spends.join().unwrap();
        let left = table.reserved(&reserve, WINDOW, UnixMillis(T)).left();
        assert_eq!(drained.plus(left), hits(2));
    });
}
