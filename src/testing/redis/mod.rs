//! Redis servers that tests start.

#[cfg(test)]
pub(crate) mod cluster;
#[cfg(test)]
pub(crate) mod fixtures;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use redis::{ConnectionAddr, FromRedisValue, IntoConnectionInfo, RedisResult};

use super::certificates::{Authority, Certificate};
use super::dir::new_dir;
use super::port::Port;
use super::process::ServerProcess;
use super::server_tests;
use crate::store::contract::options::{StoreOptions, TlsOptions};
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::Strategy;
use crate::store::redis::Redis;
use crate::store::redis::options::{RedisOptions, Topology};

/// A server with its own port, socket and directory. It is killed when the value is dropped.
pub(crate) struct Server {
    process: ServerProcess,
    pub(crate) port: u16,
    _kept: Port,
}

impl Server {
    /// Starts a server, which is ready then. `arguments` follow those that all have.
    pub(crate) fn start(arguments: &[&str]) -> Server {
        Server::start_in(new_dir("redis"), arguments)
    }

    /// Starts a sentinel, which knows no primary.
    pub(crate) fn start_sentinel(arguments: &[&str]) -> Server {
        let dir = new_dir("redis");
        // A sentinel writes its state there.
        fs::write(dir.join("sentinel.conf"), "").unwrap();
        Server::start_in(dir, &[arguments, &["--sentinel"]].concat())
    }

    /// Makes a sentinel watch this server under the name `main`, with a quorum of one.
    pub(crate) fn watch(&self, primary: &Server) {
        let port = primary.port.to_string();
        for command in [
            &["SENTINEL", "MONITOR", "main", "127.0.0.1", &port, "1"][..],
            &["SENTINEL", "SET", "main", "down-after-milliseconds", "200"],
            &["SENTINEL", "SET", "main", "failover-timeout", "1000"],
        ] {
            let _: String = self.ask(command).unwrap();
        }
    }

    /// Starts a server that speaks only TLS on its port, with this certificate, and wants one by
    /// the same authority of its clients if `auth_clients` is `yes`.
    pub(crate) fn start_with_tls(
        authority: &Authority,
        certificate: &Certificate,
        auth_clients: &str,
    ) -> Server {
        let dir = new_dir("redis");
        certificate.write(authority, &dir);
        Server::start_in(dir, &tls_arguments(auth_clients))
    }

    /// Starts a node of a cluster that speaks only TLS, to us and to others.
    pub(crate) fn start_cluster_node_with_tls(
        authority: &Authority,
        certificate: &Certificate,
    ) -> Server {
        let dir = new_dir("redis");
        certificate.write(authority, &dir);
        let others = ["--cluster-enabled", "yes", "--tls-cluster", "yes"];
        Server::start_in(dir, &[&tls_arguments("no")[..], &others].concat())
    }

    /// Starts a sentinel that speaks only TLS, to us and to others.
    pub(crate) fn start_sentinel_with_tls(
        authority: &Authority,
        certificate: &Certificate,
    ) -> Server {
        let dir = new_dir("redis");
        certificate.write(authority, &dir);
        fs::write(dir.join("sentinel.conf"), "").unwrap();
        let others = ["--tls-replication", "yes", "--sentinel"];
        Server::start_in(dir, &[&tls_arguments("no")[..], &others].concat())
    }

    /// Starts a server in a directory that is there, which goes with the server.
    fn start_in(dir: PathBuf, arguments: &[&str]) -> Server {
        let kept = Port::take();
        let port = kept.number;
        let process = ServerProcess::start(command(port, arguments), "redis-server", dir);
        let mut server = Server { process, port, _kept: kept };
        server.wait();
        server
    }

    /// Waits until the server answers.
    fn wait(&mut self) {
        // One that wants a password is ready, too.
        while self.ask::<String>(&["PING"]).is_err_and(|error| error.code() != Some("NOAUTH")) {
            self.process.wait();
        }
    }

