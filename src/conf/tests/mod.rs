//! Tests of configurations and their messages, with the code that nginx runs, under an [`nginx`] for tests.
//!
//! A row has a title, a text, and the expected lines: those of the log, then the policies of each level with rules. A
//! wrong configuration ends with its only `[emerg]` line. The text is the file `http.conf`. Log lines never contain a
//! password: all passwords are `s3cret`, as are users where a message could show them.

mod accepted;
mod accepted_namespaces;
mod algorithms;
mod calendar;
mod contexts;
mod inheritance;
mod keys;
mod levels;
mod namespace_blocks;
mod namespaces;
mod nginx;
mod parameters;
mod resolved;
mod rules;
mod stores;
mod unmeant;
mod zones;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::LazyLock;

use rcgen::{CertifiedKey, generate_simple_self_signed};

use nginx::{TestFiles, TestLevel, TestNginx};

use super::applied::AppliedRules;
use super::configuration::Configuration;
use super::http::HttpConf;
use super::words::message::ConfError;
use super::words::nginx::Nginx as _;
use super::words::text::Amount;

/// A title, a text, and the expected lines, which [`of_build`] adapts to the build.
type Row<'t> = (&'t str, &'t str, &'t str);

/// A row with files between title and text.
type FileRow = (&'static str, &'static [(&'static str, &'static [u8])], &'static str, &'static str);

const ZONE: &str = "ratelimit_zone zone=counters:1m;";
const STORE: &str = "ratelimit_store main { strategy redis; }";

