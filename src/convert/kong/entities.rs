//! Services, routes and plugins of Kong's declarative configuration, and which plugin applies to which route.

use std::collections::HashMap;

use super::text::PlacedRemark;
use super::yaml::{YamlError, YamlNode};

/// A service: where requests go.
#[derive(Clone, Debug, Default)]
pub(super) struct KongService {
    pub(super) name: String,
    /// `http://host:port`, without a path; `None` if it has no host.
    pub(super) url: Option<String>,
    /// The path before each request's own; empty without one.
    pub(super) path: String,
}

/// A route: which requests go to a service.
#[derive(Clone, Debug, Default)]
pub(super) struct KongRoute {
    pub(super) name: String,
    pub(super) line: usize,
    /// The service, by index.
    pub(super) service: Option<usize>,
    pub(super) hosts: Vec<String>,
    pub(super) paths: Vec<String>,
    pub(super) is_stripped: bool,
    /// The names of its further conditions.
    pub(super) others: Vec<&'static str>,
}

impl KongRoute {
    /// Returns each host as a list of its own, or one empty list.
    pub(super) fn hosts_of_servers(&self) -> impl Iterator<Item = &[String]> {
        let none = self.hosts.is_empty().then_some(&[][..]);
        none.into_iter().chain(self.hosts.chunks(1))
    }
}

/// The requests that a plugin is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PluginScope {
    pub(super) service: Option<String>,
    pub(super) route: Option<String>,
    /// A consumer or a group of consumers, as shown.
    pub(super) consumer: Option<String>,
}

/// A plugin of the configuration.
#[derive(Clone, Debug)]
pub(super) struct KongPlugin<'n> {
    pub(super) name: &'n str,
    pub(super) line: usize,
    pub(super) scope: PluginScope,
    pub(super) config: Option<&'n YamlNode>,
}

/// All of a configuration that matters.
#[derive(Debug, Default)]
pub(super) struct KongEntities<'n> {
    pub(super) services: Vec<KongService>,
    pub(super) routes: Vec<KongRoute>,
    pub(super) plugins: Vec<KongPlugin<'n>>,
    /// The first plugin of each name and scope, by index.
    by_scope: HashMap<(&'n str, PluginScope), usize>,
    /// The names of services and routes that have an id, too.
    names_of_ids: HashMap<String, String>,
    /// What is not converted, or may need work.
    pub(super) remarks: Vec<PlacedRemark>,
}

