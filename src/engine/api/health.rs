//! The health of a node's stores, for load balancers.

use super::json::{json, object};

/// The answer to [`ApiCall::Health`](super::ApiCall::Health).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The status of the response: 200, or 503 while a store is down.
    pub status: u16,
    /// Its body.
    pub body: String,
}

/// Returns the answer for a node; `down` has the names of its stores that are down.
pub fn health(down: &[&str]) -> Health {
    match down {
        [] => Health { status: 200, body: json(&object! { status: "ok" }) },
        stores => Health { status: 503, body: json(&object! { status: "down", stores: stores }) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_that_are_down_are_named() {
        for (down, status, body) in [
            (&[][..], 200, r#"{"status":"ok"}"#),
            (&["main", "other"], 503, r#"{"status":"down","stores":["main","other"]}"#),
        ] {
            let body = body.to_owned();
            assert_eq!(health(down), Health { status, body });
        }
    }
}
