//! Tests of the outcome of a batch.

use super::*;

pub async fn a_new_store_has_no_epoch<F: Fixture>(fixture: &F) {
    let mut store = fixture.connect();
    let shard = shard("api");
    let batch = Batch {
        node: new_node(),
        epoch: new_epoch(),
        lives_for: None,
        previous: BatchId::NONE,
        id: Some(BatchId::new(1, NONCE)),
        position: None,
        grants: None,
        diffs: vec![hits("a", 1)],
        is_news: false,
    };
    let pushed = store.push_diffs(&shard, &batch, LIMIT).await;
    assert_eq!(pushed, Ok(Pushed::NoEpoch));
    let total = store.get_window(&shard, b"a", MINUTE, 7).await;
    assert_eq!(total, Ok(Hits::ZERO));
    let step = Default::default();
    let page = store.get_counters(&shard, batch.epoch, &[(MINUTE, 7)], step);
    assert!(page.await.unwrap().0.is_empty());
}

pub async fn batches_are_applied_in_order<F: Fixture>(fixture: &F) {
    let [mut node, _] = nodes(fixture).await;
    for number in 1..=3 {
        node.push(vec![hits("a", 1), hits("b", 10)]).await;
        assert_eq!(node.total(b"a").await.whole(), number);
    }
    let all = node.read_all(&[(MINUTE, 7)]).await;
    assert_eq!(totals(&all), pairs(&[("a", 3), ("b", 30)]));
    let Pushed::Applied { now, .. } = node.send(3, vec![]).await else {
        panic!("not applied");
    };
    // The year 2020, in milliseconds.
    assert!(now.0 > 1_577_836_800_000 && now.0 < 10_000_000_000_000);
}

pub async fn a_repeat_is_applied_once<F: Fixture>(fixture: &F) {
    let [mut node, mut other] = nodes(fixture).await;
    applied(node.send(1, vec![hits("a", 5)]).await);
    other.push(vec![hits("a", 1), hits("b", 1)]).await;
    for _ in 0..2 {
        applied(node.send(1, vec![hits("a", 5)]).await);
        let all = node.read_all(&[(MINUTE, 7)]).await;
        assert_eq!(totals(&all), pairs(&[("a", 6), ("b", 1)]));
    }
    assert_eq!(node.total(b"a").await.whole(), 6);
    node.number = 1;
    node.push(vec![hits("a", 5)]).await;
    assert_eq!(node.total(b"a").await.whole(), 11);
}

pub async fn a_batch_that_does_not_fit_is_not_applied<F: Fixture>(fixture: &F) {
    let [mut node, mut other] = nodes(fixture).await;
    assert_eq!(node.send(2, vec![hits("a", 1)]).await, Pushed::Forgotten);
    node.push(vec![hits("a", 1)]).await;
    node.push(vec![hits("a", 1)]).await;
    assert_eq!(node.send(1, vec![hits("a", 1)]).await, Pushed::Twin);
    for number in [4, 5, 1 << 35] {
        let pushed = node.send(number, vec![hits("a", 1)]).await;
        assert_eq!(pushed, Pushed::Lost, "{number}");
    }
    assert_eq!(node.total(b"a").await.whole(), 2);
    other.push(vec![hits("a", 1)]).await;
    assert_eq!(node.total(b"a").await.whole(), 3);
}

pub async fn a_node_that_asks_is_told_what_does_not_fit<F: Fixture>(fixture: &F) {
    let [mut node, _] = nodes(fixture).await;
    assert_eq!(node.send(1, vec![]).await, Pushed::Forgotten);
    node.push(vec![hits("a", 1)]).await;
    assert_eq!(node.send(0, vec![]).await, Pushed::Twin);
    for number in [2, 3] {
        assert_eq!(node.send(number, vec![]).await, Pushed::Lost, "{number}");
    }
    assert!(told(node.send(node.number, vec![]).await).is_empty());
}

pub async fn a_batch_without_diffs_is_one_all_the_same<F: Fixture>(fixture: &F) {
    let [mut node, mut other] = nodes(fixture).await;
    let evicted = |node: &Node<F::Store>, number| Batch {
        diffs: Vec::new(),
        ..node.batch(number, vec![hits("evicted", 1)])
    };
    for number in [1, 2] {
        // Then the repeat of that batch.
        for _ in 0..2 {
            let batch = evicted(&node, number);
            assert!(told(node.send_batch(&batch).await).is_empty());
        }
    }
    assert_eq!(node.send(1, vec![]).await, Pushed::Twin);
    node.number = 2;
    node.push(vec![hits("a", 5)]).await;
    let batch = evicted(&node, 5);
    assert_eq!(node.send_batch(&batch).await, Pushed::Lost);
    assert_eq!(totals(&other.fetch().await), pairs(&[("a", 5)]));
    assert_eq!(node.total(b"a").await.whole(), 5);
}

pub async fn of_two_nodes_with_one_identity_the_second_is_told<F: Fixture>(fixture: &F) {
    let [mut node, mut clone] = nodes(fixture).await;
    node.push(vec![hits("a", 1)]).await;
    clone.id = node.id;
    let sealed = clone.batch(2, vec![hits("a", 10)]);
    let sealed = Batch { id: Some(BatchId::new(2, NONCE + 1)), ..sealed };
    node.push(vec![hits("a", 100)]).await;
    for _ in 0..2 {
        assert_eq!(clone.send_batch(&sealed).await, Pushed::Twin);
        assert_eq!(clone.send(1, vec![]).await, Pushed::Twin);
    }
    assert_eq!(node.total(b"a").await.whole(), 101);
    node.push(vec![hits("a", 1000)]).await;
    assert_eq!(node.total(b"a").await.whole(), 1101);
}

/// A node that was forgotten begins with a first batch again, while one of before is still on its way.
pub async fn a_batch_of_a_former_chain_is_not_applied<F: Fixture>(fixture: &F) {
    let [mut node, _] = nodes(fixture).await;
    node.push(vec![hits("a", 1)]).await;
    let late = Batch { previous: BatchId::new(1, NONCE + 1), ..node.batch(2, vec![hits("a", 1)]) };
    assert_eq!(node.send_batch(&late).await, Pushed::Twin);
    assert_eq!(node.total(b"a").await.whole(), 1);
}
