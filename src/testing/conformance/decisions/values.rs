//! Tests of keys, counts and numbers of questions at their bounds.

use super::*;
use smallvec::smallvec;

pub async fn decisions_on_decimals_and_large_counts_are_exact<F: Fixture<Store: Decider>>(
    fixture: &F,
) {
    let mut node = Asking::new(fixture.connect());
    let max = Hits::MAX.thousandths();
    let question = |cost| Question {
        counters: smallvec![counter("a", LONGEST, cost)],
        limits: smallvec![limit(0, Sliding, max, cost)],
        ..question("a", Sliding, 1)
    };
    for (cost, is_admitted, count) in [
        (1, true, 1),
        (2, true, 3),
        (100_000_000_000_000, true, 100_000_000_000_003),
        (max, false, 100_000_000_000_003),
        (max - 100_000_000_000_004, true, max - 1),
        (2, false, max - 1),
        (1, true, max),
        (1, false, max),
    ] {
        let answer = node.ask_one(&question(cost)).await;
        assert_eq!(answer, (vec![is_admitted], vec![count]), "{cost}");
        assert_eq!(node.total(b"a").await, count);
    }
}

pub async fn a_count_that_saturates_harms_no_other<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let max = Hits::MAX.thousandths();
    // As with `ratelimit_count_rejected`, at a cost that the client chose.
    let hostile = Question {
        counts_rejected: true,
        counters: smallvec![counter("a", LONGEST, max)],
        limits: smallvec![limit(0, Sliding, 1000, max)],
    };
    let mut node_that_pushes = Node::join(fixture.connect(), shard("api")).await;
    for round in 1..=9 {
        // More than 2^63 in all.
        let mut questions = vec![hostile.clone(); 8000];
        questions.push(question("b", Sliding, 100));
        let answers = node.ask(&questions).await.answers;
        let (last, others) = answers.split_last().unwrap();
        assert!(others.iter().all(|it| it.admitted[..] == [false]));
        assert!(others.iter().all(|it| current(&it.readings[0]) == max));
        assert_eq!((last.admitted[..] == [true], current(&last.readings[0])), (true, round * 1000));
    }
    assert_eq!(node.total(b"a").await, max);
    // It admits no hit.
    let cheap = question("a", Sliding, Hits::MAX.whole());
    assert_eq!(node.ask_one(&cheap).await, (vec![false], vec![max]));
    // The epoch is the previous one, in which others push.
    node_that_pushes.push(vec![hits("c", 1)]).await;
}

pub async fn any_bytes_may_be_asked_about<F>(fixture: &F)
where
    F: Fixture<Store: Decider<Changes = Changes>>,
{
    let mut node = Asking::new(fixture.connect());
    let mut other = Node::join(fixture.connect(), shard("api")).await;
    let keys: [&[u8]; 9] = [
        b"\0",
        b"a\0b",
        b"line\r\nline\n",
        b"{}:7:{x}",
        b"12",
        b" ",
        b"-1",
        &core::array::from_fn::<u8, 256, _>(|byte| byte as u8),
        &[b'x'; 65535],
    ];
    let of_key = |key: &[u8]| Question {
        counters: smallvec![AskedCounter { key: key.into(), ..counter("", LONGEST, 1000) }],
        ..question("", Sliding, 2)
    };
    let questions: Vec<_> = keys.into_iter().map(of_key).collect();
    for (round, count) in [keys.len(), keys.len(), 0].into_iter().enumerate() {
        let decided = node.ask(&questions).await;
        assert_eq!(admitted(&decided), count, "{round}");
        assert_eq!(other.fetch().await.len(), count);
    }
    for key in keys {
        assert_eq!(node.total(key).await, 2000);
    }
}

pub async fn thousands_may_be_asked_about_at_once<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let mut questions = Vec::new();
    for key in 0..2500 {
        questions.push(question(&format!("{key}"), Sliding, 1 + key % 2));
    }
    for expected in [2500, 1250, 0] {
        assert_eq!(admitted(&node.ask(&questions).await), expected);
    }
    assert_eq!(node.total(b"1").await, 2000);
    assert_eq!(node.total(b"2498").await, 1000);
}

pub async fn the_largest_question_is_answered<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let counters = (0..500).map(|number| counter(&format!("{number:0272}"), LONGEST, 1000));
    let limits = (0..1000).map(|number| limit(number / 2, Sliding, 2000, 1000));
    let question =
        Question { counts_rejected: false, counters: counters.collect(), limits: limits.collect() };
    assert!(question.can_be_asked());
    for is_admitted in [true, true, false] {
        let (admitted, counts) = node.ask_one(&question).await;
        assert_eq!(admitted, vec![is_admitted; 1000]);
        assert!(counts.iter().all(|it| *it == counts[0]));
    }
}

pub async fn no_questions_have_no_answers<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let decided = node.ask(&[]).await;
    assert!(decided.answers.is_empty() && decided.now.0 > 1_577_836_800_000);
    // A question without counters and limits is admitted.
    let nothing = Question { counts_rejected: false, counters: smallvec![], limits: smallvec![] };
    let answers = node.ask(&[nothing]).await.answers;
    assert!(answers[0].admitted.is_empty() && answers[0].readings.is_empty());
}
