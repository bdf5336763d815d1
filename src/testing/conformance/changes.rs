//! Tests of stores with a log of changes, from which nodes read the changes of others.

use super::*;

pub async fn nodes_see_what_others_changed<F: LogFixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    one.push(vec![hits("a", 1), hits("b", 2)]).await;
    let seen = two.push(vec![hits("a", 10)]).await;
    assert_eq!(totals(&seen), pairs(&[("a", 11), ("b", 2)]));
    let seen = one.fetch().await;
    assert_eq!(totals(&seen), pairs(&[("a", 11)]));
    assert!(one.fetch().await.is_empty());
    assert!(two.fetch().await.is_empty());
    assert_eq!(seen[0].size, MINUTE);
    assert_eq!(seen[0].window, 7);
}

pub async fn totals_include_what_others_pushed_meanwhile<F: LogFixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    one.push(vec![hits("a", 1)]).await;
    // After the reported change: a total is the current one.
    two.push(vec![hits("a", 10)]).await;
    one.push(vec![hits("a", 100)]).await;
    assert_eq!(totals(&two.fetch().await), pairs(&[("a", 111)]));
}

pub async fn a_counter_that_both_changed_comes_once<F: LogFixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    for _ in 0..5 {
        let batch = two.batch(two.number + 1, vec![hits("a", 1), hits("a", 1)]);
        let pushed = two.store.push_diffs(&two.shard, &batch, LIMIT).await;
        since(pushed.unwrap());
        two.number += 1;
        one.number += 1;
        let pushed = one.send(one.number, vec![hits("a", 1)]).await;
        assert_eq!(since(pushed).0.len(), 1);
    }
    assert_eq!(totals(&one.fetch().await), pairs(&[("a", 15)]));
}

pub async fn a_nodes_own_changes_do_not_come_back<F: LogFixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    two.push(vec![hits("theirs", 1)]).await;
    for number in 1..=40 {
        // From the same position.
        let pushed = one.send(number, vec![hits(&format!("own {number}"), 1)]).await;
        let (counts, _, has_more) = since(pushed);
        assert_eq!(totals(&counts), pairs(&[("theirs", 1)]));
        assert!(!has_more);
    }
    one.number = 40;
    two.push(vec![hits("own 3", 1)]).await;
    assert_eq!(totals(&one.fetch().await), pairs(&[("own 3", 2), ("theirs", 1)]));
}

pub async fn changes_of_others_come_with_a_repeat<F: LogFixture>(fixture: &F) {
    let [mut node, mut other] = nodes(fixture).await;
    let first = node.send(1, vec![hits("a", 5)]).await;
    other.push(vec![hits("a", 1), hits("b", 1)]).await;
    for _ in 0..2 {
        let repeat = node.send(1, vec![hits("a", 5)]).await;
        assert_eq!(totals(&since(repeat).0), pairs(&[("a", 6), ("b", 1)]));
    }
    assert!(since(first).0.is_empty());
    // Refused diffs and an empty batch are no changes.
    assert_eq!(node.send(3, vec![hits("a", 1)]).await, Pushed::Lost);
    let evicted = Batch { diffs: Vec::new(), ..node.batch(2, vec![hits("a", 1)]) };
    for _ in 0..2 {
        let counts = since(node.send_batch(&evicted).await).0;
        assert_eq!(totals(&counts), pairs(&[("a", 6), ("b", 1)]));
    }
    assert!(other.fetch().await.is_empty());
}

