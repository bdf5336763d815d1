//! Whole conversions of Kong's configuration, of valid texts and of broken ones.

use std::io;
use std::path::{Path, PathBuf};

use super::convert;
use crate::convert::{Conversion, ConvertError, InputFiles};

/// The only file.
struct OneText<'t>(&'t [u8]);

impl InputFiles for OneText<'_> {
    fn read(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.to_vec())
    }

    fn expand(&self, _pattern: &Path) -> io::Result<Vec<PathBuf>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn convert_bytes(text: &[u8]) -> Result<Conversion, ConvertError> {
    convert(&OneText(text), Path::new("kong.yaml"))
}

/// Returns the output without remarks, and the remarks that ask for work.
fn converted(text: &str) -> (String, Vec<String>) {
    let conversion = convert_bytes(text.as_bytes()).expect(text);
    let output = String::from_utf8(conversion.files[0].text.clone()).unwrap();
    let remarks = conversion.remarks.into_iter();
    let is_written = |text: &str| output.contains(text);
    let remarks: Vec<_> = remarks.inspect(|remark| assert!(is_written(&remark.text))).collect();
    let lines = output.split_inclusive('\n').filter(|line| !line.starts_with('#'));
    let work = remarks.into_iter().filter(|remark| remark.is_work).map(|remark| remark.text);
    (lines.collect(), work.collect())
}

/// The second example of docs/from-kong.md.
const SIMPLE: &str = "
services:
- name: api
  url: http://10.0.0.1:8080
  routes: [{ name: all }]
plugins:
- name: rate-limiting
  config:
    minute: 60
    hour: 1000
    limit_by: ip
    policy: redis
    fault_tolerant: true
    redis: { host: redis.local }
";

const SIMPLE_CONVERTED: &str = "\
ratelimit_zone zone=counters:12m;

ratelimit_store redis {
    strategy redis;
    server redis.local:6379;
}

ratelimit_namespace global {
    store redis;
    sync_rate 0;
    on_error allow;
}

server {
    listen 8000;

    location / {
        ratelimit global limit=60/1m limit=1000/1h window=fixed;
        ratelimit_headers draft03 legacy;
        proxy_pass http://10.0.0.1:8080;
    }
}
";

#[test]
fn writes_a_location_for_each_route() {
    assert_eq!(converted(SIMPLE), (SIMPLE_CONVERTED.to_owned(), vec![]));
}

/// Returns the configuration of a plugin that applies to every request.
fn plugin(name: &str, config: &str) -> String {
    format!(
        "services: [{{name: s, host: h, routes: [{{name: r}}]}}]\nplugins: [{{name: {name}, config: {{{config}}}}}]\n"
    )
}

