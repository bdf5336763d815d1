//! The driver: its commands, and the times of its cycles.

use core::cell::{Cell, RefCell};
use core::num::NonZeroU64;
use core::time::Duration;
use std::rc::Rc;
use std::sync::mpsc;

use tokio::runtime::LocalRuntime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::memory::{Fault, go_on};
use super::node::{Node, cluster};
use super::{LIFETIME, size};
use crate::engine::{
    Env, LastPush, Report, SyncCommand, SyncDriver, SyncObserver, SyncResult, SyncTimes, Syncer,
};
use crate::policy::hits::hits;
use crate::policy::window::{Clock, UnixMillis};
use crate::store::contract::strategy::Strategy;
use crate::testing::table::Time;

/// A clock of which each reading takes 10 ms, so that no test waits.
struct Ticking(&'static Time);

impl Clock for Ticking {
    fn now(&self) -> UnixMillis {
        self.0.now()
    }

    fn fresh(&self) -> UnixMillis {
        self.0.fresh()
    }
}

impl Env for Ticking {
    fn uptime(&self) -> Duration {
        self.0.monotonic.set(self.0.monotonic.get() + 10);
        self.0.uptime()
    }

    fn process(&self) -> u32 {
        self.0.process()
    }

    fn random(&self) -> NonZeroU64 {
        self.0.random()
    }
}

/// Records the results, and ends the driver after the first whole cycle.
#[derive(Clone)]
struct Recorder {
    results: Rc<RefCell<Vec<SyncResult>>>,
    commands: UnboundedSender<SyncCommand>,
    unconfirmed: Rc<Cell<u32>>,
}

impl SyncObserver for Recorder {
    fn begin(&mut self) {}

    fn end(&mut self, result: &SyncResult, _: &impl Strategy) {
        self.results.borrow_mut().push(result.clone());
        if matches!(result, Ok(report) if Report::is_whole(*report)) {
            finish(&self.commands);
        }
    }

    fn unconfirmed(&mut self) {
        self.unconfirmed.set(self.unconfirmed.get() + 1);
    }
}

impl Recorder {
    fn new(commands: &UnboundedSender<SyncCommand>) -> Recorder {
        let commands = commands.clone();
        Recorder { results: Rc::default(), commands, unconfirmed: Rc::default() }
    }
}

fn finish(commands: &UnboundedSender<SyncCommand>) {
    let limits = LastPush { began: Duration::ZERO, longest: Duration::ZERO };
    commands.send(SyncCommand::Finish(limits)).unwrap();
}

/// Runs a driver in which `callers` ask for a sync. Returns their results, and those of all cycles.
fn run(node: &Node, callers: usize, times: SyncTimes) -> (Vec<SyncResult>, Vec<SyncResult>) {
    run_with(node, callers, [], times)
}

/// Runs a driver as [`run`] does, which gets these commands, too.
fn run_with<const N: usize>(
    node: &Node,
    callers: usize,
    more: [SyncCommand; N],
    times: SyncTimes,
) -> (Vec<SyncResult>, Vec<SyncResult>) {
    let syncer = Syncer::new(node.namespace, &[size()], Duration::from_millis(LIFETIME)).unwrap();
    let (sender, mut commands) = unbounded_channel();
    let recorder = Recorder::new(&sender);
    more.into_iter().for_each(|command| sender.send(command).ok().unwrap());
    let (answers, answered) = mpsc::channel();
    for _ in 0..callers {
        let (answers, ending) = (answers.clone(), sender.clone());
        let reply = Box::new(move |result| {
            answers.send(result).unwrap();
            finish(&ending);
        });
        sender.send(SyncCommand::Sync { fetches_anew: false, reply }).unwrap();
    }
    let connect = || node.strategy.clone();
    let env = Ticking(node.time);
    let mut driver = SyncDriver::new(syncer, times, env, connect, recorder.clone());
    let ended = LocalRuntime::new().unwrap().block_on(driver.run(&mut commands));
    assert!(ended.is_some());
    (answered.try_iter().collect(), recorder.results.take())
}

fn times() -> SyncTimes {
    let (period, patience) = (Duration::from_secs(3600), Duration::MAX);
    SyncTimes { period, recurs: false, polls: false, patience }
}

#[test]
fn a_tick_syncs_once_and_leaves_the_pause_after_a_failure() {
    let (store, nodes) = cluster(1);
    nodes[0].hit(b"a", hits(1));
    nodes[0].faults(&[Fault::Before, Fault::Before]);
    let began = nodes[0].time.uptime();
    let (_, results) = run_with(&nodes[0], 0, [SyncCommand::Tick, SyncCommand::Tick], times());
    let failed: Vec<_> = results.iter().map(SyncResult::is_err).collect();
    assert_eq!(failed, [true, true, false]);
    assert_eq!(store[0].borrow().counts.values().sum::<i64>(), 1000);
    assert!(nodes[0].time.uptime() >= began + Ticking(nodes[0].time).back_off(1));
}

#[test]
fn a_last_push_that_the_store_does_not_confirm_is_told() {
    for (hit, faults, expected) in [(1, 0, 0), (0, 100, 0), (1, 100, 1)] {
        let (_, nodes) = cluster(1);
        nodes[0].hit(b"a", hits(hit));
        nodes[0].faults(&vec![Fault::Before; faults]);
        let syncer = Syncer::new(nodes[0].namespace, &[size()], Duration::from_millis(LIFETIME));
        let (commands, _commands) = unbounded_channel();
        let recorder = Recorder::new(&commands);
        let (env, connect) = (Ticking(nodes[0].time), || nodes[0].strategy.clone());
        let driver = SyncDriver::new(syncer.unwrap(), times(), env, connect, recorder.clone());
        let limits =
            LastPush { began: nodes[0].time.uptime(), longest: Duration::from_millis(200) };
        LocalRuntime::new().unwrap().block_on(driver.finish(limits));
        assert_eq!(recorder.unconfirmed.get(), expected);
    }
}

#[test]
fn callers_that_ask_before_a_cycle_share_it() {
    let (store, nodes) = cluster(1);
    nodes[0].hit(b"a", hits(1));
    let (answers, results) = run(&nodes[0], 2, times());
    assert_eq!(results.len(), 1);
    assert_eq!(answers, [results[0].clone(), results[0].clone()]);
    assert_eq!(store[0].borrow().counts.values().sum::<i64>(), 1000);
}

#[test]
fn a_caller_waits_for_the_cycle_of_another_worker() {
    for patience in [Duration::MAX, Duration::from_millis(LIFETIME / 2)] {
        let (store, nodes) = cluster(1);
        nodes[0].hit(b"a", hits(1));
        // The other worker is killed, and its lease ends later.
        nodes[0].faults(&[Fault::StoppedBefore]);
        let mut killed = nodes[0].start_sync();
        assert!(go_on(killed.as_mut()).is_pending());
        drop(killed);
        let (answers, results) = run(&nodes[0], 1, SyncTimes { patience, ..times() });
        assert_eq!((answers.len(), &results[0]), (1, &Ok(None)));
        assert_eq!(answers[0], results[results.len() - 1]);
        let is_synced = patience == Duration::MAX;
        assert_eq!(Report::is_whole(answers[0].clone().unwrap()), is_synced);
        assert_eq!(!store[0].borrow().counts.is_empty(), is_synced);
    }
}

#[test]
fn the_first_cycle_begins_at_once_and_a_failed_one_is_retried_within_the_period() {
    let (store, nodes) = cluster(1);
    nodes[0].hit(b"a", hits(1));
    nodes[0].faults(&[Fault::Before, Fault::Before]);
    let period = Duration::from_secs(3);
    let began = nodes[0].time.uptime();
    let (_, results) = run(&nodes[0], 0, SyncTimes { period, recurs: true, ..times() });
    let failed: Vec<_> = results.iter().map(SyncResult::is_err).collect();
    assert_eq!(failed, [true, true, false]);
    assert_eq!(store[0].borrow().counts.values().sum::<i64>(), 1000);
    assert!(nodes[0].time.uptime() < began + period);
}
