//! Tests of stores that keep a row for each node and occupancy.

use super::*;

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
    // Those of other nodes are others.
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
    // What is given back makes the newer count the smaller one.
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
