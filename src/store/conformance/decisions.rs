//! What a store decides: what `decision.rs` says, against a real datastore.

use super::*;
use crate::policy::window::{Counts, WindowType};
use crate::store::decision::{Answer, AskedCounter, AskedLimit, Decided, Decider, Question};
use crate::store::error::StoreError;

use WindowType::{Fixed, Sliding};

/// Defines the tests of decisions for a fixture whose store decides.
macro_rules! decision_tests {
    ($fixture:ty) => {
        $crate::store::conformance::conformance_tests! { $fixture:
            a_limit_admits_so_many_hits,
            what_was_decided_before_counts_in_the_same_call,
            decisions_follow_the_model,
            all_counters_are_charged_or_none,
            rejected_hits_are_charged_if_they_are_to,
            asking_charges_nothing_and_is_no_change,
            less_than_zero_gives_back,
            a_counter_may_have_several_limits,
            decisions_on_decimals_and_large_counts_are_exact,
            any_bytes_may_be_asked_about,
            counters_of_a_question_may_be_in_several_shards,
            a_shard_without_an_epoch_gets_the_proposed_one,
            what_is_charged_is_a_change_for_others,
            what_others_pushed_counts,
            an_ended_window_weighs_as_the_previous_one,
            of_many_that_ask_at_once_so_many_are_admitted,
            thousands_may_be_asked_about_at_once,
            no_questions_have_no_answers,
        }
    };
}
pub(in crate::store) use decision_tests;

/// The largest, so that no test sees it end.
const LONGEST: WindowSize = size(WindowSize::MAX_MILLIS);

fn counter(key: &str, size: WindowSize, cost: i64) -> AskedCounter {
    AskedCounter {
        shard: shard("api"),
        key: key.into(),
        size,
        cost: Hits::from_thousandths(cost),
    }
}

fn limit(counter: usize, window_type: WindowType, hits: i64, cost: i64) -> AskedLimit {
    AskedLimit {
        counter,
        window_type,
        hits: Hits::from_thousandths(hits),
        cost: Hits::from_thousandths(cost),
    }
}

/// One hit under one limit, in whole hits.
pub(in crate::store) fn question(key: &str, window_type: WindowType, hits: i64) -> Question {
    Question {
        counts_rejected: false,
        counters: vec![counter(key, LONGEST, 1000)],
        limits: vec![limit(0, window_type, hits * 1000, 1000)],
    }
}

/// A node that asks.
pub(in crate::store) struct Asking<S> {
    pub(in crate::store) store: S,
    pub(in crate::store) node: NodeId,
}

impl<S: Decider> Asking<S> {
    pub(in crate::store) fn new(store: S) -> Asking<S> {
        Asking {
            store,
            node: new_node(),
        }
    }

    pub(in crate::store) async fn ask(&mut self, questions: &[Question]) -> Decided {
        self.try_to_ask(questions).await.unwrap()
    }

    pub(in crate::store) async fn try_to_ask(
        &mut self,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let epoch = new_epoch();
        self.store.decide(self.node, epoch, questions).await
    }

    /// Whether one question is admitted by each limit, and what is counted then, in thousandths.
    async fn ask_one(&mut self, question: &Question) -> (Vec<bool>, Vec<i64>) {
        let decided = self.ask(core::slice::from_ref(question)).await;
        let Answer { admitted, counts } = decided.answers[0].clone();
        (admitted, counts.iter().map(current).collect())
    }

    /// The total of the key in the present window.
    async fn total(&mut self, key: &[u8]) -> i64 {
        let now = self.ask(&[]).await.now;
        let window = LONGEST.at(now).number;
        let shard = shard("api");
        let total = self.store.get_window(&shard, key, LONGEST, window);
        total.await.unwrap().thousandths()
    }
}

fn current(counts: &Counts) -> i64 {
    counts.current.thousandths()
}

/// How many questions were admitted.
fn admitted(decided: &Decided) -> usize {
    let answers = decided.answers.iter();
    answers
        .filter(|it| it.admitted.iter().all(|it| *it))
        .count()
}

