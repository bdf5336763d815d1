//! A Redis Cluster: finds the node of each shard by the nodes' redirections.
//!
//! A node that is asked for another node's keys returns that node's address and executes nothing.
//! So a shard's last known node is asked first, and redirections are followed. Nothing else is
//! repeated here, since a node may have executed it; that is the caller's task.

use core::cell::RefCell;
use core::time::Duration;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use redis::{Cmd, Value};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::connection::RedisLink;
use super::connector::{Connector, ServerRole};
use super::script::RedisCall;
use crate::store::contract::error::{Failure, Refusal, StoreError};
use crate::store::contract::options::StoreOptions;
use crate::store::contract::server::ServerAddress;
use crate::store::net::current::described;
use crate::store::net::servers::Servers;

/// A client of a cluster. Clones share its known nodes, with one connection to each.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    known: Rc<RefCell<Known>>,
    /// The node that was asked last, and the number of its connection.
    last: (ServerAddress, u64),
    /// Version of that node.
    version: Option<Arc<str>>,
}

/// The known nodes of a cluster.
#[derive(Debug)]
struct Known {
    /// The seed nodes, which stay, followed by the nodes that others named.
    nodes: Vec<Rc<Node>>,
    seeds: usize,
    /// Index of the node that is asked if no node is known to have a shard.
    guide: usize,
    /// The last node of each shard, by the shard's key.
    places: HashMap<String, ServerAddress>,
    /// Number of connections created so far.
    connects: u64,
    connector: Connector,
    pause: Duration,
}

#[derive(Debug)]
struct Node {
    address: ServerAddress,
    /// Calls are made one after another, in the order of arrival.
    link: Mutex<RedisLink>,
    /// A recent failure: the node is not tried again before the task ends, so that of its shards
    /// only one waits for a hanging node.
    lost: RefCell<Option<(Failure, JoinHandle<()>)>>,
}

/// A redirection to the node that has the keys.
#[derive(Debug, PartialEq, Eq)]
enum Redirection {
    /// For this and further requests.
    Moved(ServerAddress),
    /// Only for this request, after an `ASKING` command: the keys are being moved to that node.
    Ask(ServerAddress),
}

/// Most redirections that are followed for a call, in case nodes disagree.
const MAX_REDIRECTIONS: u32 = 5;

/// Longest time for which a node that cannot be reached is not tried again.
const MAX_PAUSE: Duration = Duration::from_millis(500);

impl Cluster {
    pub(super) fn new(options: &StoreOptions) -> Cluster {
        Cluster {
            known: Rc::new(RefCell::new(Known::new(options))),
            last: (Servers::new(&options.servers).current().clone(), 0),
            version: None,
        }
    }

    /// Returns a client of the same cluster with connections of its own and a longer timeout of an
    /// exchange.
    pub(super) fn with_longer_timeout(&self, longer: Duration) -> Cluster {
        Cluster {
            known: Rc::new(RefCell::new(self.known.borrow().with_longer_timeout(longer))),
            last: (self.last.0.clone(), 0),
            version: None,
        }
    }

    /// Closes the connections to all nodes except the last one.
    pub(super) fn close_others(&self) {
        for node in &self.known.borrow().nodes {
            if node.address != self.last.0 {
                // A locked one is in use.
                if let Ok(mut link) = node.link.try_lock() {
                    link.close();
                }
            }
        }
    }

    /// Returns the number of nodes that are known to have shards, at least 1.
    pub(super) fn servers(&self) -> u16 {
        let known = self.known.borrow();
        let servers: HashSet<_> = known.places.values().collect();
        u16::try_from(servers.len()).unwrap_or(u16::MAX).max(1)
    }

    /// Returns the number of connections created so far, to all nodes.
    pub(super) fn connects(&self) -> u64 {
        self.known.borrow().connects
    }

    /// Returns the number of the last connection; 0 before the first.
    pub(super) fn connection(&self) -> u64 {
        self.last.1
    }

    /// Returns the node that was asked last, with its version; `None` before the first connection.
    pub(super) fn described(&self) -> Option<String> {
        let (server, connection) = &self.last;
        (*connection > 0).then(|| described(server, self.version.as_ref()))
    }

    /// Returns the error that the last node's answer is invalid; `what` describes it.
    pub(super) fn misunderstood(&self, what: &str) -> StoreError {
        StoreError::new(self.last.0.clone(), Failure::Misunderstood(what.into()))
    }

