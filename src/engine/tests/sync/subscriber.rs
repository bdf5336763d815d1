//! A node's handling of other nodes' pushes on the channel.

use core::cell::Cell;
use core::task::Poll;

use super::log::Store;
use super::memory::{Fault, Shards};
use super::node::{Node, cluster, cluster_with, poll};
use super::{SIZE, T, hits, size};
use crate::engine::Subscriber;
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::contract::strategy::{Position, PushNews};
use crate::table::words::fail;

/// Returns the subscriber of a node.
fn ear_of(node: &Node) -> Subscriber<'static, 'static> {
    Subscriber::new(node.namespace, &[size()]).unwrap()
}

/// Returns all messages since the positions of `subscriber`.
fn heard(subscriber: &Subscriber<'_, '_>, store: &Shards<Store>) -> Vec<PushNews> {
    let mut all = Vec::new();
    for subscription in subscriber.subscriptions() {
        let shard = store[usize::from(subscription.shard.number)].borrow();
        let news = shard.news.iter().filter(|news| subscription.is_of(news));
        all.extend(news.filter(|it| it.position.is_after(subscription.after)).cloned());
    }
    all
}

/// Applies new messages. Returns those that must wait.
fn recv(node: &Node, subscriber: &mut Subscriber<'_, '_>, store: &Shards<Store>) -> Vec<PushNews> {
    let news = heard(subscriber, store).into_iter();
    news.filter_map(|news| subscriber.note(news, node.time)).collect()
}

/// Returns nodes that have fetched all counters.
fn ready(nodes: u64) -> (Shards<Store>, Vec<Node>) {
    let (store, nodes) = cluster(nodes);
    for node in nodes.iter().chain(&nodes) {
        node.sync().unwrap();
    }
    (store, nodes)
}

#[test]
fn pushes_of_other_nodes_are_known_without_an_exchange() {
    let (store, nodes) = ready(3);
    let mut subscription = ear_of(&nodes[0]);
    nodes[0].hit(b"a", hits(1));
    for pushing in [&nodes[1], &nodes[2]] {
        pushing.hit(b"a", hits(10));
        pushing.hit(b"new", hits(2));
        pushing.sync().unwrap();
        assert!(recv(&nodes[0], &mut subscription, &store).is_empty());
    }
    // Whether this node has hits of the key or not.
    assert_eq!(nodes[0].rate(b"a"), hits(21));
    assert_eq!(nodes[0].rate(b"new"), hits(4));
    // The exchange returns the same totals, and then all nodes know them.
    let report = nodes[0].sync().unwrap().unwrap();
    assert_eq!((report.pushed, report.fetched), (1, 2));
    assert_eq!(nodes[0].rate(b"a"), hits(21));
    nodes[1].sync().unwrap();
    assert_eq!(nodes[1].rate(b"a"), hits(21));
}

#[test]
fn hits_that_others_use_up_make_a_counter_due() {
    let (store, nodes) = ready(2);
    let (a, b, limit) = (&nodes[0], &nodes[1], hits(1000));
    let mut subscription = ear_of(a);
    let is_due = || a.namespace.sync_state().unwrap().is_rung();
    let mut push = |diff| {
        b.ask(b"k", hits(diff), limit);
        b.sync().unwrap();
        assert!(recv(a, &mut subscription, &store).is_empty());
    };
    a.ask(b"k", hits(60), limit);
    push(500);
    // A quarter of the rest is more than 61. The counter gets a cell, since half of the limit is used.
    a.ask(b"k", hits(1), limit);
    assert!(!is_due());
    push(180);
    assert!(!is_due());
    push(20);
    assert!(is_due());
    let report = a.sync_early().unwrap().unwrap();
    assert_eq!(report.pushed, 1);
    assert_eq!(a.rate(b"k"), hits(761));
    b.sync().unwrap();
    assert_eq!(b.rate(b"k"), hits(761));
    // It is pushed, so nothing is due.
    push(100);
    assert!(!is_due());
}

#[test]
fn late_and_repeated_messages_change_nothing() {
    let (store, nodes) = ready(2);
    let mut subscription = ear_of(&nodes[0]);
    let mut all = Vec::new();
    for (diff, rate) in [(5, 5), (-2, 3), (7, 10)] {
        nodes[1].hit(b"a", hits(diff));
        nodes[1].sync().unwrap();
        let news = heard(&subscription, &store);
        all.extend(news.clone());
        for _ in 0..2 {
            for news in news.clone() {
                assert_eq!(subscription.note(news, nodes[0].time), None);
            }
            assert_eq!(nodes[0].rate(b"a"), hits(rate));
        }
    }
    assert_eq!(all.len(), 3);
    // The exchange returns all of it.
    nodes[0].sync().unwrap();
    for news in all {
        ear_of(&nodes[0]).note(news, nodes[0].time);
        assert_eq!(nodes[0].rate(b"a"), hits(10));
    }
    assert!(heard(&subscription, &store).is_empty());
}

