//! The settings of Kong's three plugins for rate limiting, with what differs here.

use super::redis::redis_store;
use super::text::{PlacedRemark, decimal};
use super::yaml::{YamlError, YamlNode, YamlValue};

/// The largest number of hits in a limit.
const MAX_HITS: f64 = 140_737_488_355.0;
/// The longest window, in seconds.
const MAX_WINDOW: f64 = 366.0 * 86_400.0;

/// What requests are counted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KongKey {
    Address,
    Consumer,
    Service,
    Header(String),
    Path(String),
}

/// Where counts are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KongStrategy {
    Local,
    /// The directives of the store.
    Redis(Vec<String>),
    /// Kong's own database.
    Cluster,
}

/// A limit: hits in a window, as written in a rule.
pub(super) type KongLimit = String;

/// A plugin as far as this module can do the same.
#[derive(Clone, Debug)]
pub(super) struct KongLimiter {
    /// The limits; of `response-ratelimiting`, those of each of its names.
    pub(super) limits: Vec<(Option<String>, Vec<KongLimit>)>,
    pub(super) is_sliding: bool,
    /// Whether rejected requests count.
    pub(super) counts_rejected: bool,
    pub(super) key: KongKey,
    pub(super) strategy: KongStrategy,
    /// The value of `sync_rate`, if there is a store.
    pub(super) sync_rate: Option<String>,
    /// The value of `on_error`, with `sync_rate 0`.
    pub(super) on_error: Option<&'static str>,
    pub(super) namespace: Option<String>,
    pub(super) has_headers: bool,
    pub(super) status: u16,
    pub(super) message: Option<String>,
    /// In seconds.
    pub(super) jitter: f64,
    /// The response header with the cost, of `response-ratelimiting`.
    pub(super) cost_header: Option<String>,
    pub(super) remarks: Vec<PlacedRemark>,
}

/// The names of the plugins.
pub(super) const PLUGINS: [&str; 3] =
    ["rate-limiting", "rate-limiting-advanced", "response-ratelimiting"];