#[test]
fn writes_each_option() {
    for (name, config, expected) in [
        ("rate-limiting", "second: 5", "ratelimit limit=5/1s window=fixed counter=global;"),
        ("rate-limiting", "day: 0.5", "limit=0.5/1d "),
        ("rate-limiting", "month: 5, year: 9", "limit=5/month limit=9/365d "),
        ("rate-limiting", "hour: 1e3", "limit=1000/1h "),
        ("rate-limiting", "hour: 1, limit_by: service", "\"key=service s\""),
        (
            "rate-limiting",
            "hour: 1, limit_by: header, header_name: X-K",
            "map $http_x_k $kong_x_k {\n    \"\" $remote_addr;\n    default $http_x_k;",
        ),
        (
            "rate-limiting",
            "hour: 1, limit_by: path, path: /a.b",
            "\"~^/a\\\\.b(\\\\?|$)\" path;\n    default $remote_addr;",
        ),
        ("rate-limiting", "hour: 1, hide_client_headers: true", "ratelimit_headers off;"),
        ("rate-limiting", "hour: 1, error_code: 430", "ratelimit_status 430;"),
        ("rate-limiting", "hour: 1, error_message: no", "error_page 429 @global_2-rejected;"),
        (
            "rate-limiting",
            "hour: 1, error_message: 'a \"b'",
            "return 429 \"{\\\"message\\\":\\\"a \\\\\\\"b\\\"}\";",
        ),
        (
            "rate-limiting",
            "hour: 1, policy: redis, fault_tolerant: false",
            "sync_rate 0;\n    on_error deny;",
        ),
        ("rate-limiting", "hour: 1, policy: redis, sync_rate: -1", "sync_rate 0;"),
        ("rate-limiting", "hour: 1, policy: redis, sync_rate: 0.5", "sync_rate 0.5;\n}"),
        ("rate-limiting", "hour: 1, policy: redis, redis_host: r, redis_port: 7", "server r:7;"),
        (
            "rate-limiting",
            "hour: 1, policy: redis, redis: {ssl: true, ssl_verify: false}",
            "tls_verify off;\n    tls on;",
        ),
        (
            "rate-limiting",
            "hour: 1, policy: redis, redis: {timeout: 100, read_timeout: 300}",
            "timeout 300ms;",
        ),
        (
            "rate-limiting",
            "hour: 1, policy: redis, redis: {sentinel_master: m, sentinel_nodes: [{host: a, port: 1}]}",
            "server a:1;\n    sentinel_master m;",
        ),
        (
            "rate-limiting",
            "hour: 1, policy: redis, redis: {cluster_nodes: [{ip: a, port: 1}]}",
            "server a:1;\n    cluster on;",
        ),
        ("rate-limiting", "hour: 1, policy: redis, redis: {password: 'a;b'}", "password \"a;b\";"),
        (
            "rate-limiting-advanced",
            "limit: [10, 100], window_size: [10, 60]",
            "ratelimit limit=10/10s limit=100/1m counter=global;",
        ),
        ("rate-limiting-advanced", "limit: [1], window_size: [1]", "ratelimit_count_rejected on;"),
        (
            "rate-limiting-advanced",
            "limit: [1], window_size: [1], window_type: fixed",
            "window=fixed",
        ),
        (
            "rate-limiting-advanced",
            "limit: [1], window_size: [1], namespace: n",
            "ratelimit_namespace n {\n}",
        ),
        ("rate-limiting-advanced", "limit: [1], window_size: [0.5]", "limit=1/500ms"),
        (
            "rate-limiting-advanced",
            "limit: [1], window_size: [1], retry_after_jitter_max: 2",
            "ratelimit_retry_after_jitter 2.000;",
        ),
        (
            "response-ratelimiting",
            "limits: {video: {minute: 10}}",
            "ratelimit limit=10/1m window=fixed charge=$kong_video counter=global.video;",
        ),
        (
            "response-ratelimiting",
            "limits: {a: {minute: 1}}, header_name: X-Cost",
            "map $upstream_http_x_cost $kong_a {",
        ),
    ] {
        let (text, work) = converted(&plugin(name, config));
        assert!(text.contains(expected), "{config}: {text}");
        assert!(work.is_empty(), "{config}: {work:?}");
    }
    let (text, _) = converted(&plugin(
        "rate-limiting-advanced",
        "limit: [1], window_size: [1], disable_penalty: true",
    ));
    assert!(!text.contains("count_rejected"), "{text}");
    let (text, _) = converted(&plugin(
        "rate-limiting-advanced",
        "limit: [1], window_size: [1], strategy: redis, sync_rate: -1",
    ));
    assert!(!text.contains("ratelimit_store"), "{text}");
}

