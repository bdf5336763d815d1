//! The store of a plugin's `redis`, and of the options `redis_...` of older versions.

use super::text::{PlacedRemark, decimal, word};
use super::yaml::{YamlError, YamlNode, YamlValue};

/// Returns the directives of the store that a plugin's `config` describes, and adds remarks.
pub(super) fn redis_store(
    config: &YamlNode,
    remarks: &mut Vec<PlacedRemark>,
) -> Result<Vec<String>, YamlError> {
    let mut settings: Vec<(&str, &YamlNode)> = Vec::new();
    for (key, node) in config.entries("config")? {
        if let Some(key) = key.strip_prefix("redis_") {
            settings.push((key, node));
        }
    }
    if let Some(redis) = config.get("redis") {
        settings
            .extend(redis.entries("config.redis")?.iter().map(|(key, node)| (key.as_str(), node)));
    }
    settings.retain(|(_, node)| node.value != YamlValue::Null);
    let find =
        |wanted: &str| settings.iter().rev().find(|(key, _)| *key == wanted).map(|(_, node)| *node);
    let mut lines = vec!["strategy redis;".to_owned()];
    let (mut servers, mut is_cluster) = (Vec::new(), false);
    for (key, default) in [("sentinel_nodes", 26_379.0), ("cluster_nodes", 6379.0)] {
        for node in find(key).map_or(Ok(&[][..]), |node| node.items(key))? {
            let host = node.get("host").or_else(|| node.get("ip"));
            let host = host.map_or(Ok("127.0.0.1"), |node| node.text("host"))?;
            servers.push(server(node, host, node.get("port"), default)?);
            is_cluster |= key == "cluster_nodes";
        }
    }
    if servers.is_empty() {
        let host = find("host").map_or(Ok("127.0.0.1"), |node| node.text("host"))?;
        servers.push(server(config, host, find("port"), 6379.0)?);
    }
    lines.extend(servers);
    if is_cluster {
        lines.push("cluster on;".into());
    }
    let has_tls = find("ssl").map_or(Ok(false), |node| node.bool("ssl"))?;
    let mut timeout = None;
    for (key, node) in &settings {
        let what = format!("config.redis.{key}");
        match *key {
            "host" | "port" | "sentinel_nodes" | "cluster_nodes" | "cluster_addresses"
            | "sentinel_addresses" | "ssl" => {}
            "username" | "password" | "sentinel_master" | "sentinel_username"
            | "sentinel_password" => {
                let text = node.text(&what)?;
                if text.is_empty() {
                    continue;
                }
                if text.contains("{vault") {
                    remarks.push((
                        node.line,
                        format!("{what} refers to a vault: write the value, or password_file"),
                        true,
                    ));
                }
                lines.push(format!("{key} {};", word(text)));
            }
            "database" if !is_cluster => {
                lines.push(format!("{key} {};", decimal(node.number(&what)?)))
            }
            "database" => {}
            "connect_timeout" => {
                lines.push(format!("connect_timeout {}ms;", milliseconds(&what, node)?))
            }
            "timeout" | "send_timeout" | "read_timeout" => {
                timeout = timeout.max(Some(milliseconds(&what, node)?));
            }
            "ssl_verify" if has_tls => {
                let verify = if node.bool(&what)? { "on" } else { "off" };
                lines.push(format!("tls_verify {verify};"));
            }
            "server_name" if has_tls => {
                lines.push(format!("tls_name {};", word(node.text(&what)?)))
            }
            "ssl_verify" | "server_name" => {}
            "keepalive_pool_size"
            | "keepalive_backlog"
            | "cluster_max_redirections"
            | "sentinel_role" => {
                remarks.push((node.line, format!("{what} is not needed"), false));
            }
            _ if node.is_off() => {}
            _ => {
                remarks.push((node.line, format!("{what} has no counterpart: not converted"), true))
            }
        }
    }
    if let Some(timeout) = timeout {
        lines.push(format!("timeout {timeout}ms;"));
    }
    if has_tls {
        lines.push("tls on;".into());
        if find("ssl_verify").is_none() {
            remarks.push((
                config.line,
                "the certificate of Redis is verified; Kong needs ssl_verify for that".into(),
                false,
            ));
        }
    }
    Ok(lines)
}

fn milliseconds(what: &str, node: &YamlNode) -> Result<u64, YamlError> {
    let time = node.text(what)?.parse().ok().filter(|time| (1..=60_000).contains(time));
    time.ok_or_else(|| node.error(what, "milliseconds from 1 to 60000"))
}

fn server(
    node: &YamlNode,
    host: &str,
    port: Option<&YamlNode>,
    default: f64,
) -> Result<String, YamlError> {
    let port = port.map_or(Ok(default), |node| node.number("port"))?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_plain) || !(1.0..=65_535.0).contains(&port) {
        return Err(node.error("a server", "a host and a port"));
    }
    let port = decimal(port);
    Ok(match host.contains(':') && !host.starts_with('[') {
        true => format!("server [{host}]:{port};"),
        false => format!("server {host}:{port};"),
    })
}
