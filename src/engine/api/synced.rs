//! The answer to a request for a sync of a namespace.

use super::error::ApiError;
use super::json::{json, object};
use crate::engine::Report;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_told_of_when_it_is_done() {
        let report = Report { pushed: 3, fetched: 2, clock_offset: 0, is_part: false };
        let body = r#"{"status":"ok","pushed_keys":3,"fetched_keys":2}"#;
        assert_eq!(synced(Some(report)), (200, body.into()));
        let (status, body) = synced(None);
        assert_eq!(status, 503);
        assert!(body.starts_with(r#"{"error":"the store has not"#), "{body}");
    }
}
