//! Parser of requests: method, path and query.

use core::fmt;

use super::json::ApiError;
use super::page::prefers_page;
use super::site::Sender;
use crate::policy::algorithm::Algorithm;
use crate::policy::calendar::CalendarZone;
use crate::policy::hits::Hits;
use crate::policy::limit::{Quota, QuotaHits};
use crate::policy::namespace::valid_name;
use crate::policy::window::WindowSize;

/// A request as it was received.
#[derive(Clone, Copy, Debug)]
pub struct ApiRequest<'r> {
    /// The method, such as `GET`.
    pub method: &'r [u8],
    /// The decoded path below the API's; empty, or with a slash at its start.
    pub path: &'r [u8],
    /// The whole path as sent, neither decoded nor normalized.
    pub raw_path: &'r [u8],
    /// The part of the decoded path that precedes [`ApiRequest::path`].
    pub prefix: &'r [u8],
    /// The query: the text after the question mark.
    pub query: &'r [u8],
    /// The media types that the client accepts: the header `Accept`.
    pub accept: Option<&'r [u8]>,
    /// Whether requests may change counters.
    pub may_write: bool,
    /// The headers that name the site that sends it.
    pub sender: Sender<'r>,
}

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiCall {
    /// The live page.
    Page,
    /// The overview.
    Overview(OverviewCall),
    /// The health of the stores.
    Health,
    /// The names of all namespaces.
    Namespaces,
    /// The namespace of this name.
    Namespace(Vec<u8>),
    /// A counter, to be read or to count hits in.
    Key(KeyCall),
    /// The counters in which a key has hits.
    Counters(CountersCall),
    /// A key to be set to zero.
    Reset(CountersCall),
    /// A sync of the namespace with this name.
    Sync(Vec<u8>),
    /// The most rejected keys of the namespace with this name, and their maximum number.
    Top(Vec<u8>, usize),
    /// The rules of the namespace with this name.
    Rules(Vec<u8>),
    /// The explanation of a key by the rules.
    Explain(ExplainCall),
    /// The banned keys of the namespace with this name, and their maximum number.
    Bans(Vec<u8>, usize),
    /// The end of a key's bans in a namespace: the namespace's name, and the key.
    Lift(Vec<u8>, Vec<u8>),
}

/// A call for the overview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverviewCall {
    /// Whether everything about zones, namespaces and stores is meant.
    pub has_all: bool,
    /// Whether the API accepts writes.
    pub may_write: bool,
}

/// A call about the rules under which a key is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainCall {
    /// The name of the namespace.
    pub namespace: Vec<u8>,
    /// The key.
    pub key: Vec<u8>,
    /// The cost of the hit; `None` for that of each rule.
    pub cost: Option<Hits>,
    /// The hits of limits that are variable.
    pub limit: Option<Hits>,
    /// Whether rules are meant under which the key has no hits, too.
    pub has_all: bool,
}

/// A call about one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyCall {
    /// The name of the namespace.
    pub namespace: Vec<u8>,
    /// The key.
    pub key: Vec<u8>,
    /// The name of the counter; `None` for the shared one.
    pub counter: Option<String>,
    /// The window; `None` for the only one of the namespace.
    pub window: Option<WindowSize>,
    /// The algorithm that reads the window.
    pub algorithm: Algorithm,
    /// The rate of a bucket: hits per `window`.
    pub rate: Hits,
    /// The limit, for `remaining`; hits are counted only if it admits them.
    pub limit: Option<Hits>,
    /// The hits to count before the counter is read; `None` for a call that only reads.
    pub increment: Option<Hits>,
}

impl KeyCall {
    /// Returns the call in the window that it is about.
    pub(super) fn in_window(&self, size: WindowSize) -> KeyCall {
        KeyCall { window: Some(size), algorithm: self.algorithm.of_size(size), ..self.clone() }
    }
}

/// A call about several counters of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountersCall {
    /// The key, and the window if the call is about one window only.
    pub read: KeyCall,
    /// The algorithm whose counters are meant; `None` for all algorithms.
    pub algorithm: Option<Algorithm>,
    /// Whether the counters of all names are meant.
    pub has_all_names: bool,
}

