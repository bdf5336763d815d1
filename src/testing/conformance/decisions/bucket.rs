//! Tests of buckets, from which hits leak at the rate in their name.

use super::*;
use crate::policy::algorithm::{BucketLevel, LevelKind};
use smallvec::smallvec;

/// Asks for a hit of so many thousandths in a bucket that holds ten, at a rate of so many in an hour.
fn at_rate(rate: i64, cost: i64) -> Question {
    let rate = Hits::from_thousandths(rate);
    Question {
        counters: smallvec![AskedCounter {
            kind: StoredKind::Level(LevelKind::Bucket(rate)),
            ..counter("a", HOUR, cost)
        }],
        limits: smallvec![limit(0, Algorithm::Bucket, 10_000, cost.max(0))],
        counts_rejected: false,
    }
}

async fn read<S: Decider>(node: &mut Asking<S>, question: &Question) -> (bool, BucketLevel) {
    let decided = node.ask(core::slice::from_ref(question)).await;
    let answer = &decided.answers[0];
    (answer.admitted[0], answer.readings[0].into())
}

pub async fn each_rate_has_a_bucket_of_its_own<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    for number in 1..=11 {
        let (is_admitted, level) = read(&mut node, &at_rate(1000, 1000)).await;
        assert_eq!(is_admitted, number <= 10);
        assert_eq!(level.hits.whole(), number.min(10));
    }
    // A thousand leak in a millisecond.
    let fast = at_rate(3_600_000_000_000, 1000);
    for _ in 0..20 {
        let (is_admitted, level) = read(&mut node, &fast).await;
        assert!(is_admitted && level.hits >= Hits::ONE);
    }
    let (is_admitted, level) = read(&mut node, &at_rate(1000, 0)).await;
    assert!(!is_admitted && level.hits > Hits::from_thousandths(9_900));
    // The same rate in other numbers.
    let mut in_two_hours = at_rate(2000, 0);
    in_two_hours.counters[0].size = size(2 * HOUR.millis());
    let (is_admitted, level) = read(&mut node, &in_two_hours).await;
    assert!(!is_admitted && level.hits > Hits::from_thousandths(9_900));
}

pub async fn rejected_hits_fill_a_bucket_and_no_more<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let counted = Question { counts_rejected: true, ..at_rate(1000, 4000) };
    for (is_admitted, thousandths) in [(true, 4000), (true, 8000), (false, 10_000), (false, 10_000)]
    {
        let (admitted, level) = read(&mut node, &counted).await;
        assert_eq!(admitted, is_admitted);
        let above = level.hits.minus(Hits::from_thousandths(thousandths));
        assert!(above <= Hits::ZERO && above > Hits::from_thousandths(-100), "{level:?}");
    }
    // A counter without a limit is charged unconditionally.
    let charge = Question { limits: smallvec![], ..counted };
    let decided = node.ask(&[charge]).await;
    let level = BucketLevel::from(decided.answers[0].readings[0]);
    assert!(level.hits > Hits::from_thousandths(13_900), "{level:?}");
}

pub async fn hits_are_given_back_to_a_bucket<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let (_, full) = read(&mut node, &at_rate(0, 10_000)).await;
    for (cost, left) in [(-500, 9_500), (0, 9_500), (-99_000, 0), (2000, 2000)] {
        let charged = Question { counts_rejected: true, ..at_rate(0, cost) };
        let (_, level) = read(&mut node, &charged).await;
        assert_eq!(level.hits.thousandths(), left);
        assert!(level.at >= full.at && (cost > 0 || level.at == full.at));
    }
}
