//! The thread that exchanges with datastores: a tokio runtime of its own, which never calls nginx.

use core::cell::Cell;
use core::mem::MaybeUninit;
use core::pin::pin;
use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::time::Instant;

use futures_util::future::{Either, select};
use tokio::runtime::LocalRuntime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout, timeout_at};

use super::channel::ChannelTask;
use super::command::Command;
use super::early::{EarlySyncs, EarlyTimer, LookTimer, listen};
use super::last_push::LastPushes;
use crate::broker::{Broker, EventFd, EventLoopQueue, KnownBefore, Observer, StoreEvent};
use crate::engine::{EarlyPush, Env as _, LastPush, Machine, Report, SyncError, Syncer};
use crate::nginx::conf::SyncedNamespace;
use crate::nginx::cycle;
use crate::store::contract::decision::Decider;
use crate::store::contract::strategy::Strategy;
use crate::store::registry::{StoreVisitor, THREAD_STACK};

/// Periods in a row in which another worker synced, after which a worker closes its connection.
const MAX_IDLE: u32 = 20;

/// Interval in which a worker checks whether another one has ended its cycle.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Pause between the cycles of a last push, and between checks whether the store makes progress.
const PAUSE_OF_LAST_PUSH: Duration = Duration::from_millis(10);

/// Time to wait for the thread after its last pushes should have ended.
const MARGIN: Duration = Duration::from_millis(100);

/// The background thread of a worker.
pub(super) struct Thread {
    /// Sends further tasks to the thread. Dropped to end the thread.
    tasks: Option<UnboundedSender<Task>>,
    /// Senders to the tasks of namespaces, by number.
    commands: Vec<UnboundedSender<Command>>,
    done: EventLoopQueue<Done>,
    store_events: EventLoopQueue<StoreEvent>,
    /// Dropped to end the brokers.
    end_brokers: Vec<oneshot::Sender<()>>,
    /// Dropped to end the subscriptions.
    end_channels: Option<watch::Sender<()>>,
    /// Closed when the thread has ended.
    ended: blocking::Receiver<()>,
    last_pushes: LastPushes,
}

/// The result of a cycle.
pub(super) struct Done {
    /// Number of the namespace, in the order in which they were added.
    pub(super) number: usize,
    pub(super) result: Result<Option<Report>, SyncError>,
    /// Whether it was an early push or a poll, which nothing waits for.
    pub(super) is_early: bool,
}

/// A task for the thread.
enum Task {
    Sync {
        number: usize,
        namespace: Box<SyncedNamespace>,
        /// Sender to the task itself, for early pushes.
        task: UnboundedSender<Command>,
        commands: UnboundedReceiver<Command>,
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
        let last_pushes = LastPushes::default();
        let pushes = last_pushes.clone();
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
                    last_pushes: pushes,
                    early: EarlySyncs::default(),
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
            last_pushes,
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

    /// Starts a cycle of namespace `number`, unless the node has synced in this period. Returns
    /// false if the thread has ended.
    pub(super) fn sync(&self, number: usize) -> bool {
        self.command(number, Command::Sync)
    }

    /// Starts a cycle of namespace `number` that begins after this call, and after those of other
    /// workers. Returns false if the thread has ended.
    pub(super) fn sync_now(&self, number: usize) -> bool {
        self.command(number, Command::SyncNow)
    }

    fn command(&self, number: usize, command: Command) -> bool {
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
            let _ = commands.send(Command::Finish(limits));
        }
        // The wait does not include the threads that look names up.
        let mut wait = limits.patience.saturating_add(MARGIN);
        let end = limits.began.saturating_add(limits.longest).saturating_add(MARGIN);
        while self.ended.recv_timeout(wait) == Err(blocking::RecvTimeoutError::Timeout)
            && self.last_pushes.are_running()
            && Machine.uptime() < end
        {
            wait = MARGIN;
        }
        self.done()
    }

    /// Waits until the thread has ended, after it was told to.
    pub(super) fn wait_for_end(&self) {
        // Nothing is ever sent on this channel.
        let _ = self.ended.recv();
    }
}

