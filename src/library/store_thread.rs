//! The thread of an instance that talks to stores.

use core::fmt;
use std::io;
use std::sync::mpsc as blocking;

use tokio::runtime::{Handle, LocalRuntime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::datastore::ServedTask;
use crate::store::registry::THREAD_STACK;

/// An instance's handle of the thread, which pushes the remaining hits and ends some time after this is dropped.
pub(super) struct StoreThread {
    tasks: UnboundedSender<StartTask>,
    runtime: Handle,
}

/// Makes a task, in the thread.
type StartTask = Box<dyn FnOnce() -> ServedTask + Send>;

impl StoreThread {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// If the system has none to give.
    pub(super) fn start() -> io::Result<StoreThread> {
        let (tasks, receiver) = unbounded_channel();
        let (started, start) = blocking::channel();
        let thread =
            std::thread::Builder::new().name("ratelimit sync".into()).stack_size(THREAD_STACK);
        thread.spawn(move || {
            let runtime = match LocalRuntime::new() {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            let _ = started.send(Ok(runtime.handle().clone()));
            runtime.block_on(serve(receiver));
            // A name may still be looked up, which can take long.
            runtime.shutdown_background();
        })?;
        let runtime = start.recv().map_err(io::Error::other)??;
        Ok(StoreThread { tasks, runtime })
    }

    /// The runtime of its tasks, which lives as long as one of them.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Has it run one more task.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub(super) fn run(
        &self,
        start: impl FnOnce() -> ServedTask + Send + 'static,
    ) -> io::Result<()> {
        let sent = self.tasks.send(Box::new(start));
        sent.map_err(|_| io::Error::other("the thread has ended"))
    }
}

impl fmt::Debug for StoreThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreThread").finish_non_exhaustive()
    }
}

async fn serve(mut receiver: UnboundedReceiver<StartTask>) {
    let mut tasks = JoinSet::new();
    while let Some(start) = receiver.recv().await {
        tasks.spawn_local(start());
    }
    // One whose strategy panics leaves the others alone.
    while tasks.join_next().await.is_some() {}
}
