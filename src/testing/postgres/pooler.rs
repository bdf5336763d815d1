//! PgBouncers of the tests' own.

use core::time::Duration;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;

use super::server::{Server, as_postgres, new_dir};
use crate::store::contract::server::ServerAddress;
use crate::testing::port::Port;

/// A pooler before a server, killed with the value.
pub(crate) struct Pooler {
    process: Child,
    dir: PathBuf,
    port: Port,
}

impl Pooler {
    /// Starts a pooler of this mode that has so many sessions of the server at most.
    pub(crate) fn start(server: &Server, mode: &str, sessions: u32) -> Pooler {
        let dir = new_dir();
        let port = Port::take();
        let process = spawn(&dir, port.number, server, mode, sessions);
        let mut pooler = Pooler { process, dir, port };
        assert!(pooler.becomes_ready(), "pgbouncer does not start: see {}", pooler.dir.display());
        pooler
    }

    fn becomes_ready(&mut self) -> bool {
        for _ in 0..6000 {
            if self.process.try_wait().unwrap().is_some() {
                return false;
            }
            let listening = format!("listening on 127.0.0.1:{}", self.port.number);
            let log = fs::read_to_string(self.dir.join("pooler.log"));
            if log.is_ok_and(|log| log.contains(&listening)) {
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }

    pub(crate) fn tcp(&self) -> ServerAddress {
        ServerAddress::tcp("127.0.0.1", self.port.number)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if !thread::panicking() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

fn spawn(dir: &Path, port: u16, server: &Server, mode: &str, sessions: u32) -> Child {
    let settings = format!(
        "[databases]\n\
         postgres = host=127.0.0.1 port={} user=postgres\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         auth_type = any\n\
         pool_mode = {mode}\n\
         default_pool_size = {sessions}\n\
         unix_socket_dir =\n\
         logfile = {}\n",
        server.port,
        dir.join("pooler.log").display(),
    );
    let path = dir.join("pooler.ini");
    fs::write(&path, settings).unwrap();
    let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"];
    let mut program = program.iter().map(PathBuf::from).filter(|it| it.exists());
    let program = program.next();
    let program = program.expect("there is no PgBouncer: apt-get install pgbouncer");
    let mut command = as_postgres(&program);
    command.arg("-q").arg(&path).stdin(Stdio::null());
    command.spawn().unwrap()
}