impl KongLimiter {
    /// Reads the configuration of a plugin, which is one of [`PLUGINS`].
    pub(super) fn read(plugin: &str, config: &YamlNode) -> Result<KongLimiter, YamlError> {
        let is_advanced = plugin == "rate-limiting-advanced";
        let mut limiter = KongLimiter {
            limits: Vec::new(),
            is_sliding: is_advanced,
            counts_rejected: is_advanced,
            key: KongKey::Consumer,
            strategy: KongStrategy::Local,
            sync_rate: None,
            on_error: None,
            namespace: None,
            has_headers: true,
            status: 429,
            message: None,
            jitter: 0.0,
            cost_header: (plugin == "response-ratelimiting").then(|| "X-Kong-Limit".to_owned()),
            remarks: Vec::new(),
        };
        let mut periods = Vec::new();
        let (mut sizes, mut amounts, mut sync, mut is_tolerant) = (vec![], vec![], None, true);
        let (mut by, mut header, mut path, mut strategy) = (None, None, None, None);
        for (key, node) in config.entries("config")? {
            if node.value == YamlValue::Null {
                continue;
            }
            match key.as_str() {
                "second" | "minute" | "hour" | "day" | "month" | "year" => {
                    periods.push(limiter.period(key, node)?);
                }
                "limit" if is_advanced => amounts = numbers(key, node)?,
                "window_size" if is_advanced => sizes = numbers(key, node)?,
                "limits" => limiter.named_limits(node)?,
                "window_type" => limiter.is_sliding = node.text(key)? == "sliding",
                "limit_by" | "identifier" => by = Some((node.text(key)?, node)),
                "header_name" if limiter.cost_header.is_some() => {
                    limiter.cost_header = Some(node.text(key)?.to_owned());
                }
                "header_name" => header = Some(node.text(key)?.to_owned()),
                "path" => path = Some(node.text(key)?.to_owned()),
                "policy" | "strategy" => strategy = Some(node),
                "sync_rate" => sync = Some(node.number(key)?),
                "namespace" => limiter.namespace = Some(node.text(key)?.to_owned()),
                "fault_tolerant" => is_tolerant = node.bool(key)?,
                "hide_client_headers" => limiter.has_headers = !node.bool(key)?,
                "error_code" => limiter.status = status(key, node)?,
                "error_message" => limiter.message = Some(node.text(key)?.to_owned()),
                "disable_penalty" => limiter.counts_rejected = !node.bool(key)?,
                "retry_after_jitter_max" => limiter.jitter = node.number(key)?.max(0.0),
                "dictionary_name" | "lock_dictionary_name" => {
                    limiter
                        .note(node, format!("config.{key}: counters are in the zone of this file"));
                }
                "redis" => {}
                key if key.starts_with("redis_") => {}
                "block_on_first_violation" => {
                    if !node.bool(key)? {
                        let text = "config.block_on_first_violation: all requests are rejected while any limit is used up";
                        limiter.note(node, text.into());
                    }
                }
                _ if node.is_off() => {}
                _ => limiter.work(node, format!("config.{key} has no counterpart: not converted")),
            }
        }
        if sizes.len() != amounts.len() {
            return Err(
                config.error("config.limit", "as many limits as config.window_size has windows")
            );
        }
        for ((amount, node), (size, _)) in amounts.into_iter().zip(sizes) {
            periods.push(limit(node, amount, size)?);
        }
        if !periods.is_empty() {
            limiter.limits.push((None, periods));
        }
        if limiter.limits.is_empty() {
            return Err(config.error(&format!("config of {plugin}"), "at least one limit"));
        }
        limiter.counts_rejected &= limiter.is_sliding;
        limiter.read_key(by, header, path)?;
        if let Some(node) = strategy {
            limiter.strategy = match node.text("config.policy")? {
                "local" => KongStrategy::Local,
                "redis" => KongStrategy::Redis(redis_store(config, &mut limiter.remarks)?),
                "cluster" => KongStrategy::Cluster,
                _ => return Err(node.error("config.policy", "local, cluster or redis")),
            };
        }
        limiter.read_sync(is_advanced, sync, is_tolerant, config);
        Ok(limiter)
    }

    fn note(&mut self, node: &YamlNode, text: String) {
        self.remarks.push((node.line, text, false));
    }

    fn work(&mut self, node: &YamlNode, text: String) {
        self.remarks.push((node.line, text, true));
    }

    /// Reads a limit of the plugins with named windows.
    fn period(&mut self, key: &str, node: &YamlNode) -> Result<KongLimit, YamlError> {
        let hits = node.number(key)?;
        let seconds = match key {
            "second" => 1.0,
            "minute" => 60.0,
            "hour" => 3600.0,
            "month" => return Ok(format!("limit={}/month", checked(node, hits)?)),
            "year" => {
                let text = "config.year: windows of 365 days since 1970, not of the calendar";
                self.note(node, text.into());
                365.0 * 86_400.0
            }
            _ => 86_400.0,
        };
        limit(node, hits, seconds)
    }

    /// Reads the limits of `response-ratelimiting`.
    fn named_limits(&mut self, node: &YamlNode) -> Result<(), YamlError> {
        for (name, windows) in node.entries("config.limits")? {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            if name.is_empty() || name.len() > 40 || !name.bytes().all(is_name) {
                return Err(
                    windows.error("config.limits", "names of up to 40 letters, digits, - and _")
                );
            }
            let mut limits = Vec::new();
            for (key, node) in windows.entries(name)? {
                if !["second", "minute", "hour", "day", "month", "year"].contains(&key.as_str()) {
                    return Err(
                        node.error(&format!("config.limits.{name}.{key}"), "second to year")
                    );
                }
                limits.push(self.period(key, node)?);
            }
            self.limits.push((Some(name.clone()), limits));
        }
        Ok(())
    }

