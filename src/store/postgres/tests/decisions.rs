//! Decisions that are specific to Postgres: concurrent transactions.

use std::collections::BTreeMap;

use futures_util::future::{join, join_all};

use super::*;
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::store::contract::decision::Question;
use crate::store::postgres::connection::Connection;
use crate::store::postgres::read::lock;
use crate::testing::conformance::{Asking, question, size};

fn asking(schema: &Schema) -> Asking<Postgres> {
    Asking::new(schema.connect())
}

/// Returns the counts of all keys by window.
fn counted(schema: &Schema) -> BTreeMap<u64, i64> {
    let rows = schema.ask(
        "SELECT window_number, sum(thousandths) / 1000 FROM {}.rl_counters
         WHERE thousandths <> 0 GROUP BY 1",
    );
    let number = |text: &str| text.split('.').next().unwrap().parse::<i64>().unwrap();
    let rows = rows.iter();
    rows.map(|row| (number(&row[0]).cast_unsigned(), number(&row[1]))).collect()
}

#[test]
fn each_window_admits_its_limit_and_no_more() {
    const LIMIT: i64 = 20;
    let schema = Schema::new();
    let mut question = question("a", Algorithm::Fixed, LIMIT);
    question.counters[0].size = size(500);
    // For each window, the admitted and the requested hits.
    let mut windows: BTreeMap<u64, (i64, i64)> = BTreeMap::new();
    block_on(async {
        let ask = async || {
            let mut node = asking(&schema);
            let (mut seen, mut ends) = (Vec::new(), Vec::new());
            while ends.len() < 4 {
                let questions = vec![question.clone(); 3];
                for answer in node.ask(&questions).await.answers {
                    let window = answer.readings[0].windows().window;
                    // The clock does not go back.
                    assert!(ends.last().is_none_or(|last| window >= *last));
                    ends.push(window);
                    ends.dedup();
                    seen.push((window, answer.admitted[0]));
                }
            }
            seen
        };
        for (window, is_admitted) in join_all((0..12).map(|_| ask())).await.concat() {
            let (admitted, asked) = windows.entry(window).or_default();
            *admitted += i64::from(is_admitted);
            *asked += 1;
        }
    });
    for (window, (admitted, asked)) in &windows {
        assert_eq!(*admitted, LIMIT.min(*asked), "{window}: {windows:?}");
    }
    let admitted = windows.iter().map(|(window, (admitted, _))| (*window, *admitted));
    assert_eq!(counted(&schema), admitted.collect());
    assert!(windows.values().filter(|(_, asked)| *asked > LIMIT).count() >= 2, "{windows:?}");
}

#[test]
fn nodes_that_ask_and_nodes_that_push_the_same_keys_never_fail_and_totals_are_exact() {
    const KEYS: usize = 50;
    let schema = Schema::new();
    block_on(async {
        let mut reader = pushing(&schema).await;
        let now = asking(&schema).ask(&[]).await.now;
        let longest = question("", Algorithm::Fixed, 1).counters[0].size;
        let window = longest.at(now).number;
        // Overlapping, in another order for each node and round.
        let keys = |node: usize, round: usize| {
            (0..20).map(move |key| format!("{}", (key * 37 + node * 11 + round * 7) % KEYS))
        };
        let ask = async |number| {
            let mut node = asking(&schema);
            for round in 0..30 {
                let questions: Vec<_> = keys(number, round)
                    .map(|key| question(&key, Algorithm::Sliding, 1_000_000))
                    .collect();
                let decided = node.try_to_ask(&questions).await.unwrap();
                assert_eq!(decided.answers.len(), 20);
            }
        };
        let push = async |number| {
            let mut node = pushing(&schema).await;
            for round in 0..30 {
                let diffs =
                    keys(number, round).map(|key| Diff { size: longest, window, ..hits(&key, 1) });
                node.push(diffs.collect()).await;
            }
        };
        join(join_all((0..6).map(ask)), join_all((6..10).map(push))).await;
        assert_eq!(counted(&schema), [(window, 10 * 30 * 20)].into());
        // A node that only reads receives all keys, with their final totals.
        let mut seen = BTreeMap::new();
        loop {
            let (counts, position, has_more) = since(reader.send(0, vec![]).await);
            reader.position = Some(position);
            seen.extend(counts.into_iter().map(|it| (it.key, it.total.whole())));
            if !has_more {
                break;
            }
        }
        assert_eq!(seen.len(), KEYS);
        assert_eq!(seen.values().sum::<i64>(), 10 * 30 * 20);
    });

    async fn pushing(schema: &Schema) -> Node<Postgres> {
        Node::join(schema.connect(), shard("api")).await
    }
}

