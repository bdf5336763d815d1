//! The equal share of a limit, which each of several nodes admits by itself while they cannot hear of each other.

use super::algorithm::Algorithm;
use super::hits::Hits;

/// Returns the share of a limit that a node admits in a window, if the limit is divided among all nodes. `node` is the
/// node's place among them, if it is known, and their number.
///
/// Where each node's part would be less than a hit, nodes take turns instead: in each window, as many nodes admit one
/// hit as the limit has hits, and the others none. So all of them admit at most the limit, and each gets its turn. In
/// sliding windows, nodes admit in every second window only, since the hits of the previous one still count.
pub fn equal_share(
    limit: Hits,
    algorithm: Algorithm,
    (place, nodes): (Option<u64>, u64),
    window: u64,
) -> Hits {
    let part = limit.thousandths().checked_div(i64::try_from(nodes).unwrap_or(i64::MAX));
    let part = part.map_or(limit, Hits::from_thousandths);
    let turns = u64::try_from(limit.whole()).unwrap_or(0);
    let (Some(place), 1.., true) = (place, turns, part < Hits::ONE) else {
        return part;
    };
    let round = match algorithm {
        Algorithm::Sliding if window % 2 == 1 => return Hits::ZERO,
        Algorithm::Sliding => window / 2,
        _ => window,
    };
    let first = u128::from(round).saturating_mul(turns.into());
    let turn = first.saturating_add(place.into()).checked_rem(nodes.into());
    match turn.is_some_and(|it| it < turns.into()) {
        true => Hits::ONE,
        false => Hits::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, prop, proptest};

    use super::*;
    use crate::policy::hits::hits;

    const NODES: [u64; 4] = [7, 50, 100, 300];

    /// Returns the shares of all nodes in a window, in thousandths.
    fn shares(limit: Hits, algorithm: Algorithm, nodes: u64, window: u64) -> Vec<i64> {
        let share = |place| equal_share(limit, algorithm, (Some(place), nodes), window);
        (0..nodes).map(|place| share(place).thousandths()).collect()
    }

    #[test]
    fn a_share_of_a_hit_or_more_and_that_of_an_unknown_place_are_equal_parts() {
        for (limit, place, nodes, expected) in [
            (1000, Some(3), 10, 100_000),
            (50, Some(3), 50, 1000),
            (75, Some(3), 50, 1500),
            (20, None, 50, 400),
            (1, None, 1, 1000),
            (1, Some(0), 1, 1000),
            (20, Some(0), 0, 20_000),
        ] {
            for (algorithm, window) in [(Algorithm::Fixed, 7), (Algorithm::Sliding, 8)] {
                let share = equal_share(hits(limit), algorithm, (place, nodes), window);
                assert_eq!(share.thousandths(), expected, "{limit} {place:?} of {nodes}");
            }
        }
        // A limit below a hit has no turns.
        let half = Hits::from_thousandths(500);
        let share = equal_share(half, Algorithm::Fixed, (Some(0), 50), 0);
        assert_eq!(share.thousandths(), 10);
    }

    #[test]
    fn each_node_gets_its_turn() {
        for nodes in NODES {
            for limit in 1..=50 {
                let wait = nodes.div_ceil(limit);
                for (algorithm, wait) in [(Algorithm::Fixed, wait), (Algorithm::Sliding, 2 * wait)]
                {
                    let mut had = vec![0; nodes as usize];
                    // The number of the window is any.
                    for window in 1_000_000_007..1_000_000_007 + wait {
                        let shares = shares(hits(limit as i64), algorithm, nodes, window);
                        had.iter_mut().zip(shares).for_each(|(had, share)| *had += share);
                    }
                    assert!(had.iter().all(|it| *it >= 1000), "{limit} {nodes}: {had:?}");
                }
            }
        }
    }

    #[test]
    fn all_nodes_admit_the_limit_at_most() {
        for nodes in NODES {
            for limit in 1..=50 {
                for window in (0..40).chain(u64::MAX - 40..u64::MAX) {
                    let of = |algorithm, window| -> i64 {
                        shares(hits(limit), algorithm, nodes, window).iter().sum()
                    };
                    let of_fixed = of(Algorithm::Fixed, window);
                    let is_divided = limit >= nodes as i64;
                    // Equal parts are rounded down.
                    let least = limit * 1000 - if is_divided { nodes as i64 } else { 0 };
                    assert!((least..=limit * 1000).contains(&of_fixed), "{limit} {nodes}");
                    if !is_divided {
                        // The previous window counts in full at the start of the next one.
                        let both =
                            of(Algorithm::Sliding, window) + of(Algorithm::Sliding, window + 1);
                        assert_eq!(both, limit * 1000, "{limit} {nodes} {window}");
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        /// The last known hits of the nodes, of which each takes its part of the limit or its equal
        /// share.
        #[test]
        fn with_known_parts_all_nodes_admit_twice_the_limit_at_most(
            nodes in prop::sample::select(&NODES[..]),
            limit in 1..=50_i64,
            window in 0..u64::MAX / 2,
            known in prop::collection::vec(0..5_i64, 300),
        ) {
            let known = &known[..nodes as usize];
            let all: i64 = known.iter().sum();
            let parts = known.iter().map(|own| (limit * 1000 * own).checked_div(all).unwrap_or(0));
            for algorithm in [Algorithm::Fixed, Algorithm::Sliding] {
                let shares = shares(hits(limit), algorithm, nodes, window);
                let admitted = parts.clone().zip(shares).map(|(part, share)| part.max(share));
                let admitted: Vec<_> = admitted.collect();
                assert!(admitted.iter().sum::<i64>() <= 2 * limit * 1000, "{admitted:?}");
            }
        }
    }
}
