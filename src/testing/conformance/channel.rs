//! Tests of stores with a channel, which report pushes of other nodes at once.

use super::*;
use crate::store::contract::strategy::{PushNews, Subscription};

/// A listener to the shard of a node, which begins at the node's position.
pub(crate) struct Listener<S> {
    pub(crate) store: S,
    pub(crate) subscriptions: Vec<Subscription>,
}

/// Longest wait for news.
const PATIENCE: Duration = Duration::from_secs(30);

impl<S: Strategy> Listener<S> {
    pub(crate) fn of(node: &Node<S>) -> Listener<S> {
        let subscription = Subscription {
            shard: node.shard.clone(),
            epoch: node.epoch,
            after: node.position.expect("a position"),
            // Another node, which pushes nothing.
            node: new_node(),
        };
        Listener {
            store: node.store.channel().expect("a channel"),
            subscriptions: vec![subscription],
        }
    }

    /// Waits until the listener receives a push of a node.
    async fn listens_to(&mut self, node: &mut Node<S>) {
        futures_util::future::join(self.recv(1), tell(node, vec![hits("listens", 1)])).await;
    }

    /// Receives the next `number` messages in order, without repeats.
    pub(crate) async fn recv(&mut self, number: usize) -> Vec<PushNews> {
        let heard = self.hear_at_least(number).await;
        assert_eq!(heard.len(), number, "{heard:?}");
        heard
    }

    /// Receives until the total of key a has this value. Returns all received totals of the key.
    async fn hear_until(&mut self, total: i64) -> Vec<i64> {
        let mut heard = Vec::new();
        while heard.last() != Some(&total) {
            let news = self.hear_at_least(1).await;
            let counts = news.iter().flat_map(|news| &news.counts);
            let of_a = counts.filter(|count| count.key == b"a");
            heard.extend(of_a.map(|count| count.total.whole()));
        }
        heard
    }

    async fn hear_at_least(&mut self, number: usize) -> Vec<PushNews> {
        let mut heard: Vec<PushNews> = Vec::new();
        let subscriber = async {
            while heard.len() < number {
                let Ok(all) = self.store.recv(&self.subscriptions).await else {
                    // A connection may have ended, and is then made again.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                };
                for news in all {
                    let subscription = self
                        .subscriptions
                        .iter_mut()
                        .find(|subscription| subscription.is_of(&news))
                        .unwrap();
                    // A message may arrive twice.
                    if news.position.is_after(subscription.after) {
                        subscription.after = news.position;
                        heard.push(news);
                    }
                }
            }
        };
        tokio::time::timeout(PATIENCE, subscriber).await.expect("it is heard");
        heard
    }
}

/// Pushes a batch of which listeners are notified.
async fn tell<S: Strategy>(node: &mut Node<S>, diffs: Vec<Diff>) {
    node.number += 1;
    let batch = Batch { is_news: true, ..node.batch(node.number, diffs) };
    match node.send_batch(&batch).await {
        Pushed::Applied { .. } => {}
        other => panic!("{other:?}"),
    }
}

pub async fn pushes_of_others_are_heard_at_once<F: LogFixture>(fixture: &F) {
    let [mut one, two] = nodes(fixture).await;
    let mut listener = Listener::of(&two);
    listener.listens_to(&mut one).await;
    for (diff, total) in [(1, 1), (10, 11), (-3, 8)] {
        // The listener is ready before the push.
        let (heard, ()) = futures_util::future::join(
            listener.recv(1),
            tell(&mut one, vec![hits("a", diff), hits("b", 1)]),
        )
        .await;
        assert_eq!(heard[0].epoch, one.epoch);
        let expected = pairs(&[("a", total), ("b", one.number as i64 - 1)]);
        assert_eq!(totals(&heard[0].counts), expected);
        assert_eq!((heard[0].counts[0].size, heard[0].counts[0].window), (MINUTE, 7));
    }
}

pub async fn pushes_are_heard_in_order<F: LogFixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    two.fetch().await;
    let mut listener = Listener::of(&two);
    listener.listens_to(&mut one).await;
    let (heard, ()) = futures_util::future::join(listener.hear_until(22), async {
        for _ in 0..2 {
            tell(&mut one, vec![hits("a", 1)]).await;
            tell(&mut two, vec![hits("a", 10)]).await;
        }
    })
    .await;
    // Several pushes may arrive as one message.
    assert!(heard.is_sorted() && heard.iter().all(|it| [1, 11, 12, 22].contains(it)));
    // An exchange returns the same positions.
    one.fetch().await;
    two.fetch().await;
    assert_eq!(one.position, two.position);
    assert_eq!(two.position, Some(listener.subscriptions[0].after));
}