pub(in crate::store) async fn a_limit_admits_so_many_hits<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    for window_type in [Fixed, Sliding] {
        let question = question(&format!("{window_type:?}"), window_type, 3);
        for (is_admitted, count) in [(true, 1), (true, 2), (true, 3), (false, 3), (false, 3)] {
            let answer = node.ask_one(&question).await;
            assert_eq!(answer, (vec![is_admitted], vec![count * 1000]));
        }
    }
    let clock = node.ask(&[question("clock", Fixed, 1)]).await;
    // The year 2020, in milliseconds.
    assert!(clock.now.0 > 1_577_836_800_000 && clock.now.0 < 10_000_000_000_000);
    let at = LONGEST.at(clock.now);
    let expected = Counts {
        window: at.number,
        current: Hits::ONE,
        previous: Hits::ZERO,
        elapsed: at.elapsed,
    };
    assert_eq!(clock.answers[0].counts, [expected]);
}

pub(in crate::store) async fn what_was_decided_before_counts_in_the_same_call<
    F: Fixture<Store: Decider>,
>(
    fixture: &F,
) {
    let mut node = Asking::new(fixture.connect());
    let costly = Question {
        counters: vec![counter("a", LONGEST, 2000)],
        limits: vec![limit(0, Sliding, 3000, 2000)],
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
        .map(|it| (it.admitted[0], current(&it.counts[0]) / 1000))
        .collect();
    let expected = [
        (true, 2),
        (false, 2),
        (true, 1),
        (true, 3),
        (false, 3),
        (true, 2),
    ];
    assert_eq!(answers, expected);
    assert_eq!(node.total(b"a").await, 3000);
    assert_eq!(node.total(b"b").await, 2000);
}

/// Numbers that look random, the same in every run.
struct Random(u64);

impl Random {
    /// Less than `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    fn question(&mut self) -> Question {
        let mut counters = Vec::new();
        // Each counter once.
        for key in ["a", "b"] {
            for size in [size(100), MINUTE, HOUR, LONGEST] {
                if self.below(6) == 0 {
                    let namespace = if key == "a" { "api" } else { "web" };
                    counters.push(AskedCounter {
                        shard: shard(namespace),
                        ..counter(key, size, self.one_of(&[1000, 1000, 500, 1, 0, -300]))
                    });
                }
            }
        }
        let limits = match counters.len() as u64 {
            0 => 0,
            counters => self.below(counters + 2),
        };
        let counts_rejected = self.below(4) == 0;
        let limits = (0..limits).map(|_| AskedLimit {
            counter: self.below(counters.len() as u64) as usize,
            window_type: self.one_of(&[Sliding, Fixed]),
            hits: Hits::from_thousandths(self.below(60_000) as i64),
            cost: Hits::from_thousandths(self.one_of(&[1000, 1000, 500, 1, 0])),
        });
        Question {
            counts_rejected,
            limits: limits.collect(),
            counters,
        }
    }
}

pub(in crate::store) async fn decisions_follow_the_model<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let mut other = Node::join(fixture.connect(), shard("api")).await;
    let mut random = Random(7);
    // What is in the store, by key, size and window.
    let mut model: BTreeMap<(Vec<u8>, WindowSize, u64), i64> = BTreeMap::new();
    let now = node.ask(&[]).await.now;
    for size in [MINUTE, HOUR, LONGEST] {
        for ago in 0..2 {
            let window = size.at(now).number - ago;
            let diff = Diff {
                size,
                window,
                ..thousandths(b"a", 25_000)
            };
            other.push(vec![diff]).await;
            model.insert((b"a".to_vec(), size, window), 25_000);
        }
    }
    let (mut refusals, mut admissions, mut weights) = (0, 0, 0);
    for _ in 0..150 {
        let count = random.below(20);
        let questions: Vec<_> = (0..count).map(|_| random.question()).collect();
        let decided = node.ask(&questions).await;
        assert_eq!(decided.answers.len(), questions.len());
        for (question, answer) in questions.iter().zip(&decided.answers) {
            let of_model: Vec<_> = question
                .counters
                .iter()
                .map(|it| {
                    let at = it.size.at(decided.now);
                    let count = |window| model.get(&(it.key.clone(), it.size, window)).copied();
                    let hits = |window| Hits::from_thousandths(count(window).unwrap_or_default());
                    Counts {
                        window: at.number,
                        elapsed: at.elapsed,
                        current: hits(at.number),
                        previous: hits(at.number - 1),
                    }
                })
                .collect();
            let admits = |it: &AskedLimit| {
                let (size, counts) = (question.counters[it.counter].size, of_model[it.counter]);
                weights += u32::from(it.window_type == Sliding && counts.previous > Hits::ZERO);
                it.window_type.admits(size, &counts, it.hits, it.cost)
            };
            let expected: Vec<_> = question.limits.iter().map(admits).collect();
            assert_eq!(answer.admitted, expected, "{question:?} {of_model:?}");
            let is_admitted = expected.iter().all(|it| *it);
            refusals += u32::from(!is_admitted);
            admissions += u32::from(is_admitted);
            for (index, counter) in question.counters.iter().enumerate() {
                let mut counts = of_model[index];
                if is_admitted || question.counts_rejected {
                    counts.current = counts.current.plus(counter.cost);
                    let name = (counter.key.clone(), counter.size, counts.window);
                    model.insert(name, counts.current.thousandths());
                }
                assert_eq!(answer.counts[index], counts, "{question:?}");
            }
        }
    }
    assert!(refusals > 100 && admissions > 100 && weights > 100);
}

