//! A Redis Cluster: which of its nodes has a shard, as the nodes themselves tell.
//!
//! A node that is asked for what another one has says where it is, and does nothing: so a shard is
//! asked of whoever had it last, and a redirection is followed. Nothing else is tried anew here: what
//! a node may have done is for the caller to find out.

use core::time::Duration;
use std::collections::HashMap;

use redis::{Cmd, Value};
use tokio::task::JoinHandle;

use super::connection::Link;
use super::connector::Connector;
use super::script::Call;
use super::servers::Servers;
use crate::store::error::{Failure, Refusal, StoreError};
use crate::store::options::StoreOptions;
use crate::store::server::ServerAddress;

/// The way to a cluster: a link to each node that is known.
#[derive(Debug)]
pub(super) struct Cluster {
    /// At least the seed nodes, which come first and stay, then those that others told of.
    nodes: Vec<Node>,
    seeds: usize,
    /// The index of the node that is asked for what nobody is known to have.
    guide: usize,
    /// Who had a shard last, by its key.
    places: HashMap<String, ServerAddress>,
    /// The node that was talked to last, and the number of the connection to it.
    last: (ServerAddress, u64),
    /// How many connections have been made.
    connects: u64,
    connector: Connector,
    timeout: Duration,
    pause: Duration,
}

#[derive(Debug)]
struct Node {
    address: ServerAddress,
    link: Link,
    /// Why it could not be reached a moment ago: it is not tried again before the task ends. Of the
    /// shards of a node that hangs, only one waits for it.
    lost: Option<(Failure, JoinHandle<()>)>,
}

/// Another node that has the keys.
#[derive(Debug, PartialEq, Eq)]
enum Redirection {
    /// From now on.
    Moved(ServerAddress),
    /// This time, if it is told that we were sent: it is being given the keys.
    Ask(ServerAddress),
}

/// The most redirections that are followed at once: nodes that disagree must not keep us busy.
const MAX_REDIRECTIONS: u32 = 5;

/// The longest time for which a node that cannot be reached is left alone.
const MAX_PAUSE: Duration = Duration::from_millis(500);

impl Cluster {
    pub(super) fn new(options: &StoreOptions) -> Cluster {
        let mut cluster = Cluster {
            nodes: Vec::new(),
            seeds: 0,
            guide: 0,
            places: HashMap::new(),
            last: (Servers::new(&options.servers).current().clone(), 0),
            connects: 0,
            // A cluster has only database 0.
            connector: Connector::new(options, 0),
            timeout: options.timeout,
            pause: options.connect_timeout.min(MAX_PAUSE),
        };
        for seed in &options.servers {
            cluster.node(seed);
        }
        cluster.seeds = cluster.nodes.len();
        cluster
    }

    /// How many connections have been made, to all nodes.
    pub(super) fn connects(&self) -> u64 {
        self.connects
    }

    /// The number of the connection that was used last; 0 before the first.
    pub(super) fn connection(&self) -> u64 {
        self.last.1
    }

    /// An answer of the node that was used last was not what `what` says.
    pub(super) fn misunderstood(&self, what: &str) -> StoreError {
        StoreError {
            server: self.last.0.clone(),
            failure: Failure::Misunderstood(what.into()),
        }
    }

