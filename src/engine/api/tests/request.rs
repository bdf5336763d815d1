//! Tests of the parsing of requests.

use super::key::key_call;
use crate::engine::api::json::ApiError;
use crate::engine::api::request::*;
use crate::engine::api::site::Sender;
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::{Hits, hits};
use crate::policy::window::WindowSize;

const MINUTE: u64 = 60_000;

fn request<'r>(method: &'r str, path: &'r str, query: &'r str) -> ApiRequest<'r> {
    ApiRequest {
        method: method.as_bytes(),
        path: path.as_bytes(),
        raw_path: b"",
        prefix: b"/rl",
        query: query.as_bytes(),
        accept: None,
        may_write: true,
        sender: Sender::default(),
    }
}

#[test]
fn a_path_names_the_call() {
    let call = |path, query| request("GET", path, query).call().unwrap();
    for (query, has_all) in [("", false), ("all=0", false), ("all=1", true), ("other=1", false)] {
        let expected = ApiCall::Overview(OverviewCall { has_all, may_write: true });
        assert_eq!((call("", query), call("/", query)), (expected.clone(), expected));
    }
    for path in ["/health", "/health/"] {
        assert_eq!(call(path, ""), ApiCall::Health);
    }
    for path in ["/namespaces", "/namespaces/"] {
        assert_eq!(call(path, ""), ApiCall::Namespaces);
    }
    for path in ["/namespaces/api", "/namespaces/api/"] {
        assert_eq!(call(path, ""), ApiCall::Namespace(b"api".into()));
    }
    // A slash at the end of a path has no meaning; elsewhere in a key, it is an ordinary byte.
    for path in ["/namespaces/api/keys/a", "/namespaces/api/keys/a/"] {
        assert_eq!(call(path, ""), ApiCall::Key(key_call(b"a")));
    }
    let expected = KeyCall {
        window: WindowSize::from_millis(MINUTE),
        algorithm: Algorithm::Fixed,
        limit: Some(Hits::from_thousandths(2_500)),
        ..key_call(b"a/b")
    };
    assert_eq!(
        call("/namespaces/api/keys/a/b", "window=1m&window_type=fixed&limit=2.5"),
        ApiCall::Key(expected)
    );
    for (query, burst) in [("rate=0.5/1m", 0), ("rate=0.5/1m&burst=20", 20_000)] {
        let expected = KeyCall {
            window: WindowSize::from_millis(MINUTE),
            algorithm: Algorithm::Bucket,
            rate: Hits::from_thousandths(500),
            limit: Some(Hits::from_thousandths(burst + 1000)),
            ..key_call(b"k")
        };
        let called = call("/namespaces/api/keys/k", query);
        assert_eq!(called, ApiCall::Key(expected), "{query}");
    }
    for path in ["/namespaces/api/keys", "/namespaces/api/keys/"] {
        assert_eq!(call(path, "x&key=%00%ffa+b%2B"), ApiCall::Key(key_call(b"\0\xffa b+")));
    }
    for (query, counter) in [("counter=login", Some("login")), ("counter=default", None)] {
        let expected = KeyCall { counter: counter.map(Into::into), ..key_call(b"k") };
        assert_eq!(call("/namespaces/api/keys/k", query), ApiCall::Key(expected));
    }
    let posted = request("POST", "/namespaces/api/keys/k", "").call();
    let increment = Some(Hits::ONE);
    let expected = KeyCall { increment, ..key_call(b"k") };
    assert_eq!(posted, Ok(ApiCall::Key(expected)));
}

#[test]
fn a_browser_gets_the_page_at_the_root() {
    let call = |method, path, accept: &'static str, may_write| {
        let accept = Some(accept.as_bytes());
        ApiRequest { accept, may_write, ..request(method, path, "") }.call()
    };
    for path in ["", "/"] {
        for may_write in [true, false] {
            assert_eq!(call("GET", path, "text/html", may_write), Ok(ApiCall::Page));
            let json = ApiCall::Overview(OverviewCall { has_all: false, may_write });
            assert_eq!(call("GET", path, "*/*", may_write), Ok(json.clone()));
            assert_eq!(call("HEAD", path, "application/json", may_write), Ok(json));
        }
        assert_eq!(call("POST", path, "text/html", true).unwrap_err().status, 405);
    }
    assert_eq!(call("GET", "/namespaces", "text/html", true), Ok(ApiCall::Namespaces));
}

