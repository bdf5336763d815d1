//! Sends requests when they are due, whether or not earlier ones were answered, from one thread.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::oracle::Hit;

/// Connections to all nodes together. A synchronous request holds its connection until the store has answered.
const CONNECTIONS: usize = 320;

/// Longest wait for the last answers.
const PATIENCE: u64 = 60_000_000_000;

/// A request that is due at a time, in nanoseconds since 1970.
pub(crate) struct Due {
    pub(crate) at: u64,
    pub(crate) node: usize,
    pub(crate) path: String,
}

/// The outcome of a request.
#[derive(Clone, Copy, Default)]
pub(crate) struct Outcome {
    /// Times at which it was sent and answered, in nanoseconds since 1970. 0: never.
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    /// 0: no answer.
    pub(crate) status: u16,
    /// The node's time when it answered, in milliseconds since 1970.
    pub(crate) millis: u64,
    /// The count of the key, if the node says it.
    pub(crate) total: f64,
}

/// Sends all, which are in order, to the nodes at these ports.
pub(crate) fn send(ports: &[u16], all: &[Due]) -> Vec<Outcome> {
    let mut client = Client::new(ports);
    for (index, due) in all.iter().enumerate() {
        while let Some(left) = due.at.checked_sub(now()).filter(|&left| left > 0) {
            client.wait(left);
        }
        client.request(due.node, &due.path);
        // Also reads answers between requests, so that their times are right.
        if index % 8 == 0 {
            client.wait(0);
        }
    }
    let end = now() + PATIENCE;
    while client.waiting() > 0 && now() < end {
        client.wait(50_000_000);
    }
    client.outcomes
}

/// Gives this thread precedence over the nodes, if the user may: on a busy machine, requests are late otherwise.
pub(crate) fn hurry() {
    // SAFETY: the call takes no pointers. A failure, which returns -1, changes nothing.
    unsafe { libc::nice(-10) };
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a time after 1970").as_nanos() as u64
}

pub(crate) struct Client {
    nodes: Vec<Vec<Connection>>,
    /// Connections to each node.
    of_node: usize,
    /// Of each request, in the order of sending.
    pub(crate) outcomes: Vec<Outcome>,
    answers: usize,
    epoll: Epoll,
}

struct Connection {
    stream: TcpStream,
    unsent: Vec<u8>,
    unread: Vec<u8>,
    waiting: VecDeque<usize>,
}

/// Returns the hits of answered requests, each of so many, in the order in which they came.
pub(crate) fn hits_of<'a>(of: impl Iterator<Item = &'a Outcome>, cost: u64) -> Vec<Hit> {
    let mut answered: Vec<&Outcome> = of.filter(|it| matches!(it.status, 200 | 429)).collect();
    // Nodes return milliseconds; within one, hits are in the order of sending.
    answered.sort_by_key(|it| (it.millis, it.sent));
    let hit = |it: &Outcome| Hit { millis: it.millis, cost, is_admitted: it.status == 200 };
    answered.into_iter().map(hit).collect()
}

impl Client {
    pub(crate) fn new(ports: &[u16]) -> Client {
        hurry();
        let epoll = Epoll::new();
        let of_node = (CONNECTIONS / ports.len()).clamp(4, 32);
        let connect = |node: usize, port: u16, number: usize| {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
            stream.set_nodelay(true).expect("a socket");
            stream.set_nonblocking(true).expect("a socket");
            epoll.watch(&stream, (node * of_node + number) as u64);
            Connection { stream, unsent: Vec::new(), unread: Vec::new(), waiting: VecDeque::new() }
        };
        let connections = |(node, &port): (usize, &u16)| {
            (0..of_node).map(|number| connect(node, port, number)).collect()
        };
        let nodes = ports.iter().enumerate().map(connections).collect();
        Client { nodes, of_node, outcomes: Vec::new(), answers: 0, epoll }
    }

    /// Requests that were not answered.
    pub(crate) fn waiting(&self) -> usize {
        self.outcomes.len() - self.answers
    }