pub async fn pushes_since_a_position_are_heard<F: LogFixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    tell(&mut one, vec![hits("a", 1), hits("b", 1)]).await;
    two.fetch().await;
    for _ in 0..3 {
        tell(&mut one, vec![hits("a", 1)]).await;
    }
    // They arrive in one message or in several.
    let mut listener = Listener::of(&two);
    let mut last = None;
    while last != Some(4) {
        let heard = listener.hear_at_least(1).await.pop().unwrap();
        assert_eq!(heard.counts.len(), 1);
        last = Some(heard.counts[0].total.whole());
    }
}

pub async fn a_push_without_news_is_not_heard<F: LogFixture>(fixture: &F) {
    let [mut one, two] = nodes(fixture).await;
    let mut other = Node::join(fixture.connect(), shard("other")).await;
    let mut listener = Listener::of(&two);
    listener.listens_to(&mut one).await;
    let subscriber = async {
        loop {
            // A push without news may arrive together with one that is news.
            for news in listener.hear_at_least(1).await {
                assert_eq!(news.shard, two.shard);
                if totals(&news.counts).contains(&("b".into(), 1)) {
                    return;
                }
            }
        }
    };
    futures_util::future::join(subscriber, async {
        one.push(vec![hits("a", 1)]).await;
        tell(&mut other, vec![hits("b", 1)]).await;
        tell(&mut one, vec![hits("b", 1)]).await;
    })
    .await;
}

pub async fn news_have_the_totals_of_their_position<F: LogFixture>(fixture: &F) {
    let [mut one, two] = nodes(fixture).await;
    let mut listener = Listener::of(&two);
    listener.listens_to(&mut one).await;
    tell(&mut one, vec![hits("a", 1)]).await;
    one.push(vec![hits("a", 1)]).await;
    one.fetch().await;
    let second = one.position.expect("a position");
    tell(&mut one, vec![hits("b", 1)]).await;
    loop {
        for news in listener.hear_at_least(1).await {
            let heard = totals(&news.counts);
            let is_old = heard.contains(&("a".into(), 1));
            assert!(!(is_old && news.position.is_after(second)), "{news:?}");
            if heard.contains(&("b".into(), 1)) {
                return;
            }
        }
    }
}

pub async fn a_batch_that_is_not_applied_is_not_heard<F: LogFixture>(fixture: &F) {
    let [mut one, two] = nodes(fixture).await;
    let mut listener = Listener::of(&two);
    listener.listens_to(&mut one).await;
    let (heard, ()) = futures_util::future::join(listener.hear_until(2), async {
        tell(&mut one, vec![hits("a", 1)]).await;
        for (number, diffs) in [(2, vec![hits("a", 1)]), (7, vec![hits("a", 100)])] {
            let batch = Batch { is_news: true, ..one.batch(number, diffs) };
            one.send_batch(&batch).await;
        }
        tell(&mut one, vec![hits("a", 1)]).await;
    })
    .await;
    assert!(heard.iter().all(|total| *total <= 2), "{heard:?}");
}

pub async fn any_keys_and_totals_are_heard<F: LogFixture>(fixture: &F) {
    let [mut one, two] = nodes(fixture).await;
    let mut listener = Listener::of(&two);
    listener.listens_to(&mut one).await;
    let all: Vec<u8> = (0..=255).collect();
    let diffs = vec![
        thousandths(&all, 1),
        thousandths(b"0 1 \n'\\", -1),
        thousandths(b"many", MAX_TOTAL),
        Diff { size: HOUR, ..hits("b", 5) },
    ];
    let (heard, ()) = futures_util::future::join(listener.recv(1), tell(&mut one, diffs)).await;
    let mut counts: Vec<_> = heard[0]
        .counts
        .iter()
        .map(|count| (count.key.clone(), count.size, count.total.thousandths()))
        .collect();
    counts.sort();
    let most = Hits::from_thousandths(MAX_TOTAL).thousandths();
    let mut expected = [
        (all, MINUTE, 1),
        (b"0 1 \n'\\".to_vec(), MINUTE, -1),
        (b"many".to_vec(), MINUTE, most),
        (b"b".to_vec(), HOUR, 5000),
    ];
    expected.sort();
    assert_eq!(counts, expected);
}

