//! Tests of admissions and their charges.

use super::*;
use smallvec::smallvec;

pub async fn a_limit_admits_so_many_hits<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let kept = |it: &Algorithm| F::Store::KINDS.contains(&it.kind());
    for algorithm in Algorithm::ALL.into_iter().filter(kept) {
        let question = question(&format!("{algorithm:?}"), algorithm, 3);
        for (is_admitted, count) in [(true, 1), (true, 2), (true, 3), (false, 3), (false, 3)] {
            let answer = node.ask_one(&question).await;
            assert_eq!(answer, (vec![is_admitted], vec![count * 1000]));
        }
    }
    let clock = node.ask(&[question("clock", Fixed, 1)]).await;
    // The year 2020, in milliseconds.
    assert!(clock.now.0 > 1_577_836_800_000 && clock.now.0 < 10_000_000_000_000);
    let at = LONGEST.at(clock.now);
    let expected = WindowCounts {
        window: at.number,
        current: Hits::ONE,
        previous: Hits::ZERO,
        elapsed: at.elapsed,
    };
    assert_eq!(clock.answers[0].readings[..], [expected.into()]);
}

pub async fn earlier_decisions_count_in_the_same_call<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let costly = Question {
        counters: smallvec![counter("a", LONGEST, 2000)],
        limits: smallvec![limit(0, Sliding, 3000, 2000)],
        ..question("a", Sliding, 3)
    };
    let one = question("a", Sliding, 3);
    let other = question("b", Sliding, 3);
    // The second does not fit, the third does.
    let questions = [&costly, &costly, &other, &one, &one, &other].map(Clone::clone);
    let decided = node.ask(&questions).await;
    let answers: Vec<_> = decided
        .answers
        .iter()
        .map(|it| (it.admitted[0], current(&it.readings[0]) / 1000))
        .collect();
    let expected = [(true, 2), (false, 2), (true, 1), (true, 3), (false, 3), (true, 2)];
    assert_eq!(answers, expected);
    assert_eq!(node.total(b"a").await, 3000);
    assert_eq!(node.total(b"b").await, 2000);
}

pub async fn all_counters_are_charged_or_none<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let question = Question {
        counts_rejected: false,
        counters: smallvec![
            counter("a", LONGEST, 1000),
            counter("a", HOUR, 500),
            counter("b", LONGEST, 2000),
            counter("unlimited", LONGEST, 1000),
        ],
        limits: smallvec![
            limit(0, Fixed, 9000, 1000),
            limit(1, Fixed, 9000, 500),
            limit(2, Fixed, 5000, 2000),
        ],
    };
    for charged in 1..=2 {
        let counts = [1000, 500, 2000, 1000].map(|count| charged * count).to_vec();
        assert_eq!(node.ask_one(&question).await, (vec![true; 3], counts));
    }
    for _ in 0..2 {
        let counts = vec![2000, 1000, 4000, 2000];
        let answer = (vec![true, true, false], counts);
        assert_eq!(node.ask_one(&question).await, answer);
    }
    assert_eq!(node.total(b"unlimited").await, 2000);
}

pub async fn rejected_hits_are_charged_if_they_are_to<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let one = Question { counts_rejected: true, ..question("a", Sliding, 1) };
    let both = Question {
        counts_rejected: true,
        counters: smallvec![counter("a", LONGEST, 1000), counter("b", LONGEST, 1000)],
        limits: smallvec![limit(0, Fixed, 1000, 1000), limit(1, Fixed, 9000, 1000)],
    };
    for (question, admitted, counts) in [
        (&one, vec![true], vec![1000]),
        (&one, vec![false], vec![2000]),
        (&both, vec![false, true], vec![3000, 1000]),
        (&both, vec![false, true], vec![4000, 2000]),
    ] {
        assert_eq!(node.ask_one(question).await, (admitted, counts));
    }
    assert_eq!(node.total(b"a").await, 4000);
}

pub async fn asking_charges_nothing_and_is_no_change<F>(fixture: &F)
where
    F: Fixture<Store: Decider<Changes = Changes>>,
{
    let mut node = Asking::new(fixture.connect());
    let mut other = Node::join(fixture.connect(), shard("api")).await;
    let asks = Question {
        counters: smallvec![counter("a", LONGEST, 0)],
        limits: smallvec![limit(0, Fixed, 2000, 0)],
        ..question("a", Fixed, 2)
    };
    for (charged, is_admitted) in [(0, true), (1000, true), (2000, false)] {
        for _ in 0..2 {
            let answer = node.ask_one(&asks).await;
            assert_eq!(answer, (vec![is_admitted], vec![charged]));
            assert!(other.fetch().await.is_empty());
        }
        if charged < 2000 {
            node.ask_one(&question("a", Fixed, 2)).await;
            assert_eq!(other.fetch().await.len(), 1);
        }
    }
    // Refused hits are no change, either.
    assert_eq!(node.ask_one(&question("a", Fixed, 2)).await.0, [false]);
    assert!(other.fetch().await.is_empty());
    // A limit is asked about other hits than those charged: `charge=` is charged later.
    let later = Question {
        counters: smallvec![counter("b", LONGEST, 0)],
        limits: smallvec![limit(0, Fixed, 2000, 3000)],
        ..asks
    };
    assert_eq!(node.ask_one(&later).await, (vec![false], vec![0]));
}