impl<'n> KongEntities<'n> {
    /// Reads the entities of a document.
    pub(super) fn read(root: &'n YamlNode) -> Result<KongEntities<'n>, YamlError> {
        let known =
            ["_format_version", "services", "routes", "plugins", "consumers", "consumer_groups"];
        let entries = root.entries("the document")?;
        if !entries.iter().any(|(key, _)| known.contains(&key.as_str())) {
            let expected = "Kong's declarative configuration, with services, routes or plugins";
            return Err(root.error("the document", expected));
        }
        let mut found = KongEntities::default();
        for (key, node) in entries {
            if !known.contains(&key.as_str()) && !key.starts_with('_') {
                found.remarks.push((node.line, format!("{key}: not converted"), true));
            }
        }
        for service in list(root, "services")? {
            found.service(service)?;
        }
        for route in list(root, "routes")? {
            found.route(route, None)?;
        }
        for (entities, kind) in [("consumers", "consumer"), ("consumer_groups", "consumer group")] {
            for consumer in list(root, entities)? {
                let name = name_of(consumer, &["username", "custom_id", "name", "id"])?;
                let name = name.unwrap_or_else(|| format!("of line {}", consumer.line));
                let scope =
                    PluginScope { consumer: Some(format!("{kind} {name}")), ..Default::default() };
                found.plugins(consumer, &scope)?;
            }
        }
        found.plugins(root, &PluginScope::default())?;
        for (index, plugin) in found.plugins.iter().enumerate() {
            found.by_scope.entry((plugin.name, plugin.scope.clone())).or_insert(index);
        }
        Ok(found)
    }

    fn service(&mut self, node: &'n YamlNode) -> Result<(), YamlError> {
        let name = name_of(node, &["name", "id"])?;
        let name = name.unwrap_or_else(|| format!("service-{}", node.line));
        self.note_id(node, &name)?;
        let text = |key: &str| node.get(key).map(|node| node.text(key)).transpose();
        let (mut protocol, mut address, mut path) = ("http", None, text("path")?.unwrap_or(""));
        if let Some(url) = text("url")? {
            let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
            let start = rest.find('/').unwrap_or(rest.len());
            let (host, url_path) = rest.split_at(start);
            (protocol, address, path) = (scheme, Some(host.to_owned()), url_path);
        } else if let Some(host) = text("host")? {
            protocol = text("protocol")?.unwrap_or("http");
            let port = text("port")?.unwrap_or(if protocol == "https" { "443" } else { "80" });
            address = Some(format!("{host}:{port}"));
        }
        let is_plain = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]/~%".contains(&byte))
        };
        let address = address.filter(|address| is_plain(address) && !address.is_empty());
        let is_http = matches!(protocol, "http" | "https");
        let url = address.filter(|_| is_http).map(|address| format!("{protocol}://{address}"));
        let url = url.filter(|_| is_plain(path));
        let path =
            if is_plain(path) { path.trim_end_matches('/').to_owned() } else { String::new() };
        let index = self.services.len();
        self.services.push(KongService { name: name.clone(), url, path });
        let scope = PluginScope { service: Some(name), ..Default::default() };
        self.plugins(node, &scope)?;
        for route in list(node, "routes")? {
            self.route(route, Some(index))?;
        }
        Ok(())
    }

    fn route(&mut self, node: &'n YamlNode, of: Option<usize>) -> Result<(), YamlError> {
        let name = name_of(node, &["name", "id"])?;
        let name = name.unwrap_or_else(|| format!("route-{}", node.line));
        self.note_id(node, &name)?;
        let service = match (of, self.reference(node, "service")?) {
            (Some(index), _) => Some(index),
            (None, Some(name)) => self.services.iter().position(|service| service.name == name),
            (None, None) => None,
        };
        let texts = |key: &str| {
            let items = node.get(key).map_or(Ok(&[][..]), |node| node.items(key))?;
            items.iter().map(|item| item.text(key).map(shown)).collect::<Result<Vec<_>, _>>()
        };
        let mut hosts = Vec::new();
        for host in texts("hosts")? {
            let mut host = host.to_ascii_lowercase();
            if let Some((plain, port)) = host.split_once(':')
                && port.bytes().all(|byte| byte.is_ascii_digit())
            {
                let text = format!("route {name}: the port of host {host} is not compared");
                self.remarks.push((node.line, text, true));
                host = plain.to_owned();
            }
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        let is_stripped =
            node.get("strip_path").map_or(Ok(true), |node| node.bool("strip_path"))?;
        let others = [
            "methods",
            "headers",
            "snis",
            "sources",
            "destinations",
            "expression",
            "preserve_host",
        ];
        self.routes.push(KongRoute {
            line: node.line,
            service,
            hosts,
            paths: texts("paths")?,
            is_stripped,
            others: others.into_iter().filter(|key| node.get(key).is_some()).collect(),
            name: name.clone(),
        });
        let scope = PluginScope { route: Some(name), ..Default::default() };
        self.plugins(node, &scope)
    }

    /// Reads the plugins of an entity, which are for it, or for what they name.
    fn plugins(&mut self, node: &'n YamlNode, scope: &PluginScope) -> Result<(), YamlError> {
        for plugin in list(node, "plugins")? {
            let Some(name) = plugin.get("name") else {
                return Err(plugin.error("a plugin", "a name"));
            };
            if plugin.get("enabled").is_some_and(|node| node.bool("enabled") == Ok(false)) {
                let text = format!("plugin {} is not enabled: left out", shown(name.text("name")?));
                self.remarks.push((plugin.line, text, false));
                continue;
            }
            let mut scope = scope.clone();
            scope.service = self.reference(plugin, "service")?.or(scope.service);
            scope.route = self.reference(plugin, "route")?.or(scope.route);
            for (key, kind) in [("consumer", "consumer"), ("consumer_group", "consumer group")] {
                if let Some(name) = reference(plugin, key)? {
                    scope.consumer = Some(format!("{kind} {name}"));
                }
            }
            self.plugins.push(KongPlugin {
                name: name.text("name")?,
                line: plugin.line,
                scope,
                config: plugin.get("config"),
            });
        }
        Ok(())
    }

    /// Records the id of an entity with this name, by which others may refer to it.
    fn note_id(&mut self, node: &YamlNode, name: &str) -> Result<(), YamlError> {
        if let Some(id) = name_of(node, &["id"])? {
            self.names_of_ids.insert(id, name.to_owned());
        }
        Ok(())
    }

    /// Returns the name of a service or route that an entity refers to.
    fn reference(&self, node: &YamlNode, key: &str) -> Result<Option<String>, YamlError> {
        let name = reference(node, key)?;
        Ok(name.map(|name| self.names_of_ids.get(&name).cloned().unwrap_or(name)))
    }

    /// Returns the plugin of a name that applies to a route: that with the closest scope.
    pub(super) fn applying(&self, name: &'static str, route: &KongRoute) -> Option<usize> {
        let service = route.service.and_then(|index| self.services.get(index));
        let service = service.map(|service| service.name.clone());
        let route = Some(route.name.clone());
        let scopes = [(&service, &route), (&None, &route), (&service, &None), (&None, &None)];
        scopes.into_iter().find_map(|(service, route)| {
            let (service, route) = (service.clone(), route.clone());
            let scope = PluginScope { service, route, consumer: None };
            self.by_scope.get(&(name, scope)).copied()
        })
    }
}

fn list<'n>(node: &'n YamlNode, key: &str) -> Result<&'n [YamlNode], YamlError> {
    node.get(key).map_or(Ok(&[]), |node| node.items(key))
}

/// Returns the first of these keys that an entity has.
fn name_of(node: &YamlNode, keys: &[&str]) -> Result<Option<String>, YamlError> {
    node.entries("an entity")?;
    let name = keys.iter().find_map(|key| node.get(key));
    name.map(|name| name.text("name").map(shown)).transpose()
}

/// Returns the name of an entity that another one refers to: a text, or a map with its name.
fn reference(node: &YamlNode, key: &str) -> Result<Option<String>, YamlError> {
    let Some(node) = node.get(key) else { return Ok(None) };
    match node.text(key) {
        Ok(name) => Ok(Some(shown(name))),
        Err(_) => name_of(node, &["name", "username", "id"]),
    }
}

/// Returns a name or path in one line.
fn shown(text: &str) -> String {
    text.replace(char::is_control, "?")
}