pub async fn changes_come_in_parts_up_to_the_limit<F: LogFixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    let mut expected = BTreeMap::new();
    for batch in 0..40 {
        let keys = (0..40).map(|key| format!("{batch} {key}"));
        let diffs: Vec<_> = keys.map(|key| hits(&key, batch + 1)).collect();
        expected.extend(diffs.iter().map(|diff| (diff.key.clone(), batch + 1)));
        one.push(diffs).await;
    }
    let mut seen = BTreeMap::new();
    let mut parts = 0;
    loop {
        let batch = two.batch(0, vec![]);
        let pushed = two.store.push_diffs(&two.shard, &batch, 100).await;
        let (counts, position, has_more) = since(pushed.unwrap());
        assert!((1..=100).contains(&counts.len()), "{}", counts.len());
        for count in counts {
            let old = seen.insert(count.key, count.total.whole());
            assert_eq!(old, None);
        }
        parts += 1;
        two.position = Some(position);
        if !has_more {
            break;
        }
    }
    assert_eq!(seen, expected);
    assert_eq!(parts, 20);

    // A batch that is larger than the limit comes as a whole.
    one.push((0..40).map(|key| hits(&key.to_string(), 1)).collect()).await;
    let batch = two.batch(0, vec![]);
    let pushed = two.store.push_diffs(&two.shard, &batch, 1).await;
    assert_eq!(since(pushed.unwrap()).0.len(), 40);
}

pub async fn a_node_without_a_position_is_behind<F: LogFixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    one.push(vec![hits("a", 1)]).await;
    two.position = None;
    // The batch is applied nevertheless.
    two.position = Some(behind(&two.send(1, vec![hits("b", 1)]).await));
    two.number = 1;
    let all = two.read_all(&[(MINUTE, 7)]).await;
    assert_eq!(totals(&all), pairs(&[("a", 1), ("b", 1)]));
    assert!(two.fetch().await.is_empty());
    one.push(vec![hits("a", 1)]).await;
    assert_eq!(totals(&two.fetch().await), pairs(&[("a", 2)]));
}

pub async fn a_position_that_is_forgotten_is_behind<F: LogFixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    two.fetch().await;
    one.push(vec![hits("a", 1)]).await;
    fixture.forget_changes(&one.shard);
    // The node that has read everything needs no forgotten change.
    assert!(one.fetch().await.is_empty());
    two.position = Some(behind(&two.send(1, vec![hits("b", 1)]).await));
    two.number = 1;
    assert!(two.fetch().await.is_empty());
    assert_eq!(totals(&two.read_all(&[(MINUTE, 7)]).await).len(), 2);
    // A store with a log for each node still has what changed since. Of one log for all, the last change is what
    // a position names: so there is one.
    fixture.forget_changes(&one.shard);
    two.position = None;
    two.position = Some(behind(&two.send(2, vec![hits("b", 1)]).await));
    two.number = 2;
    one.position = Some(behind(&one.send(1, vec![]).await));
    two.push(vec![hits("b", 1)]).await;
    assert_eq!(totals(&one.fetch().await), pairs(&[("b", 3)]));
}

pub async fn a_position_ahead_is_behind<F: LogFixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    for _ in 0..3 {
        one.push(vec![hits("a", 1)]).await;
    }
    // As a store that lost its last writes.
    two.position = one.position.map(|present| fixture.ahead_of(present));
    two.position = Some(behind(&two.send(1, vec![hits("a", 1)]).await));
    assert_eq!(two.total(b"a").await.whole(), 4);
    two.number = 1;
    assert!(two.fetch().await.is_empty());
}

pub async fn of_changes_at_the_same_time_each_is_applied_once<F: LogFixture>(fixture: &F) {
    let mut nodes = Vec::new();
    for _ in 0..8 {
        nodes.push(Node::join(fixture.connect(), shard("api")).await);
    }
    let pushes = nodes.iter_mut().map(async |node| {
        for _ in 0..10 {
            node.push(vec![hits("a", 1), hits("b", 2)]).await;
        }
    });
    all_at_once(pushes.collect()).await;
    let all = nodes[0].read_all(&[(MINUTE, 7)]).await;
    assert_eq!(totals(&all), pairs(&[("a", 80), ("b", 160)]));
    for node in &mut nodes {
        node.fetch().await;
        assert!(node.fetch().await.is_empty());
    }
}
