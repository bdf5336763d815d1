//! The number of living nodes.

use super::*;

const LONG: Duration = Duration::from_secs(600);

/// Has a node say for how long it lives, with hits or without; returns how many do.
async fn say<S: Strategy>(node: &mut Node<S>, life: Duration, diffs: Vec<Diff>) -> Option<u64> {
    node.number += u64::from(!diffs.is_empty());
    let batch = Batch { lives_for: Some(life), ..node.batch(node.number, diffs) };
    applied(node.send_batch(&batch).await);
    node.store.nodes()
}

pub async fn nodes_that_live_are_counted<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    assert_eq!(say(&mut one, LONG, vec![]).await, Some(1));
    assert_eq!(say(&mut two, LONG, vec![hits("a", 1)]).await, Some(2));
    // What says nothing of it changes nothing.
    one.push(vec![hits("a", 1)]).await;
    assert_eq!(say(&mut two, LONG, vec![]).await, Some(2));
    assert_eq!(say(&mut one, LONG, vec![hits("a", 1)]).await, Some(2));
    // It leaves.
    assert_eq!(say(&mut two, Duration::ZERO, vec![hits("a", 1)]).await, Some(1));
    assert_eq!(say(&mut one, LONG, vec![]).await, Some(1));
    assert_eq!(say(&mut two, LONG, vec![]).await, Some(2));
    assert_eq!(one.total(b"a").await.whole(), 4);
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
