//! Tests of stores with a particular ability: absolute counts, added counts, snapshots without a log,
//! or the number of living nodes.

use super::*;
use crate::store::contract::strategy::LivingNodes;

pub async fn occupancies_of_a_counter_add_up<F>(fixture: &F)
where
    F: Fixture<Store: Strategy<Counts = Absolute>>,
{
    let [mut node, mut other] = nodes(fixture).await;
    let in_occupancy = |number, local| Diff { occupancy: occupancy(number), ..hits("a", local) };
    // Its counter is evicted, and comes back twice: in another batch, and in the same.
    let evicted = [
        vec![in_occupancy(1, 5)],
        vec![in_occupancy(2 << 40, 3)],
        vec![in_occupancy(3, 4), in_occupancy(u64::MAX >> 1, 1)],
    ];
    for (diffs, total) in evicted.into_iter().zip([5, 8, 13]) {
        node.number += 1;
        let batch = Batch { diffs, ..node.batch(node.number, vec![hits("a", 1)]) };
        for _ in 0..2 {
            applied(node.send_batch(&batch).await);
            assert_eq!(other.total(b"a").await.whole(), total);
        }
    }
    // Other nodes have occupancies of their own.
    other.push(vec![hits("a", 100)]).await;
    assert_eq!(node.total(b"a").await.whole(), 113);
}

pub async fn a_batch_that_comes_late_leaves_newer_counts<F>(fixture: &F)
where
    F: Fixture<Store: Strategy<Counts = Absolute>>,
{
    let [mut node, _] = nodes(fixture).await;
    let late = node.batch(1, vec![hits("a", 5), hits("b", 1)]);
    applied(node.send_batch(&late).await);
    node.number = 1;
    // After a refund, the newer count is the smaller one.
    node.push(vec![hits("a", -2)]).await;
    assert_eq!(node.send_batch(&late).await, Pushed::Twin);
    let all = node.read_all(&[(MINUTE, 7)]).await;
    assert_eq!(totals(&all), pairs(&[("a", 3), ("b", 1)]));
}

pub async fn a_repeat_may_lack_what_was_evicted<F>(fixture: &F)
where
    F: Fixture<Store: Strategy<Counts = Absolute>>,
{
    let [mut node, _] = nodes(fixture).await;
    let batch = node.batch(1, vec![hits("a", 5), hits("b", 1)]);
    applied(node.send_batch(&batch).await);
    let repeat = Batch { diffs: batch.diffs[..1].to_vec(), ..batch };
    applied(node.send_batch(&repeat).await);
    node.number = 1;
    node.push(vec![hits("b", 1)]).await;
    let all = node.read_all(&[(MINUTE, 7)]).await;
    assert_eq!(totals(&all), pairs(&[("a", 5), ("b", 2)]));
}

pub async fn sums_saturate<F>(fixture: &F)
where
    F: Fixture<Store: Strategy<Counts = Absolute>>,
{
    let [mut one, mut two] = nodes(fixture).await;
    let max = Hits::MAX.thousandths();
    // More than 2^63 in all.
    let rows = usize::try_from(i64::MAX / max).unwrap() + 2;
    let mut numbers = 1..;
    for sign in [1, -1] {
        let mut push = async |sign| {
            let mut diffs = vec![thousandths(b"a", sign * max); rows];
            diffs.push(hits("b", sign));
            applied(one.send(numbers.next().unwrap(), diffs).await);
        };
        push(sign).await;
        let all = two.read_all(&[(MINUTE, 7)]).await;
        let saturated = sign * Hits::MAX.whole();
        assert_eq!(totals(&all), pairs(&[("a", saturated), ("b", sign)]));
        assert_eq!(two.total(b"a").await.whole(), saturated);
        push(-sign).await;
        assert_eq!(two.total(b"a").await, Hits::ZERO);
    }
}

pub async fn under_another_identity_a_batch_is_the_first<F>(fixture: &F)
where
    F: Fixture<Store: Strategy<Counts = Added>>,
{
    let [mut node, mut clone] = nodes(fixture).await;
    node.push(vec![hits("a", 1)]).await;
    clone.id = node.id;
    let sealed = clone.batch(2, vec![hits("a", 10)]);
    node.push(vec![hits("a", 100)]).await;
    let first = Batch { node: new_node(), previous: BatchId::NONE, ..sealed };
    // An id need not begin at 1 for the store.
    applied(clone.send_batch(&first).await);
    assert_eq!(node.total(b"a").await.whole(), 111);
    let all = clone.read_all(&[(MINUTE, 7)]).await;
    assert_eq!(totals(&all), pairs(&[("a", 111)]));
    node.push(vec![hits("a", 1000)]).await;
    assert_eq!(node.total(b"a").await.whole(), 1111);
}