#[test]
fn says_what_has_no_counterpart() {
    for (name, config, expected) in [
        ("rate-limiting", "hour: 1, unheard_of: 2", "config.unheard_of has no counterpart"),
        ("rate-limiting", "hour: 1, policy: cluster", "Kong's database is in kong.conf"),
        ("rate-limiting", "hour: 1, error_message: $x", "config.error_message has a $"),
        ("rate-limiting", "hour: 1, limit_by: consumer-group", "counted by consumer"),
        (
            "rate-limiting",
            "hour: 1, policy: redis, redis: {password: '{vault://a}'}",
            "refers to a vault",
        ),
        (
            "rate-limiting",
            "hour: 1, policy: redis, redis: {odd: 1}",
            "config.redis.odd has no counterpart",
        ),
        (
            "rate-limiting-advanced",
            "limit: [1], window_size: [1], strategy: redis",
            "config.sync_rate is missing",
        ),
        (
            "rate-limiting-advanced",
            "limit: [1], window_size: [1], throttling: {enabled: true}",
            "config.throttling has no counterpart",
        ),
        ("rate-limiting", "hour: 1}}, {name: cors, config: {a: 1", "plugin cors is no limiter"),
        (
            "rate-limiting",
            "hour: 1}}, {name: jwt, config: {a: 1",
            "$remote_user, of auth_basic, stands for",
        ),
        (
            "rate-limiting",
            "hour: 1}}, {name: rate-limiting, consumer: bob, config: {minute: 7",
            "of consumer bob (limit=7/1m) is not converted",
        ),
        (
            "rate-limiting",
            "hour: 1}}, {name: rate-limiting-advanced, config: {limit: [1], window_size: [1]",
            "its own are: ratelimit_count_rejected on;",
        ),
    ] {
        let (text, work) = converted(&plugin(name, config));
        assert!(work.iter().any(|work| work.contains(expected)), "{config}: {work:?} {text}");
    }
    for (text, expected) in [
        (
            "routes: [{name: r, methods: [GET], headers: {}}]\nplugins: [{name: rate-limiting, config: {hour: 1}}]",
            "route r: methods, headers are not converted",
        ),
        (
            "routes: [{paths: [/a]}, {paths: [/a]}]\nplugins: [{name: rate-limiting, config: {hour: 1}}]",
            "has a path of another route",
        ),
        (
            "routes: [{hosts: [a]}, {paths: [/b]}]\nplugins: [{name: rate-limiting, config: {hour: 1}}]",
            "Kong tries routes without hosts",
        ),
        (
            "routes: [{hosts: [a]}, {hosts: ['*.b'], paths: [/b]}]\nplugins: [{name: rate-limiting, config: {hour: 1}}]",
            "Kong tries routes without hosts",
        ),
        (
            "routes: [{paths: [~/a]}]\nplugins: [{name: rate-limiting, config: {hour: 1}}]",
            "strip_path of a regular expression",
        ),
        ("plugins: [{name: rate-limiting, config: {hour: 1}}]", "add proxy_pass"),
        (
            "services: [{plugins: [{name: rate-limiting, config: {hour: 1}}]}]",
            "plugin rate-limiting applies to no route",
        ),
        (
            "routes: [{}]\nplugins: [{name: rate-limiting, route: other, config: {hour: 1}}]",
            "plugin rate-limiting applies to no route",
        ),
        (
            "upstreams: []\nplugins: [{name: rate-limiting, config: {hour: 1}}]",
            "upstreams: not converted",
        ),
        (
            "services: [{name: s, url: 'http://h/a b', routes: [{}]}]\nplugins: [{name: rate-limiting, config: {hour: 1}}]",
            "add proxy_pass",
        ),
        (
            "routes: [{paths: ['/a(b)']}]\nplugins: [{name: rate-limiting, config: {hour: 1}}]",
            "may be a regular expression",
        ),
    ] {
        let (output, work) = converted(text);
        assert!(work.iter().any(|work| work.contains(expected)), "{text}: {work:?} {output}");
    }
}

/// Settings that an export has with their default values change nothing, and are no work.
#[test]
fn ignores_what_is_off() {
    let (text, work) = converted(
        "x: [&a {second: 3, minute: 4}, &b {minute: 6, hour: 7}]
services: [{name: s, host: h, routes: [{hosts: [H:80]}]}]
plugins: [{name: rate-limiting, config: {<<: [*a, *b], policy: redis, enforce_consumer_groups: false, throttling: {enabled: false, interval: 5}, redis: {host: r, cluster_nodes: [], sentinel_nodes: [], sentinel_master: '', connection_is_proxied: false}}}]",
    );
    assert!(text.contains(" limit=3/1s limit=4/1m limit=7/1h "), "{text}");
    assert!(text.contains("strategy redis;\n    server r:6379;\n}"), "{text}");
    assert!(text.contains("server_name h;"), "{text}");
    let route = "the port of host h:80 is not compared";
    assert_eq!(work, ["x: not converted".to_owned(), format!("route route-2: {route}")]);
}

/// Each host has one server, with the locations of all routes that name the host.
#[test]
fn joins_the_routes_of_a_host() {
    let text = "
services:
- { name: s, host: h, routes: [{ hosts: [a, B, c, a], paths: [/x] }, { hosts: [b], paths: [/y] }, { hosts: [c, d], paths: [/x, /z] }, { hosts: [b] }] }
plugins: [{ name: rate-limiting, config: { hour: 1, error_message: Slow down } }]";
    let (output, work) = converted(text);
    let mut servers = Vec::new();
    for line in output.lines().map(str::trim) {
        let words: Vec<_> = line.trim_end_matches([';', '{']).split_whitespace().collect();
        match words.as_slice() {
            ["server_name", names @ ..] => servers.push((names.join(" "), Vec::new())),
            ["location", path] => servers.last_mut().unwrap().1.push(*path),
            _ => {}
        }
    }
    let expected = [
        ("a", &["/x", "@global_2-rejected"][..]),
        ("b", &["/x", "/y", "/", "@global_2-rejected"]),
        // The routes of c do the same as those of d.
        ("c d", &["/x", "/z", "@global_2-rejected"]),
    ];
    let servers: Vec<_> =
        servers.iter().map(|(names, paths)| (names.as_str(), paths.as_slice())).collect();
    assert_eq!(servers, expected, "{output}");
    assert_eq!(work, ["route route-3: has a path of another route: not converted"]);
    let (output, _) =
        converted("routes: [{hosts: [a, b]}]\nplugins: [{name: rate-limiting, config: {hour: 1}}]");
    assert!(output.contains("    server_name a b;\n"), "{output}");
}