    /// Makes a call to whoever has the shard with this key.
    pub(super) async fn call(&mut self, shard: &str, call: &Call<'_>) -> Result<Value, StoreError> {
        let mut unreachable = Vec::new();
        let known = self.places.get(shard).cloned();
        let mut node = match known {
            Some(place) => self.node(&place),
            None => self.guide,
        };
        let mut is_asking = false;
        let mut redirections: u32 = 0;
        loop {
            let error = match self.call_node(node, call, is_asking).await {
                Ok(answer) => {
                    if !is_asking {
                        self.note_place(shard, node);
                    }
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let next = match redirection(&error) {
                Some(_) if redirections == MAX_REDIRECTIONS => None,
                Some(Redirection::Moved(to)) => {
                    is_asking = false;
                    Some(self.node(&to))
                }
                Some(Redirection::Ask(to)) => {
                    is_asking = true;
                    Some(self.node(&to))
                }
                // Nothing was sent: another node may know who has taken over.
                None if matches!(error.failure, Failure::Unreachable(_)) => {
                    unreachable.push(error.server.clone());
                    is_asking = false;
                    self.other_than(&unreachable)
                }
                None => None,
            };
            if redirection(&error).is_some() {
                redirections = redirections.saturating_add(1);
            }
            match next {
                // It is sent back to whom it came from.
                Some(next) if self.is_one_of(next, &unreachable) => {
                    self.forget_place(shard);
                    return Err(self.lost(next).unwrap_or(error));
                }
                Some(next) => node = next,
                None => {
                    if error.is_transient() {
                        self.forget_place(shard);
                    }
                    return Err(error);
                }
            }
        }
    }

    async fn call_node(
        &mut self,
        index: usize,
        call: &Call<'_>,
        is_asking: bool,
    ) -> Result<Value, StoreError> {
        if let Some(error) = self.lost(index) {
            return Err(error);
        }
        let Some(node) = self.nodes.get_mut(index) else {
            // Indexes are those of nodes.
            return Err(self.error(index, Failure::Unreachable("no such node".into())));
        };
        let mut asking = Cmd::new();
        asking.arg("ASKING");
        let before = node.link.connects();
        let answer = node.link.call(call, is_asking.then_some(&asking)).await;
        let made = node.link.connects().saturating_sub(before);
        self.connects = self.connects.saturating_add(made);
        self.last = (node.address.clone(), node.link.connection());
        if let Err(StoreError {
            failure: failure @ Failure::Unreachable(_),
            ..
        }) = &answer
        {
            let pause = tokio::spawn(tokio::time::sleep(self.pause));
            node.lost = Some((failure.clone(), pause));
        }
        answer
    }

    /// Why a node is left alone for the moment, if it is.
    fn lost(&self, index: usize) -> Option<StoreError> {
        let (failure, pause) = self.nodes.get(index)?.lost.as_ref()?;
        (!pause.is_finished()).then(|| self.error(index, failure.clone()))
    }

    /// The index of the node with this address.
    fn node(&mut self, address: &ServerAddress) -> usize {
        if let Some(index) = self.nodes.iter().position(|node| node.address == *address) {
            return index;
        }
        self.nodes.push(Node {
            address: address.clone(),
            link: Link::to(address, &self.connector, self.timeout),
            lost: None,
        });
        self.nodes.len().saturating_sub(1)
    }

    /// Another node to ask: the guide, or who takes its place.
    fn other_than(&mut self, unreachable: &[ServerAddress]) -> Option<usize> {
        let count = self.nodes.len();
        let after = (0..count).map(|step| {
            let index = self.guide.saturating_add(step);
            index.checked_rem(count).unwrap_or_default()
        });
        let mut candidates =
            after.filter(|&it| !self.is_one_of(it, unreachable) && self.lost(it).is_none());
        let other = candidates.next()?;
        self.guide = other;
        Some(other)
    }

    fn is_one_of(&self, index: usize, addresses: &[ServerAddress]) -> bool {
        let node = self.nodes.get(index);
        node.is_some_and(|node| addresses.contains(&node.address))
    }

    fn note_place(&mut self, shard: &str, index: usize) {
        let Some(Node { address, .. }) = self.nodes.get(index) else {
            return;
        };
        if self.places.get(shard) != Some(address) {
            self.places.insert(shard.into(), address.clone());
            self.forget_nodes();
        }
    }

    /// Nobody is known to have the shard, and it is another one who is asked.
    fn forget_place(&mut self, shard: &str) {
        self.places.remove(shard);
        let next = self.guide.saturating_add(1);
        self.guide = if next < self.nodes.len() { next } else { 0 };
    }

    /// Forgets nodes that have gone: those that are no seed, have no shard, and cannot be reached.
    fn forget_nodes(&mut self) {
        let (seeds, places) = (self.seeds, &self.places);
        let mut index: usize = 0;
        self.nodes.retain(|node| {
            let is_seed = index < seeds;
            index = index.saturating_add(1);
            is_seed || node.lost.is_none() || places.values().any(|it| *it == node.address)
        });
        self.guide = 0;
    }

    fn error(&self, index: usize, failure: Failure) -> StoreError {
        let nowhere = || ServerAddress::Unix("/".into());
        let node = self.nodes.get(index);
        StoreError {
            server: node.map_or_else(nowhere, |node| node.address.clone()),
            failure,
        }
    }
}

/// To whom a node sends us.
fn redirection(error: &StoreError) -> Option<Redirection> {
    let Failure::Refused(Refusal::Moved(words)) = &error.failure else {
        return None;
    };
    let mut words = words.split(' ');
    let kind = words.next()?;
    // The port is after the last colon, also with IPv6.
    let (host, port) = words.nth(1)?.rsplit_once(':')?;
    let port = port.parse().ok().filter(|&port: &u16| port > 0)?;
    let to = match (host, &error.server) {
        // A node that does not know its own address: it is where we found the one that says so.
        ("" | "?", ServerAddress::Tcp { host, .. }) => ServerAddress::Tcp {
            host: host.clone(),
            port,
        },
        ("" | "?", ServerAddress::Unix(_)) => return None,
        (host, _) => ServerAddress::Tcp {
            host: host.into(),
            port,
        },
    };
    match kind {
        "MOVED" => Some(Redirection::Moved(to)),
        "ASK" => Some(Redirection::Ask(to)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_name_a_host_and_a_port() {
        let tcp = |host: &str, port| ServerAddress::Tcp {
            host: host.into(),
            port,
        };
        for (words, expected) in [
            (
                "MOVED 3999 127.0.0.1:6381",
                Some(Redirection::Moved(tcp("127.0.0.1", 6381))),
            ),
            (
                "ASK 3999 redis-2.example:6381",
                Some(Redirection::Ask(tcp("redis-2.example", 6381))),
            ),
            (
                "MOVED 1 2001:db8::1:6381",
                Some(Redirection::Moved(tcp("2001:db8::1", 6381))),
            ),
            (
                "MOVED 1 :6381",
                Some(Redirection::Moved(tcp("seed.example", 6381))),
            ),
            (
                "ASK 1 ?:6381",
                Some(Redirection::Ask(tcp("seed.example", 6381))),
            ),
            ("MOVED", None),
            ("MOVED 1", None),
            ("MOVED 1 6381", None),
            ("MOVED 1 127.0.0.1:0", None),
            ("MOVED 1 127.0.0.1:x", None),
        ] {
            let error = StoreError {
                server: tcp("seed.example", 6379),
                failure: Failure::Refused(Refusal::Moved(words.into())),
            };
            assert_eq!(redirection(&error), expected, "{words}");
        }
    }
}