/// The tasks of the thread.
struct ThreadTasks {
    tasks: JoinSet<()>,
    results: EventLoopQueue<Done>,
    events: EventLoopQueue<StoreEvent>,
    last_pushes: LastPushes,
    early: EarlySyncs,
    /// Closed to end the subscriptions.
    ending: watch::Receiver<()>,
}

impl ThreadTasks {
    /// Runs the tasks, and starts those that `more` receives, until `more` is closed and all tasks
    /// have ended. Also ends when a task panics: tokio would catch the panic, and the other tasks
    /// would continue without it.
    async fn go_on(&mut self, bell: Option<EventFd>, mut more: UnboundedReceiver<Task>) {
        if let Some(bell) = bell {
            let listening = listen(bell, self.early.clone(), self.ending.clone());
            self.tasks.spawn_local(listening);
        }
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
                let early = namespace.namespace.sync_state();
                let early = early.filter(|_| namespace.is_early);
                self.early.borrow_mut().extend(early.map(|state| (state, task)));
                let job = SyncTask {
                    number,
                    namespace: &namespace,
                    commands,
                    results: self.results.clone(),
                    store_events: self.events.clone(),
                    last_pushes: self.last_pushes.clone(),
                    tasks: &mut self.tasks,
                };
                namespace.options.visit(job);
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

/// The arguments of the task that syncs one namespace.
struct SyncTask<'a> {
    number: usize,
    namespace: &'a SyncedNamespace,
    commands: UnboundedReceiver<Command>,
    results: EventLoopQueue<Done>,
    store_events: EventLoopQueue<StoreEvent>,
    last_pushes: LastPushes,
    tasks: &'a mut JoinSet<()>,
}

impl StoreVisitor for SyncTask<'_> {
    type Output = ();

    fn visit<S: Decider + 'static>(self, connect: impl Fn() -> S + 'static) {
        let SyncTask { number, namespace, commands, results, store_events, last_pushes, tasks } =
            self;
        let namespace = namespace.clone();
        tasks.spawn_local(serve(
            number,
            namespace,
            connect,
            commands,
            results,
            store_events,
            last_pushes,
        ));
    }
}

