//! Tests of elastic windows: each hit extends them, and they end without hits.

use super::*;
use crate::policy::algorithm::ElasticCount;
use smallvec::smallvec;

/// Long enough for a few exchanges, short enough to be waited for.
const SHORT: WindowSize = size(200);

fn elastic(key: &str, size: WindowSize, cost: i64) -> AskedCounter {
    AskedCounter { kind: Algorithm::Elastic.kind(), ..counter(key, size, cost) }
}

fn hit(key: &str, size: WindowSize, hits: i64) -> Question {
    Question {
        counters: smallvec![elastic(key, size, 1000)],
        limits: smallvec![limit(0, Algorithm::Elastic, hits * 1000, 1000)],
        ..question(key, Algorithm::Elastic, hits)
    }
}

/// Reads the first counter of a question, and the time.
async fn read<S: Decider>(node: &mut Asking<S>, question: &Question) -> (bool, ElasticCount, u64) {
    let decided = node.ask(core::slice::from_ref(question)).await;
    let answer = &decided.answers[0];
    let is_admitted = answer.admitted.iter().all(|it| *it);
    (is_admitted, answer.readings[0].into(), decided.now.0)
}

pub async fn each_hit_extends_an_elastic_window<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let (is_admitted, count, began) = read(&mut node, &hit("a", SHORT, 1)).await;
    assert!(is_admitted && count.hits == Hits::ONE && count.idle == 0);
    assert_eq!(count.first.0, began / 1000 * 1000, "in whole seconds");
    let refused_elsewhere = Question {
        counters: smallvec![elastic("a", SHORT, 1000), counter("none", LONGEST, 1000)],
        limits: smallvec![limit(0, Algorithm::Elastic, 9000, 1000), limit(1, Fixed, 0, 1000)],
        ..hit("a", SHORT, 9)
    };
    // Refused hits extend it, even those refused by another limit; so do hits long after its start.
    let mut before = began;
    while before < began + 3 * SHORT.millis() {
        for question in [hit("a", SHORT, 1), refused_elsewhere.clone()] {
            let (is_admitted, count, now) = read(&mut node, &question).await;
            if now >= before + SHORT.millis() {
                // This process may have been delayed for so long.
                return;
            }
            assert!(!is_admitted && count.hits == Hits::ONE && count.idle == 0);
            before = now;
        }
    }
}

pub async fn an_elastic_window_that_was_not_hit_ends<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let (.., began) = read(&mut node, &hit("a", SHORT, 1)).await;
    // A mere question extends nothing.
    let ask = Question {
        counters: smallvec![elastic("a", SHORT, 0)],
        limits: smallvec![limit(0, Algorithm::Elastic, 1000, 0)],
        ..hit("a", SHORT, 1)
    };
    loop {
        let (is_admitted, count, now) = read(&mut node, &ask).await;
        let has_ended = now >= began + SHORT.millis();
        assert_eq!(is_admitted, has_ended, "{count:?} {began} {now}");
        if has_ended {
            assert_eq!((count.hits, count.first.0), (Hits::ZERO, now));
            break;
        }
        assert_eq!((count.hits, count.idle), (Hits::ONE, now - began));
    }
    let (is_admitted, count, now) = read(&mut node, &hit("a", SHORT, 1)).await;
    assert!(is_admitted && count.hits == Hits::ONE && count.first.0 == now / 1000 * 1000);
}

pub async fn hits_are_given_back_to_an_elastic_window<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    for hits in 1..=2 {
        let (.., count, _) = read(&mut node, &hit("a", LONGEST, 9)).await;
        assert_eq!(count.hits.whole(), hits);
    }
    // The count does not fall below zero.
    for (cost, left) in [(-500, 1500), (-9000, 0)] {
        let back = Question {
            counters: smallvec![elastic("a", LONGEST, cost)],
            limits: smallvec![],
            counts_rejected: false,
        };
        let (.., count, _) = read(&mut node, &back).await;
        assert_eq!(count.hits.thousandths(), left);
    }
}