pub async fn totals_saturate<F>(fixture: &F)
where
    F: Fixture<Store: Strategy<Counts = Added>>,
{
    let [mut one, mut two] = nodes(fixture).await;
    let max = Hits::MAX.thousandths();
    for sign in [1, -1] {
        // More than 2^63 in all.
        for _ in 0..9 {
            let mut diffs = vec![thousandths(b"a", sign * max); 8000];
            diffs.push(hits("b", sign));
            one.push(diffs).await;
        }
        // In the same epoch.
        let all = two.read_all(&[(MINUTE, 7)]).await;
        let saturated = sign * Hits::MAX.whole();
        assert_eq!(totals(&all), pairs(&[("a", saturated), ("b", 9 * sign)]));
        // The way back is as long as that from zero to there.
        let back = usize::try_from(MAX_TOTAL / max).unwrap();
        one.push(vec![thousandths(b"a", -sign * max); back]).await;
        let left = sign * (MAX_TOTAL % max);
        assert_eq!(one.total(b"a").await.thousandths(), left);
        one.push(vec![thousandths(b"a", -left), hits("b", -9 * sign)]).await;
    }
}

pub async fn nodes_read_what_others_pushed<F>(fixture: &F)
where
    F: Fixture<Store: Strategy<Changes = Snapshots>>,
{
    let [mut one, mut two] = nodes(fixture).await;
    one.push(vec![hits("a", 1), hits("b", 2)]).await;
    let all = two.push(vec![hits("a", 10)]).await;
    assert_eq!(totals(&all), pairs(&[("a", 11), ("b", 2)]));
    one.push(vec![hits("a", 100)]).await;
    for node in [&mut one, &mut two] {
        // As often as it likes.
        for _ in 0..2 {
            assert_eq!(totals(&node.fetch().await), pairs(&[("a", 111), ("b", 2)]));
        }
    }
}

const LONG: Duration = Duration::from_secs(600);

/// Pushes for how long a node lives, with hits or without. Returns the number of living nodes.
async fn say<S: Strategy>(node: &mut Node<S>, life: Duration, diffs: Vec<Diff>) -> Option<u64> {
    say_and_hear(node, life, diffs).await.map(|it| it.count)
}

/// As [`say`], and returns the living nodes.
async fn say_and_hear<S: Strategy>(
    node: &mut Node<S>,
    life: Duration,
    diffs: Vec<Diff>,
) -> Option<LivingNodes> {
    node.number += u64::from(!diffs.is_empty());
    let batch = Batch { lives_for: Some(life), ..node.batch(node.number, diffs) };
    applied(node.send_batch(&batch).await);
    node.store.living()
}

pub async fn nodes_that_live_are_counted<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    assert_eq!(say(&mut one, LONG, vec![]).await, Some(1));
    assert_eq!(say(&mut two, LONG, vec![hits("a", 1)]).await, Some(2));
    // A push that says nothing about the life changes nothing.
    one.push(vec![hits("a", 1)]).await;
    assert_eq!(say(&mut two, LONG, vec![]).await, Some(2));
    assert_eq!(say(&mut one, LONG, vec![hits("a", 1)]).await, Some(2));
    // It leaves.
    assert_eq!(say(&mut two, Duration::ZERO, vec![hits("a", 1)]).await, Some(1));
    assert_eq!(say(&mut one, LONG, vec![]).await, Some(1));
    assert_eq!(say(&mut two, LONG, vec![]).await, Some(2));
    assert_eq!(one.total(b"a").await.whole(), 4);
}

pub async fn living_nodes_have_different_places<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    // A store may count the nodes a moment later.
    let place = async |node: &mut Node<_>| loop {
        let living = say_and_hear(node, LONG, vec![]).await.unwrap();
        if let Some(place) = living.place {
            break place;
        }
    };
    let places = async {
        assert_eq!(place(&mut one).await, 0);
        place(&mut two).await;
        let places = [place(&mut one).await, place(&mut two).await];
        assert!(places == [0, 1] || places == [1, 0], "{places:?}");
        // They do not change while both live.
        assert_eq!([place(&mut one).await, place(&mut two).await], places);
        // One that leaves has no place any more.
        say(&mut two, Duration::ZERO, vec![]).await;
        while place(&mut one).await != 0 {}
    };
    let places = tokio::time::timeout(Duration::from_secs(30), places);
    places.await.expect("each node has a place");
}

pub async fn a_node_that_says_nothing_for_long_does_not_live<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    say(&mut two, Duration::from_millis(1), vec![]).await;
    let mut alone = async || while say(&mut one, LONG, vec![]).await != Some(1) {};
    let waiting = tokio::time::timeout(Duration::from_secs(30), alone());
    waiting.await.expect("it lives for a millisecond");
}

pub async fn a_node_that_asks_lives_in_its_namespace<F: Fixture>(fixture: &F) {
    let [mut one, _] = nodes(fixture).await;
    let mut other = Node::join(fixture.connect(), shard("other")).await;
    assert_eq!(say(&mut one, LONG, vec![]).await, Some(1));
    assert_eq!(say(&mut other, LONG, vec![]).await, Some(1));
}
