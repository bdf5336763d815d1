//! Processes of servers that tests start, and signals to them.

use core::fmt::Display;
use core::time::Duration;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

/// A server in a directory of its own. It is killed when the value is dropped, and its directory removed.
pub(crate) struct ServerProcess {
    child: Child,
    /// Number of times that its user has waited for it.
    waits: u32,
    /// In a box, since it is large.
    command: Box<Command>,
    /// The Debian package that has the program.
    package: &'static str,
    dir: PathBuf,
}

impl ServerProcess {
    /// Starts a server, which writes to the file `log` of its directory.
    pub(crate) fn start(
        mut command: Command,
        package: &'static str,
        dir: PathBuf,
    ) -> ServerProcess {
        let log = File::options().create(true).append(true).open(dir.join("log")).unwrap();
        command.current_dir(&dir).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let child = spawn(&mut command, package);
        let command = Box::new(command);
        ServerProcess { child, waits: 0, command, package, dir }
    }

    /// Starts a server that has ended again.
    pub(crate) fn start_again(&mut self) {
        // By words of the former start, it would seem to be ready.
        File::options().write(true).open(self.dir.join("log")).unwrap().set_len(0).unwrap();
        self.child = spawn(&mut self.command, self.package);
        self.waits = 0;
    }

    /// Waits a moment for a server that is not ready yet. Panics if it has ended, or had a minute.
    pub(crate) fn wait(&mut self) {
        let has_ended = self.child.try_wait().unwrap().is_some();
        self.waits += 1;
        let is_late = self.waits > 6000;
        assert!(!has_ended && !is_late, "{} does not start: {}", self.package, self.log());
        thread::sleep(Duration::from_millis(10));
    }

    /// Returns what the server has written since its start.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends the server a signal, as [`send`] does.
    pub(crate) fn signal(&self, name: &str) {
        send(name, self.id());
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.wait_for_end();
    }

    pub(crate) fn wait_for_end(&mut self) {
        self.child.wait().unwrap();
    }
}

fn spawn(command: &mut Command, package: &str) -> Child {
    command.spawn().unwrap_or_else(|error| {
        let program = command.get_program().display();
        panic!("{program} cannot be run ({error}): apt-get install {package}")
    })
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Sends a process a signal, such as `STOP` or `CONT`. After `STOP`, returns when all of its threads have stopped.
pub(crate) fn send(name: &str, process: impl Display) {
    let mut kill = Command::new("kill");
    kill.arg(format!("-{name}")).arg(process.to_string());
    // The process may have ended.
    let _ = kill.stderr(Stdio::null()).status();
    while name == "STOP" && has_running_threads(&process) {
        thread::sleep(Duration::from_millis(1));
    }
}

fn has_running_threads(process: &impl Display) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let mut states = threads.into_iter().flatten().flatten();
    states.any(|thread| {
        let state = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // After the name, which may contain any characters.
        let state = state.rsplit_once(')').and_then(|(_, state)| state.trim_start().chars().next());
        state.is_some_and(|state| !"TZX".contains(state))
    })
}
