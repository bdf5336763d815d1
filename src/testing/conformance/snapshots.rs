//! News of others' changes from a store that keeps counts alone.

use super::*;

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
