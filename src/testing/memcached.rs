//! memcached servers that tests start.

use core::marker::PhantomData;
use core::time::Duration;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use super::certificates::{Authority, Certificate};
use super::conformance::{Fixture, LogFixture};
use super::dir::new_dir_in_memory;
use super::port::Port;
use super::process::ServerProcess;
use super::server_tests::{self, Served};
use crate::store::contract::error::{Failure, StoreError};
use crate::store::contract::options::StoreOptions;
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::{Position, Shard, Strategy as _};
use crate::store::memcached::Memcached;
use crate::store::memcached::options::MemcachedOptions;

/// A server with a port and a directory of its own. It is killed when the value is dropped.
pub(crate) struct Server {
    process: ServerProcess,
    kept: Port,
    arguments: Vec<String>,
}

/// An argument by which a server listens only at [`SOCKET`] in its directory.
const WITH_SOCKET: &str = "--unix-socket=socket";
const SOCKET: &str = "socket";
/// A file in memory, from which a server that is stopped by SIGUSR1 starts again.
const MEMORY: &str = "--memory-file=memory";

impl Server {
    /// Starts a server, which is ready then. `arguments` follow those that all have.
    pub(crate) fn start(arguments: &[&str]) -> Server {
        Server::start_in(new_dir_in_memory("memcached"), arguments)
    }

    fn start_in(dir: PathBuf, arguments: &[&str]) -> Server {
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        let kept = Port::take();
        let command = command(kept.number, &arguments);
        let process = ServerProcess::start(command, "memcached", dir);
        let mut server = Server { process, kept, arguments };
        server.wait();
        server
    }

    /// Waits until the server accepts connections.
    fn wait(&mut self) {
        while self.connect().is_none() {
            self.process.wait();
        }
    }

    fn connect(&self) -> Option<Box<dyn Stream>> {
        let address = ("127.0.0.1", self.kept.number);
        match self.arguments.iter().any(|it| it == WITH_SOCKET) {
            true => Some(Box::new(UnixStream::connect(self.process.dir().join(SOCKET)).ok()?)),
            false => Some(Box::new(TcpStream::connect(address).ok()?)),
        }
    }

    pub(crate) fn tcp(&self) -> ServerAddress {
        ServerAddress::tcp("127.0.0.1", self.kept.number)
    }

    /// Sends a command, and returns the lines up to the one that ends an answer of any kind.
    pub(crate) fn ask(&self, command: &[u8]) -> Vec<String> {
        let mut stream = self.connect().unwrap();
        stream.write_all(&[command, b"\r\nmn\r\n"].concat()).unwrap();
        let lines = BufReader::new(stream).split(b'\n').map(|line| {
            let line = line.unwrap();
            String::from_utf8_lossy(&line).trim_end().to_owned()
        });
        lines.take_while(|line| line != "MN").collect()
    }

    /// Returns the value of an item.
    fn value(&self, name: &str) -> Vec<u8> {
        let mut stream = self.connect().unwrap();
        stream.write_all(format!("mg {name} v\r\n").as_bytes()).unwrap();
        let (mut stream, mut line) = (BufReader::new(stream), String::new());
        stream.read_line(&mut line).unwrap();
        let length = line.strip_prefix("VA ").unwrap().trim_end().parse().unwrap();
        let mut value = vec![0; length];
        stream.read_exact(&mut value).unwrap();
        value
    }

    /// Returns the names of all items.
    pub(crate) fn names(&self) -> Vec<String> {
        // The crawler's answer comes when it is done, whatever follows the command.
        let mut stream = self.connect().unwrap();
        // By the hash table: in the lists, it skips an item that a reply still uses.
        stream.write_all(b"lru_crawler metadump hash\r\n").unwrap();
        let mut names = Vec::new();
        for line in BufReader::new(stream).lines() {
            let line = line.unwrap();
            match line.strip_prefix("key=") {
                Some(rest) => {
                    let name = rest.split(' ').next().unwrap();
                    names.push(name.replace("%23", "#").replace("%2F", "/"));
                }
                // It is busy while it looks for expired items.
                None if line.starts_with("BUSY") => return self.names(),
                None => break,
            }
        }
        names.sort();
        names
    }

