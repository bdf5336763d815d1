//! Tests of inheritance between levels.

use super::nginx::TestLevel;
use super::{check, resolved};
use crate::conf::words::settings::{LogLevel, Phase, Settings};
use crate::policy::headers::{HeaderFormat, HeaderFormats};
use crate::table::Outcome;

/// Returns the settings of each level in this one.
fn settings(level: &TestLevel) -> Vec<(&str, Settings)> {
    let inner = level.levels.iter();
    let inner = inner.flat_map(|inner| {
        let own = (&*inner.name, inner.conf.settings());
        core::iter::once(own).chain(settings(inner))
    });
    inner.collect()
}

#[test]
fn the_default_applies_where_no_level_has_a_value() {
    let (_, http) = resolved("server { location / { } }");
    let default = Settings {
        count_rejected: false,
        status: 429,
        refusal: Outcome::Rejected,
        log_level: LogLevel::Error,
        headers: HeaderFormats::default().with(HeaderFormat::Ietf),
        retry_after_jitter: 0,
        phase: Phase::Preaccess,
    };
    assert_eq!(default, Settings::default());
    assert_eq!(settings(&http), [("server", default), ("location /", default)]);
}

#[test]
fn a_level_has_its_own_values_or_those_of_the_levels_above() {
    let (configuration, http) = resolved(
        "ratelimit_count_rejected on; ratelimit_status 503; ratelimit_dry_run on;
         ratelimit_log_level off; ratelimit_headers legacy draft03;
         ratelimit_retry_after_jitter 0.5; ratelimit_phase precontent;
         server {
             ratelimit_status 599;
             location /own {
                 ratelimit_count_rejected off; ratelimit_status 400; ratelimit_dry_run off;
                 ratelimit_log_level info; ratelimit_headers off;
                 ratelimit_retry_after_jitter 0; ratelimit_phase preaccess;
             }
             location /inherited { if ($arg_x) { } }
         }",
    );
    let said = Settings {
        count_rejected: true,
        status: 599,
        refusal: Outcome::RejectedDryRun,
        log_level: LogLevel::Off,
        headers: HeaderFormats::default().with(HeaderFormat::Draft03).with(HeaderFormat::Legacy),
        retry_after_jitter: 500,
        phase: Phase::Precontent,
    };
    let own = Settings {
        count_rejected: false,
        status: 400,
        refusal: Outcome::Rejected,
        log_level: LogLevel::Info,
        headers: HeaderFormats::default(),
        retry_after_jitter: 0,
        phase: Phase::Preaccess,
    };
    let all = [
        ("server", said),
        ("location /own", own),
        ("location /inherited", said),
        ("if ($arg_x)", said),
    ];
    assert_eq!(settings(&http), all);
    assert!(configuration.has_precontent && !configuration.has_deferred);
}

#[test]
fn a_level_has_its_key_or_else_that_of_one_above() {
    let (configuration, http) = resolved(
        "ratelimit_zone zone=counters:1m; ratelimit limit=5/1d charge=$bytes_sent;
         server { location / { } }
         server { ratelimit_key $arg_k; location /own { ratelimit_key $uri; } location / { } }",
    );
    let [first, second] = &http.levels[..] else {
        panic!("{http:?}");
    };
    let key = |level: &TestLevel| String::from_utf8(level.conf.written_key().into()).unwrap();
    assert_eq!(key(first), "$remote_addr");
    assert_eq!(first.levels[0].conf.key(), None);
    assert_eq!(key(second), "$arg_k");
    let keys: Vec<String> = second.levels.iter().map(key).collect();
    assert_eq!(keys, ["$uri", "$arg_k"]);
    assert!(configuration.has_deferred && !configuration.has_precontent);
}

#[test]
fn rules_are_inherited_unless_a_level_has_its_own_or_answers_by_itself() {
    check(&[
        (
            "rules of http, of a server and of a location; none",
            "ratelimit_zone zone=counters:1m;
             ratelimit limit=1/1d;
             server {
                 location /a { location /a/b { ratelimit limit=3/1d counter=default; } }
                 location /off { ratelimit off; location /off/on { } }
             }
             server { ratelimit limit=2/1d limit=2/2d counter=default; location /c { } }",
            "server: \"default-1d\";q=1;w=86400\n\
             location /a: \"default-1d\";q=1;w=86400\n\
             location /a/b: \"default-1d\";q=3;w=86400\n\
             server: \"default-1d\";q=2;w=86400, \"default-2d\";q=2;w=172800\n\
             location /c: \"default-1d\";q=2;w=86400, \"default-2d\";q=2;w=172800",
        ),
        (
            "locations that answer by themselves, and blocks in them",
            "ratelimit_zone zone=counters:1m;
             ratelimit limit=1/1d;
             server {
                 location /api { ratelimit_api write=on; if ($arg_x) { } }
                 location /metrics {
                     ratelimit_metrics;
                     ratelimit limit=2/1d counter=default;
                     limit_except GET { }
                     location /metrics/inner { }
                 }
             }",
            "server: \"default-1d\";q=1;w=86400\n\
             location /metrics: \"default-1d\";q=2;w=86400\n\
             limit_except GET: \"default-1d\";q=2;w=86400\n\
             location /metrics/inner: \"default-1d\";q=2;w=86400",
        ),
    ]);
}
