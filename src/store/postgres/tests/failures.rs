//! Servers that end, hang, forget or refuse, and what is lost: nothing.

use super::*;

/// Lets a connection notice that its server has ended.
async fn notice() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[test]
fn a_server_that_has_ended_cannot_be_reached() {
    let mut server = Server::start(&[]);
    block_on(async {
        let mut node = join(&server).await;
        server.crash();
        // At first, it may not be known yet that the connection is closed.
        for _ in 0..2 {
            let error = failure(&mut node, 1).await;
            assert!(error.is_transient(), "{error}");
        }
        let error = failure(&mut node, 1).await;
        assert!(!error.may_have_applied(), "{error}");
        let message = error.to_string();
        let address = format!("{} cannot be reached (", server.tcp());
        assert!(message.starts_with(&address), "{message}");
    });
}

#[test]
fn a_server_that_is_shut_down_and_started_goes_on() {
    let mut server = Server::start(&[]);
    block_on(async {
        let mut node = join(&server).await;
        node.push(vec![hits("a", 1)]).await;
        server.stop();
        server.start_again();
        notice().await;
        assert!(node.push(vec![hits("a", 2)]).await.is_empty());
        let all = node.read_all(&[(MINUTE, 7)]).await;
        assert_eq!(totals(&all), pairs(&[("a", 3)]));
    });
}

#[test]
fn a_server_that_crashed_has_no_epoch() {
    let mut server = Server::start(&[]);
    block_on(async {
        let mut node = join(&server).await;
        for round in 0..2 {
            node.push(vec![hits("a", 1)]).await;
            server.crash();
            server.start_again();
            notice().await;
            let pushed = node.send(node.number + 1, vec![hits("a", 2)]).await;
            assert_eq!(pushed, Pushed::NoEpoch, "{round}");
            let again = connect(server.tcp(), PUBLIC);
            node = Node::join(again, shard("api")).await;
            assert!(node.read_all(&[(MINUTE, 7)]).await.is_empty());
        }
    });
}

#[test]
fn if_a_table_was_dropped_all_counts_are_restored() {
    for table in ["", "_epochs", "_nodes", "_changes"] {
        let schema = Schema::new();
        block_on(async {
            let mut node = Node::join(schema.connect(), shard("api")).await;
            node.push(vec![hits("a", 1)]).await;
            schema.ask(&format!("DROP TABLE {{}}.rl_counters{table}"));
            let error = failure(&mut node, 2).await;
            assert!(matches!(error.failure, Failure::Failed(_)), "{error}");
            assert_eq!(node.send(2, vec![hits("a", 1)]).await, Pushed::NoEpoch);
        });
    }
}

#[test]
fn a_server_that_hangs_may_have_applied_the_batch_and_applies_it_once() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = Node::join(impatient(&[server.tcp()]), shard("api")).await;
        server.signal("STOP");
        let error = failure(&mut node, 1).await;
        assert_eq!(error.failure, Failure::TimedOut(Duration::from_secs(1)));
        assert!(error.may_have_applied() && error.is_transient());
        // Now there is no connection, and none can be made.
        let error = failure(&mut node, 1).await;
        assert!(!error.may_have_applied() && error.is_transient(), "{error}");
        server.signal("CONT");
        // The answer is that to this request, not the late one to the other.
        node.store = connect(server.tcp(), PUBLIC);
        node.push(vec![hits("a", 1)]).await;
        assert_eq!(total(&mut node, b"a").await, 1);
    });
}

#[test]
fn a_late_answer_is_not_taken_for_another_one() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(&server).await;
        node.push(vec![hits("a", 5)]).await;
        server.signal("STOP");
        let of_a = node.store.get_window(&node.shard, b"a", MINUTE, 7);
        // The one who asked has gone.
        let short = Duration::from_millis(50);
        assert!(tokio::time::timeout(short, of_a).await.is_err());
        server.signal("CONT");
        assert_eq!(total(&mut node, b"b").await, 0);
    });
}

#[test]
fn a_server_does_not_go_on_with_what_nobody_waits_for() {
    let schema = Schema::new();
    block_on(async {
        let (mut options, postgres) = options(&[Server::shared().tcp()], &schema.name);
        options.timeout = Duration::from_secs(1);
        let mut node = Node::join(Postgres::new(&options, &postgres), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        let session = Server::shared().session().await.unwrap();
        let lock = format!(
            "BEGIN; SELECT FROM {}.rl_counters WHERE key = 'a' FOR UPDATE",
            schema.name
        );
        session.batch_execute(&lock).await.unwrap();
        let error = failure(&mut node, 2).await;
        assert_eq!(error.failure, Failure::TimedOut(Duration::from_secs(1)));
        let waits = "SELECT count(*) FROM pg_stat_activity
                     WHERE wait_event_type = 'Lock' AND query LIKE '%{}%'";
        let gone = async {
            while schema.ask(waits) != [["0"]] {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let deadline = Duration::from_secs(20);
        tokio::time::timeout(deadline, gone).await.expect("gone");
        session.batch_execute("COMMIT").await.unwrap();
        node.push(vec![hits("a", 1)]).await;
        assert_eq!(total(&mut node, b"a").await, 2);
    });
}

#[test]
fn a_batch_whose_answer_was_lost_is_applied_once() {
    let schema = Schema::new();
    let server = Server::shared();
    let proxy = Proxy::start(server.port);
    block_on(async {
        let through_proxy = connect(proxy.address.clone(), &schema.name);
        let mut node = Node::join(through_proxy, shard("api")).await;
        let mut other = Node::join(schema.connect(), shard("api")).await;
        for number in 1..=5 {
            proxy.cut_next_answer();
            let error = failure(&mut node, number).await;
            assert!(matches!(error.failure, Failure::Disconnected(_)), "{error}");
            assert!(error.may_have_applied() && error.is_transient());
            // It was.
            let total = i64::try_from(number).unwrap();
            assert_eq!(totals(&other.fetch().await), pairs(&[("a", total)]));
            node.push(vec![hits("a", 1)]).await;
            assert!(other.fetch().await.is_empty());
        }
    });
}

#[test]
fn connections_that_the_server_ends_are_made_again() {
    let schema = Schema::new();
    block_on(async {
        let mut node = Node::join(schema.connect(), shard("api")).await;
        for number in 1..=3 {
            schema.ask(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                 WHERE query LIKE '%{}%' AND pid <> pg_backend_pid()",
            );
            let batch = node.batch(number, vec![hits("a", 1)]);
            if let Err(error) = node.store.push_diffs(&node.shard, &batch, 500).await {
                assert!(error.is_transient(), "{error}");
            }
            node.push(vec![hits("a", 1)]).await;
            assert_eq!(total(&mut node, b"a").await, i64::try_from(number).unwrap());
        }
    });
}

#[test]
fn a_server_with_too_many_connections_refuses() {
    let server = Server::start(&["max_connections=4", "superuser_reserved_connections=0"]);
    block_on(async {
        let mut others = Vec::new();
        while let Ok(session) = server.session().await {
            others.push(session);
        }
        let error = open(&mut connect(server.tcp(), PUBLIC)).await.unwrap_err();
        assert!(matches!(error.failure, Failure::Refused(_)), "{error}");
        assert!(error.is_transient() && !error.may_have_applied());
    });
}
