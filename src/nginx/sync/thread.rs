//! The thread that talks to datastores: a tokio runtime of its own, which never calls nginx.

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
use tokio::time::{timeout, timeout_at};

use super::channel::ChannelTask;
use super::command::Command;
use super::early::{EarlySyncs, EarlyTimer, LookTimer, listen};
use super::last_push::{LastPushes, push_rest};
use crate::broker::{Broker, EventFd, EventLoopQueue, KnownBefore, Observer, StoreEvent};
use crate::engine::{EarlyPush, Env as _, LastPush, Machine, Report, SyncError, Syncer};
use crate::nginx::conf::SyncedNamespace;
use crate::nginx::cycle;
use crate::store::contract::decision::Decider;
use crate::store::contract::strategy::Strategy;
use crate::store::registry::{StoreVisitor, THREAD_STACK};

/// After how many periods in which others synced a worker gives its connection up.
const MAX_IDLE: u32 = 20;

/// After how long it is looked again whether another worker is done with its cycle.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Time for which the thread is waited for beyond its last pushes.
const MARGIN: Duration = Duration::from_millis(100);

/// The background thread of a worker.
pub(super) struct Thread {
    /// To what it is to do besides. Dropped when it is to end.
    tasks: Option<UnboundedSender<Task>>,
    /// To the task of each namespace, by their numbers.
    commands: Vec<UnboundedSender<Command>>,
    done: EventLoopQueue<Done>,
    store_events: EventLoopQueue<StoreEvent>,
    /// Dropped when nothing more is to be asked.
    end_brokers: Vec<oneshot::Sender<()>>,
    /// Dropped when nothing more is to be heard.
    end_channels: Option<watch::Sender<()>>,
    /// Closed when the thread has ended.
    ended: blocking::Receiver<()>,
    last_pushes: LastPushes,
}

/// The result of a cycle.
pub(super) struct Done {
    /// The number of the namespace, in the order in which they were given.
    pub(super) number: usize,
    pub(super) result: Result<Option<Report>, SyncError>,
    /// Whether it was about what was due before its time: nothing asked for it.
    pub(super) is_early: bool,
}

/// Something that the thread is to do from now on.
enum Task {
    Sync {
        number: usize,
        namespace: Box<SyncedNamespace>,
        /// To this task: for what is due early.
        task: UnboundedSender<Command>,
        commands: UnboundedReceiver<Command>,
    },
    /// Subscribe to the channel of the store of these namespaces.
    Channel(Vec<SyncedNamespace>),
    Broker(Box<Broker>, oneshot::Receiver<()>),
}

/// Wakes the event loop when the thread ends, even by a panic.
struct AtEnd {
    eventfd: EventFd,
    /// Closed with this.
    _is_alive: blocking::Sender<()>,
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.eventfd.wake();
    }
}

