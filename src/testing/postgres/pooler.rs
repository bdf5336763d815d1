//! PgBouncers of the tests' own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::server::{Server, as_postgres, new_dir};
use crate::store::contract::server::ServerAddress;
use crate::testing::port::Port;
use crate::testing::process::ServerProcess;

/// A pooler before a server, killed with the value.
pub(crate) struct Pooler {
    _process: ServerProcess,
    port: Port,
}

impl Pooler {
    /// Starts a pooler of this mode that has so many sessions of the server at most.
    pub(crate) fn start(server: &Server, mode: &str, sessions: u32) -> Pooler {
        let dir = new_dir();
        let port = Port::take();
        let command = command(&dir, port.number, server, mode, sessions);
        let mut process = ServerProcess::start(command, "pgbouncer", dir);
        let listening = format!("listening on 127.0.0.1:{}", port.number);
        while !process.log().contains(&listening) {
            process.wait();
        }
        Pooler { _process: process, port }
    }

    pub(crate) fn tcp(&self) -> ServerAddress {
        ServerAddress::tcp("127.0.0.1", self.port.number)
    }
}

fn command(dir: &Path, port: u16, server: &Server, mode: &str, sessions: u32) -> Command {
    let settings = format!(
        "[databases]\n\
         postgres = host=127.0.0.1 port={} user=postgres\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         auth_type = any\n\
         pool_mode = {mode}\n\
         default_pool_size = {sessions}\n\
         unix_socket_dir =\n",
        server.port,
    );
    let path = dir.join("pooler.ini");
    fs::write(&path, settings).unwrap();
    let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"];
    let mut program = program.iter().map(PathBuf::from).filter(|it| it.exists());
    let program = program.next();
    let program = program.expect("there is no PgBouncer: apt-get install pgbouncer");
    let mut command = as_postgres(&program);
    command.arg(&path);
    command
}
