//! Tests of moving windows: against lists of hits with their times, beside all other algorithms, and with many
//! nodes that ask at once.

use super::model::Random;
use super::*;
use crate::policy::algorithm::{LevelKind, MovingCount};

/// Returns a question about one key, in thousandths.
pub(crate) fn moving(key: &str, size: WindowSize, most: i64, cost: i64) -> Question {
    Question {
        counters: smallvec![AskedCounter { kind: StoredKind::Log, ..counter(key, size, cost) }],
        limits: smallvec![limit(0, Algorithm::Moving, most, cost.max(0))],
        counts_rejected: false,
    }
}

pub async fn logs_are_lists_of_hits<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let mut random = Random(11);
    let sizes = [size(20), size(300), size(60_000)];
    let mut lists: Vec<ListOfHits> = sizes.iter().map(|_| ListOfHits::default()).collect();
    let (mut admitted, mut refused, mut waits, mut last) = (0, 0, 0, 0);
    for round in 0..600 {
        let count = random.one_of(&[1, 1, 2, 5]);
        // Some exchanges charge nothing at all, and lock nothing.
        let only_asks = random.one_of(&[false, false, false, true]);
        let asked: Vec<(usize, i64, i64)> = (0..count)
            .map(|_| {
                let cost = random.one_of(&[1000, 1000, 1000, 700, 1, 2500, 0, -300, -5000]);
                let most = random.one_of(&[1_000, 5_000, 40_000, 150_000, 250_000]);
                let cost = if only_asks { 0 } else { cost };
                (random.one_of(&[0, 1, 2, 2, 2]), most, cost)
            })
            .collect();
        let questions: Vec<_> = asked
            .iter()
            .map(|(index, most, cost)| moving("a", sizes[*index], *most, *cost))
            .collect();
        // Hits that are charged beside a refund, in the millisecond of the previous hit, may count in the next one.
        while asked.iter().any(|(_, _, cost)| *cost < 0) && node.ask(&[]).await.now.0 <= last {}
        let decided = node.ask(&questions).await;
        let now = decided.now.0;
        last = now;
        for ((index, most, cost), answer) in asked.iter().zip(&decided.answers) {
            let (size, list) = (sizes[*index], &mut lists[*index]);
            list.leave(size, now);
            let most = most - (*cost).max(1);
            let is_admitted = list.sum() <= most;
            assert_eq!(answer.admitted[..], [is_admitted], "{round}: {most} {cost}");
            if is_admitted {
                list.charge(now, *cost);
            }
            admitted += u32::from(is_admitted);
            refused += u32::from(!is_admitted);
            let (oldest, wait) = (list.oldest(now), list.wait(size, now, most));
            let expected = MovingCount {
                hits: Hits::from_thousandths(list.sum()),
                oldest: UnixMillis(oldest),
                age: now - oldest,
                wait: wait.unwrap_or(0),
            };
            assert_eq!(answer.readings[0], expected.into(), "{round}: {most} {cost}");
            waits += u32::from(wait.is_some());
        }
    }
    assert!(admitted > 200 && refused > 50 && waits > 50);
}

pub async fn parts_of_a_hit_leave_one_by_one<F: Fixture<Store: Decider>>(fixture: &F) {
    const MOST: i64 = 400;
    let mut node = Asking::new(fixture.connect());
    let (window, mut list) = (size(60_000), ListOfHits::default());
    let mut last = 0;
    for _ in 0..MOST {
        // Each hit in its own millisecond.
        while node.ask(&[]).await.now.0 <= last {}
        let decided = node.ask(&[moving("a", window, MOST, 1)]).await;
        assert_eq!(decided.answers[0].admitted[..], [true]);
        last = decided.now.0;
        list.charge(last, 1);
    }
    for cost in [1, 2, 150, 399, 400] {
        let decided = node.ask(&[moving("a", window, MOST, cost)]).await;
        let (now, answer) = (decided.now.0, &decided.answers[0]);
        assert_eq!(answer.admitted[..], [false]);
        let count = MovingCount::from(answer.readings[0]);
        assert_eq!(count.oldest.0, list.oldest(now));
        assert_eq!(Some(count.wait), list.wait(window, now, MOST - cost), "{cost}");
    }
}

pub async fn all_counters_are_charged_or_none_whatever_their_algorithms<
    F: Fixture<Store: Decider>,
>(
    fixture: &F,
) {
    let mut node = Asking::new(fixture.connect());
    let bucket = StoredKind::Level(LevelKind::Bucket(Hits::from_thousandths(1)));
    let mut all = moving("a", LONGEST, 3_000, 1000);
    for (algorithm, kind, most) in [
        (Algorithm::Bucket, bucket, 4_000),
        (Algorithm::Elastic, Algorithm::Elastic.kind(), 5_000),
        (Fixed, StoredKind::Windows, 6_000),
    ] {
        all.limits.push(limit(all.counters.len(), algorithm, most, 1000));
        all.counters.push(AskedCounter { kind, ..counter("a", LONGEST, 1000) });
    }
    let algorithms: Vec<_> = all.limits.iter().map(|it| it.algorithm).collect();
    let rates = |answer: &Answer| -> Vec<i64> {
        let limits = algorithms.iter().zip(&answer.readings);
        let rates = limits.map(|(algorithm, reading)| algorithm.rate(LONGEST, reading));
        rates.map(Hits::whole).collect()
    };
    for number in 1..=5 {
        let decided = node.ask(core::slice::from_ref(&all)).await;
        let answer = &decided.answers[0];
        assert_eq!(rates(answer), [number.min(3); 4]);
        assert_eq!(answer.admitted[..], [number <= 3, true, true, true]);
    }
    // A hit that another limit refuses charges no log.
    all.limits[3].hits = Hits::ONE;
    all.limits[0].hits = Hits::from_thousandths(9_000);
    let decided = node.ask(core::slice::from_ref(&all)).await;
    assert_eq!(rates(&decided.answers[0]), [3; 4]);
    all.counts_rejected = true;
    let decided = node.ask(core::slice::from_ref(&all)).await;
    assert_eq!(rates(&decided.answers[0]), [4; 4]);
}

pub async fn of_many_that_ask_at_once_no_window_has_one_too_many<F: Fixture<Store: Decider>>(
    fixture: &F,
) {
    const LIMIT: usize = 20;
    let window = size(300);
    let question = moving("a", window, LIMIT as i64 * 1000, 1000);
    let ask = async || {
        let mut node = Asking::new(fixture.connect());
        let mut times = Vec::new();
        let mut began = None;
        loop {
            let decided = node.ask(&vec![question.clone(); 3]).await;
            for answer in &decided.answers {
                times.extend(answer.admitted[0].then_some(decided.now.0));
            }
            if decided.now.0 > *began.get_or_insert(decided.now.0) + 1500 {
                return times;
            }
        }
    };
    let mut times = all_at_once((0..10).map(|_| ask()).collect()).await.concat();
    times.sort_unstable();
    assert!(times.len() > 2 * LIMIT, "{times:?}");
    let windows = times.windows(LIMIT + 1);
    for within in windows {
        assert!(within[LIMIT] > within[0] + window.millis(), "{within:?}");
    }
}
