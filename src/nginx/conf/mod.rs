//! The configuration: what the directives make, and how levels inherit.

mod directives;

use core::fmt;
use core::ptr;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use nginx_sys::{ngx_conf_t, ngx_http_request_t};
use ngx::http::{Merge, MergeConfigError};

use super::zone::Zone;
use crate::engine::{Namespace, RateLimitingError};
use crate::policy::headers;
use crate::policy::limit::Limit;
use crate::policy::namespace::DEFAULT_NAMESPACE;
use crate::table::{Counter, CounterTable, NamespaceIndex};

pub(super) use directives::COMMANDS;

/// The configuration of `http`.
#[derive(Debug, Default)]
pub(super) struct MainConf {
    zones: Vec<Arc<Zone>>,
    namespaces: Vec<Arc<NamespaceConf>>,
    /// The index of the variable that keeps a request's context.
    pub(super) context_slot: usize,
}

/// A namespace, as the configuration knows it.
#[derive(Debug)]
pub(super) struct NamespaceConf {
    name: Box<str>,
    /// Where it was first used.
    used_at: Origin,
    /// Set when the whole configuration was read.
    zone: OnceLock<Arc<Zone>>,
    /// Set when the zones are mapped, before any request.
    namespace: OnceLock<Namespace<'static>>,
}

/// The configuration of a `location`.
#[derive(Debug, Default)]
pub(super) struct LocationConf {
    key: Option<Rc<directives::Text>>,
    rules: Option<Arc<RuleSet>>,
    headers: Option<Headers>,
}

/// The rules of a level, all of which must admit a request. `ratelimit off` is a set without any.
#[derive(Debug, Default)]
pub(super) struct RuleSet {
    rules: Vec<Rule>,
    /// The value of `RateLimit-Policy`.
    pub(super) policy: Vec<u8>,
    /// Set by the first request.
    resolved: OnceLock<Resolved>,
}

/// A `ratelimit` directive.
#[derive(Debug)]
struct Rule {
    namespace: Arc<NamespaceConf>,
    limits: Vec<Limit>,
}

/// What a request needs of its rules, in the order in which it needs it.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) limits: Box<[ResolvedLimit]>,
    /// The namespaces of all rules, each once.
    pub(super) namespaces: Box<[(Table, NamespaceIndex)]>,
}

/// A limit and its counters.
#[derive(Debug)]
pub(super) struct ResolvedLimit {
    pub(super) table: Table,
    pub(super) counter: Counter,
    pub(super) limit: &'static Limit,
}

/// A zone's table: it lives as long as the configuration, as requests do not live longer.
type Table = &'static CounterTable<'static>;

/// Which headers tell clients about limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Headers {
    Off,
    Ietf,
}

/// A place in a configuration file.
#[derive(Clone, Debug)]
struct Origin {
    file: Box<str>,
    line: usize,
}

impl MainConf {
    /// The namespace `name`, used at `origin`.
    fn namespace(&mut self, name: &str, origin: Origin) -> Arc<NamespaceConf> {
        if let Some(known) = self.namespaces.iter().find(|known| &*known.name == name) {
            return known.clone();
        }
        let namespace = Arc::new(NamespaceConf {
            name: name.into(),
            used_at: origin,
            zone: OnceLock::new(),
            namespace: OnceLock::new(),
        });
        self.namespaces.push(namespace.clone());
        namespace
    }

    /// Whether any level has a rule.
    pub(super) fn has_rules(&self) -> bool {
        !self.namespaces.is_empty()
    }

    /// Checks, once all of `http` was read, what one directive alone could not know.
    ///
    /// # Errors
    ///
    /// The message, with the place that it is about.
    pub(super) fn resolve(&self) -> Result<(), String> {
        for namespace in &self.namespaces {
            let NamespaceConf { name, used_at, .. } = &**namespace;
            if &**name != DEFAULT_NAMESPACE {
                return Err(format!(
                    "unknown ratelimit_namespace \"{name}\" in {used_at}"
                ));
            }
            let zone = match self.zones.as_slice() {
                [zone] => zone,
                [] => {
                    return Err(format!(
                        "\"ratelimit\" needs a zone for its counters: add \
                         \"ratelimit_zone zone=name:size;\" to http, in {used_at}"
                    ));
                }
                [..] => {
                    return Err(format!(
                        "namespace \"{name}\" has no zone: it is counted in the only one, and \
                         there are {}, in {used_at}",
                        self.zones.len()
                    ));
                }
            };
            // A configuration is resolved once.
            let _ = namespace.zone.set(zone.clone());
        }
        Ok(())
    }