/// Executes the commands for one namespace. `connect` creates a strategy, which connects at its
/// first use.
async fn serve<S: Strategy>(
    number: usize,
    namespace: SyncedNamespace,
    connect: impl Fn() -> S,
    mut commands: UnboundedReceiver<Command>,
    results: EventLoopQueue<Done>,
    store_events: EventLoopQueue<StoreEvent>,
    last_pushes: LastPushes,
) {
    let SyncedNamespace { namespace: counters, sizes, lease_lifetime, period, .. } = &namespace;
    let Some(mut syncer) = Syncer::new(counters, sizes, *lease_lifetime) else {
        return;
    };
    if namespace.is_synchronous {
        syncer = syncer.pushing_only();
    }
    let worker = u16::try_from(cycle::worker()).unwrap_or(u16::MAX);
    syncer = syncer.living_for(Syncer::life_of(*period)).by_worker(worker);
    if namespace.is_early {
        syncer = syncer.telling();
    }
    // Whether the store was up when the cycle began.
    let known = Cell::new(namespace.store.known());
    let record_cycle = |result: Result<Option<Report>, SyncError>, is_early: bool, store: &S| {
        // Determined here, since another worker may change the store's state before nginx reads the
        // result.
        let mut events: Vec<_> = events_of(&namespace, known.get(), &result, store).collect();
        if counters.table().record_identity() {
            events.push(namespace.store.other_identity());
        }
        if !events.is_empty() {
            store_events.push(events);
        }
        results.push([Done { number, result, is_early }]);
    };
    let note = |result, store: &S| record_cycle(result, false, store);
    let mut store = connect();
    let mut turns_of_others: u32 = 0;
    let mut is_waiting = false;
    let mut early = EarlyTimer::default();
    // A store with a channel needs no polls.
    let is_told = !namespace.is_early || store.channel().is_some();
    let mut look = LookTimer::new(!is_told);
    loop {
        // While another worker holds the lease, this one retries until its own cycle is done.
        let next = early.next().into_iter().chain(look.next()).min();
        let command = match (is_waiting, next) {
            (true, _) => timeout(LOOK_AGAIN, commands.recv()).await,
            (false, Some(next)) => timeout_at(next, commands.recv()).await,
            (false, None) => Ok(commands.recv().await),
        };
        let again = match early.next() {
            _ if is_waiting => Command::SyncNow,
            Some(_) if early.next() == next => Command::Early,
            _ => Command::Look,
        };
        known.set(namespace.store.known());
        let began = Instant::now().into();
        match command.unwrap_or(Some(again)) {
            None => return,
            // All workers have a timer; the node syncs once in each period.
            Some(Command::Sync) if syncer.is_fresh(*period, &Machine) => {
                turns_of_others = turns_of_others.saturating_add(1);
                if turns_of_others == MAX_IDLE {
                    // Closes the connection, so that a node has few connections.
                    store = connect();
                }
                note(Ok(None), &store);
            }
            Some(Command::Sync) => {
                turns_of_others = 0;
                let result = syncer.sync(&mut store, &Machine).await;
                look.set_after(&syncer, began, &result);
                note(result, &store);
            }
            Some(Command::SyncNow) => {
                turns_of_others = 0;
                let result = syncer.sync(&mut store, &Machine).await;
                let is_others = match &result {
                    Ok(report) => !Report::is_whole(*report),
                    Err(error) => *error == SyncError::LeaseLost,
                };
                // Workers of a newer configuration sync in place of this one.
                is_waiting = is_others && !syncer.is_superseded();
                look.set_after(&syncer, began, &result);
                if !is_waiting {
                    note(result, &store);
                }
            }
            // All changes are pushed when the store is back.
            Some(Command::Early) if syncer.is_store_lost() => early = EarlyTimer::default(),
            Some(Command::Early) if !early.begin(began) => {}
            Some(Command::Early) => {
                turns_of_others = 0;
                let result = syncer.sync_early(EarlyPush::Due, &mut store, &Machine).await;
                look.set_after(&syncer, began, &result);
                match result {
                    Ok(report) if Report::is_whole(report) => {}
                    // Workers of a newer configuration push the rest.
                    Ok(_) | Err(SyncError::LeaseLost) if syncer.is_superseded() => {}
                    Ok(_) | Err(SyncError::LeaseLost) => early.begin_again(Instant::now().into()),
                    error => record_cycle(error, true, &store),
                }
            }
            // No polls until the store is back.
            Some(Command::Look) if syncer.is_store_lost() || syncer.is_superseded() => look.stop(),
            Some(Command::Look) if !syncer.is_last() && syncer.is_fresh(look.pause(), &Machine) => {
                look.put_off();
            }
            Some(Command::Look) => {
                let result = syncer.sync_early(EarlyPush::Near, &mut store, &Machine).await;
                look.set_after(&syncer, began, &result);
                if let Err(error) = result {
                    record_cycle(Err(error), true, &store);
                }
            }
            Some(Command::Finish(limits)) => {
                // Workers of a newer configuration sync in place of this one.
                syncer = syncer.living_for(Duration::ZERO);
                let _running = last_pushes.begin();
                let pause = async || sleep(PAUSE_OF_LAST_PUSH).await;
                let pushed = limits.run(&syncer, &mut store, &Machine, pause);
                if let Some(result) = pushed.await {
                    note(result, &store);
                }
                return;
            }
        }
    }
}

/// Returns the events of a cycle's store.
fn events_of(
    namespace: &SyncedNamespace,
    known: KnownBefore,
    result: &Result<Option<Report>, SyncError>,
    store: &impl Strategy,
) -> impl Iterator<Item = StoreEvent> {
    let (observer, watched) = (Observer::Sync(namespace.number), &namespace.store);
    let (events, of_clock) = match result {
        Ok(Some(report)) => (
            watched.note(observer, known, Ok::<_, &SyncError>(()), || store.server()),
            watched.record_clock(report.clock_offset),
        ),
        // Another worker holds or has taken the lease.
        Ok(None) | Err(SyncError::LeaseLost) => (None, None),
        Err(error) => (watched.note(observer, known, Err(error), || None), None),
    };
    events.into_iter().chain(of_clock)
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
