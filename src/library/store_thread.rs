//! The thread of an instance that talks to stores.

use std::io;
use std::sync::mpsc as blocking;

use tokio::runtime::LocalRuntime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::datastore::Datastore;
use super::sync_task::StoreTask;

/// The thread, as an instance has it: it ends some time after this is dropped, when what is left was pushed.
#[derive(Debug)]
pub(super) struct StoreThread {
    tasks: UnboundedSender<(Datastore, StoreTask)>,
}

impl StoreThread {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// If the system has none to give.
    pub(super) fn start() -> io::Result<StoreThread> {
        let (tasks, receiver) = unbounded_channel();
        let (refused, refusal) = blocking::channel();
        let thread = std::thread::Builder::new().name("ratelimit sync".into());
        thread.spawn(move || {
            let runtime = match LocalRuntime::new() {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = refused.send(error);
                    return;
                }
            };
            drop(refused);
            runtime.block_on(serve(receiver));
            // A name may still be looked up, which can take long.
            runtime.shutdown_background();
        })?;
        match refusal.recv() {
            Ok(error) => Err(error),
            // It runs.
            Err(blocking::RecvError) => Ok(StoreThread { tasks }),
        }
    }

    /// Has it serve one more namespace; returns whether it does.
    pub(super) fn serve(&self, store: Datastore, task: StoreTask) -> bool {
        self.tasks.send((store, task)).is_ok()
    }
}

async fn serve(mut receiver: UnboundedReceiver<(Datastore, StoreTask)>) {
    let mut tasks = JoinSet::new();
    while let Some((store, task)) = receiver.recv().await {
        tasks.spawn_local(store.serve(task));
    }
    // One whose strategy panics leaves the others alone.
    while tasks.join_next().await.is_some() {}
}
