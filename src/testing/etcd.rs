//! etcd servers that tests start, and prefixes in them.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use super::certificates::{Authority, Certificate, trusting};
use super::conformance::{Fixture, LogFixture};
use super::dir::new_dir_in_memory;
use super::port::Port;
use super::process::ServerProcess;
use super::server_tests::{self, Served};
use crate::store::contract::error::{Failure, StoreError};
use crate::store::contract::options::{StoreOptions, TlsOptions};
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::{Position, Shard, Strategy as _};
use crate::store::etcd::Etcd;
use crate::store::etcd::options::EtcdOptions;

/// A server with ports and a directory of its own. It is killed when the value is dropped.
pub(crate) struct Server {
    process: ServerProcess,
    kept: Port,
    arguments: Vec<String>,
}

/// Distance between the port for clients and the one for other members.
const TO_PEERS: u16 = 10_000;
/// Words of a server's log when it is ready, of several versions.
const READY: [&str; 2] = ["serving insecure client", "serving client"];

impl Server {
    /// Starts a server, which is ready then. `arguments` follow those that all have.
    pub(crate) fn start(arguments: &[&str]) -> Server {
        Server::start_in(new_dir_in_memory("etcd"), arguments)
    }

    /// Starts a server in this directory, which is removed at its end.
    pub(crate) fn start_in(dir: PathBuf, arguments: &[&str]) -> Server {
        let mut server = Server::begin(dir, Port::take(), arguments);
        server.wait();
        server
    }

    /// Starts a server, which may not be ready yet.
    fn begin(dir: PathBuf, kept: Port, arguments: &[&str]) -> Server {
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        let command = command(kept.number, &arguments);
        let process = ServerProcess::start(command, "etcd-server", dir);
        Server { process, kept, arguments }
    }

    /// Starts three servers, which are members of one etcd.
    pub(crate) fn start_members() -> [Server; 3] {
        let ports = [(); 3].map(|()| Port::take());
        let all = ports
            .each_ref()
            .map(|port| format!("{0}=http://127.0.0.1:{1}", port.number, port.number + TO_PEERS));
        let all = all.join(",");
        let mut members = ports.map(|port| {
            let name = port.number.to_string();
            let times = ["--heartbeat-interval", "50", "--election-timeout", "500"];
            let arguments = [&["--name", &name, "--initial-cluster", &all][..], &times].concat();
            Server::begin(new_dir_in_memory("etcd"), port, &arguments)
        });
        members.iter_mut().for_each(Server::wait);
        members
    }

    /// Waits until the server is ready.
    fn wait(&mut self) {
        while !READY.iter().any(|words| self.process.log().contains(words)) {
            self.process.wait();
        }
    }

    pub(crate) fn tcp(&self) -> ServerAddress {
        ServerAddress::tcp("127.0.0.1", self.kept.number)
    }

    fn scheme(&self) -> &'static str {
        scheme(&self.arguments)
    }

    /// Runs a command of `etcdctl`. Returns what it prints.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        let mut etcdctl = Command::new("etcdctl");
        let scheme = self.scheme();
        let endpoint = format!("--endpoints={scheme}://127.0.0.1:{}", self.kept.number);
        etcdctl.env("ETCDCTL_API", "3").current_dir(self.process.dir()).arg(endpoint);
        if scheme == "https" {
            etcdctl.args(["--cacert=roots.pem", "--cert=certificate.pem", "--key=key.pem"]);
        }
        let output = etcdctl.args(arguments).output();
        let output = output.expect("etcdctl can be run: apt-get install etcd-client");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into()
    }

    /// Sends the process a signal.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts a killed server again, with its data.
    pub(crate) fn start_again(&mut self) {
        self.process.start_again();
        self.wait();
    }
}

/// An argument by which a server listens at [`SOCKET`], too.
const WITH_SOCKET: &str = "--with-socket";
/// The socket in the server's directory. etcd wants a port in its name.
const SOCKET: &str = "socket:0";

fn scheme(arguments: &[String]) -> &'static str {
    if arguments.iter().any(|it| it == "--cert-file") { "https" } else { "http" }
}