    /// Runs a command on a new connection. Returns the answer.
    pub(crate) fn ask<T: FromRedisValue>(&self, command: &[&str]) -> RedisResult<T> {
        self.ask_as("", command)
    }

    /// Writes a string of any bytes.
    pub(crate) fn set(&self, key: &str, value: &[u8]) {
        let mut connection = self.connection("").unwrap();
        let command = redis::cmd("SET").arg(key).arg(value).to_owned();
        command.exec(&mut connection).unwrap();
    }

    /// Asks as [`Server::ask`] does, on a connection that gives a password, unless it is empty.
    pub(super) fn ask_as<T: FromRedisValue>(
        &self,
        password: &str,
        command: &[&str],
    ) -> RedisResult<T> {
        redis::cmd(command[0]).arg(&command[1..]).query(&mut self.connection(password)?)
    }

    pub(crate) fn connection(&self, password: &str) -> RedisResult<redis::Connection> {
        let mut info = ConnectionAddr::Unix(self.socket()).into_connection_info()?;
        if !password.is_empty() {
            let settings = info.redis_settings().clone().set_password(password);
            info = info.set_redis_settings(settings);
        }
        redis::Client::open(info)?.get_connection()
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.process.dir().join("socket")
    }

    pub(crate) fn tcp(&self) -> ServerAddress {
        ServerAddress::tcp("127.0.0.1", self.port)
    }

    /// Returns the processor time of its main thread, in microseconds.
    #[cfg(feature = "measure")]
    pub(crate) fn cpu_micros(&self) -> u64 {
        self.cpu_nanos() / 1000
    }

    /// Returns the processor time of its main thread, in nanoseconds.
    #[cfg(feature = "measure")]
    pub(crate) fn cpu_nanos(&self) -> u64 {
        let pid = self.process.id();
        let statistics = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).unwrap();
        statistics.split(' ').next().unwrap().parse().unwrap()
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts a killed server again, in the same place.
    pub(crate) fn start_again(&mut self) {
        self.process.start_again();
        self.wait();
    }

    /// Sends the process a signal: `STOP`, `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }
}

fn command(port: u16, arguments: &[&str]) -> Command {
    let program = std::env::var("TEST_REDIS_SERVER").unwrap_or("redis-server".into());
    let is_sentinel = arguments.contains(&"--sentinel");
    let mut command = Command::new(program);
    command
        .args(is_sentinel.then_some("sentinel.conf"))
        .args(["--bind", "127.0.0.1", "--unixsocket", "socket", "--save", ""])
        .args(["--port", "0"])
        // Otherwise a former replica starts with the data that it received then.
        .args(["--rdb-del-sync-files", "yes"])
        .args([port_argument(arguments), &port.to_string()])
        .args(arguments);
    command
}

fn tls_arguments(auth_clients: &str) -> Vec<&str> {
    let files = [
        "--tls-ca-cert-file",
        "roots.pem",
        "--tls-cert-file",
        "certificate.pem",
        "--tls-key-file",
        "key.pem",
    ];
    [&files[..], &["--tls-auth-clients", auth_clients]].concat()
}

fn port_argument(arguments: &[&str]) -> &'static str {
    let has_tls = arguments.contains(&"--tls-cert-file");
    if has_tls { "--tls-port" } else { "--port" }
}

/// Returns the options of a store with these servers.
pub(crate) fn options(servers: &[ServerAddress]) -> (StoreOptions, RedisOptions) {
    let redis = RedisOptions { topology: Topology::Single, database: 0, prefix: "rl".into() };
    (server_tests::options(servers), redis)
}

pub(crate) fn connect(server: ServerAddress) -> Redis {
    let (options, redis) = options(&[server]);
    Redis::new(&options, &redis)
}

pub(crate) fn with_tls(server: &Server, tls: TlsOptions) -> Redis {
    let (mut options, redis) = options(&[server.tcp()]);
    options.tls = Some(tls);
    Redis::new(&options, &redis)
}