#[test]
fn a_namespace_is_synced() {
    for path in ["/namespaces/api/sync", "/namespaces/api/sync/"] {
        let called = request("POST", path, "").call();
        assert_eq!(called, Ok(ApiCall::Sync(b"api".into())));
    }
}

#[test]
fn a_call_names_the_number_of_rejected_keys() {
    for (query, limit) in [("", 20), ("limit=5", 5), ("limit=0", 0)] {
        let called = request("GET", "/namespaces/api/top", query).call();
        assert_eq!(called, Ok(ApiCall::Top(b"api".into(), limit)));
    }
    for query in ["limit=", "limit=-1", "limit=1.5", "limit=+1", "limit=99999999999999999999"] {
        let error = request("GET", "/namespaces/api/top/", query).call().unwrap_err();
        assert_eq!(error.status, 400, "{query}");
    }
    let posted = request("POST", "/namespaces/api/top", "").call();
    assert_eq!(posted.unwrap_err().status, 405);
}

#[test]
fn a_reset_may_name_a_window_or_a_rate() {
    let (minute, bucket) = (WindowSize::from_millis(MINUTE), Algorithm::Bucket);
    for (query, window, algorithm) in [
        ("", None, None),
        ("window=1m", minute, None),
        ("window_type=sliding", None, Some(Algorithm::Sliding)),
        ("window=1m&window_type=moving", minute, Some(Algorithm::Moving)),
        ("rate=5/1m", minute, Some(bucket)),
    ] {
        let called = request("DELETE", "/namespaces/api/keys/k", query).call();
        let Ok(ApiCall::Reset(call)) = called else {
            panic!("{query}: {called:?}");
        };
        assert_eq!((call.read.window, call.algorithm), (window, algorithm));
        assert!(call.has_all_names);
        assert_eq!((&*call.read.key, call.read.increment), (&b"k"[..], None));
    }
}

#[test]
fn a_key_is_read_in_all_of_its_counters_on_request() {
    let call = |query: &str| request("GET", "/namespaces/api/keys/k", query).call();
    for (query, has_all_names) in [("all=1", true), ("all=1&counter=default", false)] {
        let Ok(ApiCall::Counters(counters)) = call(query) else {
            panic!("{query}");
        };
        assert_eq!(counters.has_all_names, has_all_names);
    }
    assert!(matches!(call("all=0"), Ok(ApiCall::Key(_))));
    assert_eq!(call("all=x").unwrap_err().status, 400);
}

#[test]
fn a_key_in_a_path_is_the_bytes_that_were_sent() {
    for (raw_path, path, key) in [
        ("/rl/namespaces/api/keys/a%2f%2Fb+", "a/b+", &b"a//b+"[..]),
        ("/rl/namespaces/api/keys//a/../b", "b", b"/a/../b"),
        ("/%72l/namespaces/a%70i/keys/%2e", ".", b"."),
        ("/rl/namespaces/api/keys/a/", "a/", b"a"),
        ("/rl/namespaces/api/keys/a%2F", "a/", b"a/"),
        ("/rl/namespaces/api/keys/a%2F/", "a/", b"a/"),
        // nginx removes these entirely.
        ("/rl/namespaces/api/keys/%2F", "", b"/"),
        ("/rl/namespaces/api/keys/%2f%2F", "", b"//"),
        ("/rl/namespaces/api/keys///", "", b"/"),
        ("/rl/namespaces/api/keys/.", "", b"."),
        ("/rl/namespaces/api/keys/%2E/", "", b"."),
        ("/rl/namespaces/api/keys/a/..", "", b"a/.."),
        ("/rl/namespaces/api/keys/x/keys/y", "x/keys/y", b"x/keys/y"),
        // The path was rewritten.
        ("/other/x%2f%2fy", "y", b"y"),
        // A slash inside the prefix is no separator.
        ("/rl/namespaces/api/keys%2f%41", "A", b"A"),
        ("/rl/namespaces/api/key%", "A", b"A"),
    ] {
        let path = format!("/namespaces/api/keys/{path}");
        let request = ApiRequest { raw_path: raw_path.as_bytes(), ..request("GET", &path, "") };
        assert_eq!(request.call(), Ok(ApiCall::Key(key_call(key))), "{raw_path}");
    }
}

