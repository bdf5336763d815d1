//! The thread that exchanges with datastores: a tokio runtime of its own, which never calls nginx.

use core::cell::RefCell;
use core::mem::MaybeUninit;
use core::pin::pin;
use core::time::Duration;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc as blocking;

use futures_util::future::{Either, select};
use tokio::runtime::LocalRuntime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::channel::ChannelTask;
use super::task::{CycleObserver, Done, SyncTask, SyncWaiter};
use crate::broker::{Broker, EventFd, EventLoopQueue, StoreEvent, StoreWatch};
use crate::engine::{Env as _, LastPush, Machine, SyncCommand, SyncResult};
use crate::nginx::conf::SyncedNamespace;
use crate::store::registry::THREAD_STACK;
use crate::table::SyncState;

/// Interval in which the thread checks whether a newer configuration's workers sync.
const LOOK: Duration = Duration::from_millis(500);
/// Time to wait for the thread after its last pushes should have ended.
const MARGIN: Duration = Duration::from_millis(100);

/// The background thread of a worker.
pub(super) struct Thread {
    /// Sends further tasks to the thread. Dropped to end the thread.
    tasks: Option<UnboundedSender<Task>>,
    /// Senders to the tasks of namespaces, by number.
    commands: Vec<UnboundedSender<SyncCommand>>,
    done: EventLoopQueue<Done>,
    store_events: EventLoopQueue<StoreEvent>,
    /// Dropped to end the brokers.
    end_brokers: Vec<oneshot::Sender<()>>,
    /// Dropped to end the subscriptions.
    end_channels: Option<watch::Sender<()>>,
    /// Closed when the thread has ended.
    ended: blocking::Receiver<()>,
}

/// A task for the thread.
enum Task {
    Sync {
        number: usize,
        namespace: Box<SyncedNamespace>,
        /// Sender to the task itself, for commands of the thread.
        task: UnboundedSender<SyncCommand>,
        commands: UnboundedReceiver<SyncCommand>,
    },
    /// Subscribe to the channel of these namespaces' store.
    Channel(Vec<SyncedNamespace>),
    Broker(Box<Broker>, oneshot::Receiver<()>),
}

/// Wakes the event loop when the thread ends, even by a panic.
struct AtEnd {
    eventfd: EventFd,
    /// Its drop closes `ended`.
    _is_alive: blocking::Sender<()>,
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.eventfd.wake();
    }
}