#[test]
fn rejected_hits_and_mere_questions_leave_no_rows() {
    let schema = Schema::new();
    block_on(async {
        let mut node = asking(&schema);
        let mut asks = question("asked", Algorithm::Sliding, 5);
        asks.counters[0].cost = Hits::ZERO;
        let mut balanced = question("balanced", Algorithm::Sliding, 5);
        balanced.counters[0].cost = Hits::ONE;
        let mut back = balanced.clone();
        back.counters[0].cost = Hits::from_thousandths(-1000);
        let refused = question("refused", Algorithm::Sliding, 0);
        let decided = node.ask(&[asks.clone(), refused, balanced, back]).await;
        let answers = decided.answers.iter().map(|it| it.admitted[0]);
        assert_eq!(answers.collect::<Vec<_>>(), [true, false, true, true]);
        node.ask(&[asks]).await;
        let left = "SELECT (SELECT count(*) FROM {}.rl_counters),
                        (SELECT max(number) FROM {}.rl_counters_changes)";
        assert_eq!(schema.ask(left), [["0", "0"]]);
    });
}

#[test]
fn a_decision_that_waits_too_long_for_others_charges_nothing() {
    let schema = Schema::new();
    block_on(async {
        let mut one = asking(&schema);
        let (mut options, postgres) = options(&[Server::shared().tcp()], &schema.name);
        options.timeout = Duration::from_secs(1);
        let mut two = Asking::new(Postgres::new(&options, &postgres));
        let question: Question = question("a", Algorithm::Fixed, 2);
        let questions = core::slice::from_ref(&question);
        one.ask(questions).await;
        two.ask(&[]).await;
        let number = lock(&shard("api"), b"a");
        let session = Server::shared().session().await.unwrap();
        let begin = format!("BEGIN; SELECT pg_advisory_xact_lock({number})");
        session.batch_execute(&begin).await.unwrap();
        let error = two.try_to_ask(questions).await.unwrap_err();
        assert_eq!(error.failure, Failure::TimedOut(Duration::from_secs(1)));
        assert!(error.is_transient());
        session.batch_execute("COMMIT").await.unwrap();
        // This one waits for longer.
        let decided = one.ask(&[question.clone(), question]).await;
        let answers = decided.answers.iter().map(|it| it.admitted[0]);
        assert_eq!(answers.collect::<Vec<_>>(), [true, false]);
    });
}

#[test]
fn a_node_that_stops_within_a_decision_is_not_waited_for() {
    let schema = Schema::new();
    let question = question("a", Algorithm::Fixed, 5);
    block_on(async {
        let (mut options, postgres) = options(&[Server::shared().tcp()], &schema.name);
        options.timeout = Duration::from_secs(1);
        let mut stopped = Asking::new(Postgres::new(&options, &postgres));
        stopped.ask(core::slice::from_ref(&question)).await;
        let number = lock(&shard("api"), b"a");
        let begin = format!("BEGIN; SELECT pg_advisory_xact_lock({number})");
        let failed = stopped.store.link.exchange(async |connection: &Connection| {
            connection.client.batch_execute(&begin).await?;
            // This node does nothing until another one has its answer.
            let counted = std::thread::scope(|threads| {
                let other = threads.spawn(|| {
                    let questions = core::slice::from_ref(&question);
                    let decided = block_on(async { asking(&schema).ask(questions).await });
                    decided.answers[0].readings[0].windows().current.whole()
                });
                other.join().unwrap()
            });
            assert_eq!(counted, 2);
            Ok(connection.client.batch_execute("COMMIT").await?)
        });
        assert!(failed.await.unwrap_err().is_transient());
        let decided = stopped.ask(core::slice::from_ref(&question)).await;
        assert_eq!(decided.answers[0].readings[0].windows().current.whole(), 3);
    });
}
