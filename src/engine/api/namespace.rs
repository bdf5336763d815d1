//! The answer to a request for the state of a namespace.

use serde::Serialize;

use super::json::{Thousandths, json};
use crate::engine::report::status::NamespaceStatus;
use crate::policy::namespace::SyncMode;
use crate::policy::window::WindowSize;

/// Answers [`ApiCall::Namespace`](super::ApiCall::Namespace) for a namespace that counts in windows of `sizes`.
pub fn namespace(namespace: &NamespaceStatus<'_>, sizes: &[WindowSize]) -> String {
    #[derive(Serialize)]
    struct NamespaceBody<'a> {
        name: &'a str,
        zone: &'a str,
        store: Option<&'a str>,
        sync_rate: RateBody,
        window_sizes: Vec<Thousandths>,
        keys: u64,
        hits: Thousandths,
        requests: RequestsBody,
        sync: SyncsBody,
        clock_offset: Option<Thousandths>,
    }
    #[derive(Serialize)]
    #[serde(untagged)]
    enum RateBody {
        Off(&'static str),
        Seconds(Thousandths),
    }
    #[derive(Serialize)]
    struct RequestsBody {
        passed: u64,
        rejected: u64,
        rejected_dry_run: u64,
        error: u64,
    }
    #[derive(Default, Serialize)]
    struct SyncsBody {
        last_at: Option<Thousandths>,
        last_result: Option<&'static str>,
        duration: Option<Thousandths>,
        pushed_keys: Option<u64>,
        fetched_keys: Option<u64>,
        pending_keys: Option<u64>,
        dropped_hits: Option<Thousandths>,
        excess_hits: Option<Thousandths>,
        lease_pid: Option<u32>,
        nodes: Option<u64>,
    }
    let &NamespaceStatus { name, zone, store, stats, syncs, pending, .. } = namespace;
    let sync = syncs.map_or_else(SyncsBody::default, |syncs| SyncsBody {
        last_at: syncs.last().map(Thousandths::from),
        last_result: syncs.is_up().map(|is_up| if is_up { "ok" } else { "error" }),
        duration: syncs.last().map(|_| Thousandths::of(syncs.duration)),
        pushed_keys: Some(syncs.pushed),
        fetched_keys: Some(syncs.fetched),
        pending_keys: pending,
        dropped_hits: Some(Thousandths::of(stats.dropped)),
        excess_hits: Some(Thousandths::of(stats.excess)),
        lease_pid: syncs.holder,
        nodes: namespace.nodes,
    });
    let [passed, rejected, rejected_dry_run] = stats.outcomes;
    let offset = |syncs: crate::table::SyncStats| {
        let is_known = syncs.last_success.is_some();
        is_known.then_some(Thousandths(syncs.clock_offset))
    };
    let sizes = sizes.iter();
    json(&NamespaceBody {
        name,
        zone,
        store,
        sync_rate: match namespace.sync {
            SyncMode::Local => RateBody::Off("off"),
            SyncMode::Synchronous => RateBody::Seconds(Thousandths(0)),
            SyncMode::Periodic(period) => {
                let millis = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
                RateBody::Seconds(Thousandths::of(millis))
            }
        },
        window_sizes: sizes.map(|size| Thousandths::of(size.millis())).collect(),
        keys: stats.keys(),
        hits: Thousandths((stats.hits as i64).max(0)),
        requests: RequestsBody { passed, rejected, rejected_dry_run, error: stats.error() },
        sync,
        clock_offset: syncs.and_then(offset),
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::engine::api::Overview;
    use crate::engine::report::status::testing::status;

    const MINUTE: u64 = 60_000;

    #[test]
    fn a_node_is_told_of_in_json() {
        let status = status();
        let sizes = [500, MINUTE].map(|millis| WindowSize::from_millis(millis).unwrap());
        assert_eq!(
            Overview::new(status.clone()).collect::<String>(),
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
            namespace(&status.namespaces[1], &sizes),
            concat!(
                r#"{"name":"api","zone":"counters","store":"main","sync_rate":0.5,"#,
                r#""window_sizes":[0.5,60],"keys":2,"hits":4.25,"#,
                r#""requests":{"passed":3,"rejected":2,"rejected_dry_run":1,"error":6},"#,
                r#""sync":{"last_at":1700000000.25,"last_result":"ok","duration":0.012,"#,
                r#""pushed_keys":7,"fetched_keys":8,"pending_keys":5,"#,
                r#""dropped_hits":1.5,"excess_hits":2.5,"lease_pid":4711,"nodes":3},"clock_offset":-1.5}"#
            )
        );
        let local = namespace(&status.namespaces[0], &[]);
        assert!(local.contains(r#""sync_rate":"off""#), "{local}");
        assert!(local.contains(r#""last_at":null"#), "{local}");
    }
}