impl Thread {
    /// Starts a thread, which wakes the event loop by `eventfd` when [`Thread::done`] has results,
    /// and pushes early when `bell` wakes it.
    pub(super) fn start(eventfd: EventFd, bell: Option<EventFd>) -> io::Result<Thread> {
        let (end_channels, ending) = watch::channel(());
        let (tasks, more) = unbounded_channel();
        let done = EventLoopQueue::new(eventfd.clone());
        let store_events = EventLoopQueue::new(eventfd.clone());
        let (is_alive, ended) = blocking::channel();
        let (refused, refusal) = blocking::channel();
        let (results, events) = (done.clone(), store_events.clone());
        let at_end = AtEnd { eventfd, _is_alive: is_alive };
        let signals = block_signals();
        let thread =
            std::thread::Builder::new().name("ratelimit sync".into()).stack_size(THREAD_STACK);
        let thread = thread.spawn(move || {
            let _at_end = at_end;
            let runtime = match LocalRuntime::new() {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = refused.send(error);
                    return;
                }
            };
            drop(refused);
            runtime.block_on(async {
                let mut running = ThreadTasks {
                    tasks: JoinSet::new(),
                    results,
                    events,
                    syncs: Syncs::default(),
                    ending,
                };
                running.go_on(bell, more).await;
                drop(running);
                // Gives the connections that were closed the time to end their protocol.
                tokio::task::yield_now().await;
            });
            // A lookup of a name may still be running, and can take long.
            runtime.shutdown_background();
        });
        restore_signals(&signals);
        thread?;
        // Does not take long: the thread sends its error, or drops the sender, before anything
        // else.
        if let Ok(error) = refusal.recv() {
            return Err(error);
        }
        Ok(Thread {
            tasks: Some(tasks),
            commands: Vec::new(),
            done,
            store_events,
            end_brokers: Vec::new(),
            end_channels: Some(end_channels),
            ended,
        })
    }

    /// Starts to sync more namespaces. They get the next numbers.
    pub(super) fn sync_also(&mut self, namespaces: &[SyncedNamespace]) {
        for namespace in namespaces {
            let (task, commands) = unbounded_channel();
            let number = self.commands.len();
            self.commands.push(task.clone());
            self.begin(Task::Sync {
                number,
                namespace: Box::new(namespace.clone()),
                task,
                commands,
            });
        }
        for namespaces in heard(namespaces) {
            self.begin(Task::Channel(namespaces));
        }
    }

    /// Starts to ask stores about requests, when this process holds the lock.
    pub(super) fn ask(&mut self, broker: Broker) {
        let (end, ending) = oneshot::channel();
        self.end_brokers.push(end);
        self.begin(Task::Broker(Box::new(broker), ending));
    }

    fn begin(&self, task: Task) {
        // Sending fails only if the thread has ended; the next thread gets all brokers again.
        let _ = self.tasks.as_ref().map(|tasks| tasks.send(task));
    }

    /// Syncs namespace `number`: a cycle begins after this call, and after those of other workers.
    /// Returns false if the thread has ended.
    pub(super) fn sync(&self, number: usize, waiter: Option<SyncWaiter>) -> bool {
        let done = self.done.clone();
        let reply = Box::new(move |result: SyncResult| {
            if waiter.is_some() {
                done.push([Done { number, report: result.ok().flatten(), waiter }]);
            }
        });
        self.command(number, SyncCommand::Sync { fetches_anew: false, reply })
    }

    /// Syncs namespace `number`, unless the node was synced in this period. Returns false if the
    /// thread has ended.
    pub(super) fn tick(&self, number: usize) -> bool {
        self.command(number, SyncCommand::Tick)
    }

    fn command(&self, number: usize, command: SyncCommand) -> bool {
        let commands = self.commands.get(number);
        commands.is_some_and(|commands| commands.send(command).is_ok())
    }

    /// Returns whether the thread has ended. Unless told to end, it ends only by a panic.
    pub(super) fn has_ended(&self) -> bool {
        // Nothing is ever sent on this channel, so no message is lost.
        self.ended.try_recv() == Err(blocking::TryRecvError::Disconnected)
    }

    /// Takes the results since the last call, without waiting. Wakes the event loop again if more
    /// are left.
    pub(super) fn done(&self) -> Vec<Done> {
        self.done.take()
    }

    /// Takes the events of stores since the last call, without waiting.
    pub(super) fn store_events(&self) -> Vec<StoreEvent> {
        self.store_events.take()
    }

    /// Pushes the remaining hits within `limits`, and ends the thread.
    pub(super) fn finish(&mut self, limits: LastPush) -> Vec<Done> {
        self.tasks = None;
        self.end_brokers.clear();
        self.end_channels = None;
        for commands in &self.commands {
            // Sending fails only if the task has ended; then it has nothing left to push.
            let _ = commands.send(SyncCommand::Finish(limits));
        }
        let end = limits.began.saturating_add(limits.longest).saturating_add(MARGIN);
        // The wait does not include the threads that look names up. If the time is over, the thread
        // ends with the process.
        let _ = self.ended.recv_timeout(end.saturating_sub(Machine.uptime()));
        self.done()
    }

    /// Waits until the thread has ended, after it was told to.
    pub(super) fn wait_for_end(&self) {
        // Nothing is ever sent on this channel.
        let _ = self.ended.recv();
    }
}

/// The syncs of the thread that are not superseded.
type Syncs = Rc<RefCell<Vec<ThreadSync>>>;

/// A sync of the thread.
struct ThreadSync {
    state: SyncState<'static>,
    /// Whether hits are pushed early.
    is_early: bool,
    task: UnboundedSender<SyncCommand>,
}

/// The tasks of the thread.
struct ThreadTasks {
    tasks: JoinSet<()>,
    results: EventLoopQueue<Done>,
    events: EventLoopQueue<StoreEvent>,
    syncs: Syncs,
    /// Closed to end the subscriptions.
    ending: watch::Receiver<()>,
}