pub async fn the_next_epoch_is_heard<F: LogFixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    let mut listener = Listener::of(&two);
    let (heard, ()) =
        futures_util::future::join(listener.recv(1), tell(&mut one, vec![hits("a", 1)])).await;
    assert_eq!(heard[0].epoch, one.epoch);
    fixture.flush();
    for node in [&mut one, &mut two] {
        *node = Node::join(fixture.connect(), shard("api")).await;
    }
    listener.subscriptions = Listener::of(&two).subscriptions;
    let (heard, ()) =
        futures_util::future::join(listener.recv(1), tell(&mut one, vec![hits("a", 2)])).await;
    assert_eq!(heard[0].epoch, one.epoch);
    assert_eq!(totals(&heard[0].counts), pairs(&[("a", 2)]));
}

pub async fn one_hears_of_several_namespaces<F: LogFixture>(fixture: &F) {
    let [mut one, two] = nodes(fixture).await;
    let mut other = Node::join(fixture.connect(), shard("other")).await;
    let mut listener = Listener::of(&two);
    if two.store.shards() > 1 {
        // The listener has a subscription for each.
        let mut of_other = Listener::of(&other);
        let subscriber = futures_util::future::join(listener.recv(1), of_other.recv(1));
        futures_util::future::join(subscriber, async {
            tell(&mut one, vec![hits("a", 1)]).await;
            tell(&mut other, vec![hits("a", 2)]).await;
        })
        .await;
        return;
    }
    listener.subscriptions.extend(Listener::of(&other).subscriptions);
    let (mut heard, ()) = futures_util::future::join(listener.recv(2), async {
        tell(&mut one, vec![hits("a", 1)]).await;
        tell(&mut other, vec![hits("a", 2)]).await;
    })
    .await;
    heard.sort_by_key(|news| news.counts[0].total);
    let told: Vec<_> = heard.iter().map(|news| &*news.shard.namespace).collect();
    assert_eq!(told, ["api", "other"]);
}

pub async fn each_position_of_news_that_come_together_is_known<F: LogFixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    let mut reader = Node::join(fixture.connect(), shard("api")).await;
    let mut positions = vec![reader.position.expect("a position")];
    for round in 0..30 {
        let key = format!("{}", round % 7);
        let node = if round % 2 == 0 { &mut one } else { &mut two };
        tell(node, vec![hits(&key, 1), hits("a", 1)]).await;
        node.fetch().await;
        positions.push(node.position.expect("a position"));
    }
    one.push(vec![hits("last", 1)]).await;
    for (round, position) in positions.into_iter().enumerate() {
        reader.position = Some(position);
        let seen = totals(&reader.fetch().await);
        // Counters that changed before may come too, with their present totals.
        let expected = |key: usize| (format!("{key}"), (30 - key as i64 + 6) / 7);
        let changed = (round..30).map(|round| expected(round % 7));
        let of_a = (round < 30).then(|| ("a".into(), 30));
        let changed = changed.chain(of_a).chain([("last".into(), 1)]);
        assert!(changed.clone().all(|count| seen.contains(&count)), "{round}: {seen:?}");
        let all = (0..7).map(expected).chain([("a".into(), 30), ("last".into(), 1)]);
        let all: Vec<_> = all.collect();
        assert!(seen.iter().all(|count| all.contains(count)), "{round}: {seen:?}");
        assert!(reader.fetch().await.is_empty());
    }
}

pub async fn a_listener_that_lags_hears_the_latest_totals<F: LogFixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    let mut listener = Listener::of(&two);
    listener.listens_to(&mut one).await;
    for rounds in [200, 90] {
        for _ in 0..rounds {
            tell(&mut one, vec![hits("a", 1), hits("b", 1)]).await;
        }
        tell(&mut two, vec![hits("a", 1000)]).await;
        let total = one.total(b"a").await.whole();
        let heard = listener.hear_until(total).await;
        // Its cost follows the counters, not the pushes.
        assert!(heard.is_sorted() && heard.len() < 40, "{heard:?}");
        // It waits for the next one.
        let (heard, ()) = futures_util::future::join(
            listener.hear_until(total + 1),
            tell(&mut one, vec![hits("a", 1)]),
        )
        .await;
        assert_eq!(heard, [total + 1]);
    }
}