    /// Sends a call to the node of the shard with this key.
    pub(super) async fn call(
        &mut self,
        shard: &str,
        call: &RedisCall<'_>,
    ) -> Result<Value, StoreError> {
        let mut unreachable: Vec<StoreError> = Vec::new();
        let mut node = self.known.borrow_mut().node_of(shard);
        let mut is_asking = false;
        let mut redirections: u32 = 0;
        loop {
            let error = match self.call_node(&node, call, is_asking).await {
                Ok(answer) => {
                    if !is_asking {
                        self.known.borrow_mut().record_place(shard, &node.address);
                    }
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let mut known = self.known.borrow_mut();
            let next = match redirection(&error) {
                Some(_) if redirections == MAX_REDIRECTIONS => None,
                Some(Redirection::Moved(to)) => {
                    is_asking = false;
                    Some(known.node(&to))
                }
                Some(Redirection::Ask(to)) if call.may_be_sent_ahead() => {
                    is_asking = true;
                    Some(known.node(&to))
                }
                Some(Redirection::Ask(_)) => None,
                // Nothing was sent, and another node may know which one has taken over.
                None if matches!(error.failure, Failure::Unreachable(_)) => {
                    unreachable.push(error.clone());
                    is_asking = false;
                    known.other_than(&unreachable)
                }
                None => None,
            };
            if redirection(&error).is_some() {
                redirections = redirections.saturating_add(1);
            }
            match next {
                // The redirection leads back to a node that cannot be reached.
                Some(next) if unreachable.iter().any(|it| it.server == next.address) => {
                    known.forget_place(shard);
                    return Err(next.lost().unwrap_or(error));
                }
                Some(next) => node = next,
                None => {
                    if error.is_transient() {
                        known.forget_place(shard);
                    }
                    // None of the nodes can be reached, or the last error has another reason.
                    unreachable.retain(|earlier| earlier.server != error.server);
                    return Err(error.after(unreachable));
                }
            }
        }
    }

    async fn call_node(
        &mut self,
        node: &Node,
        call: &RedisCall<'_>,
        is_asking: bool,
    ) -> Result<Value, StoreError> {
        let mut link = node.link.lock().await;
        // The previous call may have lost it.
        if let Some(error) = node.lost() {
            return Err(error);
        }
        let mut asking = Cmd::new();
        asking.arg("ASKING");
        let before = link.connects();
        let answer = link.call(call, is_asking.then_some(&asking)).await;
        let made = link.connects().saturating_sub(before);
        self.last = (node.address.clone(), link.connection());
        self.version = link.version().cloned();
        let mut known = self.known.borrow_mut();
        known.connects = known.connects.saturating_add(made);
        let cause = match &answer {
            Err(StoreError { failure, .. }) => match failure {
                Failure::Unreachable(_) => Some(failure.clone()),
                // For waiting calls, which have sent nothing.
                Failure::TimedOut(_) => Some(Failure::Unreachable(failure.to_string().into())),
                _ => None,
            },
            Ok(_) => None,
        };
        if let Some(cause) = cause {
            let pause = tokio::spawn(tokio::time::sleep(known.pause));
            node.lost.replace(Some((cause, pause)));
        }
        answer
    }
}

impl Node {
    /// Returns the error for which the node is not tried at the moment; `None` without one.
    fn lost(&self) -> Option<StoreError> {
        let lost = self.lost.borrow();
        let (failure, pause) = lost.as_ref()?;
        (!pause.is_finished()).then(|| StoreError::new(self.address.clone(), failure.clone()))
    }
}

impl Known {
    fn new(options: &StoreOptions) -> Known {
        let first = Servers::new(&options.servers).current().clone();
        let seeds = core::iter::once(&first).chain(&options.servers);
        // A cluster has only database 0.
        let connector = Connector::new(options, 0, ServerRole::ClusterNode);
        Known::of(seeds, connector, options.connect_timeout.min(MAX_PAUSE))
    }

    fn of<'s>(
        seeds: impl Iterator<Item = &'s ServerAddress>,
        connector: Connector,
        pause: Duration,
    ) -> Known {
        let mut known = Known {
            nodes: Vec::new(),
            seeds: 0,
            guide: 0,
            places: HashMap::new(),
            connects: 0,
            connector,
            pause,
        };
        for seed in seeds {
            known.node(seed);
        }
        known.seeds = known.nodes.len();
        known
    }

    /// Returns the same seed nodes with a longer timeout of an exchange.
    fn with_longer_timeout(&self, longer: Duration) -> Known {
        let seeds = self.nodes.iter().take(self.seeds);
        let seeds = seeds.map(|node| &node.address);
        Known::of(seeds, self.connector.with_longer_timeout(longer), self.pause)
    }

    /// Returns the node with this address.
    fn node(&mut self, address: &ServerAddress) -> Rc<Node> {
        let mut nodes = self.nodes.iter();
        if let Some(node) = nodes.find(|node| node.address == *address) {
            return node.clone();
        }
        let node = Rc::new(Node {
            address: address.clone(),
            link: Mutex::new(RedisLink::to(address, &self.connector)),
            lost: RefCell::default(),
        });
        self.nodes.push(node.clone());
        node
    }

    /// Returns the node to ask for a shard.
    fn node_of(&mut self, shard: &str) -> Rc<Node> {
        let guide = self.nodes.get(self.guide).map(|node| &node.address);
        let address = self.places.get(shard).or(guide).cloned();
        // Not used, since there are seed nodes.
        let nowhere = || ServerAddress::Unix("/".into());
        self.node(&address.unwrap_or_else(nowhere))
    }

    /// Returns another node to ask: the guide, or its successor.
    fn other_than(&mut self, unreachable: &[StoreError]) -> Option<Rc<Node>> {
        let count = self.nodes.len();
        let after = (0..count).map(|step| {
            let index = self.guide.saturating_add(step);
            index.checked_rem(count).unwrap_or_default()
        });
        let mut candidates = after.filter_map(|index| Some((index, self.nodes.get(index)?)));
        let (index, other) = candidates.find(|(_, it)| {
            let mut unreachable = unreachable.iter();
            unreachable.all(|error| error.server != it.address) && it.lost().is_none()
        })?;
        let other = other.clone();
        self.guide = index;
        Some(other)
    }

    fn record_place(&mut self, shard: &str, address: &ServerAddress) {
        if self.places.get(shard) != Some(address) {
            self.places.insert(shard.into(), address.clone());
            self.forget_nodes();
        }
    }

    /// Removes the known node of a shard, so that another one is asked.
    fn forget_place(&mut self, shard: &str) {
        self.places.remove(shard);
        let next = self.guide.saturating_add(1);
        self.guide = if next < self.nodes.len() { next } else { 0 };
    }

    /// Removes nodes that are not seed nodes, have no shard, and cannot be reached.
    fn forget_nodes(&mut self) {
        let (seeds, places) = (self.seeds, &self.places);
        let mut index: usize = 0;
        self.nodes.retain(|node| {
            let is_seed = index < seeds;
            index = index.saturating_add(1);
            let is_lost = node.lost.borrow().is_some();
            is_seed || !is_lost || places.values().any(|it| *it == node.address)
        });
        self.guide = 0;
    }
}

/// Parses a redirection; `None` for other errors.
fn redirection(error: &StoreError) -> Option<Redirection> {
    let Failure::Refused(Refusal::Moved(words)) = &error.failure else {
        return None;
    };
    let mut words = words.split(' ');
    let kind = words.next()?;
    // The port follows the last colon, with IPv6 too.
    let (host, port) = words.nth(1)?.rsplit_once(':')?;
    let port = port.parse().ok().filter(|&port: &u16| port > 0)?;
    let to = match (host, &error.server) {
        // A node that does not know its own address means the host under which it was found.
        ("" | "?", ServerAddress::Tcp { host, .. }) => {
            ServerAddress::Tcp { host: host.clone(), port }
        }
        ("" | "?", ServerAddress::Unix(_)) => return None,
        (host, _) => ServerAddress::Tcp { host: host.into(), port },
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
        let tcp = ServerAddress::tcp;
        for (words, expected) in [
            ("MOVED 3999 127.0.0.1:6381", Some(Redirection::Moved(tcp("127.0.0.1", 6381)))),
            ("ASK 3999 redis-2.example:6381", Some(Redirection::Ask(tcp("redis-2.example", 6381)))),
            ("MOVED 1 2001:db8::1:6381", Some(Redirection::Moved(tcp("2001:db8::1", 6381)))),
            ("MOVED 1 :6381", Some(Redirection::Moved(tcp("seed.example", 6381)))),
            ("ASK 1 ?:6381", Some(Redirection::Ask(tcp("seed.example", 6381)))),
            ("MOVED", None),
            ("MOVED 1", None),
            ("MOVED 1 6381", None),
            ("MOVED 1 127.0.0.1:0", None),
            ("MOVED 1 127.0.0.1:x", None),
        ] {
            let failure = Failure::Refused(Refusal::Moved(words.into()));
            let error = StoreError::new(tcp("seed.example", 6379), failure);
            assert_eq!(redirection(&error), expected, "{words}");
        }
    }
}
