//! A Redis for the test of an example.

use std::error::Error;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::{env, fs, process, thread};

/// A server that ends with the value.
pub(crate) struct Server {
    process: Child,
    directory: PathBuf,
    address: String,
}

impl Server {
    /// Starts one, and waits until it can be connected to.
    ///
    /// # Errors
    ///
    /// If there is no Redis, or it ends at once.
    pub(crate) fn start() -> Result<Server, Box<dyn Error>> {
        let program = env::var("TEST_REDIS_SERVER").unwrap_or("redis-server".into());
        let directory = env::temp_dir().join(format!("example-redis-{}", process::id()));
        fs::create_dir_all(&directory)?;
        let socket = directory.join("socket");
        let process = Command::new(program)
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(&directory)
            .stdout(Stdio::null())
            .spawn()?;
        let mut server =
            Server { process, directory, address: format!("unix:{}", socket.display()) };
        while UnixStream::connect(&socket).is_err() {
            if let Some(status) = server.process.try_wait()? {
                return Err(format!("Redis does not start: {status}").into());
            }
            thread::yield_now();
        }
        Ok(server)
    }

    /// Returns the address in the form of a store's `server`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