#[test]
fn a_path_after_a_key_asks_for_its_explanation() {
    let explained = |raw_path: &str, path: &str, query: &str| {
        let (raw_path, path) = (format!("/rl{raw_path}"), path.to_owned());
        let request = ApiRequest { raw_path: raw_path.as_bytes(), ..request("GET", &path, query) };
        request.call()
    };
    for (raw, path, query, key) in [
        ("a/explain", "a/explain", "", &b"a"[..]),
        ("a/explain/", "a/explain/", "", b"a"),
        ("a%2Fb/explain", "a/b/explain", "", b"a/b"),
        ("%2F/explain", "explain", "", b"/"),
        ("explain", "explain", "key=a%00b", b"a\0b"),
    ] {
        let base = "/namespaces/api/keys/";
        let Ok(ApiCall::Explain(call)) =
            explained(&format!("{base}{raw}"), &format!("{base}{path}"), query)
        else {
            panic!("{raw}");
        };
        assert_eq!((&call.key[..], call.cost, call.has_all), (key, None, false), "{raw}");
    }
    // A key that ends so is encoded.
    let path = "/namespaces/api/keys/a/explain";
    let key = explained("/namespaces/api/keys/a%2Fexplain", path, "");
    assert_eq!(key, Ok(ApiCall::Key(key_call(b"a/explain"))));
    let key = explained("/namespaces/api/keys/explain", "/namespaces/api/keys/explain", "");
    assert_eq!(key, Ok(ApiCall::Key(key_call(b"explain"))));
    let Ok(ApiCall::Explain(call)) = explained(path, path, "cost=2&limit=1.5&all=1") else {
        panic!("it is an explanation");
    };
    assert_eq!((call.cost, call.limit), (Some(hits(2)), Some(Hits::from_thousandths(1500))));
    assert!(call.has_all);
    for (query, status) in [("key=b", 400), ("cost=x", 400), ("limit=-1", 400), ("all=2", 400)] {
        assert_eq!(explained(path, path, query).unwrap_err().status, status, "{query}");
    }
    assert_eq!(request("POST", path, "").call().unwrap_err().status, 405);
    let rules = request("GET", "/namespaces/api/rules/", "").call();
    assert_eq!(rules, Ok(ApiCall::Rules(b"api".into())));
}

#[test]
fn the_time_to_parse_a_path_is_linear() {
    // Reading everything once per part would take 10^13 steps.
    let parts = "/.".repeat(5 << 20);
    let raw_path = format!("/rl/namespaces/api/keys/k{parts}");
    let path = format!("/namespaces/api/keys/k{parts}");
    let request = |raw_path| ApiRequest { raw_path, ..request("GET", &path, "") };
    let key = format!("k{parts}");
    let expected = Ok(ApiCall::Key(key_call(key.as_bytes())));
    assert!(request(raw_path.as_bytes()).call() == expected);
    // The path was rewritten: the path as sent differs, and is not searched for this key.
    assert!(request(parts.as_bytes()).call() == expected);
}

