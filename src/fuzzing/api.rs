//! Calls of the API, as clients may send them.
//!
//! An input has a call on each line: the method, the path and query as sent, and perhaps the path after nginx has decoded it,
//! and the headers `Accept`, `Origin` and `Sec-Fetch-Site`, separated by spaces. An answer is always JSON, with a status
//! that the API documents. A key that was reset has no hits.

use serde_json::Value;

use super::T;
use crate::conf::listed::{ListedLimit, ListedRule};
use crate::conf::words::settings::Phase;
use crate::engine::Deciders;
use crate::engine::Namespace;
use crate::engine::api::{self, ApiCall, ApiError, ApiRequest, Counting, PAGE, Sender, StoreCall};
use crate::engine::api::{Overview, OverviewDetail};
use crate::engine::report::status::testing::status;
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::{Hits, hits};
use crate::policy::limit::Limit;
use crate::policy::namespace::{OnError, SyncMode};
use crate::policy::window::{Clock as _, WindowSize};
use crate::testing::table::{SharedTable, TestClock};

/// The path of the API's location.
const PREFIX: &[u8] = b"/rl";

/// Answers calls, one after another.
pub fn run(data: &[u8]) {
    let shared = SharedTable::new(16 * 4096);
    let clock = TestClock::at(T);
    let local = Namespace::new("api", &shared.table).unwrap();
    let synchronous = Namespace::new("exact", &shared.table).unwrap().synced(1).unwrap();
    for line in data.split(|byte| *byte == b'\n').take(32) {
        clock.set(clock.now().0 + 700);
        let mut words = line.split(|byte| *byte == b' ');
        let mut word = || words.next().unwrap_or_default();
        let (method, target, decoded) = (word(), word(), word());
        let (accept, origin, fetch_site) = (word(), word(), word());
        let (raw_path, query) = match target.iter().position(|byte| *byte == b'?') {
            Some(at) => (&target[..at], &target[at + 1..]),
            None => (target, &b""[..]),
        };
        let path = if decoded.is_empty() { raw_path } else { decoded };
        let request = ApiRequest {
            method,
            path: path.strip_prefix(PREFIX).unwrap_or(path),
            raw_path,
            prefix: PREFIX,
            query,
            accept: Some(accept).filter(|it| !it.is_empty()),
            may_write: method.len() != 7,
            sender: Sender {
                host: b"a.example",
                origin: Some(origin).filter(|it| !it.is_empty()),
                fetch_site: Some(fetch_site).filter(|it| !it.is_empty()),
            },
        };
        let answer = request.call().and_then(|call| answer(&call, [&local, &synchronous], &clock));
        check(answer);
    }
}

/// Checks that an answer is JSON with a documented status.
fn check(answer: Result<Option<String>, ApiError>) {
    match answer {
        Ok(None) => {}
        Ok(Some(body)) => {
            let value: Result<Value, _> = serde_json::from_str(&body);
            assert!(value.is_ok_and(|it| it.is_object()), "{body}");
        }
        Err(error) => {
            assert!([400, 403, 404, 405, 503].contains(&error.status), "{error:?}");
            assert_eq!(error.allow.is_some(), error.status == 405, "{error:?}");
            let value: Value = serde_json::from_str(&error.to_json()).expect("JSON");
            assert_eq!(value["error"], *error.message, "{error:?}");
        }
    }
}

fn settings(sync: SyncMode, sizes: &[WindowSize]) -> Counting<'_> {
    Counting {
        sync,
        store: None,
        sizes,
        rates: &[],
        counters: &[],
        is_open: sync == SyncMode::Local,
    }
}

fn rules() -> [ListedRule; 1] {
    let size = WindowSize::from_millis(60_000).unwrap();
    [ListedRule {
        namespace: 0,
        place: "nginx.conf:31".into(),
        key: b"$remote_addr\xff"[..].into(),
        counter: None,
        cost: Some(Hits::ONE),
        limits: [Algorithm::Sliding, Algorithm::Moving, Algorithm::Elastic]
            .map(|it| ListedLimit {
                limit: Limit::in_windows("api", size, it),
                hits: Some(hits(5)),
            })
            .into(),
        phase: Phase::Preaccess,
        is_dry_run: false,
        ban: None,
    }]
}

