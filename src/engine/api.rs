//! The API: what a request asks for, and what it is answered, in JSON.

use core::fmt;

use serde::{Serialize, Serializer};

use super::status::{NamespaceStatus, Status};
use super::{Namespace, RateLimiting, RateLimitingError};
use crate::policy::algorithm::{Algorithm, ParseAlgorithmError, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::namespace::SyncMode;
use crate::policy::namespace::valid_name;
use crate::policy::window::{Clock, UnixMillis, WindowSize};

/// The media type of all answers.
pub const MEDIA_TYPE: &str = "application/json";

/// A request, as it came.
#[derive(Clone, Copy, Debug)]
pub struct ApiRequest<'r> {
    /// The method, such as `GET`.
    pub method: &'r [u8],
    /// The path below that of the API, decoded; it is empty or begins with a slash.
    pub path: &'r [u8],
    /// The whole path, neither decoded nor normalized.
    pub raw_path: &'r [u8],
    /// The part of the decoded path that leads to the API.
    pub prefix: &'r [u8],
    /// What follows the question mark.
    pub query: &'r [u8],
    /// Whether requests may change counters.
    pub may_write: bool,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// What there is.
    Overview,
    /// The namespace of this name.
    Namespace(Vec<u8>),
    /// A counter.
    Key(KeyCall),
}

/// A counter that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyCall {
    /// The name of the namespace.
    pub namespace: Vec<u8>,
    /// The key.
    pub key: Vec<u8>,
    /// The name of the counter; `None`: the one that is shared.
    pub counter: Option<String>,
    /// The window; `None`: the only one of the namespace.
    pub window: Option<WindowSize>,
    /// How the window is read.
    pub algorithm: Algorithm,
    /// What `remaining` is reckoned from.
    pub limit: Option<Hits>,
    /// Hits that are counted before the counter is read.
    pub increment: Option<Hits>,
}

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The status of the response.
    pub status: u16,
    /// The methods that the path has, if the method is the reason.
    pub allow: Option<&'static str>,
    /// What is wrong.
    pub message: String,
}

impl ApiError {
    fn new(status: u16, message: impl Into<String>) -> ApiError {
        ApiError {
            status,
            allow: None,
            message: message.into(),
        }
    }

    /// The body of the response.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Body<'a> {
            error: &'a str,
        }
        let error = &self.message;
        json(&Body { error })
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for ApiError {}

/// What a path names.
enum Resource {
    Overview,
    Namespace(Vec<u8>),
    /// The key, if the path has it.
    Keys(Vec<u8>, Option<Vec<u8>>),
    Sync,
}

