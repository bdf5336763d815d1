//! Blocks of directives with `strategy cassandra`, and the errors of wrong ones.

use crate::store::cassandra::options::{CassandraOptions, ConsistencyLevel, Replication};
use crate::store::registry::OwnOptions;
use crate::store::tests::blocks::parse;

fn cassandra(directives: &str) -> Result<CassandraOptions, String> {
    match parse(&format!("strategy cassandra;{directives}"))?.own {
        OwnOptions::Cassandra(options) => Ok(options),
        other => panic!("{other:?}"),
    }
}

#[test]
fn options_have_defaults() {
    let defaults = CassandraOptions {
        keyspace: "ratelimit".into(),
        table: "rl_counters".into(),
        datacenter: None,
        consistency: ConsistencyLevel::LocalQuorum,
        replication: Replication::Simple(1),
    };
    assert_eq!(cassandra(""), Ok(defaults));
    let settings = parse("strategy cassandra; server a; server [::1]:1;").unwrap();
    let servers = settings.common.servers.iter().map(ToString::to_string);
    assert_eq!(servers.collect::<Vec<_>>(), ["a:9042", "[::1]:1"]);
}

#[test]
fn options_are_read() {
    let options = cassandra(
        "database Limits; table t_1; datacenter east 1; consistency quorum; replication 3;",
    );
    assert!(options.is_err(), "a name of two words");
    let options = "database Limits; table t_1; datacenter east; consistency quorum; replication 3;";
    let expected = CassandraOptions {
        keyspace: "Limits".into(),
        table: "t_1".into(),
        datacenter: Some("east".into()),
        consistency: ConsistencyLevel::Quorum,
        replication: Replication::Simple(3),
    };
    assert_eq!(cassandra(options), Ok(expected));
    for (words, cql) in [
        ("1", "{'class': 'SimpleStrategy', 'replication_factor': 1}"),
        ("east:3 west-2:2", "{'class': 'NetworkTopologyStrategy', 'east': 3, 'west-2': 2}"),
    ] {
        let options = cassandra(&format!("replication {words};")).unwrap();
        assert_eq!(options.replication.to_string(), cql);
    }
}

#[test]
fn errors_about_wrong_options_suggest_right_ones() {
    const TABLE: &str = "expected name of 1 to 38 A-Z, a-z, 0-9, \"_\", no digit first";
    const KEYSPACE: &str = "expected the name of a Cassandra keyspace, of 1 to 48 A-Z, a-z, 0-9, \"_\", no digit first";
    const REPLICAS: &str = "expected a number of replicas from 1 to 255, or one for each datacenter, such as east:3 west:3";
    let long = "x".repeat(49);
    for (directive, words, expected) in [
        ("table", "a.b", TABLE),
        ("table", "1", TABLE),
        ("table", &long[..39], TABLE),
        ("database", "a-b", KEYSPACE),
        ("database", &long, KEYSPACE),
        ("consistency", "one", "expected local_quorum, quorum or all"),
        ("replication", "0", REPLICAS),
        ("replication", "256", REPLICAS),
        ("replication", "+1", REPLICAS),
        ("replication", "a:", REPLICAS),
        ("replication", ":1", REPLICAS),
        ("replication", "a'b:1", REPLICAS),
    ] {
        let error = cassandra(&format!("{directive} {words};")).unwrap_err();
        assert_eq!(error, format!("invalid {directive} \"{words}\": {expected}"));
    }
    for words in ["3 3", "3 a:1", "a:1 a:2"] {
        let error = cassandra(&format!("replication {words};")).unwrap_err();
        assert_eq!(error, format!("invalid replication: {REPLICAS}"));
    }
    let path = "\"strategy cassandra\" goes with no server \"unix:/x\": expected host[:port] or \
                [v6][:port]";
    assert_eq!(cassandra("server unix:/x;"), Err(path.into()));
    let other =
        "\"prefix\" is an option of strategy redis and memcached and etcd, not of cassandra";
    assert_eq!(cassandra("prefix x;"), Err(other.into()));
    for name in ["datacenter", "consistency", "replication"] {
        let error = parse(&format!("{name} 1; strategy redis;"));
        let error = error.unwrap_err();
        let expected = format!("\"{name}\" is an option of strategy cassandra, not of redis");
        assert!(error == expected || name == "consistency", "{error}");
    }
}
