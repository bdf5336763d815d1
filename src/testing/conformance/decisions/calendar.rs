//! Tests of decisions in windows of the calendar, by the store's clock.

use super::*;
use crate::policy::calendar::{CalendarUnit, CalendarZone};
use smallvec::smallvec;

/// Zones whose dates differ at any moment, and one whose hours begin a quarter past.
const ZONES: [&str; 4] = ["UTC", "Pacific/Kiritimati", "Pacific/Niue", "Asia/Kathmandu"];

fn calendar_sizes() -> Vec<WindowSize> {
    let zones = ZONES.map(|name| CalendarZone::named(name.as_bytes()).unwrap());
    let sizes = CalendarUnit::ALL.into_iter();
    sizes.flat_map(|unit| zones.map(|zone| WindowSize::of_calendar(unit, zone))).collect()
}

pub async fn windows_of_the_calendar_are_those_of_the_stores_clock<F>(fixture: &F)
where
    F: Fixture<Store: Decider>,
{
    let sizes = calendar_sizes();
    let counters = sizes.iter().map(|size| counter("a", *size, 1000));
    let limits =
        (0..sizes.len()).map(|index| limit(index, Fixed, 2000 + 1000 * (index as i64 % 2), 1000));
    let all = Question {
        counters: counters.chain([counter("a", LONGEST, 1000)]).collect(),
        limits: limits.collect(),
        ..Question::nothing()
    };
    // Each node begins without knowing the store's time.
    for (is_admitted, count) in [(true, 1), (true, 2), (false, 2)] {
        let mut node = Asking::new(fixture.connect());
        let decided = node.ask(core::slice::from_ref(&all)).await;
        let answer = &decided.answers[0];
        assert_eq!(answer.admitted.iter().all(|it| *it), is_admitted);
        for (size, reading) in sizes.iter().chain([&LONGEST]).zip(&answer.readings) {
            let counts = reading.windows();
            assert_eq!(counts.current.whole(), count, "{size}");
            assert_eq!(counts.moment(*size), decided.now, "{size}");
            let at = size.at(decided.now);
            assert_eq!((counts.window, counts.elapsed), (at.number, at.elapsed), "{size}");
        }
    }
}

pub async fn pushes_of_others_count_in_windows_of_the_calendar<F>(fixture: &F)
where
    F: Fixture<Store: Decider>,
{
    let mut node = Asking::new(fixture.connect());
    let mut other = Node::join(fixture.connect(), shard("api")).await;
    for size in calendar_sizes() {
        let (key, now) = (size.to_string(), node.ask(&[]).await.now);
        let window = size.at(now).number;
        let of = |window, count| Diff { size, window, ..hits(&key, count) };
        // Only the current window counts.
        other.push(vec![of(window, 3), of(window - 1, 7), of(window + 1, 9)]).await;
        let question =
            Question { counters: smallvec![counter(&key, size, 1000)], ..question(&key, Fixed, 5) };
        let mut answers = Vec::new();
        for _ in 0..3 {
            answers.push(node.ask_one(&question).await);
        }
        let expected =
            [(vec![true], vec![4000]), (vec![true], vec![5000]), (vec![false], vec![5000])];
        // Unless the window has ended meanwhile.
        if size.at(node.ask(&[]).await.now).number == window {
            assert_eq!(answers, expected, "{size}");
        }
        let total = node.store.get_window(&shard("api"), key.as_bytes(), size, window + 1).await;
        assert_eq!(total.unwrap().whole(), 9, "{size}");
    }
}
