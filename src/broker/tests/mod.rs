//! The broker without nginx: two workers on threads of their own, and one thread that asks a store
//! for both. Whatever happens to that thread and to the store, each question is answered or fails
//! exactly once, and when everything works again, questions are answered again.

#[cfg(all(test, loom))]
mod loom;
mod store;
mod thread;
mod worker;

use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use core::time::Duration;
use std::sync::mpsc;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use proptest::prelude::{Just, ProptestConfig, prop, prop_oneof, proptest};
use proptest::strategy::Strategy as _;
use tokio::runtime::LocalRuntime;

use self::store::{MOODS, Mood, Store};
use self::thread::BrokerThread;
use self::worker::{End, Progress, Worker, charge, spawn_worker};
use super::{Observer, SharedQueues};
use crate::policy::algorithm::StoredKind;
use crate::table::{MonotonicMillis, NameKind, StoreState};
use crate::testing::table::SharedTable;

/// Longest wait before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn uptime() -> Duration {
    // Not zero, which is an invalid time for a breaker.
    START.elapsed() + Duration::from_secs(1)
}

fn now() -> MonotonicMillis {
    MonotonicMillis(u64::try_from(uptime().as_millis()).unwrap())
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = uptime();
    while !is_so() {
        assert!(uptime() - begin < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn queues() -> Arc<SharedQueues> {
    Arc::new(SharedQueues::new(2, 1).unwrap())
}

/// An event while workers ask.
#[derive(Clone, Copy, Debug)]
enum Event {
    Store(Mood),
    /// The broker's thread is dropped, and another one replaces it after a while.
    Kill,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn each_question_ends_once_whatever_happens_to_the_store_and_the_broker(
        bursts in prop::collection::vec(1..40_usize, 1..6),
        events in prop::collection::vec(
            prop_oneof![
                prop::sample::select(&MOODS[..4]).prop_map(Event::Store),
                Just(Event::Kill),
            ],
            1..6,
        ),
    ) {
        let (queues, store) = (queues(), Store::default());
        let mut thread = BrokerThread::start(&queues, &store);
        let workers = [0, 1].map(|number| spawn_worker(&queues, number, &store, bursts.clone()));
        let all = |count: fn(&Progress) -> &AtomicUsize, more: usize| {
            let goals = workers.each_ref().map(|(it, _)| count(it).load(SeqCst) + more);
            wait_until("nothing ends, or nothing is answered any more", || {
                workers.iter().zip(goals).all(|((it, _), goal)| {
                    count(it).load(SeqCst) >= goal
                })
            });
        };
        all(|it| &it.answered, 20);
        for event in events {
            match event {
                Event::Store(mood) => store.set(mood),
                Event::Kill => {
                    thread.kill();
                    all(|it| &it.ended, 20);
                    thread = BrokerThread::start(&queues, &store);
                }
            }
            all(|it| &it.ended, 20);
        }
        store.set(Mood::Answers);
        // No breaker stays open.
        all(|it| &it.answered, 20);
        for (progress, _) in &workers {
            progress.stop.store(true, SeqCst);
        }
        for (_, thread) in workers {
            thread.join().unwrap();
        }
        thread.end();
    }
}

#[test]
fn a_thread_that_was_held_takes_nothing_from_the_one_that_asks_in_its_place() {
    let (queues, store) = (queues(), Store::default());
    let held = BrokerThread::start(&queues, &store);
    let workers = [0, 1].map(|number| spawn_worker(&queues, number, &store, vec![3, 1, 20]));
    let more_are_answered = || {
        let answered = |(it, _): &(Arc<Progress>, _)| it.answered.load(SeqCst);
        let goals = workers.each_ref().map(|it| answered(it) + 50);
        wait_until("nothing is answered any more", || {
            workers.iter().zip(goals).all(|(it, goal)| answered(it) >= goal)
        });
    };
    more_are_answered();
    store.set(Mood::Holds);
    wait_until("no thread asks", || store.0.is_holding.load(SeqCst));
    store.set(Mood::Answers);
    // A lock of this process does not prevent that.
    let other = BrokerThread::of_worker(1, &queues, &store);
    more_are_answered();
    held.end_after(|| store.0.lets_go.store(true, SeqCst));
    more_are_answered();
    for (progress, _) in &workers {
        progress.stop.store(true, SeqCst);
    }
    for (_, thread) in workers {
        thread.join().unwrap();
    }
    other.end();
}

/// Runs `with` as a worker whose questions wait as long as the test does.
fn with_longer_timeout(queues: &Arc<SharedQueues>, with: impl AsyncFnOnce(&mut Worker)) {
    let progress = Arc::default();
    LocalRuntime::new().unwrap().block_on(async {
        let mut worker = Worker::new(queues, 0, 2 * PATIENCE, &progress);
        with(&mut worker).await;
    });
}

#[test]
fn no_wakeup_is_lost() {
    let (queues, store) = (queues(), Store::default());
    let thread = BrokerThread::start(&queues, &store);
    // One at a time: a question finds the thread about to sleep, and an answer the worker. Each
    // waits only for the other: nothing else would wake it.
    with_longer_timeout(&queues, async |worker| {
        for burst in (0..2000).map(|it| 1 + it % 3) {
            (0..burst).for_each(|_| worker.ask());
            worker.settle().await;
        }
        assert!(worker.ends.values().all(|it| *it == End::Answered));
        worker.check(&store);
    });
    thread.end();
}

#[test]
fn a_question_without_room_in_a_ring_is_asked_later() {
    let (queues, store) = (queues(), Store::default());
    with_longer_timeout(&queues, async |worker| {
        // No reader has started.
        (0..6000).for_each(|_| worker.ask());
        worker.client.send();
        assert!(worker.client.unsent() > 0);
        let thread = BrokerThread::start(&queues, &store);
        worker.settle().await;
        assert!(worker.ends.values().all(|it| *it == End::Answered));
        worker.check(&store);
        thread.end();
    });
}

#[test]
fn hits_counted_while_the_store_is_down_are_charged_later() {
    let (queues, store) = (queues(), Store::default());
    store.set(Mood::Refuses);
    let thread = BrokerThread::start(&queues, &store);
    with_longer_timeout(&queues, async |worker| {
        wait_until("the circuit stays closed", || !worker.client.check_circuit(0, now()));
        // More keys than an exchange charges, and more hits than rings have room for.
        for turn in 0..50 {
            for key in 0..100 {
                worker.client.charge_later(0, &charge(key, StoredKind::Log));
            }
            worker.client.send();
            wait_until(&format!("turn {turn} has no room"), || {
                worker.client.send();
                worker.client.unsent() == 0
            });
        }
        let give_back = charge(7, StoredKind::Log).refund();
        worker.client.charge_later(0, &give_back);
        worker.client.send();
        store.set(Mood::Answers);
        let charged = || store.0.charged.load(SeqCst);
        wait_until("not all is charged", || charged() == 4999);
        let at_once = || {
            let decided = store.0.decided.lock().unwrap();
            (0..100).all(|key| decided[&key] <= 2)
        };
        assert!(at_once(), "each key in one charge");
        worker.ask();
        worker.settle().await;
        assert_eq!(charged(), 4999);
    });
    thread.end();
}

#[test]
fn a_store_that_answers_and_refuses_to_charge_stays_lost() {
    let (queues, store) = (queues(), Store::default());
    let zone: &SharedTable = Box::leak(Box::new(SharedTable::new(1 << 20)));
    let name = (NameKind::Store, ["main", ""]);
    let words = zone.table.claim_words([name].into_iter());
    let users = [Observer::Broker.number()].into_iter();
    let state = words[0].map(|it| StoreState::new(it, users)).unwrap();
    with_longer_timeout(&queues, async |worker| {
        let mut thread = BrokerThread::watch(&queues, &store, Some(state));
        worker.ask();
        worker.settle().await;
        assert_eq!(state.is_up(), Some(true));
        store.set(Mood::IsFull);
        worker.ask();
        worker.settle().await;
        // After a trial, only kept charges would ask the store at once.
        for has_charges in [false, true] {
            if has_charges {
                // Charges made without the store are kept, since it has executed none of them.
                for key in 0..100 {
                    assert!(worker.client.charge_later(0, &charge(key, StoredKind::Log)));
                }
                worker.client.send();
            }
            let asked = store.0.exchanges.load(SeqCst);
            wait_until("it is not tried again", || {
                assert_eq!(state.is_up(), Some(false));
                assert!(!worker.client.check_circuit(0, now()));
                store.0.exchanges.load(SeqCst) >= asked + 3
            });
            if !has_charges {
                // A thread that replaces it knows the same.
                thread.kill();
                thread = BrokerThread::watch(&queues, &store, Some(state));
            }
        }
        store.set(Mood::Answers);
        wait_until("it is not back", || state.is_up() == Some(true));
        worker.ask();
        worker.settle().await;
        thread.end();
    });
}

#[test]
fn charges_that_the_store_refuses_are_charged_once_later() {
    let (queues, store) = (queues(), Store::default());
    let thread = BrokerThread::start(&queues, &store);
    with_longer_timeout(&queues, async |worker| {
        worker.ask();
        worker.settle().await;
        for _ in 0..3 {
            store.set(Mood::IsFull);
            // Before any worker knows that the store is down.
            for key in 0..100 {
                worker.client.ask(0, None, 0, &charge(key, StoredKind::Log));
            }
            worker.client.send();
            wait_until("the circuit stays closed", || !worker.client.check_circuit(0, now()));
            store.set(Mood::Answers);
            wait_until("the circuit stays open", || worker.client.check_circuit(0, now()));
        }
        let charged = || store.0.charged.load(SeqCst);
        wait_until("not all is charged", || charged() == 300);
        worker.ask();
        worker.settle().await;
        assert_eq!(charged(), 300);
    });
    thread.end();
}

/// The broker keeps hits for a store that refuses them, and is held until another one serves.
#[test]
fn hits_that_a_replaced_broker_keeps_are_charged_when_the_store_is_back() {
    let (queues, store) = (queues(), Store::default());
    store.set(Mood::IsFull);
    let held = BrokerThread::start(&queues, &store);
    with_longer_timeout(&queues, async |worker| {
        worker.ask();
        worker.settle().await;
        for key in 0..100 {
            assert!(worker.client.charge_later(0, &charge(key, StoredKind::Log)));
        }
        wait_until("the hits are not taken", || {
            worker.client.send();
            queues.of_worker(0).unwrap().questions.is_empty()
        });
        store.set(Mood::Holds);
        wait_until("no thread asks", || store.0.is_holding.load(SeqCst));
        store.set(Mood::IsFull);
        let asked = || store.0.exchanges.load(SeqCst);
        let before = asked();
        let other = BrokerThread::of_worker(1, &queues, &store);
        wait_until("no other thread serves", || asked() > before);
        store.0.lets_go.store(true, SeqCst);
        // The other one keeps nothing, and finds the store up.
        let attempts = asked() + 4;
        wait_until("the one that was held has given up", || asked() >= attempts);
        assert_eq!(store.0.charged.load(SeqCst), 0);
        store.set(Mood::Answers);
        wait_until("not all is charged", || store.0.charged.load(SeqCst) == 100);
        // It serves again.
        other.end();
        worker.ask();
        worker.settle().await;
        assert_eq!(store.0.charged.load(SeqCst), 100);
    });
    held.end();
}

#[test]
fn a_broker_that_ends_has_answered_all_questions() {
    let (queues, store) = (queues(), Store::default());
    let thread = BrokerThread::start(&queues, &store);
    with_longer_timeout(&queues, async |worker| {
        worker.ask();
        worker.settle().await;
        (0..100).for_each(|_| worker.ask());
        worker.client.send();
        let (told, ended) = mpsc::channel();
        std::thread::spawn(move || {
            thread.end();
            let _ = told.send(());
        });
        worker.settle().await;
        ended.recv_timeout(PATIENCE).unwrap();
        worker.check(&store);
    });
}

#[test]
fn a_racing_question_is_asked_again_until_it_is_decided_or_nearly_late() {
    let (queues, store) = (queues(), Store::default());
    let thread = BrokerThread::start(&queues, &store);
    store.0.races.store(3, SeqCst);
    with_longer_timeout(&queues, async |worker| {
        (0..5).for_each(|_| worker.ask());
        worker.settle().await;
        let decided = store.0.decided.lock().unwrap();
        for (id, end) in &worker.ends {
            assert_eq!((decided[id], *end), (4, End::Answered), "{id}");
        }
    });
    store.0.decided.lock().unwrap().clear();
    store.0.races.store(usize::MAX, SeqCst);
    LocalRuntime::new().unwrap().block_on(async {
        let half_a_second = Duration::from_millis(500);
        let mut worker = Worker::new(&queues, 1, half_a_second, &Arc::default());
        // A refusal arrives in time, so the request is not decided without the store. A busy
        // machine may cause delays.
        let begin = uptime();
        let id = loop {
            let id = worker.next;
            worker.ask();
            worker.settle().await;
            let end = worker.ends[&id];
            if end == End::Answered {
                break id;
            }
            // After a late answer, some questions are not asked.
            assert!(matches!(end, End::Late | End::NotAsked), "{end:?}");
            assert!(uptime() - begin < PATIENCE, "always late");
            worker.turn().await;
        };
        assert!(store.0.decided.lock().unwrap()[&id] > 1);
    });
    thread.end();
}

#[test]
fn a_broker_of_an_old_configuration_keeps_no_idle_connection() {
    let (queues, store) = (queues(), Store::default());
    let connections = || store.0.connections.load(SeqCst);
    let thread = BrokerThread::start(&queues, &store);
    wait_until("nobody connects", || connections() == 1);
    with_longer_timeout(&queues, async |worker| {
        store.0.is_superseded.store(true, SeqCst);
        for _ in 0..2 {
            wait_until("the connection stays", || connections() == 0);
            worker.ask();
            worker.settle().await;
            assert_eq!(connections(), 1);
        }
        worker.check(&store);
        thread.end();
        assert_eq!(connections(), 0);
        // Another worker of the old configuration connects for a question only.
        let asked = store.0.exchanges.load(SeqCst);
        let other = BrokerThread::of_worker(1, &queues, &store);
        worker.ask();
        worker.settle().await;
        assert_eq!(store.0.exchanges.load(SeqCst), asked + 1);
        worker.check(&store);
        other.end();
    });
}
