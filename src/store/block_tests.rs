//! Blocks of directives, and what becomes of them.

use core::time::Duration;
use std::io;
use std::path::Path;

use super::block::directives;
use super::options::*;
use super::postgres::options::{PostgresOptions, TableName};
use super::redis::options::{RedisOptions, Topology};
use super::registry::{LACKING_DIRECTIVES, OwnOptions, StoreSettings};
use super::server::ServerAddress;

/// The files that there are.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    match path.to_str() {
        Some("unix") => Ok(b"s3cret \n".into()),
        Some("dos") => Ok(b"s3cret\r\n".into()),
        Some("bare") => Ok(b"s3cret".into()),
        Some("two") => Ok(b"s3cret\n\n".into()),
        Some("newline") => Ok(b"\n".into()),
        Some("latin") => Ok(b"s3cr\xe8t".into()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// The settings that the directives in `block`, which end in ";", make.
fn parse(block: &str) -> Result<StoreSettings, String> {
    let mut builder = StoreSettings::builder(read_file);
    for line in block.split_terminator(';') {
        let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
        let set = builder.set(words[0], &words[1..]);
        set.map_err(|error| error.to_string())?;
    }
    builder.finish().map_err(|error| error.to_string())
}

fn redis(block: &str) -> RedisOptions {
    match parse(block).unwrap().own {
        OwnOptions::Redis(options) => options,
        OwnOptions::Postgres(_) => panic!("{block}"),
    }
}

fn postgres(block: &str) -> PostgresOptions {
    match parse(block).unwrap().own {
        OwnOptions::Postgres(options) => options,
        OwnOptions::Redis(_) => panic!("{block}"),
    }
}

fn secret(text: &str) -> Option<Secret> {
    Secret::parse(text.as_bytes())
}

fn tcp(host: &str, port: u16) -> ServerAddress {
    ServerAddress::Tcp {
        host: host.into(),
        port,
    }
}

fn table(schema: Option<&str>, name: &str) -> TableName {
    TableName {
        schema: schema.map(Into::into),
        name: name.into(),
    }
}

#[test]
fn a_strategy_is_all_that_a_store_needs() {
    let redis = OwnOptions::Redis(RedisOptions {
        topology: Topology::Single,
        database: 0,
        prefix: "rl".into(),
    });
    let options = StoreOptions {
        servers: vec![tcp("127.0.0.1", 6379)],
        credentials: Credentials::default(),
        connect_timeout: Duration::from_millis(500),
        timeout: Duration::from_millis(250),
        tls: None,
    };
    let settings = StoreSettings {
        common: options.clone(),
        own: redis,
    };
    assert_eq!(parse("strategy redis;"), Ok(settings));

    let postgres = OwnOptions::Postgres(PostgresOptions {
        database: "postgres".into(),
        table: table(None, "rl_counters"),
    });
    let options = StoreOptions {
        servers: vec![tcp("127.0.0.1", 5432)],
        ..options
    };
    let settings = StoreSettings {
        common: options,
        own: postgres,
    };
    assert_eq!(parse("strategy postgres;"), Ok(settings));
}

#[test]
fn a_block_sets_everything() {
    let options = parse(
        "tls_certificate_key key; tls_certificate cert; tls_trusted_certificate roots; \
         tls_name redis.example; tls_verify off; tls on; timeout 1d; connect_timeout 1ms; \
         prefix a:b; database 5; password s3cret; username joe; sentinel_password s3cret2; \
         sentinel_username ann; sentinel_master mymaster; server b:2; server [::1]:1; \
         strategy redis;",
    );
    let own = OwnOptions::Redis(RedisOptions {
        topology: Topology::Sentinel {
            master: "mymaster".into(),
            credentials: Credentials {
                username: secret("ann"),
                password: secret("s3cret2"),
            },
        },
        database: 5,
        prefix: "a:b".into(),
    });
    let common = StoreOptions {
        servers: vec![tcp("b", 2), tcp("::1", 1)],
        credentials: Credentials {
            username: secret("joe"),
            password: secret("s3cret"),
        },
        connect_timeout: Duration::from_millis(1),
        timeout: Duration::from_secs(86_400),
        tls: Some(TlsOptions {
            verify: false,
            name: Some("redis.example".into()),
            trusted_certificate: Some(PemFile::unread("roots".into())),
            identity: Some(TlsIdentity {
                certificate: PemFile::unread("cert".into()),
                key: PemFile::unread("key".into()),
            }),
        }),
    };
    assert_eq!(options, Ok(StoreSettings { common, own }));
}

#[test]
fn a_redis_is_single_or_a_cluster_or_known_to_sentinels() {
    let sentinel = Topology::Sentinel {
        master: "m".into(),
        credentials: Credentials::default(),
    };
    for (block, topology, port) in [
        ("strategy redis; cluster off;", Topology::Single, 6379),
        (
            "strategy redis; cluster on; database 0;",
            Topology::Cluster,
            6379,
        ),
        (
            "cluster off; sentinel_master m; strategy redis;",
            sentinel,
            26379,
        ),
    ] {
        assert_eq!(redis(block).topology, topology, "{block}");
        assert_eq!(
            parse(block).unwrap().common.servers,
            [tcp("127.0.0.1", port)]
        );
    }
}

#[test]
fn a_postgres_has_a_database_and_a_table() {
    let options = postgres("table Rate._1; database 5; strategy postgres; server unix:/run;");
    assert_eq!(&*options.database, "5");
    assert_eq!(options.table, table(Some("Rate"), "_1"));
}

#[test]
fn tls_verifies_unless_told_otherwise() {
    let tls = parse("strategy redis; tls on;")
        .unwrap()
        .common
        .tls
        .unwrap();
    assert!(tls.verify);
    assert_eq!(tls.name, None);
    assert_eq!(parse("strategy redis; tls off;").unwrap().common.tls, None);
}

#[test]
fn files_are_listed_to_be_read() {
    let directives = "tls_certificate c; tls_certificate_key k; tls_trusted_certificate t;";
    let settings = parse(&format!("strategy redis; tls on; {directives}")).unwrap();
    let mut options = settings.common;
    let mut names = Vec::new();
    for (directive, file) in options.files_mut() {
        names.push(directive);
        file.path = Path::new("/etc/nginx").join(&file.path);
        file.content = b"secret".as_slice().into();
    }
    assert_eq!(
        names,
        [
            "tls_trusted_certificate",
            "tls_certificate",
            "tls_certificate_key"
        ]
    );
    let tls = options.tls.unwrap();
    assert_eq!(
        format!("{:?}", tls.trusted_certificate.unwrap()),
        "PemFile(/etc/nginx/t)"
    );
    let key = tls.identity.unwrap().key;
    assert_eq!(key.path, Path::new("/etc/nginx/k"));
    assert_eq!(&*key.content, b"secret");
}

#[test]
fn a_password_may_be_in_a_file() {
    for (file, password) in [
        ("unix", "s3cret "),
        ("dos", "s3cret"),
        ("bare", "s3cret"),
        ("two", "s3cret\n"),
    ] {
        let options = parse(&format!("strategy redis; password_file {file};")).unwrap();
        assert_eq!(
            options.common.credentials.password.unwrap().expose(),
            password,
            "{file}"
        );
    }
}

#[test]
fn wrong_words_are_told_what_would_be_right() {
    const HOST: &str = "host[:port], [v6][:port] or unix:/path, such as 127.0.0.1:6379";
    const TIME: &str = "a time from 1ms to 1d, such as 250ms or 0.25";
    const PREFIX: &str = "1 to 64 printable ASCII characters without blanks and braces, such as rl";
    const NUMBER: &str = "the number of a Redis database, such as 0";
    const TABLE: &str = "name or schema.name, of A-Z, a-z, 0-9, \"_\", no digit first: a schema of 1 to 63, a name of 1 to 55";
    const NAME: &str = "a host's name or an IP address";
    let long = "x".repeat(65);
    for (directive, word, expected) in [
        ("strategy", "mysql", "redis or postgres"),
        ("server", "127.0.0.1:", HOST),
        ("server", "::1", HOST),
        ("server", "redis://127.0.0.1:6379", HOST),
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
        ("table", "1a", TABLE),
        ("table", "a.b.c", TABLE),
        ("table", "a.", TABLE),
        ("table", "a-b", TABLE),
        ("table", &long, TABLE),
        ("table", &"x".repeat(56), TABLE),
        ("tls", "1", "on or off"),
        ("tls_name", "a b", NAME),
        ("tls_name", "a:1", NAME),
    ] {
        let mut builder = StoreSettings::builder(read_file);
        let name = match directive.rsplit_once("; ") {
            Some((_, name)) => {
                builder.set(b"strategy", &[b"redis"]).unwrap();
                name
            }
            None => directive,
        };
        let error = builder
            .set(name.as_bytes(), &[word.as_bytes()])
            .unwrap_err();
        let message = format!("invalid {name} \"{word}\": expected {expected}");
        assert_eq!(error.to_string(), message);
    }
    for name in [
        "username",
        "database",
        "sentinel_master",
        "tls_certificate",
        "password_file",
    ] {
        let set = StoreSettings::builder(read_file).set(name.as_bytes(), &[b""]);
        assert!(set.is_err(), "{name}");
    }
}

#[test]
fn a_wrong_block_is_told_what_would_be_right() {
    for (block, message) in [
        (
            "",
            "no strategy: add \"strategy redis;\" or \"strategy postgres;\"",
        ),
        (
            "strategy cassandra;",
            "strategy \"cassandra\" is not in this build: expected redis or postgres",
        ),
        (
            "host x;",
            "unknown directive \"host\": expected one of strategy, server, username, \
             password, password_file, database, connect_timeout, timeout, tls, tls_verify, tls_name, \
             tls_trusted_certificate, tls_certificate, tls_certificate_key, cluster, \
             sentinel_master, sentinel_username, sentinel_password, prefix, table",
        ),
        (
            "cluster on off;",
            "\"cluster\" takes one word, not 2: on or off",
        ),
        (
            "strategy redis; strategy redis;",
            "\"strategy\" is duplicate",
        ),
        ("username a; username a;", "\"username\" is duplicate"),
        (
            "password_file unix; password_file unix;",
            "\"password_file\" is duplicate",
        ),
        (
            "server a:1; server b:1; server A:1; strategy redis;",
            "server \"a:1\" is duplicate",
        ),
        (
            "server a; server a:26379; strategy redis; sentinel_master m;",
            "server \"a:26379\" is duplicate",
        ),
        (
            "server [::1]:1; server [0::1]:1; strategy postgres;",
            "server \"[::1]:1\" is duplicate",
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
            "\"prefix\" is an option of strategy redis, not of postgres",
        ),
        (
            "table x; strategy redis;",
            "\"table\" is an option of strategy postgres, not of redis",
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
        (
            "password_file none;",
            "password_file cannot be read (entity not found)",
        ),
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
fn a_server_listens_on_the_usual_port_unless_it_says_otherwise() {
    for (block, port) in [
        ("strategy redis", 6379),
        ("strategy redis; sentinel_master m", 26379),
        ("strategy postgres", 5432),
    ] {
        let options = parse(&format!("server a; server [::1]; server b:1; {block};"));
        let servers = [tcp("a", port), tcp("::1", port), tcp("b", 1)];
        assert_eq!(options.unwrap().common.servers, servers, "{block}");
    }
}

#[test]
fn what_is_found_at_the_end_is_said_of_its_directive() {
    for (block, name, index, message) in [
        ("strategy redis", "tls_verify on", 0, "TLS"),
        ("strategy redis; tls off", "tls_verify off", 0, "TLS"),
        ("strategy redis", "tls_name x", 0, "TLS"),
        ("strategy redis", "tls_trusted_certificate x", 0, "TLS"),
        ("strategy redis; tls on", "tls_certificate x", 0, "key"),
        ("strategy redis", "sentinel_username x", 0, "master"),
        (
            "strategy redis; server a; server b",
            "server a:6379",
            2,
            "is duplicate",
        ),
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
fn what_this_build_lacks_is_told() {
    for name in LACKING_DIRECTIVES {
        let message = parse(&format!("{name} x;")).unwrap_err();
        let expected = format!("directive \"{name}\" is not in this build: ");
        assert!(message.starts_with(&expected), "{message}");
    }
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

#[test]
fn all_directives_are_known() {
    for name in directives() {
        let error = StoreSettings::builder(read_file)
            .set(name.as_bytes(), &[])
            .unwrap_err();
        let message = format!("\"{name}\" takes one word, not 0: ");
        assert!(error.to_string().starts_with(&message), "{error}");
    }
}