    /// Sends the process a signal.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts a server that has ended again.
    pub(crate) fn start_again(&mut self) {
        let _ = fs::remove_file(self.process.dir().join(SOCKET));
        self.process.start_again();
        self.wait();
    }
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

fn command(port: u16, arguments: &[String]) -> Command {
    let program = std::env::var("TEST_MEMCACHED").unwrap_or("memcached".into());
    let user = std::env::var("USER").unwrap_or("root".into());
    let mut command = Command::new(program);
    command
        .args(["--listen=127.0.0.1", "--threads=2", "--user", &user])
        .arg(format!("--port={port}"))
        .args(arguments);
    command
}

/// Starts a server with these users: lines with a name, a colon and a password.
pub(crate) fn with_users(users: &str) -> Server {
    let dir = new_dir_in_memory("memcached");
    fs::write(dir.join("users"), users).unwrap();
    Server::start_in(dir, &["--auth-file=users"])
}

/// The prefix of all items.
pub(crate) const PREFIX: &str = "rl";

pub(crate) fn connect(server: &Server) -> Memcached {
    connect_to(server.tcp())
}

pub(crate) fn connect_to(address: ServerAddress) -> Memcached {
    let own = MemcachedOptions { prefix: PREFIX.into() };
    Memcached::new(&server_tests::options(&[address]), &own)
}

/// A server, to which clients speak in the way `W`.
pub(crate) struct Spoken<W> {
    server: Server,
    way: PhantomData<W>,
}

/// A way to speak to a server.
pub(crate) trait Way {
    const ARGUMENTS: &[&str];
    fn address(server: &Server) -> ServerAddress;
}

/// Through its port.
pub(crate) enum Tcp {}

/// Through its socket.
pub(crate) enum Unix {}

impl Way for Tcp {
    const ARGUMENTS: &[&str] = &[];

    fn address(server: &Server) -> ServerAddress {
        server.tcp()
    }
}

impl Way for Unix {
    const ARGUMENTS: &[&str] = &[WITH_SOCKET];

    fn address(server: &Server) -> ServerAddress {
        ServerAddress::Unix(server.process.dir().join(SOCKET))
    }
}

impl<W: Way> Fixture for Spoken<W> {
    type Store = Memcached;

    fn start() -> Spoken<W> {
        Spoken { server: Server::start(W::ARGUMENTS), way: PhantomData }
    }

    fn connect(&self) -> Memcached {
        connect_to(W::address(&self.server))
    }

    fn flush(&self) {
        assert_eq!(self.server.ask(b"flush_all"), ["OK"]);
    }
}

impl<W: Way> LogFixture for Spoken<W> {
    fn forget_changes(&self, Shard { namespace, number }: &Shard) {
        let shard = format!("{PREFIX}/{namespace}/{number}/");
        // The head has the last one, too: of its numbers, the third to fifth are those of nodes, windows and writes.
        let head = format!("{shard}head");
        let mut value = self.server.value(&head);
        let of = |index: usize| {
            value[8 * index..][..8].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
        };
        let length = 8 * (5 + 5 * of(2) + 4 * of(3));
        value.truncate(length);
        value[32..40].fill(0);
        let set = format!("ms {head} {length}\r\n").into_bytes();
        assert_eq!(self.server.ask(&[set, value].concat()), ["HD"]);
        let names = self.server.names().into_iter();
        for name in names.filter(|name| name.starts_with(&shard) && name.contains("/d/")) {
            assert_eq!(self.server.ask(format!("md {name}").as_bytes()), ["HD"]);
        }
    }

    fn ahead_of(&self, Position([number, epoch]): Position) -> Position {
        Position([number + 1_000_000, epoch])
    }
}

impl Served for Server {
    type Store = Memcached;
    const PROTOCOL: &str = "memcached";
    /// The version, the head, the counters, the index, the new head, and the result.
    const MOST_ANSWERS: usize = 8;
    const UNTRUSTED: &str = "received fatal alert";

    fn start() -> Server {
        Server::start(&[])
    }

    fn start_durable() -> Server {
        Server::start(&[MEMORY])
    }

    fn start_with_tls(
        authority: &Authority,
        certificate: &Certificate,
        wants_certificates: bool,
    ) -> Server {
        let dir = new_dir_in_memory("memcached");
        certificate.write(authority, &dir);
        let files = "ssl_chain_cert=certificate.pem,ssl_key=key.pem,ssl_ca_cert=roots.pem";
        let mode = if wants_certificates { 2 } else { 0 };
        let options = format!("--extended={files},ssl_verify_mode={mode}");
        Server::start_in(dir, &["--enable-ssl", &options])
    }

    fn store(&self, common: &StoreOptions) -> Memcached {
        Memcached::new(common, &MemcachedOptions { prefix: PREFIX.into() })
    }

    fn address(&self) -> ServerAddress {
        self.tcp()
    }

    fn signal(&self, name: &str) {
        self.signal(name);
    }

    fn crash(&mut self) {
        self.kill();
    }

    fn start_again(&mut self) {
        self.start_again();
    }

    fn restart(&mut self) {
        self.signal("USR1");
        self.process.wait_for_end();
        // It does not take its memory back in the second in which it was stopped.
        thread::sleep(Duration::from_millis(1100));
        self.start_again();
    }

    fn is_untouched(&self) -> bool {
        self.names().is_empty()
    }

    fn is_of_missing_certificate(error: &StoreError) -> bool {
        let is_told = error.to_string().to_lowercase().contains("certificate");
        is_told && matches!(error.failure, Failure::Unreachable(_))
    }
}
