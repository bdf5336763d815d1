//! Tests of contexts of directives, and of directives with a block.

use super::{ZONE, check, told_of};
use crate::conf::reader::DIRECTIVES;

/// The beginning and end of each level.
const LEVELS: [(&str, &str, &str); 6] = [
    ("http", "", ""),
    ("server", "server { ", " }"),
    ("if", "server { if ($arg_k) { ", " } }"),
    ("location", "server { location /t { ", " } }"),
    ("if", "server { location /t { if ($arg_k) { ", " } } }"),
    ("limit_except", "server { location /t { limit_except GET { ", " } } }"),
];

#[test]
fn a_directive_stands_on_its_levels_alone() {
    let anywhere = &["http", "server", "location"][..];
    let all: [(&str, &[&str]); DIRECTIVES.len()] = [
        ("ratelimit_zone zone=other:1m;", &["http"]),
        ("ratelimit_store main { strategy redis; }", &["http"]),
        ("ratelimit_namespace api { }", &["http"]),
        ("ratelimit_key $arg_k;", anywhere),
        ("ratelimit off;", anywhere),
        ("ratelimit_count_rejected on;", anywhere),
        ("ratelimit_status 503;", anywhere),
        ("ratelimit_message text/plain x;", anywhere),
        ("ratelimit_timezone Europe/Berlin;", anywhere),
        ("ratelimit_dry_run on;", anywhere),
        ("ratelimit_log_level warn;", anywhere),
        ("ratelimit_headers off;", anywhere),
        ("ratelimit_retry_after_jitter 1s;", anywhere),
        ("ratelimit_phase precontent;", anywhere),
        ("ratelimit_api;", &["location"]),
        ("ratelimit_metrics;", &["location"]),
    ];
    for ((directive, levels), known) in all.iter().zip(DIRECTIVES) {
        let name = known.name.to_str().unwrap();
        assert!(directive.split([' ', ';']).next() == Some(name), "{name}");
        for (level, before, after) in LEVELS {
            let told = match levels.contains(&level) {
                true => String::new(),
                false => {
                    format!("[emerg] \"{name}\" directive is not allowed here in http.conf:2")
                }
            };
            let text = format!("{ZONE}\n{before}{directive}{after}");
            assert_eq!(told_of(&text, &[]), told, "{text}");
        }
    }
}

#[test]
fn a_store_and_a_namespace_have_a_block() {
    check(&[
        (
            "a store without a block",
            "ratelimit_store main;",
            "[emerg] directive \"ratelimit_store\" has no opening \"{\" in http.conf:1",
        ),
        (
            "a namespace without a block",
            "ratelimit_namespace api;",
            "[emerg] directive \"ratelimit_namespace\" has no opening \"{\" in http.conf:1",
        ),
        (
            "a key with a block",
            "ratelimit_key $arg_k { }",
            "[emerg] directive \"ratelimit_key\" is not terminated by \";\" in http.conf:1",
        ),
    ]);
}
