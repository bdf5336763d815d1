//! The configuration for nginx: zones, stores, namespaces and maps, and a location for each route.

use std::collections::{HashMap, HashSet};

use super::entities::{KongEntities, KongPlugin, KongRoute};
use super::limiter::{KongKey, KongLimiter, KongStrategy, PLUGINS};
use super::maps::KongMaps;
use super::sketch::{ServerSketch, location};
use super::text::{PlacedRemark, Remarks, block, word};
use super::yaml::{YamlError, YamlNode, YamlValue};

use crate::convert::MARK;
use crate::convert::written::UniqueNames;
use crate::policy::namespace::{DEFAULT_NAMESPACE, is_valid_name};

/// A plugin with the names that it has here.
struct NamedLimiter {
    limiter: KongLimiter,
    /// The namespace; `None` for the default one.
    namespace: Option<String>,
    /// The counter; empty without one.
    counter: String,
    /// The location that answers with the plugin's message.
    error_page: Option<String>,
}

/// The configuration as it is written.
#[derive(Default)]
pub(super) struct KongOutput {
    stores: Vec<(String, Vec<String>)>,
    namespaces: Vec<(String, Vec<String>)>,
    maps: KongMaps,
    remarks: Remarks,
    names: UniqueNames,
    /// The names of Kong's namespaces that have another one here.
    renamed: HashMap<String, String>,
}

impl KongOutput {
    /// Returns the text and its remarks; `None` if the entities have none of the plugins.
    pub(super) fn write(
        entities: &KongEntities<'_>,
    ) -> Result<Option<(String, Vec<PlacedRemark>)>, YamlError> {
        if !entities.plugins.iter().any(|plugin| PLUGINS.contains(&plugin.name)) {
            return Ok(None);
        }
        let mut output =
            KongOutput { remarks: Remarks::of(&entities.remarks), ..KongOutput::default() };
        // The names of namespaces are those of Kong; no other name takes them.
        let namespaces =
            entities.plugins.iter().filter_map(|plugin| plugin.config?.get("namespace"));
        for name in namespaces.filter_map(|node| node.text("namespace").ok()) {
            output.names.take(name);
        }
        output.names.take(DEFAULT_NAMESPACE);
        let limiters = entities.plugins.iter().map(|plugin| output.name(plugin));
        let limiters = limiters.collect::<Result<Vec<_>, _>>()?;
        let servers = output.servers(entities, &limiters);
        let mut text = format!(
            "{MARK}include this file in http, below load_module modules/ngx_http_rate_limiting_module.so;\n\
             {MARK}the servers are a sketch of Kong's routing: compare listen, TLS, hosts and paths\n"
        );
        for (line, remark, is_work) in output.remarks.list() {
            let kind = if *is_work { "work by hand: " } else { "" };
            let remark = remark.replace(char::is_control, "?");
            text.push_str(&format!("{MARK}line {line}: {kind}{remark}\n"));
        }
        text.push_str("ratelimit_zone zone=counters:12m;\n");
        for (kind, blocks) in
            [("ratelimit_store", &output.stores), ("ratelimit_namespace", &output.namespaces)]
        {
            for (name, lines) in blocks {
                text.push_str(&block(&format!("{kind} {name}"), lines));
            }
        }
        text.push_str(&output.maps.write());
        text.push_str(&servers);
        Ok(Some((text, output.remarks.into_list())))
    }

