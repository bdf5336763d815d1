//! Users and their rights, and the words about them in errors.

use super::*;

/// The rights in docs/postgres.md.
const GRANTS: &str = "
    GRANT USAGE ON SCHEMA {} TO {user};
    GRANT SELECT, INSERT, UPDATE, DELETE ON {}.rl_counters, {}.rl_counters_epochs,
        {}.rl_counters_nodes, {}.rl_counters_changes, {}.rl_counters_levels,
        {}.rl_counters_logs TO {user};";

/// Creates a user of the shared server that owns nothing.
fn new_user(schema: &Schema) -> String {
    let user = format!("user_of_{}", schema.name);
    schema.ask(&format!("CREATE ROLE {user} LOGIN"));
    user
}

fn as_user(schema: &Schema, user: &str, password: &str) -> Postgres {
    let (mut options, postgres) = options(&[Server::shared().tcp()], &schema.name);
    options.credentials = Credentials { username: secret(user), password: secret(password) };
    Postgres::new(&options, &postgres)
}

/// Runs all operations of a store.
async fn use_all(store: Postgres, other: Postgres) {
    let mut node = Node::join(store, shard("api")).await;
    let mut other = Node::join(other, shard("api")).await;
    other.push(vec![hits("a", 1)]).await;
    let seen = node.push(vec![hits("a", 1), hits("b", 1)]).await;
    assert_eq!(totals(&seen), pairs(&[("a", 2)]));
    node.push(vec![hits("b", 1)]).await;
    assert_eq!(node.read_all(&[(MINUTE, 7)]).await.len(), 2);
    assert_eq!(total(&mut node, b"b").await, 2);
    let opened = node.store.open_epoch(&node.shard, Some(node.epoch), new_epoch());
    assert_ne!(opened.await.unwrap(), node.epoch);
    let now = crate::policy::window::UnixMillis(0);
    assert_eq!(node.store.purge(&node.shard, now).await, Ok(false));
    assert_eq!(node.store.purge(&node.shard, now).await, Ok(false));
}

#[test]
fn the_grants_of_the_readme_suffice() {
    let schema = Schema::new();
    let user = new_user(&schema);
    block_on(async {
        // Another user has created the tables.
        open(&mut schema.connect()).await.unwrap();
        schema.ask(&GRANTS.replace("{user}", &user));
        use_all(as_user(&schema, &user, ""), as_user(&schema, &user, "")).await;
    });
    // The rest of the first epoch was purged.
    let left = schema.ask("SELECT count(*) FROM {}.rl_counters");
    assert_eq!(left, [["0"]]);
}

#[test]
fn each_of_the_grants_of_the_readme_is_needed() {
    for missing in ["SELECT", "INSERT", "UPDATE", "DELETE", "USAGE"] {
        let schema = Schema::new();
        let user = new_user(&schema);
        block_on(async {
            open(&mut schema.connect()).await.unwrap();
            schema.ask(&GRANTS.replace("{user}", &user));
            let kind = if missing == "USAGE" { "SCHEMA {}" } else { "ALL TABLES IN SCHEMA {}" };
            schema.ask(&format!("REVOKE {missing} ON {kind} FROM {user}"));
            let mut node = Node::join(schema.connect(), shard("api")).await;
            node.store = as_user(&schema, &user, "");
            let batch = node.batch(1, vec![hits("a", 1)]);
            let pushed = node.store.push_diffs(&node.shard, &batch, 500).await;
            let now = crate::policy::window::UnixMillis(0);
            let error = match (pushed, missing) {
                // A push deletes nothing.
                (Ok(_), "DELETE") => node.store.purge(&node.shard, now).await.unwrap_err(),
                (pushed, _) => pushed.unwrap_err(),
            };
            assert!(matches!(error.failure, Failure::Denied(_)), "{error}");
            assert!(!error.may_have_applied() && !error.is_transient());
            assert!(!error.to_string().contains(&user), "{error}");
        });
    }
}

#[test]
fn a_table_that_a_new_version_adds_is_named_if_it_cannot_be_created() {
    let schema = Schema::new();
    let user = new_user(&schema);
    block_on(async {
        let mut node = Node::join(schema.connect(), shard("api")).await;
        schema.ask(&GRANTS.replace("{user}", &user));
        node.push(vec![hits("a", 1)]).await;
        // As the previous version left it.
        schema.ask("DROP TABLE {}.rl_counters_logs");
        let error = open(&mut as_user(&schema, &user, "")).await.unwrap_err();
        assert!(matches!(error.failure, Failure::Denied(_)), "{error}");
        let expected = format!(
            "table \"{0}\".\"rl_counters_logs\" is missing, and cannot be created \
             (permission denied for schema {0}, SQLSTATE 42501)",
            schema.name
        );
        assert!(error.to_string().contains(&expected), "{error}");
        assert!(!error.may_have_applied() && !error.is_transient());
        // A user with the right creates the table, and all others stay.
        open(&mut schema.connect()).await.unwrap();
        schema.ask(&GRANTS.replace("{user}", &user));
        node.store = as_user(&schema, &user, "");
        node.push(vec![hits("a", 1)]).await;
        assert_eq!(total(&mut node, b"a").await, 2);
    });
}