    /// Finds every namespace in its zone, once the zones are mapped.
    ///
    /// # Errors
    ///
    /// The message.
    pub(super) fn attach(&'static self) -> Result<(), String> {
        for namespace in &self.namespaces {
            namespace.attach().map_err(|error| {
                format!(
                    "ratelimit_namespace \"{}\" in {}: {error}",
                    namespace.name, namespace.used_at
                )
            })?;
        }
        Ok(())
    }

    /// Makes this process count events as worker `worker` in all zones.
    pub(super) fn set_worker(&self, worker: usize) {
        for table in self.zones.iter().filter_map(|zone| zone.table()) {
            table.set_worker(worker);
        }
    }
}

impl NamespaceConf {
    fn attach(&'static self) -> Result<(), RateLimitingError> {
        if let Some(table) = self.zone.get().and_then(|zone| zone.table()) {
            // Zones are mapped once in a cycle.
            let _ = self.namespace.set(Namespace::new(&self.name, table)?);
        }
        Ok(())
    }
}

impl LocationConf {
    /// The rules that apply, if any.
    #[inline]
    pub(super) fn rules(&self) -> Option<&RuleSet> {
        self.rules.as_deref().filter(|set| !set.rules.is_empty())
    }

    /// The key that `request` is counted by: `$remote_addr` without a `ratelimit_key`.
    #[inline]
    pub(super) fn evaluate_key(
        &self,
        request: *mut ngx_http_request_t,
    ) -> Result<&'static [u8], directives::EvaluationError> {
        match &self.key {
            Some(key) => key.evaluate(request),
            // SAFETY: a request has a connection, whose address lives as long.
            None => Ok(unsafe { directives::bytes(&(*(*request).connection).addr_text) }),
        }
    }

    pub(super) fn headers(&self) -> Headers {
        self.headers.unwrap_or(Headers::Ietf)
    }
}

impl Merge for LocationConf {
    fn merge(&mut self, prev: &Self) -> Result<(), MergeConfigError> {
        self.key = self.key.take().or_else(|| prev.key.clone());
        self.rules = self.rules.take().or_else(|| prev.rules.clone());
        self.headers = self.headers.or(prev.headers);
        Ok(())
    }
}

impl RuleSet {
    /// Adds a rule; policies whose names clash with earlier ones get a number.
    fn push(&mut self, mut rule: Rule) {
        let mut taken: Vec<Box<str>> = self
            .rules
            .iter()
            .flat_map(|rule| &rule.limits)
            .map(|limit| limit.name.clone())
            .collect();
        for limit in &mut rule.limits {
            let names = (1_u32..).map(|nth| match nth {
                1 => limit.name.clone(),
                _ => format!("{}-{nth}", limit.name).into(),
            });
            let mut free = names.filter(|name| !taken.contains(name));
            if let Some(name) = free.next() {
                drop(free);
                limit.name = name;
            }
            taken.push(limit.name.clone());
        }
        self.rules.push(rule);
        self.policy.clear();
        let limits = self.rules.iter().flat_map(|rule| &rule.limits);
        headers::policy(limits, |part| self.policy.extend_from_slice(part));
    }

    /// The limits of all rules with their counters, once the zones are mapped.
    #[inline]
    pub(super) fn resolved(&'static self) -> &'static Resolved {
        self.resolved.get_or_init(|| self.resolve())
    }

    #[cold]
    fn resolve(&'static self) -> Resolved {
        let mut limits = Vec::new();
        let mut namespaces: Vec<(Table, NamespaceIndex)> = Vec::new();
        for Rule {
            namespace,
            limits: of_rule,
        } in &self.rules
        {
            // There are no requests before every namespace is in its zone.
            let Some(namespace) = namespace.namespace.get() else {
                continue;
            };
            let (table, index) = (namespace.table(), namespace.index());
            if !namespaces
                .iter()
                .any(|known| ptr::eq(known.0, table) && known.1 == index)
            {
                namespaces.push((table, index));
            }
            limits.extend(of_rule.iter().map(|limit| {
                let counter = namespace.counter(limit.size);
                ResolvedLimit {
                    table,
                    counter,
                    limit,
                }
            }));
        }
        Resolved {
            limits: limits.into(),
            namespaces: namespaces.into(),
        }
    }
}

impl Origin {
    /// Where nginx is reading now.
    fn of(cf: &ngx_conf_t) -> Origin {
        // SAFETY: while nginx reads a file, `conf_file` tells which; it is null for `-g`.
        let file = unsafe { cf.conf_file.as_ref() };
        match file {
            Some(file) => Origin {
                file: String::from_utf8_lossy(file.file.name.as_bytes()).into(),
                line: file.line,
            },
            None => Origin {
                file: "command line".into(),
                line: 0,
            },
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}