    /// Gives a plugin its names; returns `None` if it is not converted.
    fn name(&mut self, plugin: &KongPlugin<'_>) -> Result<Option<NamedLimiter>, YamlError> {
        let of = match (&plugin.scope.service, &plugin.scope.route, &plugin.scope.consumer) {
            (_, _, Some(consumer)) => format!(" of {consumer}"),
            (_, Some(route), _) => format!(" of route {route}"),
            (Some(service), ..) => format!(" of service {service}"),
            _ => String::new(),
        };
        if !PLUGINS.contains(&plugin.name) {
            let text = format!("plugin {}{of} is no limiter: not converted", plugin.name);
            self.remarks.add(plugin.line, text, true);
            return Ok(None);
        }
        let empty = YamlNode { line: plugin.line, value: YamlValue::Null };
        let limiter = KongLimiter::read(plugin.name, plugin.config.unwrap_or(&empty))?;
        if plugin.scope.consumer.is_some() {
            let limits: Vec<_> =
                limiter.limits.iter().flat_map(|(_, limits)| limits.clone()).collect();
            let text = format!(
                "plugin {}{of} ({}) is not converted: see Tiers in docs/recipes.md",
                plugin.name,
                limits.join(" ")
            );
            self.remarks.add(plugin.line, text, true);
            return Ok(None);
        }
        for (line, text, is_work) in &limiter.remarks {
            self.remarks.add(*line, text.clone(), *is_work);
        }
        let scope = plugin.scope.route.as_deref().or(plugin.scope.service.as_deref());
        // With the name of a limit behind it, it is a valid name, too.
        let base: String = scope.unwrap_or("global").chars().take(20).collect();
        let base = base.as_str();
        let namespace = match (&limiter.namespace, &limiter.strategy) {
            (None, KongStrategy::Local) => None,
            (Some(name), _) if is_valid_name(name.as_bytes()) && name != DEFAULT_NAMESPACE => {
                Some(name.clone())
            }
            (Some(name), _) => Some(self.renamed(name, plugin.line)),
            (None, _) => Some(self.names.valid(base.as_bytes())),
        };
        // Plugins with one namespace share its counters.
        let counter = match namespace {
            Some(_) => String::new(),
            None => self.names.valid(base.as_bytes()),
        };
        if let Some(name) = &namespace {
            self.namespace(name, &limiter, plugin.line);
        }
        let error_page = limiter.message.as_ref().and_then(|message| match message.contains('$') {
            true => {
                let text = "config.error_message has a $: write an error_page".to_owned();
                self.remarks.add(plugin.line, text, true);
                None
            }
            false => Some(format!("@{}-rejected", self.names.valid(base.as_bytes()))),
        });
        Ok(Some(NamedLimiter { limiter, namespace, counter, error_page }))
    }

    /// Returns the name that takes the place of the name of a namespace of Kong.
    fn renamed(&mut self, name: &str, line: usize) -> String {
        if let Some(known) = self.renamed.get(name) {
            return known.clone();
        }
        let new = self.names.valid(name.as_bytes());
        self.remarks.add(line, format!("namespace \"{name}\" is called {new}"), false);
        self.renamed.insert(name.to_owned(), new.clone());
        new
    }

    /// Adds a namespace, unless it is there.
    fn namespace(&mut self, name: &str, limiter: &KongLimiter, line: usize) {
        let mut lines = Vec::new();
        let store = match &limiter.strategy {
            KongStrategy::Local => None,
            KongStrategy::Redis(store) => Some(("redis", store.clone())),
            KongStrategy::Cluster => {
                let store = ["strategy postgres;", "server 127.0.0.1;"].map(str::to_owned);
                Some(("postgres", store.to_vec()))
            }
        };
        if let Some((kind, store)) = store {
            let known = self.stores.iter().find(|(_, lines)| *lines == store);
            let store_name = match known.map(|(name, _)| name.clone()) {
                Some(name) => name,
                None => {
                    let number = self.stores.len().saturating_add(1);
                    let name =
                        if number == 1 { kind.to_owned() } else { format!("{kind}-{number}") };
                    self.stores.push((name.clone(), store));
                    name
                }
            };
            lines.push(format!("store {store_name};"));
        }
        lines.extend(limiter.sync_rate.iter().map(|rate| format!("sync_rate {rate};")));
        // Kong's requests wait for Redis as long as an exchange may take.
        if let (KongStrategy::Redis(store), Some("0")) =
            (&limiter.strategy, limiter.sync_rate.as_deref())
        {
            lines.extend(store.iter().filter(|line| line.starts_with("timeout ")).cloned());
        }
        lines.extend(limiter.on_error.iter().map(|action| format!("on_error {action};")));
        match self.namespaces.iter().find(|(known, _)| known == name) {
            None => self.namespaces.push((name.to_owned(), lines)),
            Some((_, known)) if *known == lines => {}
            Some(_) => {
                let text =
                    format!("namespace {name} has other settings in another plugin, which apply");
                self.remarks.add(line, text, true);
            }
        }
    }