impl ThreadTasks {
    /// Runs the tasks, and starts those that `more` receives, until `more` is closed and all tasks
    /// have ended. Also ends when a task panics: tokio would catch the panic, and the other tasks
    /// would continue without it.
    async fn go_on(&mut self, bell: Option<EventFd>, mut more: UnboundedReceiver<Task>) {
        if let Some(bell) = bell {
            let listening = push_early(bell, self.syncs.clone(), self.ending.clone());
            self.tasks.spawn_local(listening);
        }
        self.tasks.spawn_local(leave_superseded(self.syncs.clone(), self.ending.clone()));
        loop {
            let task = {
                let ended = async {
                    loop {
                        match self.tasks.join_next().await {
                            Some(Ok(())) => {}
                            Some(Err(_)) => return,
                            None => core::future::pending().await,
                        }
                    }
                };
                match select(pin!(more.recv()), pin!(ended)).await {
                    Either::Left((task, _)) => task,
                    Either::Right(((), _)) => return,
                }
            };
            match task {
                Some(task) => self.begin(task),
                None => break,
            }
        }
        while let Some(Ok(())) = self.tasks.join_next().await {}
    }

    fn begin(&mut self, task: Task) {
        match task {
            Task::Sync { number, namespace, task, commands } => {
                let state = namespace.namespace.sync_state();
                let is_early = namespace.is_early;
                let sync = state.map(|state| ThreadSync { state, is_early, task });
                self.syncs.borrow_mut().extend(sync);
                let options = namespace.options.clone();
                let job = SyncTask {
                    observer: CycleObserver {
                        number,
                        watch: StoreWatch::new(namespace.store.clone(), namespace.observer),
                        namespace: *namespace,
                        results: self.results.clone(),
                        store_events: self.events.clone(),
                    },
                    commands,
                    tasks: &mut self.tasks,
                };
                options.visit(job);
            }
            Task::Channel(namespaces) => {
                let options = namespaces.first().map(|it| it.options.clone());
                let job = ChannelTask {
                    namespaces,
                    events: self.events.clone(),
                    ending: self.ending.clone(),
                    tasks: &mut self.tasks,
                };
                if let Some(options) = options {
                    options.visit(job);
                }
            }
            Task::Broker(broker, ending) => {
                self.tasks.spawn_local(broker.serve(ending, self.events.clone()));
            }
        }
    }
}

/// Returns the namespaces with subscriptions, grouped by store.
fn heard(namespaces: &[SyncedNamespace]) -> Vec<Vec<SyncedNamespace>> {
    let mut heard: Vec<Vec<SyncedNamespace>> = Vec::new();
    for namespace in namespaces.iter().filter(|it| it.is_early) {
        let mut stores = heard.iter_mut();
        let is_same = |it: &SyncedNamespace| Arc::ptr_eq(&it.store, &namespace.store);
        match stores.find(|it| it.first().is_some_and(is_same)) {
            Some(others) => others.push(namespace.clone()),
            None => heard.push(vec![namespace.clone()]),
        }
    }
    heard
}

/// Sends a command to the tasks of the namespaces whose bell is rung, until `ending` is closed.
async fn push_early(bell: EventFd, syncs: Syncs, mut ending: watch::Receiver<()>) {
    // Without the bell, hits are pushed once in each period.
    let Ok(rung) = bell.listen() else { return };
    let mut ended = pin!(ending.changed());
    loop {
        match select(pin!(rung.readable()), ended.as_mut()).await {
            Either::Left((Ok(mut ready), _)) => ready.clear_ready(),
            Either::Left((Err(_), _)) | Either::Right(_) => return,
        }
        bell.clear();
        for sync in syncs.borrow().iter().filter(|it| it.is_early && it.state.is_rung()) {
            // Sending fails only if the task has ended.
            let _ = sync.task.send(SyncCommand::Early);
        }
    }
}

/// Closes the connections of syncs that workers of a newer configuration have taken over, until
/// `ending` is closed.
async fn leave_superseded(syncs: Syncs, mut ending: watch::Receiver<()>) {
    let leave = async {
        loop {
            syncs.borrow_mut().retain(|sync| {
                let is_superseded = sync.state.is_superseded();
                if is_superseded {
                    // Sending fails only if the task has ended.
                    let _ = sync.task.send(SyncCommand::Leave);
                }
                !is_superseded
            });
            sleep(LOOK).await;
        }
    };
    select(pin!(leave), pin!(ending.changed())).await;
}

/// Blocks all signals in this thread and in those that it starts afterwards: nginx's main thread
/// handles the signals. Returns the previous mask.
fn block_signals() -> libc::sigset_t {
    let (mut all, mut before) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
    // SAFETY: both pointers are valid for writes, and an all-zero signal set is valid.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: `before` is a valid signal set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, core::ptr::null_mut()) };
}