/// Returns the answer to a call, as the shell does; `None` for the page.
fn answer(
    call: &ApiCall,
    namespaces: [&Namespace<'_>; 2],
    clock: &TestClock,
) -> Result<Option<String>, ApiError> {
    let sizes = [1000, 60_000].map(|millis| WindowSize::from_millis(millis).unwrap());
    let rules = rules();
    let find = |name: &[u8]| {
        let found = namespaces.iter().position(|it| it.name().as_bytes() == name);
        let modes = [SyncMode::Local, SyncMode::Synchronous];
        let found = found.ok_or_else(api::no_namespace)?;
        Ok((namespaces[found], settings(modes[found], &sizes)))
    };
    let body = match call {
        ApiCall::Page => {
            assert!(PAGE.iter().any(|piece| !piece.is_empty()));
            return Ok(None);
        }
        ApiCall::Overview(overview) => {
            let detail = OverviewDetail { now: clock.now(), may_write: overview.may_write };
            Overview::new(status(), overview.has_all.then_some(detail)).collect()
        }
        ApiCall::Health => {
            let health = api::health(&[]);
            assert_eq!(health.status, 200);
            health.body
        }
        ApiCall::Namespaces => api::namespaces(namespaces.iter().map(|it| &**it.name())).collect(),
        ApiCall::Namespace(name) => {
            let status = status();
            let found = status.namespaces.iter().find(|it| it.name.as_bytes() == name);
            api::namespace(found.ok_or_else(api::no_namespace)?)
        }
        ApiCall::Rules(name) => {
            find(name)?;
            api::rules(rules.iter()).collect()
        }
        ApiCall::Explain(explain) => {
            let (namespace, _) = find(&explain.namespace)?;
            api::explain(explain.clone(), namespace, rules.iter(), clock)?.collect()
        }
        ApiCall::Key(key) => {
            let (namespace, counting) = find(&key.namespace)?;
            match StoreCall::new(call, namespace, &counting)? {
                Some(asked) => without_store(&asked, clock)?,
                None => api::key(key, namespace, &counting, clock)?,
            }
        }
        ApiCall::Reset(reset) => {
            let (namespace, counting) = find(&reset.read.namespace)?;
            match StoreCall::new(call, namespace, &counting)? {
                Some(asked) => without_store(&asked, clock)?,
                None => {
                    let body = api::reset(reset, namespace, &counting, clock)?;
                    let left = api::counters(reset, namespace, &counting, clock)?;
                    assert_eq!(left, r#"{"counters":[]}"#, "after a reset");
                    body
                }
            }
        }
        ApiCall::Counters(counters) => {
            let (namespace, counting) = find(&counters.read.namespace)?;
            api::counters(counters, namespace, &counting, clock)?
        }
        ApiCall::Bans(name, limit) => {
            let (namespace, _) = find(name)?;
            api::bans(namespace, *limit, rules.iter(), clock).collect()
        }
        ApiCall::Lift(name, key) => {
            let (namespace, _) = find(name)?;
            api::lift(key, namespace, rules.iter(), clock)?
        }
        ApiCall::Top(name, limit) => {
            let (namespace, _) = find(name)?;
            api::top(namespace, *limit, rules.iter(), clock).collect()
        }
        ApiCall::Sync(name) => {
            find(name)?;
            let (status, body) = api::synced(None);
            assert_eq!(status, 503);
            body
        }
    };
    Ok(Some(body))
}

/// Answers a call whose store is away.
fn without_store(call: &StoreCall<'_, '_>, clock: &TestClock) -> Result<String, ApiError> {
    let store = Deciders { first: 0, shards: 1 };
    let question = call.question(store);
    assert!(
        question.is_none_or(|(decider, question)| decider == 0 && !question.counters.is_empty())
    );
    call.without_store(store, OnError::Local, clock, |_, _| {})
}