    /// Returns the servers.
    fn servers(
        &mut self,
        entities: &KongEntities<'_>,
        limiters: &[Option<NamedLimiter>],
    ) -> String {
        let mut servers: Vec<ServerSketch> = Vec::new();
        let every = KongRoute { name: "of every request".into(), line: 1, ..KongRoute::default() };
        let routes = match entities.routes.as_slice() {
            [] => core::slice::from_ref(&every),
            routes => routes,
        };
        let applied = routes
            .iter()
            .flat_map(|route| PLUGINS.iter().filter_map(|name| entities.applying(name, route)));
        let applied: HashSet<usize> = applied.collect();
        for (index, plugin) in entities.plugins.iter().enumerate() {
            let is_converted = limiters.get(index).is_some_and(Option::is_some);
            if is_converted && !applied.contains(&index) {
                let text = format!(
                    "plugin {} applies to no route: its rules are not written",
                    plugin.name
                );
                self.remarks.add(plugin.line, text, true);
            }
        }
        for route in routes {
            let (mut rules, mut pages) = (Vec::new(), Vec::new());
            self.rules(entities, limiters, route, &mut rules, &mut pages);
            let all = ["/".to_owned()];
            let paths = if route.paths.is_empty() { &all[..] } else { &route.paths };
            let locations = paths.iter().map(|path| {
                let mut lines = rules.clone();
                let location = location(entities, route, path, &mut lines, &mut self.remarks);
                (location.clone(), block(&location, &lines))
            });
            let locations: Vec<_> = locations.collect();
            let mut is_whole = true;
            for hosts in route.hosts_of_servers() {
                let index = servers.iter().position(|server| server.hosts == hosts);
                let index = index.unwrap_or_else(|| {
                    servers.push(ServerSketch { hosts: hosts.to_vec(), ..Default::default() });
                    servers.len().saturating_sub(1)
                });
                if let Some(server) = servers.get_mut(index) {
                    is_whole &= server.add(&locations, &pages);
                }
            }
            if !is_whole {
                let text = "has a path of another route: not converted";
                self.remarks.add(route.line, format!("route {}: {text}", route.name), true);
            }
        }
        let is_open = |server: &ServerSketch| match server.hosts.as_slice() {
            [] => true,
            hosts => hosts.iter().any(|host| host.contains('*')),
        };
        if servers.len() > 1 && servers.iter().any(is_open) {
            let text = "Kong tries routes without hosts, or with *, for each host, too; a server has its own locations only";
            self.remarks.add(1, text.into(), true);
        }
        let mut joined: Vec<ServerSketch> = Vec::new();
        for server in servers {
            match joined.iter_mut().find(|known| known.serves_as(&server)) {
                Some(known) => known.hosts.extend(server.hosts),
                None => joined.push(server),
            }
        }
        joined.iter().map(ServerSketch::write).collect()
    }

    /// Adds the rules of a route, and the locations that answer with messages.
    fn rules(
        &mut self,
        entities: &KongEntities<'_>,
        limiters: &[Option<NamedLimiter>],
        route: &KongRoute,
        lines: &mut Vec<String>,
        pages: &mut Vec<String>,
    ) {
        let mut settings: Option<Vec<String>> = None;
        for plugin in PLUGINS {
            let Some(index) = entities.applying(plugin, route) else { continue };
            let (Some(plugin), Some(Some(named))) =
                (entities.plugins.get(index), limiters.get(index))
            else {
                continue;
            };
            let (key, is_authenticated) = self.key(entities, named, plugin, route);
            for (name, limits) in &named.limiter.limits {
                let mut rule = vec!["ratelimit".to_owned()];
                rule.extend(named.namespace.clone());
                rule.extend(limits.iter().cloned());
                if !named.limiter.is_sliding {
                    rule.push("window=fixed".into());
                }
                rule.extend(key.clone());
                if let (Some(header), Some(name)) = (&named.limiter.cost_header, name) {
                    rule.push(format!("charge=${}", self.maps.charge(header, name)));
                }
                let counter =
                    [Some(named.counter.as_str()).filter(|name| !name.is_empty()), name.as_deref()];
                let counter: Vec<_> = counter.into_iter().flatten().collect();
                if !counter.is_empty() {
                    rule.push(format!("counter={}", counter.join(".")));
                }
                lines.push(format!("{};", rule.join(" ")));
            }
            let wanted = self.settings(named, is_authenticated, pages);
            match &settings {
                None => {
                    lines.extend(wanted.iter().cloned());
                    settings = Some(wanted);
                }
                Some(known) if *known == wanted => {}
                Some(known) => {
                    let others: Vec<_> =
                        wanted.iter().filter(|line| !known.contains(line)).cloned().collect();
                    let text = format!(
                        "plugin {} shares a location with another plugin, whose settings apply; its own are: {}",
                        plugin.name,
                        others.join(" ")
                    );
                    self.remarks.add(plugin.line, text, true);
                }
            }
            if let Some(header) = &named.limiter.cost_header {
                lines.push(format!("proxy_hide_header {};", word(header)));
                let text = "response-ratelimiting: requests are rejected before the backend is asked, while any limit is used up";
                self.remarks.add(plugin.line, text.into(), false);
            }
        }
    }