/// The resource that a path names.
enum Resource {
    /// The overview, or for browsers the live page.
    Root,
    /// A resource without parameters, which is only read.
    Plain(ApiCall),
    Top(Vec<u8>),
    /// The keys of a namespace, with the key in the path if there is one.
    Keys(Vec<u8>, Option<Vec<u8>>),
    /// The explanation of a key by the rules of a namespace, with the key in the path if there is one.
    Explain(Vec<u8>, Option<Vec<u8>>),
    /// The bans of a namespace, or of the key in the path.
    Bans(Vec<u8>, Option<Vec<u8>>),
    Sync(Vec<u8>),
}

/// The end of a path that asks for an explanation.
const EXPLAIN: &[u8] = b"/explain";

impl ApiRequest<'_> {
    /// Parses the request.
    ///
    /// # Errors
    ///
    /// 404 if the path does not exist, 405 if it does not support the method, 403 if the method writes and writes are
    /// off or another site sends it, 400 if a parameter is invalid.
    pub fn call(&self) -> Result<ApiCall, ApiError> {
        let resource = self.resource();
        let resource = resource.ok_or_else(|| ApiError::new(404, "there is nothing here"))?;
        let allow = match resource {
            Resource::Root | Resource::Plain(_) | Resource::Top(_) | Resource::Explain(..) => {
                "GET, HEAD"
            }
            Resource::Keys(..) => "GET, HEAD, POST, DELETE",
            Resource::Bans(_, None) => "GET, HEAD, DELETE",
            Resource::Bans(_, Some(_)) => "DELETE",
            Resource::Sync(_) => "POST",
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
        if !is_read && self.sender.is_another_site() {
            let message = "a page of another site must not write";
            return Err(ApiError::new(403, message));
        }
        match resource {
            Resource::Root if self.accept.is_some_and(prefers_page) => Ok(ApiCall::Page),
            Resource::Root => Ok(ApiCall::Overview(OverviewCall {
                has_all: self.is_about_all()?,
                may_write: self.may_write,
            })),
            Resource::Plain(call) => Ok(call),
            Resource::Keys(namespace, key) if self.method == b"DELETE" => {
                self.counters_call(namespace, key).map(ApiCall::Reset)
            }
            Resource::Keys(namespace, key) if is_read && self.is_about_all()? => {
                self.counters_call(namespace, key).map(ApiCall::Counters)
            }
            Resource::Keys(namespace, key) => self.key_call(namespace, key).map(ApiCall::Key),
            Resource::Sync(name) => Ok(ApiCall::Sync(name)),
            Resource::Top(name) => Ok(ApiCall::Top(name, self.most_keys(20)?)),
            Resource::Explain(namespace, key) => self.explain_call(namespace, key),
            Resource::Bans(namespace, _) if is_read => {
                Ok(ApiCall::Bans(namespace, self.most_keys(usize::MAX)?))
            }
            Resource::Bans(namespace, key) => Ok(ApiCall::Lift(namespace, self.key(key)?)),
        }
    }

    fn explain_call(&self, namespace: Vec<u8>, key: Option<Vec<u8>>) -> Result<ApiCall, ApiError> {
        Ok(ApiCall::Explain(ExplainCall {
            namespace,
            key: self.key(key)?,
            cost: self.hits("cost")?,
            limit: self.hits("limit")?,
            has_all: self.is_about_all()?,
        }))
    }

    /// Whether the call is about everything: `all=1`.
    fn is_about_all(&self) -> Result<bool, ApiError> {
        match self.parameter("all")?.as_deref() {
            None | Some(b"0") => Ok(false),
            Some(b"1") => Ok(true),
            Some(_) => Err(invalid("all", "expected 1, or 0")),
        }
    }

    fn counters_call(
        &self,
        namespace: Vec<u8>,
        key: Option<Vec<u8>>,
    ) -> Result<CountersCall, ApiError> {
        let read = self.key_call(namespace, key)?;
        let is_named = self.parameter("window_type")?.is_some();
        let is_named = is_named || read.algorithm.is_of_rates();
        Ok(CountersCall {
            algorithm: is_named.then_some(read.algorithm),
            has_all_names: self.parameter("counter")?.is_none(),
            read,
        })
    }

    /// Returns the maximum number of keys in an answer: `limit=`.
    fn most_keys(&self, otherwise: usize) -> Result<usize, ApiError> {
        let limit = self.parsed("limit", |text| {
            let digits = text.iter().all(u8::is_ascii_digit).then_some(text);
            let limit = core::str::from_utf8(digits.unwrap_or_default()).ok();
            let limit = limit.and_then(|limit| limit.parse().ok());
            limit.ok_or("expected a number of keys, such as 20")
        })?;
        Ok(limit.unwrap_or(otherwise))
    }

    /// Returns the key in the path, whose decoded form ends with `key`, and whether the path ends with [`EXPLAIN`].
    fn key_in_path(&self, key: &[u8]) -> (Vec<u8>, bool) {
        // nginx merges slashes and resolves dots, so the key is taken from the path as sent, unless the path was
        // rewritten.
        let before = self.prefix.len().saturating_add(self.path.len());
        let before = before.saturating_sub(key.len());
        let path = [self.prefix, self.path].concat();
        match self.raw_key(path.get(..before).unwrap_or_default()) {
            Some((raw, key)) => (key, raw.ends_with(EXPLAIN)),
            None => (without_slash(key).to_vec(), without_slash(key).ends_with(EXPLAIN)),
        }
    }

    fn resource(&self) -> Option<Resource> {
        match self.path {
            b"" | b"/" => return Some(Resource::Root),
            b"/health" | b"/health/" => return Some(Resource::Plain(ApiCall::Health)),
            b"/namespaces" | b"/namespaces/" => return Some(Resource::Plain(ApiCall::Namespaces)),
            _ => {}
        }
        let rest = self.path.strip_prefix(b"/namespaces/")?;
        let mut parts = rest.splitn(3, |&byte| byte == b'/');
        let name = parts.next().filter(|name| !name.is_empty())?.to_vec();
        match (parts.next(), parts.next()) {
            (None, _) | (Some(b""), None) => Some(Resource::Plain(ApiCall::Namespace(name))),
            (Some(b"keys"), None) => Some(Resource::Keys(name, None)),
            (Some(b"bans"), None) | (Some(b"bans"), Some(b"")) => Some(Resource::Bans(name, None)),
            (Some(b"bans"), Some(key)) => Some(Resource::Bans(name, Some(self.key_in_path(key).0))),
            (Some(b"keys"), Some(key)) => {
                let (key, is_explained) = self.key_in_path(key);
                // `keys/explain` is a key, unless another one is in the query.
                if key == b"explain" && self.parameter("key").is_ok_and(|it| it.is_some()) {
                    return Some(Resource::Explain(name, None));
                }
                Some(match key.strip_suffix(EXPLAIN).filter(|_| is_explained) {
                    Some(key) => Resource::Explain(name, Some(key.to_vec())),
                    None => Resource::Keys(name, Some(key).filter(|it| !it.is_empty())),
                })
            }
            (Some(b"rules"), None | Some(b"")) => Some(Resource::Plain(ApiCall::Rules(name))),
            (Some(b"sync"), None | Some(b"")) => Some(Resource::Sync(name)),
            (Some(b"top"), None | Some(b"")) => Some(Resource::Top(name)),
            _ => None,
        }
    }

    /// Returns the key behind `before` (which ends with a slash) in the path as sent, and decoded; `None` if that path
    /// begins with something else.
    fn raw_key(&self, before: &[u8]) -> Option<(&[u8], Vec<u8>)> {
        // Reads each byte only once, since the client chooses the length.
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
        // A slash sent as `%2F` is part of a name.
        let raw = without_slash(rest);
        Some((raw, decode(raw, false).ok()?)).filter(|_| is_slash)
    }

    /// Returns the key in the path or in the query.
    fn key(&self, in_path: Option<Vec<u8>>) -> Result<Vec<u8>, ApiError> {
        match (in_path, self.parameter("key")?) {
            (Some(_), Some(_)) => Err(invalid("key", "the path has a key already")),
            (Some(key), None) | (None, Some(key)) => Ok(key),
            (None, None) => {
                let message = "no key: expected .../keys/{key} or .../keys?key={key}";
                Err(ApiError::new(400, message))
            }
        }
    }

    /// Returns the value of a parameter that is a number of hits.
    fn hits(&self, name: &str) -> Result<Option<Hits>, ApiError> {
        self.parsed(name, |text| {
            Hits::parse(text).map_err(|error| format!("expected a decimal ({error})"))
        })
    }

    fn key_call(&self, namespace: Vec<u8>, key: Option<Vec<u8>>) -> Result<KeyCall, ApiError> {
        let key = self.key(key)?;
        let counter = |name: &[u8]| valid_name("counter", name).map(str::to_owned);
        let counter = self.parsed("counter", counter)?.filter(|name| name != "default");
        let window = self.parsed("window", WindowSize::parse_with_zone)?;
        let zone = self.parsed("tz", CalendarZone::named)?;
        let is_of_calendar = window.is_some_and(WindowSize::is_of_calendar);
        if zone.is_some() && !is_of_calendar {
            return Err(invalid("tz", "expected window=hour, day, week or month beside it"));
        }
        let window = window.map(|size| size.in_zone(zone.unwrap_or(CalendarZone::utc())));
        let algorithm = self.parsed("window_type", Algorithm::parse)?;
        if is_of_calendar && algorithm.is_some_and(|algorithm| algorithm != Algorithm::Fixed) {
            return Err(invalid(
                "window_type",
                "expected fixed, which a window of the calendar is",
            ));
        }
        let (limit, burst) = (self.hits("limit")?, self.hits("burst")?);
        let rate = self.parsed("rate", |text| {
            parse_rate(text).ok_or("expected hits and a time, such as 10/1s or 0.5/1m")
        })?;
        let (window, algorithm, rate, limit) = match rate {
            Some((rate, size)) => {
                let given = [
                    ("limit", limit.is_some()),
                    ("window", window.is_some()),
                    ("window_type", algorithm.is_some()),
                ];
                if let Some((name, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
                    return Err(invalid(name, "expected none beside rate"));
                }
                // The capacity of the bucket.
                let most = burst.unwrap_or(Hits::ZERO).plus_value(Hits::ONE);
                (Some(size), Algorithm::OF_RATES, rate, Some(most))
            }
            None if burst.is_some() => return Err(invalid("burst", "expected rate beside it")),
            None => {
                let algorithm = algorithm.unwrap_or_default();
                let algorithm = window.map_or(algorithm, |size| algorithm.of_size(size));
                (window, algorithm, Hits::ZERO, limit)
            }
        };
        let increment = match self.method {
            b"POST" => Some(self.hits("value")?.unwrap_or(Hits::ONE)),
            _ => None,
        };
        Ok(KeyCall { namespace, key, counter, window, algorithm, rate, limit, increment })
    }

    /// Returns the parsed value of a parameter of the query.
    fn parsed<T, E: fmt::Display>(
        &self,
        name: &str,
        parse: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<Option<T>, ApiError> {
        let value = self.parameter(name)?.map(|text| parse(&text)).transpose();
        value.map_err(|error| invalid(name, error))
    }

    /// Returns the decoded value of a parameter of the query.
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

/// Returns the 400 for a parameter that is not as expected.
fn invalid(name: &str, expected: impl fmt::Display) -> ApiError {
    ApiError::new(400, format!("invalid parameter \"{name}\": {expected}"))
}

/// Parses the hits and the time unit of a rate.
fn parse_rate(text: &[u8]) -> Option<(Hits, WindowSize)> {
    let Quota { hits, size, .. } = Quota::parse(text).ok()?;
    match hits {
        QuotaHits::Constant(hits) => (!size.is_of_calendar()).then_some((hits, size)),
        QuotaHits::Variable(_) => None,
    }
}

/// Returns a path without its trailing slash, which has no meaning.
fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// Decodes `%xx` and, in a query, `+` as a space.
fn decode(text: &[u8], is_query: bool) -> Result<Vec<u8>, ApiError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = decode_one(rest, is_query)? {
        decoded.push(byte);
        rest = after;
    }
    Ok(decoded)
}

/// Decodes the first byte. Returns it with the text behind it; `None` for an empty text.
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
    ApiError::new(400, "invalid encoding: expected two hexadecimal digits after every \"%\"")
}