impl Thread {
    /// Starts a thread that wakes the event loop by `eventfd` when there is something [`Thread::done`], and pushes
    /// before the time when the bell wakes it.
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
                // Connections that are not needed any more are closed as their protocol says.
                tokio::task::yield_now().await;
            });
            // A name may still be looked up, which can take long.
            runtime.shutdown_background();
        });
        restore_signals(&signals);
        thread?;
        // Soon: it says so before it does anything else.
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

    /// Has namespaces synced, too. They have the next numbers.
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

    /// Has stores asked about requests, too, when it is this process's turn.
    pub(super) fn ask(&mut self, broker: Broker) {
        let (end, ending) = oneshot::channel();
        self.end_brokers.push(end);
        self.begin(Task::Broker(Box::new(broker), ending));
    }

    fn begin(&self, task: Task) {
        // If the thread has ended, so has all that it did; the next one is told.
        let _ = self.tasks.as_ref().map(|tasks| tasks.send(task));
    }

    /// Asks for a cycle of namespace `number`, if it is time for one; returns whether the thread is there
    /// to do it.
    pub(super) fn sync(&self, number: usize) -> bool {
        self.command(number, Command::Sync)
    }

    /// Asks for a cycle in any case, which begins after this and after those of other workers.
    pub(super) fn sync_now(&self, number: usize) -> bool {
        self.command(number, Command::SyncNow)
    }

    fn command(&self, number: usize, command: Command) -> bool {
        let commands = self.commands.get(number);
        commands.is_some_and(|commands| commands.send(command).is_ok())
    }

    /// Whether the thread has ended, which it does by itself only if it panics.
    pub(super) fn has_ended(&self) -> bool {
        // Nothing is ever sent, so that this takes nothing.
        self.ended.try_recv() == Err(blocking::TryRecvError::Disconnected)
    }

    /// Takes the results since the last call, without waiting. If there is more at the moment, the
    /// event loop is woken again.
    pub(super) fn done(&self) -> Vec<Done> {
        self.done.take()
    }

    /// Takes the events of stores since the last call, without waiting.
    pub(super) fn store_events(&self) -> Vec<StoreEvent> {
        self.store_events.take()
    }

    /// Has what is left pushed, for as long as the store takes it within these limits, and ends the thread.
    pub(super) fn finish(&mut self, limits: LastPush) -> Vec<Done> {
        self.tasks = None;
        self.end_brokers.clear();
        self.end_channels = None;
        for commands in &self.commands {
            // If it has ended, it has nothing left.
            let _ = commands.send(Command::Finish(limits));
        }
        // The threads that look names up are not waited for.
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

    /// Waits until the thread has ended, which it was told to.
    pub(super) fn wait_for_end(&self) {
        // Nothing is sent.
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
    /// Closed when nothing more is to be heard.
    ending: watch::Receiver<()>,
}

impl ThreadTasks {
    /// Does what it is told, until there is nothing more to come and all tasks have ended, or one has panicked: tokio
    /// would keep that to itself, and the others would go on without it.
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

/// The namespaces whose nodes hear each other, by their stores.
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

/// The serving of one namespace by a task.
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

/// Does what is asked for of one namespace. `connect` makes a strategy, which connects when used.
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
    // What is known of the store when a cycle begins.
    let known = Cell::new(namespace.store.known());
    let record_cycle = |result: Result<Option<Report>, SyncError>, is_early: bool, store: &S| {
        // At once: when nginx looks at it, another worker may have been at the store since.
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
    // Where a store tells of others' pushes, nobody has to look.
    let is_told = !namespace.is_early || store.channel().is_some();
    let mut look = LookTimer::new(!is_told);
    loop {
        // While another worker is at it, what was asked for waits.
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
            // All workers have a timer: the node syncs once in a period.
            Some(Command::Sync) if syncer.is_fresh(*period, &Machine) => {
                turns_of_others = turns_of_others.saturating_add(1);
                if turns_of_others == MAX_IDLE {
                    // Closes the connection, so that a node has few.
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
                // Those of a newer configuration go on.
                is_waiting = is_others && !syncer.is_superseded();
                look.set_after(&syncer, began, &result);
                if !is_waiting {
                    note(result, &store);
                }
            }
            // When it is back, all that changed is pushed.
            Some(Command::Early) if syncer.is_store_lost() => early = EarlyTimer::default(),
            Some(Command::Early) if !early.begin(began) => {}
            Some(Command::Early) => {
                turns_of_others = 0;
                let result = syncer.sync_early(EarlyPush::Due, &mut store, &Machine).await;
                look.set_after(&syncer, began, &result);
                match result {
                    Ok(report) if Report::is_whole(report) => {}
                    // Those of a newer configuration go on.
                    Ok(_) | Err(SyncError::LeaseLost) if syncer.is_superseded() => {}
                    Ok(_) | Err(SyncError::LeaseLost) => early.begin_again(Instant::now().into()),
                    error => record_cycle(error, true, &store),
                }
            }
            // Nobody looks before the store is back.
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
                // If others go on, those of a newer configuration, they sync in place of this one.
                syncer = syncer.living_for(Duration::ZERO);
                let pushed = push_rest(&syncer, &mut store, limits, &last_pushes);
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
        // Another worker was at it, or has taken over.
        Ok(None) | Err(SyncError::LeaseLost) => (None, None),
        Err(error) => (watched.note(observer, known, Err(error), || None), None),
    };
    events.into_iter().chain(of_clock)
}

/// Blocks all signals in this thread, so that a thread that it starts gets none: they are nginx's.
/// Returns those that were blocked before.
fn block_signals() -> libc::sigset_t {
    let (mut all, mut before) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
    // SAFETY: both are valid for writes, and all-zero is a valid set.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, core::ptr::null_mut()) };
}
