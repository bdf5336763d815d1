//! Signals to servers that tests have started.

use core::fmt::Display;
use core::time::Duration;
use std::process::{Command, Stdio};
use std::{fs, thread};

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
