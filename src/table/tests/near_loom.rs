//! Due counters, under loom.

use super::loom::{At, T, both, explore, key, synced};
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::table::*;

/// Returns a table with one cell, in which a hit makes each of two keys due, and the sync.
fn two_keys_near_their_limits()
-> (&'static CounterTable<'static>, [impl Fn() + Send + 'static; 2], SyncState<'static>) {
    let (table, counter, state) = synced();
    let counter = counter.pushed_early(EarlyShare::of_milli_percent(2000));
    let hit = move |number: u64, limit: i64| {
        let admission = Admission::Within(Hits::from_thousandths(limit), Algorithm::Fixed);
        table.add(&counter, key(number), &At(T), Hits::ONE, admission);
    };
    // The keys have slots and names. With this limit, none is due yet.
    hit(1, 1_000_000);
    hit(2, 1_000_000);
    state.record_living(1, None);
    let hits = [(1, 4000), (2, 5000)].map(|(number, limit)| move || hit(number, limit));
    (table, hits, state)
}

fn take(table: &CounterTable<'_>) -> usize {
    let share = EarlyShare::of_milli_percent(2000);
    table.take_due(NamespaceIndex(0), share, UnixMillis(T)).len()
}

#[test]
fn a_counter_that_becomes_due_is_taken_or_rung_for() {
    for is_rung in [false, true] {
        explore(3, move || {
            let (table, [one, two], state) = two_keys_near_their_limits();
            if is_rung {
                two();
                take(table);
            }
            let push = move || {
                state.begin_early(0);
                take(table)
            };
            let ((), taken) = both(one, push);
            assert!(taken == 1 || table.has_due(NamespaceIndex(0)) && state.is_rung());
        });
    }
}

#[test]
fn the_bell_is_rung_for_a_counter_that_becomes_due_while_a_worker_records_its_sync() {
    explore(3, || {
        let (_, [one, _], state) = two_keys_near_their_limits();
        both(one, move || state.record_worker(1));
        assert!(state.is_rung());
    });
}

#[test]
fn one_of_two_counters_that_become_due_gets_the_cell_and_the_other_is_not_forgotten() {
    explore(2, || {
        let (table, [one, two], state) = two_keys_near_their_limits();
        both(one, two);
        assert!(state.is_rung());
        assert!(state.begin_early(0), "there is one cell");
        assert_eq!(take(table), 1);
    });
}
