//! Tests of decisions on the counts of others, and of the changes that others read.

use super::*;
use crate::store::contract::decision::Few;
use smallvec::smallvec;

pub async fn counters_of_a_question_may_be_in_several_shards<F: Fixture<Store: Decider>>(
    fixture: &F,
) {
    let mut node = Asking::new(fixture.connect());
    let of = |namespace, key, cost| AskedCounter {
        shard: shard(namespace),
        ..counter(key, LONGEST, cost)
    };
    let both = Question {
        counts_rejected: false,
        counters: smallvec![of("api", "a", 1000), of("web", "a", 2000)],
        limits: smallvec![limit(0, Fixed, 9000, 1000), limit(1, Fixed, 5000, 2000)],
    };
    let one = Question { counters: smallvec![of("web", "a", 1000)], ..question("a", Fixed, 9) };
    let decided = node.ask(&[both.clone(), one, both.clone(), both]).await;
    let answers = decided.answers.iter().map(|it| {
        let counts = it.readings.iter().map(current);
        (it.admitted.to_vec(), counts.collect())
    });
    let expected: [(Vec<bool>, Vec<i64>); 4] = [
        (vec![true, true], vec![1000, 2000]),
        (vec![true], vec![3000]),
        (vec![true, true], vec![2000, 5000]),
        (vec![true, false], vec![2000, 5000]),
    ];
    assert_eq!(answers.collect::<Vec<_>>(), expected);
    for (namespace, total) in [("api", 2), ("web", 5)] {
        let mut other = Node::join(fixture.connect(), shard(namespace)).await;
        let windows = [(LONGEST, LONGEST.at(decided.now).number)];
        let all = other.read_all(&windows).await;
        assert_eq!(totals(&all), pairs(&[("a", total)]));
    }
}

pub async fn a_shard_without_an_epoch_gets_the_proposed_one<F: Fixture<Store: Decider>>(
    fixture: &F,
) {
    let mut node = Asking::new(fixture.connect());
    let (shard, question) = (shard("api"), question("a", Fixed, 2));
    for _ in 0..2 {
        let proposed = new_epoch();
        // An existing epoch stays.
        for (epoch, count) in [(proposed, 1), (new_epoch(), 2)] {
            let questions = core::slice::from_ref(&question);
            let decided = node.store.decide(node.node, epoch, questions).await;
            let answers = decided.unwrap().answers;
            assert_eq!(current(&answers[0].readings[0]), count * 1000);
        }
        let opened = node.store.open_epoch(&shard, None, new_epoch());
        assert_eq!(opened.await, Ok(proposed));
        fixture.flush();
    }
    // The same with a mere question.
    let (asks, proposed) = (Hits::ZERO, new_epoch());
    let mut question = question;
    question.counters[0].cost = asks;
    let decided = node.store.decide(node.node, proposed, &[question]).await;
    assert_eq!(admitted(&decided.unwrap()), 1);
    let opened = node.store.open_epoch(&shard, None, new_epoch());
    assert_eq!(opened.await, Ok(proposed));
}

pub async fn charges_are_changes_for_others<F>(fixture: &F)
where
    F: Fixture<Store: Decider<Changes = Changes>>,
{
    let [mut node, mut other] = nodes(fixture).await;
    let asks = |keys: &[&str]| -> Vec<_> {
        let keys = keys.iter();
        keys.map(|key| question(key, Sliding, 100)).collect()
    };
    let decide = async |node: &mut Node<F::Store>, keys: &[&str]| {
        let decided = node.store.decide(node.id, new_epoch(), &asks(keys)).await;
        let now = decided.unwrap().now;
        LONGEST.at(now).number
    };
    let window = decide(&mut node, &["a", "b", "a"]).await;
    let counts = other.fetch().await;
    assert_eq!(totals(&counts), pairs(&[("a", 2), ("b", 1)]));
    assert!(counts.iter().all(|it| (it.size, it.window) == (LONGEST, window)));
    assert!(other.fetch().await.is_empty());
    // The node itself does not read its own change.
    assert!(node.fetch().await.is_empty());
    decide(&mut node, &["c"]).await;
    decide(&mut other, &["a", "c"]).await;
    let pushed = Diff { size: LONGEST, window, ..hits("b", 5) };
    let seen = other.push(vec![pushed]).await;
    assert_eq!(totals(&seen), pairs(&[("c", 2)]));
    let seen = node.fetch().await;
    assert_eq!(totals(&seen), pairs(&[("a", 3), ("b", 6), ("c", 2)]));
}

