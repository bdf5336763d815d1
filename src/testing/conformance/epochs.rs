//! Tests of the creation and the loss of counts.

use super::*;

pub async fn of_many_nodes_that_open_an_epoch_one_wins<F: Fixture>(fixture: &F) {
    let shard = shard("api");
    let mut stores: Vec<_> = (0..10).map(|_| fixture.connect()).collect();
    for instead_of in 0..2 {
        let mut old = None;
        if instead_of == 1 {
            old = Some(stores[0].open_epoch(&shard, None, new_epoch()).await.unwrap());
        }
        let proposed: Vec<_> = stores.iter().map(|_| new_epoch()).collect();
        let attempts = stores.iter_mut().zip(&proposed);
        let attempts = attempts.map(|(store, &epoch)| store.open_epoch(&shard, old, epoch));
        let epochs = all_at_once(attempts.collect()).await;
        let won = epochs[0].clone().unwrap();
        assert!(proposed.contains(&won));
        assert!(epochs.iter().all(|epoch| epoch == &Ok(won)), "{epochs:?}");
    }
}

pub async fn only_the_epoch_that_is_named_is_replaced<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    assert_eq!(one.epoch, two.epoch);
    one.push(vec![hits("a", 1)]).await;
    // It is in the epoch already, or in another.
    for instead_of in [None, Some(new_epoch())] {
        let opened = two.store.open_epoch(&two.shard, instead_of, new_epoch());
        assert_eq!(opened.await, Ok(one.epoch));
    }
    assert_eq!(one.total(b"a").await.whole(), 1);
    let proposed = new_epoch();
    let instead_of = Some(one.epoch);
    for again in [proposed, new_epoch()] {
        let opened = two.store.open_epoch(&two.shard, instead_of, again);
        assert_eq!(opened.await, Ok(proposed));
    }
}

pub async fn a_flushed_store_has_no_epoch<F: Fixture>(fixture: &F) {
    let [mut node, _] = nodes(fixture).await;
    node.push(vec![hits("a", 1)]).await;
    fixture.flush();
    assert_eq!(node.send(2, vec![hits("a", 1)]).await, Pushed::NoEpoch);
    assert_eq!(node.send(1, vec![]).await, Pushed::NoEpoch);
    let proposed = new_epoch();
    let instead_of = Some(node.epoch);
    let opened = node.store.open_epoch(&node.shard, instead_of, proposed);
    assert_eq!(opened.await, Ok(proposed));
    node.epoch = proposed;
    // The position is one of the old epoch.
    node.begin(1, vec![hits("a", 5)]).await;
    assert_eq!(node.total(b"a").await.whole(), 5);
}

pub async fn a_new_epoch_begins_without_counts_and_numbers<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    one.push(vec![hits("a", 1)]).await;
    two.push(vec![hits("a", 1)]).await;
    let proposed = new_epoch();
    let instead_of = Some(one.epoch);
    let opened = one.store.open_epoch(&one.shard, instead_of, proposed);
    assert_eq!(opened.await, Ok(proposed));
    assert_eq!(one.total(b"a").await, Hits::ZERO);

    one.epoch = proposed;
    assert!(one.read_all(&[(MINUTE, 7)]).await.is_empty());
    assert_eq!(one.send(2, vec![hits("a", 1)]).await, Pushed::Forgotten);
    one.position = None;
    one.begin(1, vec![hits("a", 4)]).await;
    assert_eq!(two.send(2, vec![hits("a", 1)]).await, Pushed::OtherEpoch(proposed));
    two.epoch = proposed;
    two.position = None;
    two.begin(1, vec![hits("a", 5)]).await;
    let all = two.read_all(&[(MINUTE, 7)]).await;
    assert_eq!(totals(&all), pairs(&[("a", 9)]));
}

pub async fn a_batch_of_another_epoch_is_not_applied<F: Fixture>(fixture: &F) {
    let [mut node, _] = nodes(fixture).await;
    let epoch = node.epoch;
    node.epoch = new_epoch();
    for diffs in [vec![hits("a", 1)], vec![]] {
        assert_eq!(node.send(1, diffs).await, Pushed::OtherEpoch(epoch));
    }
    assert!(node.read_all(&[(MINUTE, 7)]).await.is_empty());
    assert_eq!(node.total(b"a").await, Hits::ZERO);
    node.epoch = epoch;
    node.push(vec![hits("a", 1)]).await;
}
