//! The answer to a request for the most rejected keys.

use super::json::{json, object};
use crate::engine::Namespace;
use crate::policy::key::key_and_counter;
use crate::policy::window::Clock;

/// The default number of keys in an answer.
pub(super) const DEFAULT_TOP: usize = 20;

/// Answers [`ApiCall::Top`](super::ApiCall::Top) with the `limit` most rejected keys of `namespace`.
pub fn top(namespace: &Namespace<'_>, limit: usize, clock: &impl Clock) -> String {
    let top = namespace.table().top_rejected(namespace.index(), clock.now());
    let keys = top.keys.iter().take(limit).map(|rejected| {
        let (key, counter) = key_and_counter(&rejected.name);
        object! {
            key: encoded(key),
            counter: counter.map(encoded),
            rejected: rejected.count,
            error: rejected.error,
        }
    });
    json(&object! {
        keys: keys.collect::<Vec<_>>(),
        missed: top.missed,
        followed: top.followed,
    })
}

/// Encodes a key for use in a path, in a query, and in any text.
fn encoded(key: &[u8]) -> String {
    let one = |byte: &u8| match byte {
        b'%' | b'?' | b'#' | b'&' | b'+' | b'"' | b'\\' | b'\'' | b'`' => format!("%{byte:02X}"),
        0x21..=0x7e => char::from(*byte).into(),
        _ => format!("%{byte:02X}"),
    };
    key.iter().map(one).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::key::counted_name;
    use crate::policy::window::WindowSize;
    use crate::testing::table::{SharedTable, TestClock};

    #[test]
    fn rejected_keys_are_told_of_in_json() {
        let shared = SharedTable::new(1 << 20);
        let table = &shared.table;
        let namespace = Namespace::new("api", table).unwrap();
        let clock = TestClock::at(28_000_000 * 60_000);
        let counter = namespace.counter(WindowSize::MIN);
        let reject = |key: &[u8], name: Option<&str>| {
            let name = counted_name(key, name);
            table.count_rejected_key(&counter, table.key(&name), clock.now());
        };
        let empty = format!(r#"{{"keys":[],"missed":0,"followed":{}}}"#, 37);
        assert_eq!(top(&namespace, 20, &clock), empty);
        reject(b"2001:db8::/64", None);
        reject(b"2001:db8::/64", None);
        reject(b"a b%\xff\"", Some("login"));
        let body = top(&namespace, 20, &clock);
        let expected = concat!(
            r#"{"keys":[{"key":"2001:db8::/64","counter":null,"rejected":2,"error":0},"#,
            r#"{"key":"a%20b%25%FF%22","counter":"login","rejected":1,"error":0}],"#,
            r#""missed":0,"followed":37}"#,
        );
        assert_eq!(body, expected);
        let first = top(&namespace, 1, &clock);
        assert!(!first.contains("login"), "{first}");
        reject(&[b'x'; 201], None);
        let body = top(&namespace, 20, &clock);
        assert!(body.contains(r#""key":"sha256:84a0678c"#), "{body}");
    }
}