/// Checks rows whose texts are the content of `http`.
fn check(rows: &[Row<'_>]) {
    check_within("", "", rows);
}

/// Checks rows whose texts are the content of a `server`, beside a zone.
fn check_in_server(rows: &[Row<'_>]) {
    check_within(&format!("{ZONE} server {{ "), "\n}", rows);
}

/// Checks rows whose texts are the block of the namespace `api`.
fn check_in_namespace(rows: &[Row<'_>]) {
    check_within(&format!("{ZONE} {STORE} ratelimit_namespace api {{ "), "\n}", rows);
}

/// Checks rows whose texts are the block of the store `main`.
fn check_in_store(rows: &[Row<'_>]) {
    check_within(&format!("{ZONE} ratelimit_store main {{ "), "\n}", rows);
}

fn check_within(before: &str, after: &str, rows: &[Row<'_>]) {
    for (title, text, told) in rows {
        let text = format!("{before}{text}{after}");
        assert_eq!(told_of(&text, &[]), of_build(told), "{title}");
    }
}

/// Returns the message as written by this build, with or without Cassandra, memcached and etcd.
fn of_build(told: &str) -> String {
    let (kinds, last) = (kinds(), kinds().pop().unwrap());
    let strategies = format!("{} or {last}", kinds[..kinds.len() - 1].join(", "));
    let owners = |of: &[&str]| {
        let owners = kinds.iter().copied().filter(|kind| of.contains(kind));
        owners.collect::<Vec<_>>().join(" and ")
    };
    let has_cassandra = kinds.contains(&"cassandra");
    let more = if has_cassandra { ", datacenter, consistency, replication" } else { "" };
    told.replace("<strategies>", &strategies)
        .replace("<with tables>", &owners(&["postgres", "cassandra"]))
        .replace("<with prefixes>", &owners(&["redis", "memcached", "etcd"]))
        .replace("<more>", more)
}

/// Returns the kinds of stores in this build.
fn kinds() -> Vec<&'static str> {
    let all = [
        ("redis", true),
        ("postgres", true),
        ("cassandra", cfg!(feature = "cassandra")),
        ("memcached", cfg!(feature = "memcached")),
        ("etcd", cfg!(feature = "etcd")),
    ];
    all.into_iter().filter(|(_, is_here)| *is_here).map(|(name, _)| name).collect()
}

/// Checks rows with files, whose texts are the content of `http`.
fn check_with_files(rows: &[FileRow]) {
    for (title, files, text, told) in rows {
        assert_eq!(told_of(text, files), *told, "{title}");
    }
}

/// The directory `pem`: a certificate, and its key.
static PEM: LazyLock<[(&str, String); 2]> = LazyLock::new(|| {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([]).unwrap();
    [("pem/certificate.pem", cert.pem()), ("pem/key.pem", signing_key.serialize_pem())]
});

/// Creates an nginx that is about to read a text, with these files. A word such as `<1200 x>` stands for that many `x`.
fn nginx_of(text: &str, files: &[(&str, &[u8])]) -> TestNginx {
    let text = text.replace("<1200 x>", &"x".repeat(1200));
    let pem = PEM.iter();
    let pem = pem.map(|(name, content)| (*name, content.as_bytes()));
    let more: [(&str, &[u8]); 2] = [("http.conf", text.as_bytes()), ("nginx.conf", b"events {}")];
    let all = files.iter().copied().chain(more).chain(pem);
    let all = all.map(|(name, content)| (name.into(), content.to_vec()));
    TestNginx::new(TestFiles(Rc::new(all.collect::<HashMap<_, _>>())))
}

/// Returns the messages for a text, one per line.
fn told_of(text: &str, files: &[(&str, &[u8])]) -> String {
    let mut nginx = nginx_of(text, files);
    match read(&mut nginx) {
        Ok((_, http)) => tell(&http, &mut nginx.told),
        Err(error) => nginx.refuse(error),
    }
    let told = nginx.told.join("\n");
    assert!(!told.contains("s3cret"), "{told}");
    told
}

/// Returns the messages for a text without callers other than rules.
fn told_without_callers(text: &str) -> String {
    let mut nginx = nginx_of(text, &[]);
    nginx.has_callers = false;
    match read(&mut nginx) {
        Ok(_) => nginx.told.join("\n"),
        Err(error) => panic!("{error:?}"),
    }
}

/// Returns the configuration and the levels of a valid text.
fn resolved(text: &str) -> (Configuration, TestLevel) {
    read(&mut nginx_of(text, &[])).unwrap()
}

/// Reads a configuration, resolves it, and lets levels inherit, as nginx does.
fn read(nginx: &mut TestNginx) -> Result<(Configuration, TestLevel), ConfError> {
    let mut http = HttpConf::default();
    let mut level = nginx.read_level(&mut http, "http", None)?;
    let configuration = http.resolve(nginx)?;
    let mut applied = AppliedRules::default();
    level.conf.find_windows(&configuration)?;
    inherit(&mut level, &configuration, &mut applied)?;
    for warning in applied.warnings(&configuration) {
        nginx.warn(warning);
    }
    Ok((configuration, level))
}

fn inherit(
    level: &mut TestLevel,
    configuration: &Configuration,
    applied: &mut AppliedRules<String>,
) -> Result<(), ConfError> {
    for inner in &mut level.levels {
        let mut others = ["if ", "limit_except "].iter();
        let is_within = others.any(|other| inner.name.starts_with(other));
        if is_within && inner.conf.content().is_none() {
            inner.conf.inherit_content(&level.conf);
        }
        inner.conf.find_windows(configuration)?;
        inner.conf.inherit(&level.conf);
        applied.note(&inner.conf);
        inherit(inner, configuration, applied)?;
    }
    Ok(())
}

/// Appends the policies of each level with rules, and of the levels in it.
fn tell(level: &TestLevel, told: &mut Vec<String>) {
    if let Some(rules) = level.conf.effective_rules() {
        let policy = match rules.policy() {
            [] => {
                let limits = rules.rules().iter().flat_map(|rule| &rule.limits);
                let limits = limits.map(|limit| match &limit.hits {
                    Amount::Constant(hits) => format!("\"{}\";q={hits}", limit.limit.name),
                    Amount::Variable(text) => format!("\"{}\";q={text}", limit.limit.name),
                    Amount::Listed(list) => format!("\"{}\";q={}", limit.limit.name, list.text),
                });
                limits.collect::<Vec<_>>().join(", ")
            }
            policy => str::from_utf8(policy).unwrap().into(),
        };
        told.push(format!("{}: {policy}", level.name));
    }
    for inner in &level.levels {
        tell(inner, told);
    }
}