impl ApiRequest<'_> {
    /// What the request asks for.
    ///
    /// # Errors
    ///
    /// 404 if the path names nothing, 405 for a method that it has not, 403 for one that writes
    /// where that is off, 501 for what this version lacks, 400 for wrong parameters.
    pub fn call(&self) -> Result<Call, ApiError> {
        let resource = self.resource();
        let resource = resource.ok_or_else(|| ApiError::new(404, "there is nothing here"))?;
        let allow = match resource {
            Resource::Overview | Resource::Namespace(_) => "GET, HEAD",
            Resource::Keys(..) => "GET, HEAD, POST, DELETE",
            Resource::Sync => "POST",
        };
        let mut methods = allow.split(", ");
        if !methods.any(|method| method.as_bytes() == self.method) {
            return Err(ApiError {
                allow: Some(allow),
                ..ApiError::new(405, format!("the method is not allowed: expected {allow}"))
            });
        }
        let is_read = matches!(self.method, b"GET" | b"HEAD");
        if !is_read && !self.may_write {
            let message = "this API is read-only: expected \"ratelimit_api write=on\"";
            return Err(ApiError::new(403, message));
        }
        match resource {
            Resource::Overview => Ok(Call::Overview),
            Resource::Namespace(name) => Ok(Call::Namespace(name)),
            Resource::Keys(..) if self.method == b"DELETE" => Err(ApiError::new(
                501,
                "DELETE is not supported by this version",
            )),
            Resource::Keys(namespace, key) => self.key_call(namespace, key).map(Call::Key),
            Resource::Sync => Err(ApiError::new(501, "sync is not supported by this version")),
        }
    }

    fn resource(&self) -> Option<Resource> {
        if matches!(self.path, b"" | b"/") {
            return Some(Resource::Overview);
        }
        let rest = self.path.strip_prefix(b"/namespaces/")?;
        let mut parts = rest.splitn(3, |&byte| byte == b'/');
        let name = parts.next().filter(|name| !name.is_empty())?.to_vec();
        match (parts.next(), parts.next()) {
            (None, _) | (Some(b""), None) => Some(Resource::Namespace(name)),
            (Some(b"keys"), None | Some(b"")) => Some(Resource::Keys(name, None)),
            (Some(b"keys"), Some(key)) => {
                // nginx makes one slash of two: the bytes are those that the client sent, unless
                // the path was rewritten.
                let before = self.prefix.len().saturating_add(self.path.len());
                let before = before.saturating_sub(key.len());
                let path = [self.prefix, self.path].concat();
                let raw = self.raw_key(path.get(..before).unwrap_or_default());
                Some(Resource::Keys(
                    name,
                    Some(raw.unwrap_or_else(|| key.to_vec())),
                ))
            }
            (Some(b"sync"), None | Some(b"")) => Some(Resource::Sync),
            _ => None,
        }
    }

    /// What follows `before`, which ends with a slash, in the path that was sent; `None` if that is
    /// another one.
    fn raw_key(&self, before: &[u8]) -> Option<Vec<u8>> {
        // Each byte is looked at once: a client chooses how many there are.
        let mut rest = self.raw_path;
        let mut is_slash = false;
        for expected in before {
            is_slash = rest.first() == Some(&b'/');
            let byte;
            (byte, rest) = decode_one(rest, false).ok()??;
            if byte != *expected {
                return None;
            }
        }
        // One that was sent as `%2F` ends no part of a path.
        is_slash.then(|| decode(rest, false).ok()).flatten()
    }

    fn key_call(&self, namespace: Vec<u8>, key: Option<Vec<u8>>) -> Result<KeyCall, ApiError> {
        let wrong = |name: &str, expected: &dyn fmt::Display| {
            ApiError::new(400, format!("invalid parameter \"{name}\": {expected}"))
        };
        let key = match (key, self.parameter("key")?) {
            (Some(_), Some(_)) => {
                return Err(wrong("key", &"the path has a key already"));
            }
            (Some(key), None) | (None, Some(key)) => key,
            (None, None) => {
                let message = "no key: expected .../keys/{key} or .../keys?key={key}";
                return Err(ApiError::new(400, message));
            }
        };
        let counter = match self.parameter("counter")?.as_deref() {
            None | Some(b"default") => None,
            Some(name) => {
                let name = valid_name("counter", name);
                Some(name.map_err(|error| wrong("counter", &error))?.into())
            }
        };
        let window = match self.parameter("window")? {
            Some(text) => Some(WindowSize::parse(&text).map_err(|error| wrong("window", &error))?),
            None => None,
        };
        let algorithm = match self.parameter("window_type")? {
            None => Algorithm::default(),
            Some(name) => Algorithm::parse(&name).map_err(|error| match error {
                ParseAlgorithmError::NotHere => {
                    let message = format!("not supported by this version: {error}");
                    wrong("window_type", &message)
                }
                ParseAlgorithmError::Unknown => wrong("window_type", &error),
            })?,
        };
        let hits = |name: &str| {
            let text = self.parameter(name)?;
            let hits = text.map(|text| Hits::parse(&text)).transpose();
            hits.map_err(|error| wrong(name, &format_args!("expected a decimal ({error})")))
        };
        let limit = hits("limit")?;
        let increment = match self.method {
            b"POST" => Some(hits("value")?.unwrap_or(Hits::ONE)),
            _ => None,
        };
        Ok(KeyCall {
            namespace,
            key,
            counter,
            window,
            algorithm,
            limit,
            increment,
        })
    }

    /// The value of a parameter of the query, decoded.
    fn parameter(&self, name: &str) -> Result<Option<Vec<u8>>, ApiError> {
        let mut found = None;
        for part in self.query.split(|&byte| byte == b'&') {
            let mut halves = part.splitn(2, |&byte| byte == b'=');
            if halves.next() != Some(name.as_bytes()) {
                continue;
            }
            let value = decode(halves.next().unwrap_or_default(), true)?;
            if found.replace(value).is_some() {
                let message = format!("parameter \"{name}\" is duplicate: expected it once");
                return Err(ApiError::new(400, message));
            }
        }
        Ok(found)
    }
}

