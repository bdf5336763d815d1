//! The tables: their creation, their content, and how long it is kept.

use futures_util::future::{Either, join_all, select};

use super::*;
use crate::policy::window::UnixMillis;

#[test]
fn nodes_that_create_the_tables_at_once_do_not_disturb_each_other() {
    for _ in 0..5 {
        let schema = Schema::new();
        block_on(async {
            let mut stores: Vec<_> = (0..8).map(|_| schema.connect()).collect();
            let opened = stores.iter_mut().map(open);
            for opened in join_all(opened).await {
                opened.unwrap();
            }
        });
        let tables = schema.ask("SELECT count(*) FROM pg_tables WHERE schemaname = '{}'");
        assert_eq!(tables, [["6"]]);
        let indexes = schema.ask("SELECT count(*) FROM pg_indexes WHERE schemaname = '{}'");
        assert_eq!(indexes, [["12"]]);
    }
}

#[test]
fn a_table_of_another_shape_is_an_error() {
    for (table, create) in [
        ("rl_counters", "CREATE TABLE {}.rl_counters (x integer)"),
        ("rl_counters_nodes", "CREATE VIEW {}.rl_counters_nodes AS SELECT 1"),
        (
            "rl_counters_changes",
            "CREATE TABLE {}.rl_counters_changes
             (epoch bigint, number bigint, node uuid, counters bigint[])",
        ),
    ] {
        let schema = Schema::new();
        schema.ask(create);
        let error = block_on(open(&mut schema.connect())).unwrap_err();
        assert!(matches!(error.failure, Failure::Unusable(_)), "{error}");
        assert!(!error.is_transient() && !error.may_have_applied());
        let expected = format!("table \"{}\".\"{table}\" has another shape", schema.name);
        assert!(error.to_string().contains(&expected), "{error}");
        // No other table was created.
        let tables = schema.ask("SELECT count(*) FROM pg_class WHERE relnamespace = '{}'::regnamespace AND relkind = 'r'");
        assert!(tables == [["0"]] || tables == [["1"]]);
    }
}

#[test]
fn tables_may_be_logged_if_all_are() {
    const TABLES: [&str; 6] = ["", "_epochs", "_nodes", "_changes", "_levels", "_logs"];
    let schema = Schema::new();
    block_on(async {
        open(&mut schema.connect()).await.unwrap();
        for table in &TABLES[1..] {
            schema.ask(&format!("ALTER TABLE {{}}.rl_counters{table} SET LOGGED"));
            let error = open(&mut schema.connect()).await.unwrap_err();
            assert!(matches!(error.failure, Failure::Unusable(_)), "{error}");
        }
        schema.ask("ALTER TABLE {}.rl_counters SET LOGGED");
        open(&mut schema.connect()).await.unwrap();
    });
}