pub async fn less_than_zero_gives_back<F>(fixture: &F)
where
    F: Fixture<Store: Decider<Changes = Changes>>,
{
    let mut node = Asking::new(fixture.connect());
    let mut other = Node::join(fixture.connect(), shard("api")).await;
    let refund = Question {
        counters: smallvec![counter("a", LONGEST, -1000)],
        limits: smallvec![],
        ..question("a", Fixed, 2)
    };
    // Gives back no more than there is.
    let limited = Question {
        counters: smallvec![counter("a", LONGEST, -9000)],
        limits: smallvec![limit(0, Fixed, 3000, 0)],
        ..refund.clone()
    };
    let one = question("a", Fixed, 2);
    for (question, answer) in [
        (&one, (vec![true], vec![1000])),
        (&one, (vec![true], vec![2000])),
        (&one, (vec![false], vec![2000])),
        (&refund, (vec![], vec![1000])),
        (&one, (vec![true], vec![2000])),
        (&limited, (vec![true], vec![0])),
        (&one, (vec![true], vec![1000])),
    ] {
        assert_eq!(node.ask_one(question).await, answer);
        assert_eq!(node.total(b"a").await, answer.1[0]);
    }
    let counts = other.fetch().await;
    assert_eq!(totals(&counts), pairs(&[("a", 1)]));
}

/// A store may say instead that it has lost the charges, and give none back.
pub async fn no_more_is_given_back_than_was_counted<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Node::join(fixture.connect(), shard("api")).await;
    let mut other = Node::join(fixture.connect(), shard("api")).await;
    let steps = [("a", 9, -4, 5), ("b", 9, -10, 0), ("c", 0, -1, 0), ("d", -2, -1, -2)];
    for (number, (key, counted, diff, total)) in (1..).zip(steps) {
        other.push(vec![hits(key, counted)]).await;
        let batch = node.batch(number, vec![hits(key, diff), hits("other", 1)]);
        let batch = Batch { grants: Some(Grants::None), ..batch };
        applied(node.send_batch(&batch).await);
        let is_lost = node.store.has_lost_grants();
        assert!(!is_lost || counted + diff < 0, "{key}");
        let total = if is_lost { counted } else { total };
        // Once, however often it is sent.
        for _ in 0..2 {
            assert_eq!(node.total(key.as_bytes()).await.whole(), total, "{key}");
            assert_eq!(node.total(b"other").await.whole(), number.cast_signed());
            applied(node.send_batch(&batch).await);
        }
    }
}

pub async fn a_counter_may_have_several_limits<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let question = Question {
        limits: smallvec![
            limit(0, Sliding, 3000, 1000),
            limit(0, Fixed, 2000, 1000),
            // Less than the charge.
            limit(0, Fixed, 2500, 500),
        ],
        ..question("a", Fixed, 2)
    };
    for (admitted, count) in [
        (vec![true, true, true], 1000),
        (vec![true, true, true], 2000),
        (vec![true, false, true], 2000),
    ] {
        assert_eq!(node.ask_one(&question).await, (admitted, vec![count]));
    }
}

pub async fn an_ended_window_weighs_as_the_previous_one<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let size = size(300);
    let question = |algorithm| Question {
        counters: smallvec![counter("a", size, 1000)],
        limits: smallvec![limit(0, algorithm, 1_000_000_000, 1000)],
        ..question("a", algorithm, 1)
    };
    let mut last: Option<WindowCounts> = None;
    let mut ended = 0;
    let watching = async {
        while ended < 3 {
            let decided = node.ask(&[question(Sliding)]).await;
            let counts = decided.answers[0].readings[0].windows();
            if let Some(last) = last {
                if counts.window == last.window {
                    assert_eq!(counts.current, last.current.plus(Hits::ONE));
                    assert_eq!(counts.previous, last.previous);
                } else if counts.window == last.window + 1 {
                    assert_eq!(counts.current, Hits::ONE);
                    assert_eq!(counts.previous, last.current);
                    ended += 1;
                } else {
                    // After more than a window without hits.
                    assert_eq!(counts.previous, Hits::ZERO);
                }
            }
            last = Some(counts);
        }
    };
    let deadline = Duration::from_secs(20);
    tokio::time::timeout(deadline, watching).await.expect("ended");
}