/// Names of Kong's that are long, or taken, become valid and unique ones.
#[test]
fn keeps_names_valid() {
    let long = "n".repeat(100);
    let text = format!(
        "services: [{{name: {long}, host: h, routes: [{{name: r}}], plugins: [{{name: response-ratelimiting, config: {{limits: {{{}: {{hour: 1}}}}}}}}]}}]\nplugins: [{{name: rate-limiting, config: {{hour: 1, policy: redis}}}}, {{name: rate-limiting-advanced, config: {{limit: [1], window_size: [1], namespace: global}}}}]",
        "l".repeat(40)
    );
    let (text, _) = converted(&text);
    for name in [
        "ratelimit_namespace global_2 {",
        "ratelimit_namespace global {",
        "ratelimit global limit",
        "ratelimit global_2 limit",
    ] {
        assert!(text.contains(name), "{name}: {text}");
    }
    let counter = text.split("counter=").nth(1).unwrap().split(';').next().unwrap();
    assert!(counter.len() <= 64, "{counter}");
}

#[test]
fn resolves_ids_of_entities_with_names() {
    let (text, work) = converted(
        "services:\n- {id: 11, name: s, host: h}\nroutes:\n- {id: 21, name: a, paths: [/a], service: 11}\n- {id: 22, name: b, paths: [/b], service: {id: 11}}\nplugins:\n- {name: rate-limiting, service: 11, config: {hour: 5}}\n- {name: rate-limiting, route: 22, config: {hour: 2}}\n",
    );
    assert_eq!(work, [""; 0]);
    for part in ["limit=5/1h", "limit=2/1h", "proxy_pass http://h:80;"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_namespace_has_one_name() {
    let route = |path: &str, name: &str| {
        format!(
            "{{name: {path}, paths: [/{path}], plugins: [{{name: rate-limiting-advanced, config: {{limit: [1], window_size: [60], namespace: {name}}}}}]}}"
        )
    };
    let routes = [route("a", "default"), route("b", "default"), route("c", "m y")];
    let (text, _) = converted(&format!("routes: [{}]\n", routes.join(", ")));
    assert_eq!(text.matches("ratelimit_namespace default_2 {").count(), 1, "{text}");
    assert_eq!(text.matches("ratelimit default_2 limit").count(), 2, "{text}");
    assert_eq!(text.matches("ratelimit m_y limit").count(), 1, "{text}");
}

#[test]
fn a_location_has_the_decoded_path() {
    let (text, work) = converted(
        "services: [{name: s, host: h, routes: [{name: r, paths: ['/caf%C3%A9', '/a%2Fb']}]}]\nplugins: [{name: rate-limiting, config: {hour: 1}}]\n",
    );
    assert!(text.contains("location \"/café\" {") && text.contains("location /a%2Fb {"), "{text}");
    assert_eq!(work, ["route r: a path with % is not decoded"]);
}

#[test]
fn a_store_has_an_address_and_no_empty_password() {
    let (text, _) = converted(&plugin(
        "rate-limiting",
        "hour: 1, policy: redis, redis: {host: '::1', password: ''}",
    ));
    assert!(text.contains("server [::1]:6379;") && !text.contains("password"), "{text}");
}

#[test]
fn takes_the_plugin_with_the_closest_scope() {
    let plugins = |limit: u8, scope: &str| {
        format!("{{name: rate-limiting, {scope}config: {{hour: {limit}}}}}")
    };
    let all = format!(
        "services: [{{name: s, host: h, routes: [{{name: a, paths: [/a]}}, {{name: b, paths: [/b], plugins: [{}]}}], plugins: [{}]}}]\nroutes: [{{name: c, paths: [/c]}}, {{name: d, service: s, paths: [/d]}}]\nplugins: [{}, {}]\n",
        plugins(2, ""),
        plugins(1, ""),
        plugins(3, ""),
        plugins(4, "route: d, service: {name: s}, "),
    );
    let (text, _) = converted(&all);
    for (location, limit) in [("/a", 1), ("/b", 2), ("/c", 3), ("/d", 4)] {
        let start = text.find(&format!("location {location} {{")).unwrap();
        let rule = text[start..].lines().nth(1).unwrap();
        assert!(rule.contains(&format!("limit={limit}/1h")), "{location}: {rule}");
    }
}

#[test]
fn refuses_with_file_and_line() {
    for (text, message) in [
        ("", "kong.yaml:1: the document: expected Kong's declarative configuration"),
        ("a: 1", "kong.yaml:1: the document: expected Kong's declarative configuration"),
        ("[1]", "kong.yaml:1: the document: expected a map"),
        ("plugins: []", "kong.yaml: nothing to convert"),
        ("plugins: 5", "kong.yaml:1: plugins: expected a list"),
        ("plugins:\n- 5", "kong.yaml:2: a plugin: expected a name"),
        ("services: [5]", "kong.yaml:1: an entity: expected a map"),
        ("plugins: [{name: rate-limiting}]", "at least one limit"),
        ("plugins:\n- name: rate-limiting\n  config: 5", "kong.yaml:3: config: expected a map"),
        (
            "plugins:\n- name: rate-limiting\n  config:\n    hour: x",
            "kong.yaml:4: hour: expected a number",
        ),
        (
            "plugins:\n- name: rate-limiting\n  config: {hour: [1]}",
            "kong.yaml:3: hour: expected a text",
        ),
        (
            "plugins:\n- name: rate-limiting\n  config: {hour: 1e300}",
            "kong.yaml:3: a limit: expected a number from 0.001",
        ),
        (
            "plugins:\n- name: rate-limiting\n  config: {hour: 0}",
            "kong.yaml:3: a limit: expected a number from 0.001",
        ),
        (
            "plugins:\n- name: rate-limiting-advanced\n  config: {limit: [1], window_size: [1, 2]}",
            "kong.yaml:3: config.limit: expected as many",
        ),
        (
            "plugins:\n- name: rate-limiting-advanced\n  config: {limit: [1], window_size: [1e9]}",
            "kong.yaml:3: a window: expected",
        ),
        (
            "plugins:\n- name: rate-limiting\n  config: {hour: 1, policy: x}",
            "kong.yaml:3: config.policy: expected local, cluster or redis",
        ),
        (
            "plugins:\n- name: rate-limiting\n  config: {hour: 1, error_code: 200}",
            "kong.yaml:3: config.error_code: expected a status",
        ),
        (
            "plugins:\n- name: response-ratelimiting\n  config: {limits: {\"a b\": {hour: 1}}}",
            "kong.yaml:3: config.limits: expected names",
        ),
        ("plugins: [", "kong.yaml:2: while parsing"),
    ] {
        let error = convert_bytes(text.as_bytes()).expect_err(text).to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
    let error = convert_bytes(b"plugins:\n- \xff").unwrap_err().to_string();
    assert_eq!(error, "kong.yaml:2: not UTF-8");
}

/// Neither a truncated text nor a wrong byte ends in a panic, and no name leaves its word or its comment.
#[test]
fn survives_any_byte_anywhere() {
    let text = SIMPLE.replace("name: all", "name: all, paths: [/p], hosts: [h], methods: [GET]");
    for end in 0..text.len() {
        let _ = convert_bytes(&text.as_bytes()[..end]);
        for byte in
            [0, b'\n', b'"', b'#', b'*', b'&', b'{', b'}', b':', b'-', b'~', b'9', 0x80, 0xff]
        {
            let mut text = text.as_bytes().to_vec();
            text[end] = byte;
            let _ = convert_bytes(&text);
        }
    }
}

#[test]
fn keeps_hostile_names_in_their_words() {
    let text = "services: [{name: \"s\\n}\\nevil on;\", host: \"h;evil\", routes: [{name: \"r\\nevil;\", paths: [\"/a { evil; }\"], hosts: [\"h; evil\"]}]}]\nplugins: [{name: rate-limiting, config: {hour: 1, limit_by: service, error_message: \"\\\"; evil;\"}}]";
    let (text, _) = converted(text);
    for line in text.lines().filter(|line| line.contains("evil")) {
        let quotes = line.bytes().filter(|byte| *byte == b'"').count();
        assert!(quotes >= 2, "{line}");
    }
    assert!(!text.lines().any(|line| line.trim_start().starts_with("evil")), "{text}");
}
