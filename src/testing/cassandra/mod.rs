//! Support for tests with Cassandra: servers of scripts/cassandra/server.sh, tables in them, and
//! statements that tests execute.

#[cfg(test)]
pub(crate) mod fixtures;

use core::sync::atomic::{AtomicU32, Ordering};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::{env, fs, process, thread};

use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;

use super::conformance::block_on;
use super::server_tests;
use crate::store::cassandra::Cassandra;
use crate::store::cassandra::options::{CassandraOptions, ConsistencyLevel, Replication};
use crate::store::contract::options::{Credentials, Secret, StoreOptions};
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::Strategy as _;

/// A server, which ends when the value is dropped.
pub(crate) struct Server {
    /// The process of the script, which ends the server when its standard input is closed.
    _guard: Option<Child>,
    pub(crate) address: ServerAddress,
    #[cfg_attr(not(feature = "measure"), expect(dead_code))]
    dir: PathBuf,
}

/// The script that starts and ends servers.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/cassandra/server.sh");

impl Server {
    /// Returns the server for tests that neither stop nor configure it: the one in the directory
    /// `TEST_CASSANDRA`, or one of this process.
    pub(crate) fn shared() -> &'static Server {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| match env::var_os("TEST_CASSANDRA") {
            Some(dir) => {
                let dir = PathBuf::from(dir);
                let address = address_in(&dir);
                Server { _guard: None, address, dir }
            }
            None => Server::start(&["--ephemeral"]),
        })
    }

    /// Starts a server, which is ready then, at an address that no other has.
    pub(crate) fn start(options: &[&str]) -> Server {
        let mut guard = Command::new(SCRIPT)
            .arg("with")
            .args(["--address", &new_address()])
            .args(options)
            // The script writes its directory, and continues until its input is closed.
            .args(["sh", "-c", "echo \"$TEST_CASSANDRA\"; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answer = BufReader::new(guard.stdout.take().unwrap());
        let dirs = answer.lines().map(|line| PathBuf::from(line.unwrap()));
        let dir = dirs.into_iter().find(|dir| dir.join("address").exists());
        let dir = dir.expect("a server that starts");
        let address = address_in(&dir);
        Server { _guard: Some(guard), address, dir }
    }

    /// Asks a question of the test's own; `{}` stands for a table.
    pub(crate) fn ask<R>(&self, statement: &str) -> Vec<R>
    where
        R: for<'a> DeserializeRow<'a, 'a> + Send,
    {
        let asked = async {
            let session = self.session().await;
            let answer = session.query_unpaged(statement, ()).await.unwrap();
            let Ok(rows) = answer.into_rows_result() else {
                return Vec::new();
            };
            rows.rows().unwrap().map(Result::unwrap).collect()
        };
        // In another thread, since an asynchronous test may call this.
        thread::scope(|scope| scope.spawn(|| block_on(asked)).join().unwrap())
    }

    /// Returns the id of the process.
    #[cfg(feature = "measure")]
    pub(crate) fn process(&self) -> String {
        let id = fs::read_to_string(self.dir.join("pid")).unwrap();
        id.trim().into()
    }

    async fn session(&self) -> Session {
        let session = SessionBuilder::new().known_node(self.address.to_string());
        session.user(USER, USER).build().await.unwrap()
    }
}

fn address_in(dir: &Path) -> ServerAddress {
    let address = fs::read_to_string(dir.join("address")).unwrap();
    let (host, port) = address.trim().split_once(':').unwrap();
    ServerAddress::tcp(host, port.parse().unwrap())
}

fn new_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Processes have different ones, so that ports need not differ.
fn new_address() -> String {
    let [_, a, b, c] = process::id().to_be_bytes();
    let first = 32 * (new_number() % 4) + 64 + u32::from(a % 32);
    format!("127.{first}.{b}.{}", c.max(1))
}

/// The first user of a server with users, and the password.
const USER: &str = "cassandra";

/// The keyspace of the tests.
pub(crate) const KEYSPACE: &str = "ratelimit_tests";

/// Returns names of tables that no other test uses.
pub(crate) fn new_table() -> String {
    format!("t{}_{}", process::id(), new_number())
}

/// Returns the options of a store with these servers and tables.
pub(crate) fn options(servers: &[ServerAddress], table: &str) -> (StoreOptions, CassandraOptions) {
    let options = StoreOptions {
        credentials: Credentials {
            username: Secret::parse(USER.as_bytes()),
            password: Secret::parse(USER.as_bytes()),
        },
        ..server_tests::options(servers)
    };
    let own = CassandraOptions {
        keyspace: KEYSPACE.into(),
        table: table.into(),
        datacenter: None,
        consistency: ConsistencyLevel::LocalQuorum,
        replication: Replication::Simple(1),
    };
    (options, own)
}

pub(crate) fn connect(server: &ServerAddress, table: &str) -> Cassandra {
    let (options, own) = options(core::slice::from_ref(server), table);
    Cassandra::new(&options, &own)
}
