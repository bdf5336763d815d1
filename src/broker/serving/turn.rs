//! Waits for a process's turn to be the broker. The kernel passes the lock on when its holder ends;
//! a broker that was stopped misses its beats.

use core::pin::pin;
use core::sync::atomic::{
    AtomicU8,
    Ordering::{AcqRel, Acquire},
};
use core::time::Duration;
use std::sync::Arc;

use futures_util::future::{Either, FutureExt as _, select};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use super::dispatcher::BEAT;
use crate::broker::shared::shared_queues::SharedQueues;
use crate::broker::shared::tenure::{TenureLooks, Term};

/// Interval in which a worker that ends checks whether its last questions were taken.
const LAST_LOOK: Duration = Duration::from_millis(5);
/// Number of looks of a waiting process in the second after which a stopped broker is replaced.
const LOOKS: u32 = 9;
/// Pause before the lock is requested again after the system refused it.
const NO_LOCK: Duration = Duration::from_millis(100);

/// A process's turns as the broker.
pub(super) struct Turn {
    queues: Arc<SharedQueues>,
    worker: usize,
    /// Number of looks without a beat after which a broker is replaced.
    patience: u32,
    lock: Arc<LockState>,
}

/// The state of the thread that waits for the lock.
#[derive(Default)]
struct LockState {
    state: AtomicU8,
    changed: Notify,
}

/// No thread waits for the lock.
const NOT_WANTED: u8 = 0;
const WAITING: u8 = 1;
/// A thread waits, and will release the lock at once.
const GIVEN_UP: u8 = 2;
const LOCKED: u8 = 3;

impl Turn {
    /// Creates the turns of a process, which replaces a broker that does not serve for `timeout` and
    /// a second.
    pub(super) fn new(queues: Arc<SharedQueues>, worker: usize, timeout: Duration) -> Turn {
        let beats = timeout.as_millis().div_ceil(BEAT.as_millis());
        let patience = u32::try_from(beats).unwrap_or(u32::MAX).saturating_add(LOOKS);
        Turn { queues, worker, patience, lock: Arc::default() }
    }

    /// Returns whether this process has the lock.
    pub(super) fn has_lock(&self) -> bool {
        self.lock.state.load(Acquire) == LOCKED
    }

    /// Waits for this process's turn. Returns its term, and whether it replaces a process that has
    /// not ended. `None` if the process ends before, and has no questions left.
    pub(super) async fn wait(
        &mut self,
        mut ending: impl Future<Output = ()> + Unpin,
    ) -> Option<(Term, bool)> {
        let mut looks = TenureLooks::new(self.patience);
        let mut is_ending = false;
        // At least the time since the last look at the tenure. It is shorter than a beat after an
        // early wake-up, and in a worker that ends, which often checks its questions.
        let mut since_look = BEAT;
        loop {
            is_ending = is_ending || (&mut ending).now_or_never().is_some();
            if is_ending && !self.has_questions() {
                return None;
            }
            self.want_lock();
            let (tenure, has_lock) = (self.queues.tenure()?, self.has_lock());
            // A broker without the lock may be alive. Only its beats show that, and each look that
            // comes sooner would count as a missing one.
            let is_unlocked = tenure.is_unlocked();
            if has_lock && !is_unlocked || since_look >= BEAT {
                since_look = Duration::ZERO;
                if let Some(turn) = tenure.look(&mut looks, has_lock) {
                    return Some(turn);
                }
            }
            if has_lock && is_unlocked {
                // The lock belongs to the process that serves without it.
                self.end();
            }
            let look = match is_ending {
                true => LAST_LOOK,
                false => BEAT,
            };
            let next = async {
                tokio::time::sleep(look).await;
                since_look = since_look.saturating_add(look);
            };
            let change = async {
                match has_lock {
                    // Nothing is left to wait for.
                    true => next.await,
                    false => {
                        select(pin!(next), pin!(self.lock.changed.notified())).await;
                    }
                }
            };
            match is_ending {
                true => change.await,
                false => {
                    is_ending = matches!(select(&mut ending, pin!(change)).await, Either::Left(_))
                }
            }
        }
    }

    /// Returns whether another process must take this worker's last questions.
    fn has_questions(&self) -> bool {
        let queues = self.queues.of_worker(self.worker);
        queues.is_some_and(|it| !it.questions.is_empty())
    }

    /// Releases the lock.
    pub(super) fn end(&self) {
        let state = &self.lock.state;
        let ended = state.fetch_update(AcqRel, Acquire, |state| match state {
            WAITING => Some(GIVEN_UP),
            LOCKED => Some(NOT_WANTED),
            _ => None,
        });
        if ended == Ok(LOCKED) {
            self.queues.unlock();
        }
    }

