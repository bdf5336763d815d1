//! The thread of an instance that exchanges with stores.

use core::fmt;
use std::io;
use std::sync::mpsc as blocking;

use tokio::runtime::{Handle, LocalRuntime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::datastore::ServedTask;
use crate::store::registry::THREAD_STACK;

/// An instance's handle of its store thread. After it is dropped, the thread pushes the remaining
/// hits and ends.
pub(super) struct StoreThread {
    tasks: UnboundedSender<StartTask>,
    runtime: Handle,
}

/// Creates a task. It runs in the thread.
type StartTask = Box<dyn FnOnce() -> ServedTask + Send>;

impl StoreThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system cannot start one.
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
            // A lookup of a name may still be running, and can take long.
            runtime.shutdown_background();
        })?;
        let runtime = start.recv().map_err(io::Error::other)??;
        Ok(StoreThread { tasks, runtime })
    }

    /// Returns the thread's runtime, which lives as long as one of its tasks.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Runs one more task.
    ///
    /// # Errors
    ///
    /// The thread has ended.
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
    // A panic of one task's strategy does not end the others.
    while tasks.join_next().await.is_some() {}
}