#[test]
fn names_are_kept_as_they_are_written() {
    let server = Server::shared();
    server.ask("CREATE SCHEMA \"Order\"");
    let (options, mut postgres) = options(&[server.tcp()], "Order");
    let name = format!("Select_{}", "x".repeat(48));
    postgres.table.name = name.as_str().into();
    block_on(async {
        let mut node = Node::join(Postgres::new(&options, &postgres), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        assert_eq!(total(&mut node, b"a").await, 1);
    });
    let rows = server.value(&format!("SELECT count(*) FROM \"Order\".\"{name}_changes\""));
    assert_eq!(rows, "2");
}

#[test]
fn without_a_schema_the_search_path_decides() {
    let server = Server::start(&[]);
    server.ask("CREATE SCHEMA postgres");
    let (options, mut postgres) = options(&[server.tcp()], "");
    postgres.table = TableName { schema: None, name: "mine".into() };
    block_on(open(&mut Postgres::new(&options, &postgres))).unwrap();
    // The first schema of the search path has the user's name.
    let schema = server.value("SELECT schemaname FROM pg_tables WHERE tablename = 'mine'");
    assert_eq!(schema, "postgres");
}

#[test]
fn long_keys_do_not_mix() {
    let schema = Schema::new();
    block_on(async {
        let mut one = Node::join(schema.connect(), shard("api")).await;
        let mut two = Node::join(schema.connect(), shard("api")).await;
        let long = |last: char| format!("{}{last}", "k".repeat(65534));
        one.push(vec![hits(&long('a'), 1), hits(&long('b'), 2)]).await;
        one.push(vec![hits(&long('b'), 2)]).await;
        let seen = two.fetch().await;
        assert_eq!(totals(&seen), pairs(&[(&long('a'), 1), (&long('b'), 4)]));
        assert_eq!(total(&mut two, long('b').as_bytes()).await, 4);
    });
}

#[test]
fn rows_that_are_no_longer_needed_are_purged_in_steps() {
    let schema = Schema::new();
    let count = |table: &str| {
        let rows = schema.ask(&format!("SELECT count(*) FROM {{}}.rl_counters{table}"));
        rows[0][0].parse::<u64>().unwrap()
    };
    block_on(async {
        let mut node = Node::join(schema.connect(), shard("api")).await;
        for batch in 0..10 {
            let keys = (0..500).map(|key| format!("{batch} {key}"));
            node.push(keys.map(|key| hits(&key, 1)).collect()).await;
        }
        let old = node.epoch;
        let shard = node.shard.clone();
        let opened = node.store.open_epoch(&shard, Some(old), new_epoch());
        node.epoch = opened.await.unwrap();
        node.position = None;
        node.number = 1;
        node.position = Some(behind(&node.send(1, vec![hits("new", 1)]).await));
        assert_eq!(count(""), 5001);
        // A node of any namespace purges for all.
        let mut other = Node::join(schema.connect(), crate::testing::conformance::shard("b")).await;
        let mut steps = 1;
        while other.store.purge(&other.shard, UnixMillis(0)).await.unwrap() {
            steps += 1;
        }
        assert_eq!(steps, 6);
        assert_eq!((count(""), count("_nodes")), (1, 1));
        // An epoch that ended recently stays, without content.
        assert_eq!((count("_epochs"), count("_changes")), (3, 3));
        schema.ask("UPDATE {}.rl_counters_epochs SET ended_at = ended_at - interval '2 hours'");
        other.store.purge(&other.shard, UnixMillis(0)).await.unwrap();
        assert_eq!(count("_epochs"), 2);
        assert!(node.fetch().await.is_empty());
        assert_eq!(total(&mut node, b"new").await, 1);
    });
}

#[test]
fn changes_are_bounded_and_a_late_node_is_behind() {
    let schema = Schema::new();
    block_on(async {
        let mut node = Node::join(schema.connect(), shard("api")).await;
        let mut late = Node::join(schema.connect(), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        // Simulates many epochs.
        schema.ask(
            "UPDATE {}.rl_counters_epochs SET changes = 20000;
             INSERT INTO {}.rl_counters_changes
             SELECT epoch, n, gen_random_uuid(), '{1}' FROM {}.rl_counters_epochs,
                generate_series(2, 20000) AS n",
        );
        while node.store.purge(&node.shard, UnixMillis(0)).await.unwrap() {}
        let left = schema.ask("SELECT count(*), min(number) FROM {}.rl_counters_changes");
        assert_eq!(left, [["10001", "10000"]]);
        behind(&late.send(0, vec![]).await);
    });
}

#[test]
fn a_node_that_is_gone_is_forgotten_after_its_counts() {
    let schema = Schema::new();
    block_on(async {
        let mut node = Node::join(schema.connect(), shard("api")).await;
        let long = Diff { expires_in: Duration::from_secs(10 * 24 * 3600), ..hits("a", 1) };
        node.push(vec![long]).await;
        node.push(vec![hits("b", 1)]).await;
        let life = schema.ask(
            "SELECT (SELECT max(expires_at) FROM {}.rl_counters) + interval '23 hours' <
                (SELECT expires_at FROM {}.rl_counters_nodes)",
        );
        assert_eq!(life, [["t"]]);
        // A node that asks is known.
        schema.ask("UPDATE {}.rl_counters_nodes SET expires_at = now() - interval '1 minute'");
        node.fetch().await;
        node.store.purge(&node.shard, UnixMillis(0)).await.unwrap();
        node.fetch().await;
        schema.ask("UPDATE {}.rl_counters_nodes SET expires_at = now() - interval '1 minute'");
        node.store.purge(&node.shard, UnixMillis(0)).await.unwrap();
        assert_eq!(node.send(2, vec![]).await, Pushed::Forgotten);
        // Its counts do not matter any more, and it starts again.
        node.number = 0;
        node.push(vec![hits("c", 1)]).await;
    });
}

#[test]
fn a_node_that_stops_while_it_creates_the_tables_is_not_waited_for() {
    let server = Server::start(&[]);
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    // Makes a session wait while it creates a table.
    let aside = runtime();
    let session = aside.block_on(server.session()).unwrap();
    let begin = format!("BEGIN; CREATE TABLE {PUBLIC}.rl_counters_epochs (x integer)");
    aside.block_on(session.batch_execute(&begin)).unwrap();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let blocked = until("blocked", || server.value(waits) == "1");

    let (mut options, postgres) = options(&[server.tcp()], PUBLIC);
    options.timeout = Duration::from_secs(1);
    let mut stopped = Postgres::new(&options, &postgres);
    block_on(async {
        let opening = Box::pin(open(&mut stopped));
        let blocked = Box::pin(blocked);
        let opening = match select(opening, blocked).await {
            Either::Right(((), opening)) => opening,
            Either::Left((opened, _)) => panic!("{opened:?}"),
        };
        // This node does nothing until another one has the tables.
        std::thread::scope(|threads| {
            let other = threads.spawn(|| {
                aside.block_on(session.batch_execute("ROLLBACK")).unwrap();
                runtime().block_on(open(&mut connect(server.tcp(), PUBLIC)))
            });
            other.join().unwrap().unwrap();
        });
        assert!(opening.await.unwrap_err().is_transient());
        open(&mut stopped).await.unwrap();
    });
}
