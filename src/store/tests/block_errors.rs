//! Wrong blocks of directives, and their errors.

use super::blocks::{parse, read_file};
use crate::store::registry::{STRATEGY, StoreSettings, lacking};

#[test]
fn errors_about_wrong_words_suggest_right_ones() {
    const HOST: &str = "host[:port], [v6][:port] or unix:/path, such as 127.0.0.1:6379";
    const TIME: &str = "a time from 1ms to 1d, such as 250ms or 0.25";
    const PREFIX: &str = "1 to 64 printable ASCII characters without blanks and braces, such as rl";
    const NUMBER: &str = "the number of a Redis database, such as 0";
    const TABLE: &str = "name or schema.name, of A-Z, a-z, 0-9, \"_\", no digit first: a schema of 1 to 63, a name of 1 to 55";
    const NAME: &str = "a host's name or an IP address";
    let long = "x".repeat(65);
    for (directive, word, expected) in [
        ("strategy", "mysql", STRATEGY.expected),
        ("server", "127.0.0.1:", HOST),
        ("server", "::1", HOST),
        ("server", "redis:/127.0.0.1:6379", HOST),
        ("cluster", "yes", "on or off"),
        ("connect_timeout", "0", TIME),
        ("timeout", "0.0001", TIME),
        ("timeout", "86401", TIME),
        ("prefix", "{rl}", PREFIX),
        ("prefix", "é", PREFIX),
        ("prefix", &long, PREFIX),
        ("strategy redis; database", "main", NUMBER),
        ("strategy redis; database", "+1", NUMBER),
        ("strategy redis; database", "4294967296", NUMBER),
        ("strategy postgres; table", "1a", TABLE),
        ("strategy postgres; table", "a.b.c", TABLE),
        ("strategy postgres; table", "a.", TABLE),
        ("strategy postgres; table", "a-b", TABLE),
        ("strategy postgres; table", &long, TABLE),
        ("strategy postgres; table", &"x".repeat(56), TABLE),
        ("tls", "1", "on or off"),
        ("tls_name", "a b", NAME),
        ("tls_name", "a:1", NAME),
    ] {
        let mut builder = StoreSettings::builder(read_file);
        let name = match directive.rsplit_once("; ") {
            Some((strategy, name)) => {
                let kind = strategy.strip_prefix("strategy ").unwrap();
                builder.set(b"strategy", &[kind.as_bytes()]).unwrap();
                name
            }
            None => directive,
        };
        let error = builder.set(name.as_bytes(), &[word.as_bytes()]).unwrap_err();
        let message = format!("invalid {name} \"{word}\": expected {expected}");
        assert_eq!(error.to_string(), message);
    }
    for name in ["username", "database", "sentinel_master", "tls_certificate", "password_file"] {
        let set = StoreSettings::builder(read_file).set(name.as_bytes(), &[b""]);
        assert!(set.is_err(), "{name}");
    }
}

#[test]
fn an_error_about_a_wrong_block_suggests_a_right_one() {
    for (block, message) in [
        ("cluster on off;", "\"cluster\" takes one word, not 2: on or off"),
        ("strategy redis; strategy redis;", "\"strategy\" is duplicate: expected it once"),
        ("username a; username a;", "\"username\" is duplicate: expected it once"),
        (
            "password_file unix; password_file unix;",
            "\"password_file\" is duplicate: expected it once",
        ),
        (
            "server a:1; server b:1; server A:1; strategy redis;",
            "server \"a:1\" is duplicate: expected it once",
        ),
        (
            "server a; server a:26379; strategy redis; sentinel_master m;",
            "server \"a:26379\" is duplicate: expected it once",
        ),
        (
            "server [::1]:1; server [0::1]:1; strategy postgres;",
            "server \"[::1]:1\" is duplicate: expected it once",
        ),
        (
            "strategy postgres; cluster off;",
            "\"cluster\" is an option of strategy redis, not of postgres",
        ),
        (
            "sentinel_password s3cret; strategy postgres;",
            "\"sentinel_password\" is an option of strategy redis, not of postgres",
        ),
        (
            "prefix x; strategy postgres;",
            "\"prefix\" is an option of strategy redis and memcached and etcd, not of postgres",
        ),
        (
            "database main; strategy redis;",
            "invalid database \"main\": expected the number of a Redis database, such as 0",
        ),
        (
            "sentinel_master m; cluster on;",
            "\"cluster on\" goes with no \"sentinel_master\": expected one of them",
        ),
        (
            "cluster on; database 1; strategy redis;",
            "\"cluster on\" goes with no other database than 0: expected \"database 0\" or none",
        ),
        (
            "cluster on; server unix:/x;",
            "\"cluster on\" goes with no server \"unix:/x\": expected host[:port] or [v6][:port]",
        ),
        (
            "server a:1; server unix:/x; sentinel_master m;",
            "\"sentinel_master\" goes with no server \"unix:/x\": expected host[:port] or \
             [v6][:port]",
        ),
        (
            "server unix:/x; tls on;",
            "\"tls on\" goes with no server \"unix:/x\": expected host[:port] or [v6][:port]",
        ),
        (
            "password s3cret; password_file unix;",
            "\"password\" goes with no \"password_file\": expected one of them",
        ),
        ("password_file none;", "password_file cannot be read (entity not found)"),
        (
            "password_file newline;",
            "invalid password_file: expected a file with a password of at least one character, in \
             UTF-8",
        ),
        (
            "strategy redis; sentinel_username a;",
            "\"sentinel_username\" needs another option: add \"sentinel_master name;\"",
        ),
        (
            "strategy redis; sentinel_password s3cret;",
            "\"sentinel_password\" needs another option: add \"sentinel_master name;\"",
        ),
        (
            "strategy redis; tls on; tls_certificate c;",
            "\"tls_certificate\" needs another option: add \"tls_certificate_key file;\"",
        ),
        (
            "strategy redis; tls on; tls_certificate_key k;",
            "\"tls_certificate_key\" needs another option: add \"tls_certificate file;\"",
        ),
    ] {
        assert_eq!(parse(block), Err(message.into()), "{block}");
    }
}

