//! What becomes of a batch.

use super::*;

pub(in crate::store) async fn a_new_store_has_no_epoch<F: Fixture>(fixture: &F) {
    let mut store = fixture.connect();
    let shard = shard("api");
    let batch = Batch {
        node: new_node(),
        epoch: new_epoch(),
        number: 1,
        position: None,
        diffs: vec![hits("a", 1)],
    };
    let pushed = store.push_diffs(&shard, &batch, LIMIT).await;
    assert_eq!(pushed, Ok(Pushed::NoEpoch));
    let total = store.get_window(&shard, b"a", MINUTE, 7).await;
    assert_eq!(total, Ok(Hits::ZERO));
    let step = Default::default();
    let page = store.get_counters(&shard, batch.epoch, &[(MINUTE, 7)], step);
    assert!(page.await.unwrap().0.is_empty());
}

pub(in crate::store) async fn batches_are_applied_in_order<F: Fixture>(fixture: &F) {
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

pub(in crate::store) async fn a_repeat_is_applied_once<F: Fixture>(fixture: &F) {
    let [mut node, mut other] = nodes(fixture).await;
    let first = node.send(1, vec![hits("a", 5)]).await;
    other.push(vec![hits("a", 1), hits("b", 1)]).await;
    for _ in 0..2 {
        let repeat = node.send(1, vec![hits("a", 5)]).await;
        // What others changed comes with the repeat as well.
        assert_eq!(totals(&since(repeat).0), pairs(&[("a", 6), ("b", 1)]));
    }
    assert!(since(first).0.is_empty());
    assert_eq!(node.total(b"a").await.whole(), 6);
    node.number = 1;
    node.push(vec![hits("a", 5)]).await;
    assert_eq!(node.total(b"a").await.whole(), 11);
}

pub(in crate::store) async fn other_numbers_mean_that_the_store_lost_writes<F: Fixture>(
    fixture: &F,
) {
    let [mut node, mut other] = nodes(fixture).await;
    assert_eq!(node.send(2, vec![hits("a", 1)]).await, Pushed::Lost);
    node.push(vec![hits("a", 1)]).await;
    node.push(vec![hits("a", 1)]).await;
    for number in [1, 4, 5, u64::MAX] {
        let pushed = node.send(number, vec![hits("a", 1)]).await;
        assert_eq!(pushed, Pushed::Lost, "{number}");
    }
    assert_eq!(node.total(b"a").await.whole(), 2);
    other.push(vec![hits("a", 1)]).await;
    assert_eq!(node.total(b"a").await.whole(), 3);
}

pub(in crate::store) async fn a_node_that_asks_with_another_number_lost_writes<F: Fixture>(
    fixture: &F,
) {
    let [mut node, _] = nodes(fixture).await;
    assert_eq!(node.send(1, vec![]).await, Pushed::Lost);
    node.push(vec![hits("a", 1)]).await;
    for number in [0, 2, 3] {
        assert_eq!(node.send(number, vec![]).await, Pushed::Lost, "{number}");
    }
    assert!(node.fetch().await.is_empty());
}