    /// Starts a thread that waits for the lock, unless there is one.
    fn want_lock(&self) {
        let state = &self.lock.state;
        let before =
            state.fetch_update(AcqRel, Acquire, |state| (state != LOCKED).then_some(WAITING));
        if before != Ok(NOT_WANTED) {
            return;
        }
        let (queues, lock) = (self.queues.clone(), self.lock.clone());
        spawn_blocking(move || {
            let changes = |from, to| lock.state.compare_exchange(from, to, AcqRel, Acquire).is_ok();
            loop {
                // The system has too many locks.
                while queues.lock().is_err() {
                    std::thread::sleep(NO_LOCK);
                }
                if changes(WAITING, LOCKED) {
                    return lock.changed.notify_one();
                }
                // Released before another thread may wait: the lock belongs to the whole process.
                queues.unlock();
                if changes(GIVEN_UP, NOT_WANTED) {
                    return;
                }
                // It is wanted again.
            }
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::sync::atomic::Ordering::Release;

    use tokio::runtime::LocalRuntime;

    use super::*;
    use crate::broker::client::Client;
    use crate::broker::shared::tenure::Tenure;
    use crate::policy::algorithm::StoredKind;
    use crate::store::contract::decision::Question;
    use crate::store::contract::strategy::Shard;

    /// Returns queues of two workers, of which the second has a question to the broker.
    fn queues_with_question() -> Arc<SharedQueues> {
        let queues = Arc::new(SharedQueues::new(2, 1).unwrap());
        let client = Client::new(queues.clone(), 1).unwrap();
        let shard = Shard { namespace: "api".into(), number: 0 };
        assert!(client.ask(0, Some(1), u64::MAX, &Question::trial(shard, StoredKind::Windows)));
        client.send();
        queues
    }

    /// Beats three times as a broker that is busy, and does not take the question.
    async fn beats(tenure: Tenure<'_>, term: Term, has_lock: bool) {
        for _ in 0..3 {
            tokio::time::sleep(BEAT).await;
            tenure.beat(term, has_lock).unwrap();
        }
    }

    #[test]
    fn a_worker_that_ends_leaves_a_broker_alone_that_beats() {
        let queues = queues_with_question();
        let runtime = LocalRuntime::new().unwrap();
        runtime.block_on(async {
            // The broker of the other worker.
            let tenure = queues.tenure().unwrap();
            let (term, _) = tenure.look(&mut TenureLooks::new(9), true).unwrap();
            let mut turn = Turn::new(queues.clone(), 1, Duration::ZERO);
            // As if a thread waited for the lock: one of this process would get it.
            turn.lock.state.store(WAITING, Release);
            {
                let waiting = pin!(turn.wait(core::future::ready(())));
                let beats = pin!(beats(tenure, term, true));
                assert!(matches!(select(waiting, beats).await, Either::Right(_)));
            }
            // It takes over when the broker ends.
            tenure.end(term);
            turn.lock.state.store(LOCKED, Release);
            assert!(matches!(turn.wait(core::future::ready(())).await, Some((_, false))));
            turn.end();
        });
    }

    #[test]
    fn a_broker_that_does_not_beat_is_replaced_after_the_timeout_and_a_second() {
        let queues = queues_with_question();
        LocalRuntime::new().unwrap().block_on(async {
            let tenure = queues.tenure().unwrap();
            tenure.look(&mut TenureLooks::new(0), true).unwrap();
            let mut turn = Turn::new(queues.clone(), 1, Duration::from_millis(300));
            turn.lock.state.store(WAITING, Release);
            let mut waiting = pin!(turn.wait(core::future::pending()));
            let less = pin!(tokio::time::sleep(Duration::from_millis(1100)));
            assert!(matches!(select(&mut waiting, less).await, Either::Right(_)));
            assert!(matches!(waiting.await, Some((_, true))));
        });
    }

    #[test]
    fn a_worker_that_gets_the_lock_leaves_a_broker_alone_that_beats_without_it() {
        let queues = queues_with_question();
        let runtime = LocalRuntime::new().unwrap();
        runtime.block_on(async {
            // The broker of the other worker has replaced one that missed its beats.
            let (tenure, mut looks) = (queues.tenure().unwrap(), TenureLooks::new(9));
            let mut replaced = core::iter::repeat_with(|| tenure.look(&mut looks, false));
            let (term, _) = replaced.find_map(|it| it).unwrap();
            // This process gets the lock whenever it wants it, since no other one does.
            let mut turn = Turn::new(queues.clone(), 1, Duration::ZERO);
            {
                let waiting = pin!(turn.wait(core::future::ready(())));
                let beats = pin!(beats(tenure, term, false));
                assert!(matches!(select(waiting, beats).await, Either::Right(_)));
            }
            turn.end();
        });
    }
}