    /// Sends a request by the first connection that has least to wait for; returns its index.
    pub(crate) fn request(&mut self, node: usize, path: &str) -> usize {
        let connections = self.nodes[node].iter_mut();
        let connection = connections.min_by_key(|connection| connection.waiting.len());
        let connection = connection.expect("a connection");
        let index = self.outcomes.len();
        connection.waiting.push_back(index);
        write!(connection.unsent, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").expect("memory");
        self.outcomes.push(Outcome { sent: now(), ..Outcome::default() });
        connection.flush();
        index
    }

    /// Takes the answers that come in so many nanoseconds at most; returns after the first ones.
    pub(crate) fn wait(&mut self, nanos: u64) {
        for number in self.epoll.ready(nanos) {
            let number = number as usize;
            let connection = &mut self.nodes[number / self.of_node][number % self.of_node];
            self.answers += connection.read(&mut self.outcomes);
        }
        for connection in self.nodes.iter_mut().flatten() {
            if !connection.unsent.is_empty() {
                connection.flush();
            }
        }
    }
}

impl Connection {
    fn flush(&mut self) {
        match self.stream.write(&self.unsent) {
            Ok(count) => drop(self.unsent.drain(..count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("a node does not take a request: {error}"),
        }
    }

    /// Takes the answers that came; returns their number.
    fn read(&mut self, outcomes: &mut [Outcome]) -> usize {
        let mut bytes = [0; 16384];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => panic!("a node has closed a connection"),
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("a node does not answer: {error}"),
            }
        }
        let answered = now();
        let (mut taken, mut count) = (0, 0);
        while let Some((length, answer)) = parse(&self.unread[taken..]) {
            taken += length;
            count += 1;
            let index = self.waiting.pop_front().expect("a request for each answer");
            outcomes[index] = Outcome { sent: outcomes[index].sent, answered, ..answer };
        }
        self.unread.drain(..taken);
        count
    }
}

/// Parses the first answer, if all of it is there: returns its length and contents. The header `T` has seconds.
fn parse(bytes: &[u8]) -> Option<(usize, Outcome)> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..head]).expect("a head of ASCII");
    let mut lines = text.split("\r\n");
    let status = lines.next()?.split(' ').nth(1).and_then(|word| word.parse().ok());
    let (mut length, mut millis, mut total) = (0, None, 0.0);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        match name {
            "Content-Length" => length = value.parse().expect("a length"),
            "Total" => total = value.parse().expect("a count"),
            "T" => millis = value.replace('.', "").parse().ok(),
            _ => {}
        }
    }
    let end = head + 4 + length;
    let (status, millis) = (status.expect("a status"), millis.expect("a time"));
    (bytes.len() >= end).then_some((end, Outcome { status, millis, total, ..Outcome::default() }))
}

/// A descriptor that tells which of many sockets can be read. The system's own timeout is of whole
/// milliseconds.
struct Epoll(i32);

impl Epoll {
    fn new() -> Epoll {
        // SAFETY: the call takes no pointers.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(epoll >= 0, "epoll: {}", std::io::Error::last_os_error());
        Epoll(epoll)
    }

    fn watch(&self, stream: &TcpStream, number: u64) {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number };
        let add = libc::EPOLL_CTL_ADD;
        // SAFETY: both descriptors are open, and the event outlives the call.
        let result = unsafe { libc::epoll_ctl(self.0, add, stream.as_raw_fd(), &raw mut event) };
        assert_eq!(result, 0, "epoll: {}", std::io::Error::last_os_error());
    }

    fn ready(&self, nanos: u64) -> impl Iterator<Item = u64> + use<> {
        let wait = Duration::from_nanos(nanos);
        let wait = libc::timespec {
            tv_sec: wait.as_secs() as libc::time_t,
            tv_nsec: wait.subsec_nanos().into(),
        };
        let mut poll = libc::pollfd { fd: self.0, events: libc::POLLIN, revents: 0 };
        // SAFETY: the descriptor is open; both pointers outlive the call; there is no signal mask.
        unsafe { libc::ppoll(&raw mut poll, 1, &raw const wait, std::ptr::null()) };
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: `events` has room for that many events.
        let count = unsafe { libc::epoll_wait(self.0, events.as_mut_ptr(), 64, 0) };
        let count = usize::try_from(count).unwrap_or(0);
        events.into_iter().take(count).map(|event| event.u64)
    }
}