/// Decodes `%xx`, and in a query `+`, which is a space in forms.
fn decode(text: &[u8], is_query: bool) -> Result<Vec<u8>, ApiError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = decode_one(rest, is_query)? {
        decoded.push(byte);
        rest = after;
    }
    Ok(decoded)
}

/// Decodes the first byte, and returns it with the text after it; `None`: there is none.
fn decode_one(text: &[u8], is_query: bool) -> Result<Option<(u8, &[u8])>, ApiError> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    match text {
        [] => Ok(None),
        [b'%', high, low, rest @ ..] => match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => Ok(Some(((high << 4 | low) as u8, rest))),
            _ => Err(bad_encoding()),
        },
        [b'%', ..] => Err(bad_encoding()),
        [b'+', rest @ ..] if is_query => Ok(Some((b' ', rest))),
        [byte, rest @ ..] => Ok(Some((*byte, rest))),
    }
}

fn bad_encoding() -> ApiError {
    ApiError::new(
        400,
        "invalid encoding: expected two hexadecimal digits after every \"%\"",
    )
}

/// A number with up to three decimals: thousandths. Whole ones are written without a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Thousandths(i64);

impl Thousandths {
    fn of(millis: u64) -> Thousandths {
        Thousandths(i64::try_from(millis).unwrap_or(i64::MAX))
    }
}

impl From<Hits> for Thousandths {
    fn from(hits: Hits) -> Self {
        Thousandths(hits.thousandths())
    }
}

impl From<UnixMillis> for Thousandths {
    fn from(time: UnixMillis) -> Self {
        Thousandths::of(time.0)
    }
}

impl Serialize for Thousandths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 % 1000 {
            0 => serializer.serialize_i64(self.0 / 1000),
            // Exact to the thousandth: there are far less than 2^53 of them.
            _ => serializer.serialize_f64(self.0 as f64 / 1000.0),
        }
    }
}

/// What is written has names and numbers only, so that it can be.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The answer to [`Call::Overview`], in pieces that are written in a bounded time each.
#[derive(Debug)]
pub struct Overview<'c> {
    status: Status<'c>,
    /// How many namespaces were told of; `None` before the first piece.
    told: Option<usize>,
}

impl<'c> Overview<'c> {
    /// How many namespaces a piece tells of.
    const NAMES: usize = 64;

    /// That of a node.
    pub fn new(status: Status<'c>) -> Overview<'c> {
        Overview { status, told: None }
    }

    fn before_names(&self) -> String {
        #[derive(Serialize)]
        struct Zone<'a> {
            name: &'a str,
            size: usize,
            keys: u64,
            evicted: Evicted,
        }
        #[derive(Serialize)]
        struct Evicted {
            ended: u64,
            sent: u64,
            unsent: u64,
        }
        let zones = self.status.zones.iter().map(|zone| Zone {
            name: zone.name,
            size: zone.size,
            keys: zone.keys,
            evicted: Evicted {
                ended: zone.stats.evicted_ended,
                sent: zone.stats.evicted_sent,
                unsent: zone.stats.evicted_unsent,
            },
        });
        let (version, zones) = (env!("CARGO_PKG_VERSION"), json(&zones.collect::<Vec<_>>()));
        format!("{{\"version\":\"{version}\",\"zones\":{zones},\"namespaces\":[")
    }