#[test]
fn a_user_with_the_right_to_create_needs_no_other() {
    let schema = Schema::new();
    let user = new_user(&schema);
    block_on(async {
        let error = open(&mut as_user(&schema, &user, "")).await.unwrap_err();
        assert!(matches!(error.failure, Failure::Denied(_)), "{error}");
        schema.ask(&format!("GRANT USAGE ON SCHEMA {{}} TO {user}"));
        let error = open(&mut as_user(&schema, &user, "")).await.unwrap_err();
        assert!(matches!(error.failure, Failure::Denied(_)), "{error}");
        schema.ask(&format!("GRANT CREATE ON SCHEMA {{}} TO {user}"));
        use_all(as_user(&schema, &user, ""), as_user(&schema, &user, "")).await;
    });
}

#[test]
fn passwords_are_given_and_not_shown() {
    let schema = Schema::new();
    schema.ask(&format!(
        "CREATE ROLE {LOCKED} LOGIN PASSWORD 'hunter2'; GRANT ALL ON SCHEMA {{}} TO {LOCKED}"
    ));
    block_on(async {
        open(&mut as_user(&schema, LOCKED, "hunter2")).await.unwrap();
        for (username, password) in [(LOCKED, "wrong-one"), (LOCKED, ""), ("mallory", "hunter2")] {
            denies(as_user(&schema, username, password), username, password).await;
        }
    });
}

#[test]
fn a_database_that_does_not_exist_is_an_error() {
    let (options, mut postgres) = options(&[Server::shared().tcp()], PUBLIC);
    postgres.database = "nowhere".into();
    let error = block_on(open(&mut Postgres::new(&options, &postgres))).unwrap_err();
    assert!(matches!(error.failure, Failure::Unusable(_)), "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn a_database_is_chosen() {
    let server = Server::shared();
    server.ask("CREATE DATABASE another");
    let (options, mut postgres) = options(&[server.tcp()], PUBLIC);
    postgres.database = "another".into();
    postgres.table.name = "of_another".into();
    block_on(open(&mut Postgres::new(&options, &postgres))).unwrap();
    let here = server.value("SELECT count(*) FROM pg_class WHERE relname = 'of_another'");
    assert_eq!(here, "0");
}

#[test]
fn a_socket_may_be_named_by_its_directory() {
    let server = Server::shared();
    let dir = server.dir().join("sockets");
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink(server.socket(), dir.join(".s.PGSQL.5432")).unwrap();
    let schema = Schema::new();
    let mut store = connect(ServerAddress::Unix(dir), &schema.name);
    block_on(open(&mut store)).unwrap();
}

#[test]
fn a_node_has_one_connection() {
    let schema = Schema::new();
    let user = new_user(&schema);
    schema.ask(&format!("GRANT ALL ON SCHEMA {{}} TO {user}"));
    let connections = || {
        let count = format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{user}'");
        Server::shared().value(&count)
    };
    block_on(async {
        let mut node = Node::join(as_user(&schema, &user, ""), shard("api")).await;
        for _ in 0..20 {
            node.push(vec![hits("a", 1)]).await;
            node.read_all(&[(MINUTE, 7)]).await;
        }
        assert_eq!((connections().as_str(), node.store.connects()), ("1", 1));
    });
}

#[test]
fn a_role_that_may_not_notify_can_push() {
    let schema = Schema::new();
    let user = new_user(&schema);
    // In other tests, only superusers notify.
    let function = "FUNCTION pg_notify(text, text)";
    block_on(async {
        open(&mut schema.connect()).await.unwrap();
        schema.ask(&GRANTS.replace("{user}", &user));
        schema.ask(&format!("REVOKE EXECUTE ON {function} FROM PUBLIC"));
        let mut node = Node::join(as_user(&schema, &user, ""), shard("api")).await;
        let batch = Batch { is_news: true, ..node.batch(1, vec![hits("a", 1)]) };
        let pushed = node.store.push_diffs(&node.shard, &batch, 500).await;
        schema.ask(&format!("GRANT EXECUTE ON {function} TO PUBLIC"));
        assert!(matches!(pushed, Ok(Pushed::Applied { .. })), "{pushed:?}");
        assert_eq!(total(&mut node, b"a").await, 1);
    });
}
