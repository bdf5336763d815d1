//! Tests of stores that add diffs to totals.

use super::*;

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
