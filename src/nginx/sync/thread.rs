//! The thread that talks to datastores: a tokio runtime of its own, which never calls nginx.

use core::mem::MaybeUninit;
use core::num::NonZeroU64;
use core::time::Duration;
use std::io;
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

use super::super::conf::SyncedNamespace;
use super::super::random::random;
use crate::engine::{Report, Surroundings, SyncError, Syncer};
use crate::policy::window::{Clock, UnixMillis};
use crate::store::redis::Redis;
use crate::store::strategy::Strategy as _;
use crate::table::MonotonicMillis;

/// The background thread of a worker.
pub(super) struct Thread {
    commands: Vec<UnboundedSender<Command>>,
    done: Arc<Mutex<Vec<Done>>>,
    /// Closed when the thread has ended.
    ended: blocking::Receiver<()>,
}

/// What came of a cycle.
pub(super) struct Done {
    /// The number of the namespace, in the order in which they were given.
    pub(super) number: usize,
    pub(super) result: Result<Option<Report>, SyncError>,
    /// Whether the store was lost, or came back, and this worker is to tell.
    pub(super) is_news: bool,
}

enum Command {
    Sync,
    /// Push what is left until then, and end.
    Finish(Instant),
}

impl Thread {
    pub(super) fn start(namespaces: &[SyncedNamespace]) -> io::Result<Thread> {
        let (commands, receivers): (Vec<_>, Vec<_>) =
            namespaces.iter().map(|_| unbounded_channel()).unzip();
        let done = Arc::<Mutex<Vec<Done>>>::default();
        let (is_alive, ended) = blocking::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let jobs: Vec<_> = namespaces.iter().cloned().zip(receivers).collect();
        let results = done.clone();
        let signals = block_signals();
        let thread = std::thread::Builder::new().name("ratelimit sync".into());
        let thread = thread.spawn(move || {
            let tasks = LocalSet::new();
            for (number, (namespace, commands)) in jobs.into_iter().enumerate() {
                tasks.spawn_local(serve(number, namespace, commands, results.clone()));
            }
            runtime.block_on(tasks);
            // A name may still be looked up, which can take long.
            runtime.shutdown_background();
            drop(is_alive);
        });
        restore_signals(&signals);
        thread?;
        Ok(Thread {
            commands,
            done,
            ended,
        })
    }

    /// Asks for a cycle of namespace `number`; returns whether the thread is there to do it.
    pub(super) fn sync(&self, number: usize) -> bool {
        let commands = self.commands.get(number);
        commands.is_some_and(|commands| commands.send(Command::Sync).is_ok())
    }

    /// Whether the thread has ended, which it does by itself only if it panics.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.try_recv() == Err(blocking::TryRecvError::Disconnected)
    }

    /// What was done since the last look.
    pub(super) fn done(&self) -> Vec<Done> {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        core::mem::take(&mut *done)
    }

    /// Has what is left pushed, for `at_most` that long, and ends the thread.
    pub(super) fn finish(&self, at_most: Duration) -> Vec<Done> {
        let now = Instant::now();
        let until = now.checked_add(at_most).unwrap_or(now);
        for commands in &self.commands {
            // If it has ended, it has nothing left.
            let _ = commands.send(Command::Finish(until));
        }
        // The threads that look names up are not waited for.
        let _ = self
            .ended
            .recv_timeout(at_most.saturating_add(Duration::from_millis(100)));
        self.done()
    }
}

/// Does what is asked for of one namespace.
async fn serve(
    number: usize,
    namespace: SyncedNamespace,
    mut commands: UnboundedReceiver<Command>,
    done: Arc<Mutex<Vec<Done>>>,
) {
    let SyncedNamespace {
        namespace: counters,
        sizes,
        lease_lifetime,
        period,
        ..
    } = &namespace;
    let Some(syncer) = Syncer::new(counters, sizes, *lease_lifetime) else {
        return;
    };
    let mut store = Redis::new(&namespace.options, &namespace.redis);
    let note = |result: Result<Option<Report>, SyncError>| {
        let is_there = match &result {
            Ok(Some(_)) => Some(true),
            Err(SyncError::Store(_)) => Some(false),
            Ok(None) | Err(SyncError::LeaseLost) => None,
        };
        // At once: when nginx looks at it, another worker may have been at the store since.
        let is_news = namespace.is_reporter
            && is_there.is_some_and(|is_there| namespace.state.note_store(is_there));
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        done.push(Done {
            number,
            result,
            is_news,
        });
    };
    while let Some(command) = commands.recv().await {
        match command {
            // All workers have a timer: the node syncs once in a period.
            Command::Sync if syncer.is_fresh(*period, &System) => note(Ok(None)),
            Command::Sync => note(syncer.sync(&mut store, &System).await),
            Command::Finish(until) => {
                // The other half is for an exchange.
                let patience = until.saturating_duration_since(Instant::now()) / 2;
                let begin = Instant::now();
                let until = tokio::time::Instant::from(until);
                let finish = async {
                    loop {
                        match syncer.sync(&mut store, &System).await {
                            // Others of a newer configuration go on.
                            Ok(None) if syncer.is_superseded() => break Ok(None),
                            // Another worker that ends is at it: what this one counted last may be
                            // left. Or one was killed at it: then nobody gives the lease back in time.
                            Ok(None) => {
                                if begin.elapsed() >= patience {
                                    syncer.take_over(&System);
                                }
                                tokio::time::sleep(Duration::from_millis(10)).await;
                            }
                            result => break result,
                        }
                    }
                };
                if let Ok(result) = tokio::time::timeout_at(until, finish).await {
                    note(result);
                }
                return;
            }
        }
    }
}

/// The clocks and the random numbers of the system.
struct System;

impl Clock for System {
    fn now(&self) -> UnixMillis {
        super::super::time::unix_now()
    }

    fn fresh(&self) -> UnixMillis {
        self.now()
    }
}

impl Surroundings for System {
    fn monotonic(&self) -> MonotonicMillis {
        let mut time = MaybeUninit::<libc::timespec>::zeroed();
        // SAFETY: the time is valid for writes, and zero is a valid one should the call fail.
        let time = unsafe {
            libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
            time.assume_init()
        };
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let millis = u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000;
        MonotonicMillis(seconds.saturating_mul(1000).saturating_add(millis))
    }

    fn random(&self) -> NonZeroU64 {
        let [bits, _] = random().unwrap_or_default();
        NonZeroU64::new(bits).unwrap_or(NonZeroU64::MIN)
    }
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