pub async fn pushes_of_others_count<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let mut other = Node::join(fixture.connect(), shard("api")).await;
    let window = LONGEST.at(node.ask(&[]).await.now).number;
    let of = |key, window, count| Diff { size: LONGEST, window, ..hits(key, count) };
    let diffs = vec![of("a", window, 3), of("b", window - 1, 1_000_000)];
    other.push(diffs).await;
    let answer = node.ask_one(&question("a", Fixed, 4)).await;
    assert_eq!(answer, (vec![true], vec![4000]));
    let answer = node.ask_one(&question("a", Fixed, 4)).await;
    assert_eq!(answer, (vec![false], vec![4000]));

    // A large previous window still weighs, unless the current one is about to end.
    let decided = node.ask(&[question("b", Sliding, 1_000_000)]).await;
    let answer = &decided.answers[0];
    assert_eq!(answer.readings[0].windows().previous.whole(), 1_000_000);
    let counts = WindowCounts { current: Hits::ZERO, ..answer.readings[0].windows() };
    let limit = Hits::from_thousandths(1_000_000_000);
    let admits = Sliding.admits(LONGEST, &counts.into(), limit, Hits::ONE);
    assert_eq!(answer.admitted[..], [admits]);
    let answer = node.ask_one(&question("b", Fixed, 1)).await;
    assert_eq!(answer.0, [!admits]);
}

/// A count below zero occurs if a store has lost hits before their refund.
pub async fn a_count_below_zero_is_no_room<F>(fixture: &F)
where
    F: Fixture<Store: Decider<Counts = Added>>,
{
    let mut node = Asking::new(fixture.connect());
    let mut other = Node::join(fixture.connect(), shard("api")).await;
    let window = LONGEST.at(node.ask(&[]).await.now).number;
    let of = |key, window, count| Diff { size: LONGEST, window, ..hits(key, count) };
    let diffs = ["a", "b", "c"].map(|key| of(key, window, -5));
    other.push(diffs.into()).await;
    for algorithm in [Fixed, Sliding] {
        let key = algorithm.name();
        other.push(vec![of(key, window, -5), of(key, window - 1, -9)]).await;
        let asked = vec![question(key, algorithm, 3); 5];
        assert_eq!(admitted(&node.ask(&asked).await), 3, "{key}");
        assert_eq!(node.total(key.as_bytes()).await, 3000, "{key}");
    }
    // A refund takes no count below zero, and raises none.
    let mut back = question("a", Fixed, 1);
    (back.counters[0].cost, back.limits) = (Hits::from_thousandths(-2000), Few::new());
    node.ask_one(&back).await;
    assert_eq!(node.total(b"a").await, -5000);
    node.ask_one(&question("c", Fixed, 1)).await;
    back.counters[0].key = b"c"[..].into();
    node.ask_one(&back).await;
    assert_eq!(node.total(b"c").await, 0);
    // A repair reads the count below zero, and is granted once.
    let mut repair = question("b", Fixed, 1);
    repair.counters[0].cost = Hits::from_thousandths(5000);
    (repair.limits[0].hits, repair.limits[0].cost) =
        (Hits::from_thousandths(-1), Hits::from_thousandths(5000));
    let asked = vec![repair; 2];
    assert_eq!(admitted(&node.ask(&asked).await), 1);
    assert_eq!(node.total(b"b").await, 0);
}

pub async fn exactly_the_limit_of_many_concurrent_hits_is_admitted<F>(fixture: &F)
where
    F: Fixture<Store: Decider<Counts = Added>>,
{
    assert_eq!(admitted_of_many(fixture).await, 100);
    let mut node = Asking::new(fixture.connect());
    assert_eq!(node.total(b"a").await, 100_000);
}

pub async fn at_most_the_limit_of_many_concurrent_hits_is_admitted<F: Fixture<Store: Decider>>(
    fixture: &F,
) {
    let raced = admitted_of_many(fixture).await;
    // All questions that raced for the last hits may have been refused.
    assert!((1..=100).contains(&raced), "{raced}");
    let mut node = Asking::new(fixture.connect());
    let mut count = raced;
    for _ in raced..=100 {
        count += admitted(&node.ask(&[question("a", Sliding, 100)]).await);
    }
    assert_eq!((count, node.total(b"a").await), (100, 100_000));
}

/// Returns how many of some 300 questions are admitted, by which 20 nodes ask at once for one of 100 hits.
async fn admitted_of_many<F: Fixture<Store: Decider>>(fixture: &F) -> usize {
    let question = question("a", Sliding, 100);
    let ask = async || {
        let mut node = Asking::new(fixture.connect());
        let mut count = 0;
        for round in 1..=10 {
            let questions: Vec<_> = (0..round % 4).map(|_| question.clone()).collect();
            count += admitted(&node.ask(&questions).await);
        }
        count
    };
    let counts = all_at_once((0..20).map(|_| ask()).collect()).await;
    counts.iter().sum()
}