fn command(port: u16, arguments: &[String]) -> Command {
    let program = std::env::var("TEST_ETCD").unwrap_or("etcd".into());
    let clients = format!("{}://127.0.0.1:{port}", scheme(arguments));
    let has_socket = arguments.iter().any(|it| it == WITH_SOCKET);
    let listen = match has_socket {
        true => format!("unix://{SOCKET},{clients}"),
        false => clients.clone(),
    };
    let peers = format!("http://127.0.0.1:{}", port + TO_PEERS);
    let mut command = Command::new(program);
    command
        .args(["--data-dir", "data", "--listen-client-urls", &listen])
        .args(["--advertise-client-urls", &clients, "--listen-peer-urls", &peers])
        .args(["--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("default={peers}")])
        // The only member elects itself at once.
        .args(["--heartbeat-interval", "10", "--election-timeout", "50"])
        .args(arguments.iter().filter(|it| *it != WITH_SOCKET));
    command
}

/// Returns the options of a store with these servers, and this prefix.
pub(crate) fn options(servers: &[ServerAddress], prefix: &str) -> (StoreOptions, EtcdOptions) {
    (server_tests::options(servers), EtcdOptions { prefix: prefix.into() })
}

/// The prefix of a server of its own.
pub(crate) const PREFIX: &str = "rl";

pub(crate) fn connect(server: &Server) -> Etcd {
    let (options, own) = options(&[server.tcp()], PREFIX);
    Etcd::new(&options, &own)
}

/// A prefix of a server that all tests share which speak to it in the way `W`.
pub(crate) struct Place<W> {
    shared: &'static SharedServer,
    prefix: String,
    way: PhantomData<W>,
}

/// A server that ends with this process.
pub(crate) struct SharedServer {
    server: Server,
    address: ServerAddress,
    tls: Option<TlsOptions>,
    /// A shell that ends the server when its input is closed.
    _guard: Child,
}

impl SharedServer {
    fn new(server: Server, address: ServerAddress, tls: Option<TlsOptions>) -> SharedServer {
        let mut guard = Command::new("sh");
        guard.args(["-c", "read -r word; kill -KILL $1; sleep 0.1; rm -rf $2", "guard"]);
        guard.arg(server.process.id().to_string()).arg(server.process.dir());
        let _guard = guard.stdin(Stdio::piped()).spawn().unwrap();
        SharedServer { server, address, tls, _guard }
    }
}

/// A way to speak to a server.
pub(crate) trait Spoken {
    fn server() -> &'static SharedServer;
}

/// Through its port.
pub(crate) enum Tcp {}

/// Through its port with TLS, each side having a certificate.
pub(crate) enum Tls {}

/// Through its socket.
pub(crate) enum Unix {}

impl Spoken for Tcp {
    fn server() -> &'static SharedServer {
        static SHARED: OnceLock<SharedServer> = OnceLock::new();
        SHARED.get_or_init(|| {
            let server = Server::start(&[]);
            let address = server.tcp();
            SharedServer::new(server, address, None)
        })
    }
}

impl Spoken for Tls {
    fn server() -> &'static SharedServer {
        static SHARED: OnceLock<SharedServer> = OnceLock::new();
        SHARED.get_or_init(|| {
            let authority = Authority::new();
            let server = Server::start_with_tls(&authority, &authority.issue("127.0.0.1"), true);
            let identity = Some(authority.issue("a client").identity());
            let (address, tls) = (server.tcp(), TlsOptions { identity, ..trusting(&authority) });
            SharedServer::new(server, address, Some(tls))
        })
    }
}

impl Spoken for Unix {
    fn server() -> &'static SharedServer {
        static SHARED: OnceLock<SharedServer> = OnceLock::new();
        SHARED.get_or_init(|| {
            let server = Server::start(&[WITH_SOCKET]);
            let address = ServerAddress::Unix(server.process.dir().join(SOCKET));
            SharedServer::new(server, address, None)
        })
    }
}

impl<W: Spoken> Fixture for Place<W> {
    type Store = Etcd;

    fn start() -> Place<W> {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("rl{}", CREATED.fetch_add(1, Ordering::Relaxed));
        Place { shared: W::server(), prefix, way: PhantomData }
    }

    fn connect(&self) -> Etcd {
        let (options, own) = options(core::slice::from_ref(&self.shared.address), &self.prefix);
        Etcd::new(&StoreOptions { tls: self.shared.tls.clone(), ..options }, &own)
    }

    fn flush(&self) {
        self.shared.server.ctl(&["del", "--prefix", &format!("{}/", self.prefix)]);
    }
}

impl<W: Spoken> LogFixture for Place<W> {
    fn forget_changes(&self, Shard { namespace, number }: &Shard) {
        let shard = format!("{}/{namespace}/{number}/", self.prefix);
        let server = &self.shared.server;
        let names = server.ctl(&["get", "--prefix", "--keys-only", &shard]);
        for name in names.lines().filter(|name| name.contains("/d/")) {
            server.ctl(&["del", name]);
        }
    }

    fn ahead_of(&self, Position([number, epoch]): Position) -> Position {
        Position([number + 1_000_000, epoch])
    }
}

impl Served for Server {
    type Store = Etcd;
    const PROTOCOL: &str = "etcd";
    /// The version, the counts, a lease of each life, and the result.
    const MOST_ANSWERS: usize = 8;
    /// Older versions of Go have only one alert for all certificates.
    const UNTRUSTED: &str = "received fatal alert";

    fn start() -> Server {
        Server::start(&[])
    }

    fn start_with_tls(
        authority: &Authority,
        certificate: &Certificate,
        wants_certificates: bool,
    ) -> Server {
        let dir = new_dir_in_memory("etcd");
        certificate.write(authority, &dir);
        let files = ["--cert-file", "certificate.pem", "--key-file", "key.pem"];
        let of_clients = ["--client-cert-auth", "--trusted-ca-file", "roots.pem"];
        let of_clients = if wants_certificates { &of_clients[..] } else { &[] };
        Server::start_in(dir, &[&files, of_clients].concat())
    }

    fn store(&self, common: &StoreOptions) -> Etcd {
        Etcd::new(common, &EtcdOptions { prefix: PREFIX.into() })
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
        fs::remove_dir_all(self.process.dir().join("data")).unwrap();
        self.start_again();
    }

    fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    fn is_untouched(&self) -> bool {
        self.ctl(&["get", "--prefix", "--keys-only", "rl"]).trim().is_empty()
    }

    fn is_of_missing_certificate(error: &StoreError) -> bool {
        let is_told = error.to_string().to_lowercase().contains("certificate");
        is_told && matches!(error.failure, Failure::Unreachable(_))
    }
}