#[test]
fn wrong_requests_are_errors() {
    for (method, path, query, status, message) in [
        ("GET", "/x", "", 404, "nothing here"),
        ("GET", "x", "", 404, "nothing here"),
        ("GET", "/health/x", "", 404, "nothing here"),
        ("GET", "/namespaces//", "", 404, "nothing here"),
        ("GET", "/namespaces/api//", "", 404, "nothing here"),
        ("GET", "/namespaces/api/sync/x", "", 404, "nothing here"),
        ("POST", "/", "", 405, "expected GET, HEAD"),
        ("POST", "/health", "", 405, "expected GET, HEAD"),
        ("DELETE", "/namespaces", "", 405, "expected GET, HEAD"),
        ("GET", "/namespaces/api/sync", "", 405, "expected POST"),
        ("PUT", "/namespaces/api/keys/k", "", 405, "POST, DELETE"),
        ("DELETE", "/namespaces/api/keys", "", 400, "no key"),
        ("GET", "/namespaces/api/keys", "", 400, "no key"),
        ("GET", "/namespaces/api/keys/", "", 400, "no key"),
        ("GET", "/namespaces/api/keys/k", "key=l", 400, "already"),
        ("GET", "/namespaces/api/keys", "key=a&key=b", 400, "duplicate"),
        ("GET", "/namespaces/api/keys", "key=%4", 400, "encoding"),
        ("GET", "/namespaces/api/keys", "key=%+1", 400, "encoding"),
        ("GET", "/namespaces/api/keys/k", "counter=a:b", 400, "of a counter"),
        ("GET", "/namespaces/api/keys/k", "window=0", 400, "\"window\""),
        (
            "GET",
            "/namespaces/api/keys/k",
            "window_type=x",
            400,
            "sliding, fixed, elastic or moving",
        ),
        (
            "GET",
            "/namespaces/api/keys/k",
            "window_type=rate",
            400,
            "sliding, fixed, elastic or moving",
        ),
        ("GET", "/namespaces/api/keys/k", "rate=10", 400, "\"rate\": expected hits and a time"),
        ("GET", "/namespaces/api/keys/k", "rate=$a/1s", 400, "\"rate\": expected"),
        ("GET", "/namespaces/api/keys/k", "rate=0/1s", 400, "\"rate\": expected"),
        ("GET", "/namespaces/api/keys/k", "burst=5", 400, "\"burst\": expected rate"),
        (
            "GET",
            "/namespaces/api/keys/k",
            "rate=1/1s&burst=-1",
            400,
            "\"burst\": expected a decimal",
        ),
        (
            "GET",
            "/namespaces/api/keys/k",
            "rate=1/1s&limit=5",
            400,
            "\"limit\": expected none beside rate",
        ),
        ("GET", "/namespaces/api/keys/k", "rate=1/1s&window=1", 400, "\"window\": expected none"),
        (
            "GET",
            "/namespaces/api/keys/k",
            "rate=1/1s&window_type=fixed",
            400,
            "\"window_type\": expected none",
        ),
        ("GET", "/namespaces/api/keys/k", "rate=1/1s&rate=1/1s", 400, "duplicate"),
        ("GET", "/namespaces/api/keys/k", "limit=-1", 400, "\"limit\""),
        ("POST", "/namespaces/api/keys/k", "value=x", 400, "\"value\""),
    ] {
        let error = request(method, path, query).call().unwrap_err();
        assert_eq!(error.status, status, "{method} {path} {query}: {error}");
        assert!(error.message.contains(message), "{path} {query}: {error}");
        assert_eq!(error.allow.is_some(), status == 405);
    }
    for (method, path) in [
        ("POST", "/namespaces/api/keys/k"),
        ("DELETE", "/namespaces/api/keys/k"),
        ("POST", "/namespaces/api/sync"),
    ] {
        let request = ApiRequest { may_write: false, ..request(method, path, "") };
        assert_eq!(request.call().unwrap_err().status, 403);
    }
    let elsewhere =
        Sender { host: b"a.example", origin: Some(b"http://b.example"), fetch_site: None };
    let from_elsewhere =
        |method| ApiRequest { sender: elsewhere, ..request(method, "/namespaces/api/keys/k", "") };
    assert_eq!(from_elsewhere("POST").call().unwrap_err().status, 403);
    assert!(from_elsewhere("GET").call().is_ok());
    let error = ApiError::new(400, "a \"b\"");
    assert_eq!(error.to_json(), r#"{"error":"a \"b\""}"#);
}