    fn names_after(&self, told: usize) -> String {
        #[derive(Serialize)]
        struct Name<'a> {
            name: &'a str,
            zone: &'a str,
            store: Option<&'a str>,
        }
        let mut text = String::new();
        let namespaces = self.status.namespaces.iter().enumerate();
        for (index, namespace) in namespaces.skip(told).take(Self::NAMES) {
            if index > 0 {
                text.push(',');
            }
            let &NamespaceStatus {
                name, zone, store, ..
            } = namespace;
            text.push_str(&json(&Name { name, zone, store }));
        }
        text
    }

    fn after_names(&self) -> String {
        #[derive(Serialize)]
        struct Store<'a> {
            name: &'a str,
            strategy: &'a str,
            up: Option<bool>,
            clock_offset: Option<Thousandths>,
        }
        let stores = self.status.stores.iter().map(|store| Store {
            name: store.name,
            strategy: store.strategy,
            up: store.is_up,
            clock_offset: store.clock_offset().map(Thousandths),
        });
        format!("],\"stores\":{}}}", json(&stores.collect::<Vec<_>>()))
    }
}

impl Iterator for Overview<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let names = self.status.namespaces.len();
        let (piece, told) = match self.told {
            None => (self.before_names(), 0),
            Some(told) if told < names => {
                let next = told.saturating_add(Self::NAMES).min(names);
                (self.names_after(told), next)
            }
            Some(told) if told == names => (self.after_names(), usize::MAX),
            Some(_) => return None,
        };
        self.told = Some(told);
        Some(piece)
    }
}

/// Answers [`Call::Namespace`] for one that counts in windows of `sizes`.
pub fn namespace(namespace: &NamespaceStatus<'_>, sizes: &[WindowSize]) -> String {
    #[derive(Serialize)]
    struct Body<'a> {
        name: &'a str,
        zone: &'a str,
        store: Option<&'a str>,
        sync_rate: Rate,
        window_sizes: Vec<Thousandths>,
        keys: u64,
        hits: Thousandths,
        requests: Requests,
        sync: Syncs,
        clock_offset: Option<Thousandths>,
    }
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Rate {
        Off(&'static str),
        Seconds(Thousandths),
    }
    #[derive(Serialize)]
    struct Requests {
        passed: u64,
        rejected: u64,
        rejected_dry_run: u64,
        error: u64,
    }
    #[derive(Default, Serialize)]
    struct Syncs {
        last_at: Option<Thousandths>,
        last_result: Option<&'static str>,
        duration: Option<Thousandths>,
        pushed_keys: Option<u64>,
        fetched_keys: Option<u64>,
        pending_keys: Option<u64>,
        dropped_hits: Option<Thousandths>,
        lease_pid: Option<u32>,
    }
    let &NamespaceStatus {
        name,
        zone,
        store,
        stats,
        syncs,
        pending,
        ..
    } = namespace;
    let sync = syncs.map_or_else(Syncs::default, |syncs| Syncs {
        last_at: syncs.last().map(Thousandths::from),
        last_result: syncs
            .is_up()
            .map(|is_up| if is_up { "ok" } else { "error" }),
        duration: syncs.last().map(|_| Thousandths::of(syncs.duration)),
        pushed_keys: Some(syncs.pushed),
        fetched_keys: Some(syncs.fetched),
        pending_keys: pending,
        dropped_hits: Some(Thousandths::of(stats.dropped)),
        lease_pid: syncs.holder,
    });
    let offset = |syncs: crate::table::SyncStats| {
        let is_known = syncs.last_success.is_some();
        is_known.then_some(Thousandths(syncs.clock_offset))
    };
    let sizes = sizes.iter();
    json(&Body {
        name,
        zone,
        store,
        sync_rate: match namespace.sync {
            SyncMode::Local => Rate::Off("off"),
            SyncMode::Synchronous => Rate::Seconds(Thousandths(0)),
            SyncMode::Periodic(period) => {
                let millis = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
                Rate::Seconds(Thousandths::of(millis))
            }
        },
        window_sizes: sizes.map(|size| Thousandths::of(size.millis())).collect(),
        keys: stats.keys,
        hits: Thousandths((stats.hits as i64).max(0)),
        requests: Requests {
            passed: stats.passed,
            rejected: stats.rejected,
            rejected_dry_run: stats.rejected_dry_run,
            error: stats.error(),
        },
        sync,
        clock_offset: syncs.and_then(offset),
    })
}