#[test]
fn a_nodes_own_pushes_are_counted_once() {
    let (store, nodes) = ready(2);
    let mut subscription = ear_of(&nodes[0]);
    for round in 1..=3 {
        for node in &nodes {
            node.hit(b"a", hits(1));
        }
        nodes[0].sync().unwrap();
        nodes[1].sync().unwrap();
        assert!(recv(&nodes[0], &mut subscription, &store).is_empty());
        assert_eq!(nodes[0].rate(b"a"), hits(2 * round));
    }
}

#[test]
fn a_total_that_may_include_a_sent_batch_waits_for_the_answer() {
    for is_applied in [false, true] {
        let (store, nodes) = ready(2);
        let mut subscription = ear_of(&nodes[0]);
        nodes[0].hit(b"a", hits(1));
        nodes[0].faults(&[match is_applied {
            true => Fault::StoppedAfter,
            false => Fault::StoppedBefore,
        }]);
        let mut worker = nodes[0].start_sync();
        assert!(poll(&mut worker).is_pending());
        nodes[1].hit(b"a", hits(10));
        nodes[1].hit(b"b", hits(10));
        nodes[1].sync().unwrap();
        let waiting = recv(&nodes[0], &mut subscription, &store);
        // The rest waits, too: a running sync may record newer totals.
        assert_eq!((nodes[0].rate(b"a"), nodes[0].rate(b"b")), (hits(1), Hits::ZERO));
        assert_eq!(waiting.len(), 1);
        assert_eq!(waiting[0].counts.len(), 2);
        assert!(matches!(poll(&mut worker), Poll::Ready(Ok(Some(_)))));
        for news in waiting {
            assert_eq!(subscription.note(news, nodes[0].time), None);
        }
        assert_eq!(nodes[0].rate(b"a"), hits(11), "{is_applied}");
        assert_eq!(nodes[0].rate(b"b"), hits(10), "{is_applied}");
        nodes[1].sync().unwrap();
        nodes[0].sync().unwrap();
        assert_eq!(nodes.iter().map(|it| it.rate(b"a")).max(), Some(hits(11)));
        assert_eq!(nodes[0].rate(b"a"), hits(11));
    }
}

#[test]
fn a_listener_that_was_stopped_overwrites_nothing_newer() {
    thread_local! {
        static NODES: Cell<Option<&'static [Node]>> = const { Cell::new(None) };
    }
    // Meanwhile, the total becomes another one and what it was before, and a sync records that.
    let meanwhile = |point| {
        if let ("remote.hearing", Some(nodes)) = (point, NODES.take()) {
            nodes[1].hit(b"a", hits(-5));
            nodes[1].sync().unwrap();
            nodes[0].sync().unwrap();
        }
    };
    let (store, nodes) = ready(2);
    let nodes: &[Node] = Box::leak(nodes.into_boxed_slice());
    let mut subscription = ear_of(&nodes[0]);
    nodes[1].hit(b"a", hits(10));
    nodes[1].sync().unwrap();
    nodes[0].sync().unwrap();
    nodes[1].hit(b"a", hits(5));
    nodes[1].sync().unwrap();
    NODES.set(Some(nodes));
    fail::observe(Some(meanwhile));
    recv(&nodes[0], &mut subscription, &store);
    fail::observe(None);
    assert!(NODES.take().is_none());
    nodes[0].sync().unwrap();
    assert_eq!(nodes[0].rate(b"a"), hits(10));
}

#[test]
fn nothing_is_heard_while_the_store_has_more_hits_than_the_position_tells() {
    let (store, nodes) = ready(2);
    let [a, b] = [&nodes[0], &nodes[1]];
    let mut subscription = ear_of(a);
    // More counters than the store returns at once.
    let keys: Vec<_> = (b'0'..=b'9').map(|key| [key]).collect();
    for key in &keys {
        b.hit(key, hits(10));
        b.sync().unwrap();
    }
    // A listener that lags gets one message, with the totals of this moment.
    let mut news = heard(&subscription, &store);
    let counts = news.iter().flat_map(|it| it.counts.clone()).collect();
    let news = PushNews { counts, ..news.pop().unwrap() };
    // The batch is applied; of the changes, only the first ones arrive.
    a.hit(&keys[0], hits(1));
    a.faults(&[Fault::None, Fault::Before]);
    a.sync().unwrap_err();
    assert_eq!(subscription.note(news, a.time), None);
    assert_eq!((a.rate(&keys[0]), a.rate(&keys[9])), (hits(11), Hits::ZERO));
    a.sync().unwrap();
    assert_eq!((a.rate(&keys[0]), a.rate(&keys[9])), (hits(11), hits(10)));
    // And then the channel continues.
    b.hit(&keys[0], hits(5));
    b.sync().unwrap();
    assert!(recv(a, &mut subscription, &store).is_empty());
    assert_eq!(a.rate(&keys[0]), hits(16));
}