    fn read_key(
        &mut self,
        by: Option<(&str, &YamlNode)>,
        header: Option<String>,
        path: Option<String>,
    ) -> Result<(), YamlError> {
        let Some((by, node)) = by else { return Ok(()) };
        self.key = match (by, header, path) {
            ("ip", ..) => KongKey::Address,
            ("consumer" | "credential", ..) => KongKey::Consumer,
            ("consumer-group", ..) => {
                self.work(node, "counted by consumer: give each group its limits by a map".into());
                KongKey::Consumer
            }
            ("service", ..) => KongKey::Service,
            ("header", Some(header), _) => KongKey::Header(header),
            ("path", _, Some(path)) => KongKey::Path(path),
            ("header", ..) => return Err(node.error("config.header_name", "a header")),
            ("path", ..) => return Err(node.error("config.path", "a path")),
            _ => {
                let expected = "consumer, credential, ip, service, header, path or consumer-group";
                return Err(node.error("config.limit_by", expected));
            }
        };
        Ok(())
    }

    fn read_sync(
        &mut self,
        is_advanced: bool,
        sync: Option<f64>,
        is_tolerant: bool,
        config: &YamlNode,
    ) {
        if self.strategy == KongStrategy::Local {
            return;
        }
        let sync = match sync {
            None if is_advanced => {
                self.work(config, "config.sync_rate is missing: 0 is assumed".into());
                0.0
            }
            None => 0.0,
            // The open-source plugin asks its store about each request then.
            Some(rate) if rate < 0.0 && !is_advanced => 0.0,
            Some(rate) => rate,
        };
        if sync < 0.0 {
            self.note(
                config,
                "config.sync_rate is negative: nodes share nothing, so there is no store".into(),
            );
            self.strategy = KongStrategy::Local;
            return;
        }
        let sync = if sync > 0.0 { sync.clamp(0.001, 86_400.0) } else { 0.0 };
        self.sync_rate = Some(decimal(sync));
        if sync == 0.0 && !is_advanced {
            self.on_error = Some(if is_tolerant { "allow" } else { "deny" });
        }
        if self.strategy == KongStrategy::Cluster {
            let text = "Kong's database is in kong.conf (pg_host, pg_user ...): write it into the ratelimit_store";
            self.work(config, text.into());
        }
    }
}

/// Returns the hits of a limit as they are written in a rule.
fn checked(node: &YamlNode, hits: f64) -> Result<String, YamlError> {
    match (0.001..=MAX_HITS).contains(&hits) {
        true => Ok(decimal(hits)),
        false => Err(node.error("a limit", "a number from 0.001 to 140737488355")),
    }
}

fn limit(node: &YamlNode, hits: f64, seconds: f64) -> Result<KongLimit, YamlError> {
    let hits = checked(node, hits)?;
    if !(0.001..=MAX_WINDOW).contains(&seconds) {
        return Err(node.error("a window", "a number of seconds up to 31622400"));
    }
    let is_whole = |unit: f64| seconds % unit == 0.0;
    let window = match () {
        () if is_whole(86_400.0) => format!("{}d", seconds / 86_400.0),
        () if is_whole(3600.0) => format!("{}h", seconds / 3600.0),
        () if is_whole(60.0) => format!("{}m", seconds / 60.0),
        () if is_whole(1.0) => format!("{seconds}s"),
        () => format!("{}ms", (seconds * 1000.0).round()),
    };
    Ok(format!("limit={hits}/{window}"))
}

fn numbers<'n>(key: &str, node: &'n YamlNode) -> Result<Vec<(f64, &'n YamlNode)>, YamlError> {
    let items = node.items(&format!("config.{key}"))?;
    items.iter().map(|item| Ok((item.number(key)?, item))).collect()
}

fn status(key: &str, node: &YamlNode) -> Result<u16, YamlError> {
    let status = node.text(key)?.parse().ok().filter(|status| (400..600).contains(status));
    status.ok_or_else(|| node.error(&format!("config.{key}"), "a status from 400 to 599"))
}