#[test]
fn an_error_found_at_the_end_names_its_directive() {
    for (block, name, index, message) in [
        ("strategy redis", "tls_verify on", 0, "TLS"),
        ("strategy redis; tls off", "tls_verify off", 0, "TLS"),
        ("strategy redis", "tls_name x", 0, "TLS"),
        ("strategy redis", "tls_trusted_certificate x", 0, "TLS"),
        ("strategy redis; tls on", "tls_certificate x", 0, "key"),
        ("strategy redis", "sentinel_username x", 0, "master"),
        ("strategy redis; server a; server b", "server a:6379", 2, "is duplicate"),
    ] {
        let mut builder = StoreSettings::builder(read_file);
        for line in block.split("; ").chain([name]) {
            let (name, word) = line.split_once(' ').unwrap();
            let set = builder.set(name.as_bytes(), &[word.as_bytes()]);
            set.unwrap();
        }
        let error = builder.finish().unwrap_err();
        let directive = error.directive().unwrap();
        let expected = name.split(' ').next();
        assert_eq!((Some(directive.name), directive.index), (expected, index));
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn known_words_depend_on_the_build() {
    let has_cassandra = cfg!(feature = "cassandra");
    let [cassandra, owners, more] = match has_cassandra {
        true => [
            " or \"strategy cassandra;\"",
            "\"table\" is an option of strategy postgres and cassandra, not of redis",
            ", datacenter, consistency, replication",
        ],
        false => ["", "\"table\" is an option of strategy postgres, not of redis", ""],
    };
    let memcached = if cfg!(feature = "memcached") { " or \"strategy memcached;\"" } else { "" };
    let etcd = if cfg!(feature = "etcd") { " or \"strategy etcd;\"" } else { "" };
    let first = "no strategy: add \"strategy redis;\" or \"strategy postgres;\"";
    assert_eq!(parse(""), Err(format!("{first}{cassandra}{memcached}{etcd}")));
    assert_eq!(parse("table x; strategy redis;"), Err(owners.into()));
    let unknown = "unknown directive \"host\": expected one of strategy, server, username, \
        password, password_file, database, connect_timeout, timeout, exchanges, tls, tls_verify, tls_name, \
        tls_trusted_certificate, tls_certificate, tls_certificate_key, cluster, \
        sentinel_master, sentinel_username, sentinel_password, prefix, table";
    assert_eq!(parse("host x;"), Err(format!("{unknown}{more}: did you mean server?")));
    let mut lacking = lacking().map(|(name, _)| name);
    assert_eq!(!lacking.any(|name| name == "cassandra"), has_cassandra);
}

#[test]
fn a_password_is_never_shown() {
    for block in [
        "password s3cret s3cret;",
        "sentinel_password s3cret s3cret;",
        "password=s3cret;",
        "password:s3cret;",
        "server redis://joe:s3cret@host:6379;",
        "server host:6379 password s3cret;",
        "database postgres://joe:s3cret@host/db; strategy redis;",
        "prefix password s3cret;",
        "password_file s3cret;",
        "password_file latin;",
        "password_file unix; password s3cret;",
        "password s3cret; password s3cret;",
        "password first;s3cret;",
        "sentinel_password first;s3cret;",
        "sentinel_password s3cret; strategy redis;",
        "sentinel_password s3cret; strategy postgres;",
    ] {
        let message = parse(block).unwrap_err();
        assert!(!message.contains("s3c"), "{message}");
    }
    let options = "strategy redis; username joe; password s3cret; sentinel_master m; \
                   sentinel_password s3cret;";
    let shown = format!("{:?}", parse(options).unwrap());
    assert!(shown.contains("password: Some(Secret(...))"), "{shown}");
    assert!(!shown.contains("s3c") && !shown.contains("joe"), "{shown}");
}
