//! Blocks of directives, and the settings from them.

use core::num::NonZeroU32;
use core::time::Duration;
use std::io;
use std::path::Path;

use crate::store::block::directives;
use crate::store::contract::options::*;
use crate::store::contract::server::ServerAddress;
use crate::store::postgres::options::{PostgresOptions, TableName};
use crate::store::redis::options::{RedisOptions, Topology};
use crate::store::registry::{OwnOptions, StoreSettings};

/// Reads one of the existing files.
pub(super) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
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

/// Returns the settings from the directives in `block`, each of which ends with ";".
pub(crate) fn parse(block: &str) -> Result<StoreSettings, String> {
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
        _ => panic!("{block}"),
    }
}

fn postgres(block: &str) -> PostgresOptions {
    match parse(block).unwrap().own {
        OwnOptions::Postgres(options) => options,
        _ => panic!("{block}"),
    }
}

fn secret(text: &str) -> Option<Secret> {
    Secret::parse(text.as_bytes())
}

fn exchanges(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn table(schema: Option<&str>, name: &str) -> TableName {
    TableName { schema: schema.map(Into::into), name: name.into() }
}

#[test]
fn a_strategy_is_all_that_a_store_needs() {
    let redis = OwnOptions::Redis(RedisOptions {
        topology: Topology::Single,
        database: 0,
        prefix: "rl".into(),
    });
    let options = StoreOptions {
        servers: vec![ServerAddress::tcp("127.0.0.1", 6379)],
        credentials: Credentials::default(),
        connect_timeout: Duration::from_millis(500),
        timeout: Duration::from_millis(250),
        exchanges: exchanges(5000),
        tls: None,
    };
    let settings = StoreSettings { common: options.clone(), own: redis };
    assert_eq!(parse("strategy redis;"), Ok(settings));

    let postgres = OwnOptions::Postgres(PostgresOptions {
        database: "postgres".into(),
        table: table(None, "rl_counters"),
    });
    let options = StoreOptions {
        servers: vec![ServerAddress::tcp("127.0.0.1", 5432)],
        exchanges: exchanges(1000),
        ..options
    };
    let settings = StoreSettings { common: options, own: postgres };
    assert_eq!(parse("strategy postgres;"), Ok(settings));
}

#[test]
fn a_block_sets_everything() {
    let options = parse(
        "tls_certificate_key key; tls_certificate cert; tls_trusted_certificate roots; \
         tls_name redis.example; tls_verify off; tls on; exchanges 7; timeout 1d; connect_timeout 1ms; \
         prefix a:b; database 5; password s3cret; username joe; sentinel_password s3cret2; \
         sentinel_username ann; sentinel_master mymaster; server b:2; server [::1]:1; \
         strategy redis;",
    );
    let own = OwnOptions::Redis(RedisOptions {
        topology: Topology::Sentinel {
            master: "mymaster".into(),
            credentials: Credentials { username: secret("ann"), password: secret("s3cret2") },
        },
        database: 5,
        prefix: "a:b".into(),
    });
    let common = StoreOptions {
        servers: vec![ServerAddress::tcp("b", 2), ServerAddress::tcp("::1", 1)],
        credentials: Credentials { username: secret("joe"), password: secret("s3cret") },
        connect_timeout: Duration::from_millis(1),
        timeout: Duration::from_secs(86_400),
        exchanges: exchanges(7),
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
    let sentinel = Topology::Sentinel { master: "m".into(), credentials: Credentials::default() };
    for (block, topology, port) in [
        ("strategy redis; cluster off;", Topology::Single, 6379),
        ("strategy redis; cluster on; database 0;", Topology::Cluster, 6379),
        ("cluster off; sentinel_master m; strategy redis;", sentinel, 26379),
    ] {
        assert_eq!(redis(block).topology, topology, "{block}");
        assert_eq!(parse(block).unwrap().common.servers, [ServerAddress::tcp("127.0.0.1", port)]);
    }
}

#[test]
fn a_postgres_has_a_database_and_a_table() {
    let options = postgres("table Rate._1; database 5; strategy postgres; server unix:/run;");
    assert_eq!(&*options.database, "5");
    assert_eq!(options.table, table(Some("Rate"), "_1"));
}

#[test]
fn tls_verifies_by_default() {
    let tls = parse("strategy redis; tls on;").unwrap().common.tls.unwrap();
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
    assert_eq!(names, ["tls_trusted_certificate", "tls_certificate", "tls_certificate_key"]);
    let tls = options.tls.unwrap();
    assert_eq!(format!("{:?}", tls.trusted_certificate.unwrap()), "PemFile(/etc/nginx/t)");
    let key = tls.identity.unwrap().key;
    assert_eq!(key.path, Path::new("/etc/nginx/k"));
    assert_eq!(&*key.content, b"secret");
}

#[test]
fn a_password_may_be_in_a_file() {
    for (file, password) in
        [("unix", "s3cret "), ("dos", "s3cret"), ("bare", "s3cret"), ("two", "s3cret\n")]
    {
        let options = parse(&format!("strategy redis; password_file {file};")).unwrap();
        assert_eq!(options.common.credentials.password.unwrap().expose(), password, "{file}");
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
        let servers = [
            ServerAddress::tcp("a", port),
            ServerAddress::tcp("::1", port),
            ServerAddress::tcp("b", 1),
        ];
        assert_eq!(options.unwrap().common.servers, servers, "{block}");
    }
}

#[test]
fn all_directives_are_known() {
    for name in directives(None) {
        let error = StoreSettings::builder(read_file).set(name.as_bytes(), &[]).unwrap_err();
        let count = match name {
            "replication" => "at least one word",
            _ => "one word, not 0",
        };
        let message = format!("\"{name}\" takes {count}: ");
        assert!(error.to_string().starts_with(&message), "{error}");
    }
}