/// A 404 for a namespace that does not exist.
pub fn no_namespace() -> ApiError {
    ApiError::new(404, "there is no such namespace")
}

/// Answers [`Call::Key`] for a counter of `namespace`, which counts in windows of `sizes`; other
/// ones may be asked for only if `is_open`.
///
/// # Errors
///
/// 400 if the window or the key is none of the namespace's.
pub fn key(
    call: &KeyCall,
    namespace: &Namespace<'_>,
    sizes: &[WindowSize],
    is_open: bool,
    clock: &impl Clock,
) -> Result<String, ApiError> {
    #[derive(Serialize)]
    struct Body {
        rate: Thousandths,
        current: Thousandths,
        previous: Thousandths,
        diff: Thousandths,
        sync: Thousandths,
        window_start: Thousandths,
        remaining: Option<Thousandths>,
    }
    let expected = || {
        let sizes: Vec<_> = sizes.iter().map(ToString::to_string).collect();
        sizes.join(", ")
    };
    let size = match (call.window, sizes) {
        (Some(size), sizes) if is_open || sizes.contains(&size) => size,
        (Some(size), _) => {
            let message = format!(
                "the window {size} is not one of the namespace's: expected {}",
                expected()
            );
            return Err(ApiError::new(400, message));
        }
        (None, [size]) => *size,
        (None, []) => {
            return Err(ApiError::new(
                400,
                "no window: expected window=, such as 60",
            ));
        }
        (None, _) => {
            let message = format!("no window: expected window=, one of {}", expected());
            return Err(ApiError::new(400, message));
        }
    };
    let not_accounted = |error: RateLimitingError| ApiError::new(400, error.to_string());
    let library = RateLimiting::new(namespace).in_counter(call.counter.as_deref());
    if let Some(value) = call.increment {
        library
            .increment(&call.key, size, value, call.algorithm, clock)
            .map_err(not_accounted)?;
    }
    let reading = library
        .reading(&call.key, size, clock)
        .map_err(not_accounted)?;
    let WindowCounts {
        window,
        current,
        previous,
        ..
    } = reading.windows();
    let diff = library
        .unsent(&call.key, size, window, clock)
        .map_err(not_accounted)?;
    let rate = call.algorithm.rate(size, &reading);
    let remaining = call.limit.map(|limit| limit.minus(rate).max(Hits::ZERO));
    Ok(json(&Body {
        rate: rate.into(),
        current: current.into(),
        previous: previous.into(),
        diff: diff.into(),
        sync: current.minus(diff).into(),
        window_start: Thousandths::of(window.saturating_mul(size.millis())),
        // Whole hits, as in headers.
        remaining: remaining.map(|hits| Thousandths(hits.whole().saturating_mul(1000))),
    }))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::status::testing::status;
    use super::*;
    use crate::table::testing::{SharedTable, TestClock};

    const MINUTE: u64 = 60_000;

    fn request<'r>(method: &'r str, path: &'r str, query: &'r str) -> ApiRequest<'r> {
        ApiRequest {
            method: method.as_bytes(),
            path: path.as_bytes(),
            raw_path: b"",
            prefix: b"/rl",
            query: query.as_bytes(),
            may_write: true,
        }
    }

    fn key_call(key: &[u8]) -> KeyCall {
        KeyCall {
            namespace: b"api".into(),
            key: key.into(),
            counter: None,
            window: None,
            algorithm: Algorithm::Sliding,
            limit: None,
            increment: None,
        }
    }

    #[test]
    fn a_path_names_what_is_asked_for() {
        let call = |path, query| request("GET", path, query).call().unwrap();
        for path in ["", "/"] {
            assert_eq!(call(path, ""), Call::Overview);
        }
        for path in ["/namespaces/api", "/namespaces/api/"] {
            assert_eq!(call(path, ""), Call::Namespace(b"api".into()));
        }
        // In a key, a slash is a byte like any other.
        assert_eq!(
            call("/namespaces/api/keys/a/", ""),
            Call::Key(key_call(b"a/"))
        );
        let expected = KeyCall {
            window: WindowSize::from_millis(MINUTE),
            algorithm: Algorithm::Fixed,
            limit: Some(Hits::from_thousandths(2_500)),
            ..key_call(b"a/b")
        };
        assert_eq!(
            call(
                "/namespaces/api/keys/a/b",
                "window=1m&window_type=fixed&limit=2.5"
            ),
            Call::Key(expected)
        );
        for path in ["/namespaces/api/keys", "/namespaces/api/keys/"] {
            assert_eq!(
                call(path, "x&key=%00%ffa+b%2B"),
                Call::Key(key_call(b"\0\xffa b+"))
            );
        }
        for (query, counter) in [("counter=login", Some("login")), ("counter=default", None)] {
            let expected = KeyCall {
                counter: counter.map(Into::into),
                ..key_call(b"k")
            };
            assert_eq!(call("/namespaces/api/keys/k", query), Call::Key(expected));
        }
        let posted = request("POST", "/namespaces/api/keys/k", "").call();
        let increment = Some(Hits::ONE);
        let expected = KeyCall {
            increment,
            ..key_call(b"k")
        };
        assert_eq!(posted, Ok(Call::Key(expected)));
    }

    #[test]
    fn a_key_in_a_path_is_the_bytes_that_were_sent() {
        for (raw_path, path, key) in [
            ("/rl/namespaces/api/keys/a%2f%2Fb+", "a/b+", &b"a//b+"[..]),
            ("/rl/namespaces/api/keys//a/../b", "b", b"/a/../b"),
            ("/%72l/namespaces/a%70i/keys/%2e", ".", b"."),
            ("/rl/namespaces/api/keys/x/keys/y", "x/keys/y", b"x/keys/y"),
            // Rewritten.
            ("/other/x%2f%2fy", "y", b"y"),
            // Not the slash that ends what leads to the key.
            ("/rl/namespaces/api/keys%2f%41", "A", b"A"),
            ("/rl/namespaces/api/key%", "A", b"A"),
        ] {
            let path = format!("/namespaces/api/keys/{path}");
            let request = ApiRequest {
                raw_path: raw_path.as_bytes(),
                ..request("GET", &path, "")
            };
            assert_eq!(request.call(), Ok(Call::Key(key_call(key))), "{raw_path}");
        }
    }

    #[test]
    fn a_path_of_many_parts_costs_no_more_than_its_length() {
        // What looks at all of it for each part looks at 10^13 bytes.
        let parts = "/.".repeat(5 << 20);
        let raw_path = format!("/rl/namespaces/api/keys/k{parts}");
        let path = format!("/namespaces/api/keys/k{parts}");
        let request = |raw_path| ApiRequest {
            raw_path,
            ..request("GET", &path, "")
        };
        let key = format!("k{parts}");
        let expected = Ok(Call::Key(key_call(key.as_bytes())));
        assert!(request(raw_path.as_bytes()).call() == expected);
        // Rewritten: the path that was sent leads elsewhere, and is not looked through for this one.
        assert!(request(parts.as_bytes()).call() == expected);
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (method, path, query, status, message) in [
            ("GET", "/x", "", 404, "nothing here"),
            ("GET", "x", "", 404, "nothing here"),
            ("GET", "/namespaces", "", 404, "nothing here"),
            ("GET", "/namespaces/", "", 404, "nothing here"),
            ("GET", "/namespaces//", "", 404, "nothing here"),
            ("GET", "/namespaces/api//", "", 404, "nothing here"),
            ("GET", "/namespaces/api/sync/x", "", 404, "nothing here"),
            ("POST", "/", "", 405, "expected GET, HEAD"),
            ("GET", "/namespaces/api/sync", "", 405, "expected POST"),
            ("PUT", "/namespaces/api/keys/k", "", 405, "POST, DELETE"),
            ("DELETE", "/namespaces/api/keys/k", "", 501, "not supported"),
            ("POST", "/namespaces/api/sync", "", 501, "not supported"),
            ("POST", "/namespaces/api/sync/", "", 501, "not supported"),
            ("GET", "/namespaces/api/keys", "", 400, "no key"),
            ("GET", "/namespaces/api/keys/k", "key=l", 400, "already"),
            (
                "GET",
                "/namespaces/api/keys",
                "key=a&key=b",
                400,
                "duplicate",
            ),
            ("GET", "/namespaces/api/keys", "key=%4", 400, "encoding"),
            ("GET", "/namespaces/api/keys", "key=%+1", 400, "encoding"),
            (
                "GET",
                "/namespaces/api/keys/k",
                "counter=a:b",
                400,
                "of a counter",
            ),
            (
                "GET",
                "/namespaces/api/keys/k",
                "window=0",
                400,
                "\"window\"",
            ),
            (
                "GET",
                "/namespaces/api/keys/k",
                "window_type=x",
                400,
                "sliding or fixed",
            ),
            (
                "GET",
                "/namespaces/api/keys/k",
                "window_type=moving",
                400,
                "not supported",
            ),
            (
                "GET",
                "/namespaces/api/keys/k",
                "limit=-1",
                400,
                "\"limit\"",
            ),
            (
                "POST",
                "/namespaces/api/keys/k",
                "value=x",
                400,
                "\"value\"",
            ),
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
            let request = ApiRequest {
                may_write: false,
                ..request(method, path, "")
            };
            assert_eq!(request.call().unwrap_err().status, 403);
        }
        let error = ApiError::new(400, "a \"b\"");
        assert_eq!(error.to_json(), r#"{"error":"a \"b\""}"#);
    }

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
                r#""dropped_hits":1.5,"lease_pid":4711},"clock_offset":-1.5}"#
            )
        );
        let local = namespace(&status.namespaces[0], &[]);
        assert!(local.contains(r#""sync_rate":"off""#), "{local}");
        assert!(local.contains(r#""last_at":null"#), "{local}");
    }

    #[test]
    fn an_overview_is_written_in_bounded_pieces() {
        let mut status = status();
        let many = status.namespaces.iter().cycle().take(1000);
        status.namespaces = many.copied().collect();
        let pieces: Vec<_> = Overview::new(status).collect();
        assert_eq!(pieces.len(), 2 + 1000usize.div_ceil(Overview::NAMES));
        assert!(
            pieces
                .iter()
                .all(|piece| piece.len() < 64 * Overview::NAMES)
        );
        let text: serde_json::Value = serde_json::from_str(&pieces.concat()).unwrap();
        assert_eq!(text["namespaces"].as_array().unwrap().len(), 1000);
    }

    #[test]
    fn a_counter_is_told_of_in_json() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("api", &shared.table).unwrap();
        let size = WindowSize::from_millis(MINUTE).unwrap();
        let clock = TestClock::at(28_000_000 * MINUTE);
        let answer = |call: &KeyCall| key(call, &namespace, &[size], false, &clock);
        assert_eq!(
            answer(&key_call(b"k")).unwrap(),
            r#"{"rate":0,"current":0,"previous":0,"diff":0,"sync":0,"window_start":1680000000,"remaining":null}"#
        );
        let posted = KeyCall {
            increment: Some(Hits::from_thousandths(1_500)),
            limit: Some(Hits::from_thousandths(10_000)),
            ..key_call(b"k")
        };
        answer(&posted).unwrap();
        let elsewhere = KeyCall {
            counter: Some("login".into()),
            ..key_call(b"k")
        };
        let body = answer(&elsewhere).unwrap();
        assert!(body.contains("\"current\":0,"), "{body}");
        clock.set(28_000_001 * MINUTE + MINUTE / 2);
        assert_eq!(
            answer(&posted).unwrap(),
            r#"{"rate":2.25,"current":1.5,"previous":1.5,"diff":1.5,"sync":0,"window_start":1680000060,"remaining":7}"#
        );
        for (call, message) in [
            (key_call(b""), "the key is empty"),
            (
                KeyCall {
                    window: WindowSize::from_millis(1000),
                    ..key_call(b"k")
                },
                "the window 1s is not one of the namespace's: expected 1m",
            ),
        ] {
            let error = answer(&call).unwrap_err();
            assert_eq!(error.status, 400);
            assert!(error.message.contains(message), "{error}");
        }
        let none = key(&key_call(b"k"), &namespace, &[], true, &clock);
        assert_eq!(
            none.unwrap_err().message,
            "no window: expected window=, such as 60"
        );
    }
}