    /// Returns the directives of a location that are not rules.
    fn settings(
        &mut self,
        named: &NamedLimiter,
        is_authenticated: bool,
        pages: &mut Vec<String>,
    ) -> Vec<String> {
        let limiter = &named.limiter;
        let mut lines = Vec::new();
        if is_authenticated {
            lines.push("ratelimit_phase precontent;".to_owned());
        }
        let headers = if limiter.has_headers { "draft03 legacy" } else { "off" };
        lines.push(format!("ratelimit_headers {headers};"));
        if limiter.counts_rejected {
            lines.push("ratelimit_count_rejected on;".into());
        }
        if limiter.status != 429 {
            lines.push(format!("ratelimit_status {};", limiter.status));
        }
        if limiter.jitter >= 0.001 {
            lines.push(format!("ratelimit_retry_after_jitter {:.3};", limiter.jitter));
        }
        if let (Some(page), Some(message)) = (&named.error_page, &limiter.message) {
            let status = limiter.status;
            lines.push(format!("error_page {status} {page};"));
            let body = serde_json::json!({ "message": message }).to_string();
            pages.push(block(
                &format!("location {page}"),
                &[
                    "default_type application/json;".to_owned(),
                    format!("return {status} {};", word(&body)),
                ],
            ));
        }
        lines
    }

    /// Returns `key=` of a plugin's rules, if it is not the default one, and whether it is known after authentication.
    fn key(
        &mut self,
        entities: &KongEntities<'_>,
        named: &NamedLimiter,
        plugin: &KongPlugin<'_>,
        route: &KongRoute,
    ) -> (Option<String>, bool) {
        const AUTHENTICATION: [&str; 12] = [
            "basic-auth",
            "key-auth",
            "key-auth-enc",
            "jwt",
            "oauth2",
            "hmac-auth",
            "ldap-auth",
            "ldap-auth-advanced",
            "openid-connect",
            "mtls-auth",
            "oauth2-introspection",
            "header-cert-auth",
        ];
        let variable = match &named.limiter.key {
            KongKey::Address => return (None, false),
            KongKey::Consumer => {
                if !entities.plugins.iter().any(|plugin| AUTHENTICATION.contains(&plugin.name)) {
                    let text =
                        "no plugin authenticates consumers: counted by address, as Kong does";
                    self.remarks.add(plugin.line, text.into(), false);
                    return (None, false);
                }
                let text = "$remote_user, of auth_basic, stands for Kong's consumer: authenticate clients, or use another variable";
                self.remarks.add(plugin.line, text.into(), true);
                let variable = self.maps.consumer();
                return (Some(format!("key=${variable}")), true);
            }
            KongKey::Service => {
                let service = route.service.and_then(|index| entities.services.get(index));
                let name = service.map_or("kong", |service| service.name.as_str());
                return (Some(word(&format!("key=service {}", name.replace('$', "_")))), false);
            }
            KongKey::Header(header) => self.maps.header(header),
            KongKey::Path(path) => self.maps.path(path),
        };
        (Some(format!("key=${variable}")), false)
    }
}
