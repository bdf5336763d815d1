//! The answers about namespaces: the names of all, the state of one, and its sync.

use serde::Serialize;

use super::json::{ApiError, Thousandths, WindowBody, json, object};
use super::list::ListBody;
use crate::engine::Report;
use crate::engine::report::status::NamespaceStatus;
use crate::policy::namespace::SyncMode;

/// Answers [`ApiCall::Namespaces`](super::ApiCall::Namespaces) with these names.
pub fn namespaces<'n>(
    names: impl Iterator<Item = &'n str>,
) -> ListBody<impl Iterator<Item = Option<String>>> {
    ListBody::new("namespaces", names.map(|name| Some(json(&name))))
}

/// Answers [`ApiCall::Namespace`](super::ApiCall::Namespace).
pub fn namespace(namespace: &NamespaceStatus<'_>) -> String {
    #[derive(Serialize)]
    #[serde(untagged)]
    enum RateBody {
        Off(&'static str),
        Seconds(Thousandths),
    }
    let NamespaceStatus { stats, syncs, .. } = namespace;
    let [passed, rejected, rejected_dry_run] = stats.outcomes;
    let last = syncs.and_then(|it| it.last());
    json(&object! {
        name: namespace.name,
        zone: namespace.zone,
        store: namespace.store,
        sync_rate: match namespace.sync {
            SyncMode::Local => RateBody::Off("off"),
            SyncMode::Synchronous => RateBody::Seconds(Thousandths(0)),
            SyncMode::Periodic(period) => {
                let millis = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
                RateBody::Seconds(Thousandths::of(millis))
            }
        },
        window_sizes: namespace.sizes.iter().copied().map(WindowBody).collect::<Vec<_>>(),
        keys: stats.keys(),
        hits: Thousandths((stats.hits as i64).max(0)),
        requests: object! {
            passed: passed,
            rejected: rejected,
            rejected_dry_run: rejected_dry_run,
            error: stats.error(),
        },
        // Without a sync, all of its members are null.
        sync: object! {
            last_at: last.map(Thousandths::from),
            last_result: syncs.and_then(|it| it.is_up()).map(|it| if it { "ok" } else { "error" }),
            duration: last.and(*syncs).map(|it| Thousandths::of(it.duration)),
            pushed_keys: syncs.map(|it| it.pushed),
            fetched_keys: syncs.map(|it| it.fetched),
            pending_keys: namespace.pending,
            dropped_hits: syncs.map(|_| Thousandths::of(stats.dropped)),
            excess_hits: syncs.map(|_| Thousandths::of(stats.excess)),
            lease_pid: syncs.and_then(|it| it.holder),
            nodes: namespace.nodes,
            last_success: syncs.and_then(|it| it.last_success).map(Thousandths::from),
        },
        clock_offset: syncs
            .filter(|it| it.last_success.is_some())
            .map(|it| Thousandths(it.clock_offset)),
    })
}

/// Returns the status and the body of the answer after a sync; `None` if it failed or did not end in time.
pub fn synced(report: Option<Report>) -> (u16, String) {
    match report {
        Some(report) => {
            let body = object! {
                status: "ok",
                pushed_keys: report.pushed,
                fetched_keys: report.fetched,
            };
            (200, json(&body))
        }
        None => {
            let message =
                "the store has not answered in time: what is pending goes with a later sync";
            let error = ApiError::new(503, message);
            (error.status, error.to_json())
        }
    }
}

/// Returns the 400 for a namespace without a store.
pub fn no_store() -> ApiError {
    let message = "the namespace is not synced: expected one with a store and a sync_rate";
    ApiError::new(400, message)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::engine::api::Overview;
    use crate::engine::report::status::testing::status;

    #[test]
    fn a_node_is_reported_in_json() {
        let status = status();
        assert_eq!(
            Overview::new(status.clone(), None).collect::<String>(),
            concat!(
                r#"{"version":""#,
                env!("CARGO_PKG_VERSION"),
                r#"","zones":[{"name":"counters","size":1048576,"keys":4,"#,
                r#""evicted":{"ended":1,"sent":2,"unsent":3}}],"namespaces":["#,
                r#"{"name":"local","zone":"counters","store":null},"#,
                r#"{"name":"api","zone":"counters","store":"main"},"#,
                r#"{"name":"new","zone":"counters","store":"main"},"#,
                r#"{"name":"exact","zone":"counters","store":null}],"stores":["#,
                r#"{"name":"main","strategy":"redis","up":true,"clock_offset":-1.5},"#,
                r#"{"name":"unused","strategy":"redis","up":null,"clock_offset":null}]}"#
            )
        );
        assert_eq!(
            namespace(&status.namespaces[1]),
            concat!(
                r#"{"name":"api","zone":"counters","store":"main","sync_rate":0.5,"#,
                r#""window_sizes":[0.001],"keys":2,"hits":4.25,"#,
                r#""requests":{"passed":3,"rejected":2,"rejected_dry_run":1,"error":6},"#,
                r#""sync":{"last_at":1700000000.25,"last_result":"ok","duration":0.012,"#,
                r#""pushed_keys":7,"fetched_keys":8,"pending_keys":5,"#,
                r#""dropped_hits":1.5,"excess_hits":2.5,"lease_pid":4711,"nodes":3,"#,
                r#""last_success":1700000000.25},"clock_offset":-1.5}"#
            )
        );
        let local = namespace(&status.namespaces[0]);
        assert!(local.contains(r#""sync_rate":"off""#), "{local}");
        assert!(local.contains(r#""last_at":null"#), "{local}");
    }

    #[test]
    fn a_sync_is_reported_when_it_has_ended() {
        let report = Report { pushed: 3, fetched: 2, clock_offset: 0, is_part: false };
        let body = r#"{"status":"ok","pushed_keys":3,"fetched_keys":2}"#;
        assert_eq!(synced(Some(report)), (200, body.into()));
        let (status, body) = synced(None);
        assert_eq!(status, 503);
        assert!(body.starts_with(r#"{"error":"the store has not"#), "{body}");
    }
}
