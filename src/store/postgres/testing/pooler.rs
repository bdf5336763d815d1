//! PgBouncers of the tests' own.

use core::time::Duration;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;

use super::server::{Server, as_postgres, new_dir};
use crate::store::server::ServerAddress;

/// A pooler before a server, killed with the value.
pub(in super::super) struct Pooler {
    process: Child,
    dir: PathBuf,
    port: u16,
}

impl Pooler {
    /// Starts a pooler of this mode that has so many sessions of the server at most.
    pub(in super::super) fn start(server: &Server, mode: &str, sessions: u32) -> Pooler {
        let dir = new_dir();
        // The port may be taken by somebody else before the pooler has it.
        for _ in 0..10 {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            drop(listener);
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
            let mut pooler = Pooler {
                process: command.spawn().unwrap(),
                dir: dir.clone(),
                port,
            };
            if pooler.becomes_ready() {
                return pooler;
            }
        }
        panic!("pgbouncer does not start: see {}", dir.display());
    }

    fn becomes_ready(&mut self) -> bool {
        for _ in 0..1000 {
            if self.process.try_wait().unwrap().is_some() {
                return false;
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }

    pub(in super::super) fn tcp(&self) -> ServerAddress {
        ServerAddress::tcp("127.0.0.1", self.port)
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
