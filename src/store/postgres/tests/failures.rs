//! Servers that lose data, refuse requests or end connections: no hit is lost.

use super::*;

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
fn a_server_ends_a_statement_that_nobody_waits_for() {
    let schema = Schema::new();
    block_on(async {
        let (mut options, postgres) = options(&[Server::shared().tcp()], &schema.name);
        options.timeout = Duration::from_secs(1);
        let mut node = Node::join(Postgres::new(&options, &postgres), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        let session = Server::shared().session().await.unwrap();
        let lock =
            format!("BEGIN; SELECT FROM {}.rl_counters WHERE key = 'a' FOR UPDATE", schema.name);
        session.batch_execute(&lock).await.unwrap();
        let error = failure(&mut node, 2).await;
        assert_eq!(error.failure, Failure::TimedOut(Duration::from_secs(1)));
        until_blocked(&schema, 0).await;
        session.batch_execute("COMMIT").await.unwrap();
        node.push(vec![hits("a", 1)]).await;
        assert_eq!(total(&mut node, b"a").await, 2);
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