pub(in crate::store) async fn all_counters_are_charged_or_none<F: Fixture<Store: Decider>>(
    fixture: &F,
) {
    let mut node = Asking::new(fixture.connect());
    let question = Question {
        counts_rejected: false,
        counters: vec![
            counter("a", LONGEST, 1000),
            counter("a", HOUR, 500),
            counter("b", LONGEST, 2000),
            counter("unlimited", LONGEST, 1000),
        ],
        limits: vec![
            limit(0, Fixed, 9000, 1000),
            limit(1, Fixed, 9000, 500),
            limit(2, Fixed, 5000, 2000),
        ],
    };
    for charged in 1..=2 {
        let counts = [1000, 500, 2000, 1000]
            .map(|count| charged * count)
            .to_vec();
        assert_eq!(node.ask_one(&question).await, (vec![true; 3], counts));
    }
    for _ in 0..2 {
        let counts = vec![2000, 1000, 4000, 2000];
        let answer = (vec![true, true, false], counts);
        assert_eq!(node.ask_one(&question).await, answer);
    }
    assert_eq!(node.total(b"unlimited").await, 2000);
}

pub(in crate::store) async fn rejected_hits_are_charged_if_they_are_to<
    F: Fixture<Store: Decider>,
>(
    fixture: &F,
) {
    let mut node = Asking::new(fixture.connect());
    let one = Question {
        counts_rejected: true,
        ..question("a", Sliding, 1)
    };
    let both = Question {
        counts_rejected: true,
        counters: vec![counter("a", LONGEST, 1000), counter("b", LONGEST, 1000)],
        limits: vec![limit(0, Fixed, 1000, 1000), limit(1, Fixed, 9000, 1000)],
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

pub(in crate::store) async fn asking_charges_nothing_and_is_no_change<
    F: Fixture<Store: Decider>,
>(
    fixture: &F,
) {
    let mut node = Asking::new(fixture.connect());
    let mut other = Node::join(fixture.connect(), shard("api")).await;
    let asks = Question {
        counters: vec![counter("a", LONGEST, 0)],
        limits: vec![limit(0, Fixed, 2000, 0)],
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
    // What is refused is no change either.
    assert_eq!(node.ask_one(&question("a", Fixed, 2)).await.0, [false]);
    assert!(other.fetch().await.is_empty());
    // What a limit is asked about is not what is charged: `charge=` comes later.
    let later = Question {
        counters: vec![counter("b", LONGEST, 0)],
        limits: vec![limit(0, Fixed, 2000, 3000)],
        ..asks
    };
    assert_eq!(node.ask_one(&later).await, (vec![false], vec![0]));
}

pub(in crate::store) async fn less_than_zero_gives_back<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let mut other = Node::join(fixture.connect(), shard("api")).await;
    let give_back = Question {
        counters: vec![counter("a", LONGEST, -1000)],
        limits: vec![],
        ..question("a", Fixed, 2)
    };
    let one = question("a", Fixed, 2);
    for (question, answer) in [
        (&one, (vec![true], vec![1000])),
        (&one, (vec![true], vec![2000])),
        (&one, (vec![false], vec![2000])),
        (&give_back, (vec![], vec![1000])),
        (&one, (vec![true], vec![2000])),
    ] {
        assert_eq!(node.ask_one(question).await, answer);
    }
    let counts = other.fetch().await;
    assert_eq!(totals(&counts), pairs(&[("a", 2)]));
}

pub(in crate::store) async fn a_counter_may_have_several_limits<F: Fixture<Store: Decider>>(
    fixture: &F,
) {
    let mut node = Asking::new(fixture.connect());
    let question = Question {
        limits: vec![
            limit(0, Sliding, 3000, 1000),
            limit(0, Fixed, 2000, 1000),
            // Less than what is charged.
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

pub(in crate::store) async fn decisions_on_decimals_and_large_counts_are_exact<
    F: Fixture<Store: Decider>,
>(
    fixture: &F,
) {
    let mut node = Asking::new(fixture.connect());
    let max = Hits::MAX.thousandths();
    let question = |cost| Question {
        counters: vec![counter("a", LONGEST, cost)],
        limits: vec![limit(0, Sliding, max, cost)],
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

pub(in crate::store) async fn any_bytes_may_be_asked_about<F: Fixture<Store: Decider>>(
    fixture: &F,
) {
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
        counters: vec![AskedCounter {
            key: key.into(),
            ..counter("", LONGEST, 1000)
        }],
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

pub(in crate::store) async fn counters_of_a_question_may_be_in_several_shards<
    F: Fixture<Store: Decider>,
>(
    fixture: &F,
) {
    let mut node = Asking::new(fixture.connect());
    let of = |namespace, key, cost| AskedCounter {
        shard: shard(namespace),
        ..counter(key, LONGEST, cost)
    };
    let both = Question {
        counts_rejected: false,
        counters: vec![of("api", "a", 1000), of("web", "a", 2000)],
        limits: vec![limit(0, Fixed, 9000, 1000), limit(1, Fixed, 5000, 2000)],
    };
    let one = Question {
        counters: vec![of("web", "a", 1000)],
        ..question("a", Fixed, 9)
    };
    let decided = node.ask(&[both.clone(), one, both.clone(), both]).await;
    let answers = decided.answers.iter().map(|it| {
        let counts = it.counts.iter().map(current);
        (it.admitted.clone(), counts.collect())
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

pub(in crate::store) async fn a_shard_without_an_epoch_gets_the_proposed_one<
    F: Fixture<Store: Decider>,
>(
    fixture: &F,
) {
    let mut node = Asking::new(fixture.connect());
    let (shard, question) = (shard("api"), question("a", Fixed, 2));
    for _ in 0..2 {
        let proposed = new_epoch();
        // An epoch that there is stays.
        for (epoch, count) in [(proposed, 1), (new_epoch(), 2)] {
            let questions = core::slice::from_ref(&question);
            let decided = node.store.decide(node.node, epoch, questions).await;
            let answers = decided.unwrap().answers;
            assert_eq!(current(&answers[0].counts[0]), count * 1000);
        }
        let opened = node.store.open_epoch(&shard, None, new_epoch());
        assert_eq!(opened.await, Ok(proposed));
        fixture.flush();
    }
    // The same by asking.
    let (asks, proposed) = (Hits::ZERO, new_epoch());
    let mut question = question;
    question.counters[0].cost = asks;
    let decided = node.store.decide(node.node, proposed, &[question]).await;
    assert_eq!(admitted(&decided.unwrap()), 1);
    let opened = node.store.open_epoch(&shard, None, new_epoch());
    assert_eq!(opened.await, Ok(proposed));
}

pub(in crate::store) async fn what_is_charged_is_a_change_for_others<F: Fixture<Store: Decider>>(
    fixture: &F,
) {
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
    assert!(
        counts
            .iter()
            .all(|it| (it.size, it.window) == (LONGEST, window))
    );
    assert!(other.fetch().await.is_empty());
    // The node knows of its own.
    assert!(node.fetch().await.is_empty());
    decide(&mut node, &["c"]).await;
    decide(&mut other, &["a", "c"]).await;
    let pushed = Diff {
        size: LONGEST,
        window,
        ..hits("b", 5)
    };
    let seen = other.push(vec![pushed]).await;
    assert_eq!(totals(&seen), pairs(&[("c", 2)]));
    let seen = node.fetch().await;
    assert_eq!(totals(&seen), pairs(&[("a", 3), ("b", 6), ("c", 2)]));
}

pub(in crate::store) async fn what_others_pushed_counts<F: Fixture<Store: Decider>>(fixture: &F) {
    let mut node = Asking::new(fixture.connect());
    let mut other = Node::join(fixture.connect(), shard("api")).await;
    let window = LONGEST.at(node.ask(&[]).await.now).number;
    let of = |key, window, count| Diff {
        size: LONGEST,
        window,
        ..hits(key, count)
    };
    let diffs = vec![of("a", window, 3), of("b", window - 1, 1_000_000)];
    other.push(diffs).await;
    let answer = node.ask_one(&question("a", Fixed, 4)).await;
    assert_eq!(answer, (vec![true], vec![4000]));
    let answer = node.ask_one(&question("a", Fixed, 4)).await;
    assert_eq!(answer, (vec![false], vec![4000]));

    // A large window before weighs more than nothing, unless its successor is about to end.
    let decided = node.ask(&[question("b", Sliding, 1_000_000)]).await;
    let answer = &decided.answers[0];
    assert_eq!(answer.counts[0].previous.whole(), 1_000_000);
    let counts = Counts {
        current: Hits::ZERO,
        ..answer.counts[0]
    };
    let limit = Hits::from_thousandths(1_000_000_000);
    let admits = Sliding.admits(LONGEST, &counts, limit, Hits::ONE);
    assert_eq!(answer.admitted, [admits]);
    let answer = node.ask_one(&question("b", Fixed, 1)).await;
    assert_eq!(answer.0, [!admits]);
}

pub(in crate::store) async fn an_ended_window_weighs_as_the_previous_one<
    F: Fixture<Store: Decider>,
>(
    fixture: &F,
) {
    let mut node = Asking::new(fixture.connect());
    let size = size(300);
    let question = |window_type| Question {
        counters: vec![counter("a", size, 1000)],
        limits: vec![limit(0, window_type, 1_000_000_000, 1000)],
        ..question("a", window_type, 1)
    };
    let mut last: Option<Counts> = None;
    let mut ended = 0;
    let watching = async {
        while ended < 3 {
            let decided = node.ask(&[question(Sliding)]).await;
            let counts = decided.answers[0].counts[0];
            if let Some(last) = last {
                if counts.window == last.window {
                    assert_eq!(current(&counts), current(&last) + 1000);
                    assert_eq!(counts.previous, last.previous);
                } else if counts.window == last.window + 1 {
                    assert_eq!(counts.current, Hits::ONE);
                    assert_eq!(counts.previous, last.current);
                    ended += 1;
                } else {
                    // Longer away than a window.
                    assert_eq!(counts.previous, Hits::ZERO);
                }
            }
            last = Some(counts);
        }
    };
    let deadline = Duration::from_secs(20);
    tokio::time::timeout(deadline, watching)
        .await
        .expect("ended");
}

pub(in crate::store) async fn of_many_that_ask_at_once_so_many_are_admitted<
    F: Fixture<Store: Decider>,
>(
    fixture: &F,
) {
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
    assert_eq!(counts.iter().sum::<usize>(), 100, "{counts:?}");
    let mut node = Asking::new(fixture.connect());
    assert_eq!(node.total(b"a").await, 100_000);
}

pub(in crate::store) async fn thousands_may_be_asked_about_at_once<F: Fixture<Store: Decider>>(
    fixture: &F,
) {
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

pub(in crate::store) async fn no_questions_have_no_answers<F: Fixture<Store: Decider>>(
    fixture: &F,
) {
    let mut node = Asking::new(fixture.connect());
    let decided = node.ask(&[]).await;
    assert!(decided.answers.is_empty() && decided.now.0 > 1_577_836_800_000);
    // One without counters and limits is admitted.
    let nothing = Question {
        counts_rejected: false,
        counters: vec![],
        limits: vec![],
    };
    let answers = node.ask(&[nothing]).await.answers;
    assert!(answers[0].admitted.is_empty() && answers[0].counts.is_empty());
}