#[test]
fn irrelevant_messages_are_ignored() {
    let (store, nodes) = ready(2);
    let mut subscription = ear_of(&nodes[0]);
    nodes[1].hit(b"a", hits(1));
    nodes[1].sync().unwrap();
    let news = heard(&subscription, &store).remove(0);
    let window = T / SIZE;
    let other_size = WindowSize::from_millis(SIZE + 1).unwrap();
    let mut of_others = news.clone();
    of_others.shard.namespace = "other".into();
    let mut of_an_epoch = news.clone();
    of_an_epoch.epoch.0 = of_an_epoch.epoch.0.checked_add(1).unwrap();
    let with = |window, size| {
        let mut news = news.clone();
        (news.counts[0].window, news.counts[0].size) = (window, size);
        news
    };
    for other in [
        of_others,
        of_an_epoch,
        with(window - 2, size()),
        with(window + 2, size()),
        with(window, other_size),
    ] {
        assert_eq!(subscription.note(other, nodes[0].time), None);
        assert_eq!(nodes[0].rate(b"a"), Hits::ZERO);
    }
    let mut subscription = ear_of(&nodes[0]);
    assert_eq!(subscription.note(news, nodes[0].time), None);
    assert_eq!(nodes[0].rate(b"a"), hits(1));
}

#[test]
fn the_window_before_is_heard_of_too() {
    let (store, nodes) = ready(2);
    let mut subscription = ear_of(&nodes[0]);
    nodes[0].hit(b"a", hits(1));
    nodes[1].hit(b"a", hits(10));
    nodes[1].sync().unwrap();
    let news = heard(&subscription, &store);
    for node in &nodes {
        node.time.unix.set(T + SIZE);
    }
    nodes[0].hit(b"a", hits(1));
    for news in news {
        assert_eq!(subscription.note(news, nodes[0].time), None);
    }
    let namespace = crate::engine::RateLimiting::new(nodes[0].namespace);
    let sliding = crate::policy::algorithm::Algorithm::Sliding;
    let rate = namespace.sliding_window(b"a", size(), sliding, nodes[0].time);
    // The part of the previous window that still counts.
    let left = i64::try_from(SIZE - (T + SIZE) % SIZE).unwrap();
    let before = Hits::from_thousandths(11_000 * left / i64::try_from(SIZE).unwrap());
    let rounded = rate.unwrap().minus(hits(1).plus(before)).thousandths();
    assert!(rounded.abs() <= 1, "{rounded}");
}

#[test]
fn a_node_listens_from_where_it_has_come_to() {
    let (store, nodes) = cluster_with::<Store>(3, 2);
    let mut subscription = ear_of(&nodes[0]);
    assert!(subscription.subscriptions().is_empty());
    for node in nodes.iter().chain(&nodes) {
        node.sync().unwrap();
    }
    let shards: Vec<_> =
        subscription.subscriptions().iter().map(|subscription| subscription.shard.number).collect();
    assert_eq!(shards, [0, 1, 2]);
    let after = |subscriber: &Subscriber<'_, '_>| {
        let subscriptions = subscriber.subscriptions().into_iter();
        let sequences = subscriptions.map(|subscription| subscription.after.0[0]);
        sequences.max().unwrap()
    };
    nodes[1].hit(b"a", hits(1));
    nodes[1].sync().unwrap();
    assert_eq!((after(&subscription), after(&ear_of(&nodes[0]))), (0, 0));
    recv(&nodes[0], &mut subscription, &store);
    assert_eq!((after(&subscription), after(&ear_of(&nodes[0]))), (1, 0));
    nodes[1].hit(b"a", hits(1));
    nodes[1].sync().unwrap();
    nodes[0].sync().unwrap();
    assert_eq!(after(&subscription), 2);
    // In another epoch, it starts again.
    for shard in store.iter() {
        shard.borrow_mut().epoch = None;
    }
    nodes[0].sync().unwrap();
    assert_eq!(after(&subscription), 0);
    assert!(Position([1, 0]).is_after(Position([0, 7])));
}

#[test]
fn the_channel_has_the_first_of_many_counters() {
    let (store, nodes) = cluster_with::<Store>(3, 1);
    for n in 0..3000_u64 {
        nodes[0].hit(&n.to_be_bytes(), hits(1));
    }
    let report = nodes[0].sync().unwrap().unwrap();
    assert_eq!(report.pushed, 3000);
    for shard in store.iter() {
        let told: usize = shard.borrow().news.iter().map(|it| it.counts.len()).sum();
        assert!((500..1000).contains(&told), "{told}");
    }
}

#[test]
fn a_position_that_the_store_does_not_have_is_forgotten() {
    let (store, nodes) = ready(2);
    let mut subscription = ear_of(&nodes[0]);
    nodes[1].hit(b"a", hits(1));
    nodes[1].sync().unwrap();
    let mut forged = heard(&subscription, &store).remove(0);
    forged.position = Position([u64::MAX, 0]);
    forged.counts.clear();
    assert_eq!(subscription.note(forged, nodes[0].time), None);
    assert!(heard(&subscription, &store).is_empty());
    // The next exchange returns more, and then the channel continues after that.
    nodes[0].sync().unwrap();
    nodes[1].hit(b"a", hits(1));
    nodes[1].sync().unwrap();
    assert!(recv(&nodes[0], &mut subscription, &store).is_empty());
    assert_eq!(nodes[0].rate(b"a"), hits(2));
}
