//! The messages of etcd's JSON gateway, as far as they are used here: `rpc.proto` of etcd.
//!
//! Bytes are in base64, and 64-bit numbers in decimal strings. Fields with their default are left out.

use core::fmt::Display;
use core::str::FromStr;
use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// An operation of a transaction.
pub(super) type Op = Value;

/// Returns the comparison that the last change of `key` has this revision; zero for a key that does not exist.
pub(super) fn is_at(key: impl AsRef<[u8]>, revision: i64) -> Value {
    json!({ "key": STANDARD.encode(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision })
}

/// Reads a key.
pub(super) fn get(key: impl AsRef<[u8]>) -> Op {
    json!({ "request_range": { "key": STANDARD.encode(key) } })
}

/// Reads at most `limit` keys that begin with `prefix`, after the key `after`.
pub(super) fn page(prefix: impl AsRef<[u8]>, after: &[u8], limit: usize) -> Op {
    // No key is between one and the same with a zero byte.
    let key = STANDARD.encode([after, &[0]].concat());
    json!({ "request_range": { "key": key, "range_end": end_of(prefix), "limit": limit } })
}

/// Reads the names of all keys that begin with `prefix`.
pub(super) fn names(prefix: impl AsRef<[u8]>) -> Op {
    let key = STANDARD.encode(&prefix);
    json!({ "request_range": { "key": key, "range_end": end_of(prefix), "keys_only": true } })
}

/// Writes a value that ends with a lease; never if that is zero.
pub(super) fn put(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, lease: i64) -> Op {
    let (key, value) = (STANDARD.encode(key), STANDARD.encode(value));
    json!({ "request_put": { "key": key, "value": value, "lease": lease } })
}

/// Deletes a key.
pub(super) fn delete(key: impl AsRef<[u8]>) -> Op {
    json!({ "request_delete_range": { "key": STANDARD.encode(key) } })
}

/// Returns the first key after all that begin with `prefix`, which ends with a byte below 255.
fn end_of(prefix: impl AsRef<[u8]>) -> String {
    let mut end = prefix.as_ref().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    STANDARD.encode(end)
}

/// Returns the request to watch a key from a revision on.
pub(super) fn watch(key: &str, revision: i64) -> String {
    let create = json!({ "key": STANDARD.encode(key), "start_revision": revision });
    json!({ "create_request": create }).to_string()
}

/// Nests operations, since etcd allows only 128 in a transaction, a nested one and those around it together.
pub(super) fn nested(mut ops: Vec<Op>) -> Vec<Op> {
    /// Three levels of this number are allowed: 64,000 operations.
    const WIDTH: usize = 40;
    while ops.len() > WIDTH {
        let parts = ops.chunks(WIDTH);
        ops = parts.map(|part| json!({ "request_txn": { "success": part } })).collect();
    }
    ops
}

/// The answer to a transaction.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TxnAnswer {
    pub(super) header: AnswerHeader,
    pub(super) succeeded: bool,
    responses: Vec<OpAnswer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AnswerHeader {
    #[serde(deserialize_with = "number")]
    pub(super) revision: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OpAnswer {
    response_range: Option<KeyValues>,
    response_txn: Option<TxnAnswer>,
}

/// The keys in a range, in order.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyValues {
    pub(super) kvs: Vec<KeyValue>,
    /// Whether the limit left keys out.
    pub(super) more: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    #[serde(deserialize_with = "bytes")]
    pub(super) key: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    pub(super) value: Vec<u8>,
    #[serde(deserialize_with = "number")]
    pub(super) mod_revision: i64,
}

impl TxnAnswer {
    /// Returns the answers to the reads, in the order of the operations.
    pub(super) fn reads(self) -> Vec<KeyValues> {
        let mut reads = Vec::new();
        for OpAnswer { response_range, response_txn } in self.responses {
            reads.extend(response_range);
            reads.extend(response_txn.into_iter().flat_map(TxnAnswer::reads));
        }
        reads
    }
}

impl KeyValues {
    /// Returns the value of the only key; `None` if it does not exist.
    pub(super) fn value(&self) -> Option<&[u8]> {
        self.kvs.first().map(|it| &*it.value)
    }
}

/// A message of a watch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchAnswer {
    pub(super) result: WatchResult,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchResult {
    /// Whether the server ends the watch.
    pub(super) canceled: bool,
    pub(super) events: Vec<WatchEvent>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchEvent {
    pub(super) kv: KeyValue,
}

/// An error: a code of gRPC, and the server's words.
#[derive(Debug, Deserialize)]
pub(super) struct Problem {
    pub(super) code: u32,
    pub(super) message: String,
}

fn number<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = Cow::<str>::deserialize(deserializer)?;
    text.parse().map_err(D::Error::custom)
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = Cow::<str>::deserialize(deserializer)?;
    STANDARD.decode(&*text).map_err(D::Error::custom)
}
