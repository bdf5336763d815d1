//! Reserves: the sizes of the parts that a store charges ahead for a node, and the record of whether the store still
//! has them.

use core::num::NonZeroU64;

use super::hits::Hits;
use super::window::WindowSize;

/// The smallest window with reserves, in milliseconds. In smaller windows, unused hits return too late.
const SMALLEST: u64 = 1000;
/// The smallest limit with reserves, in multiples of the number of nodes.
const LEAST_SHARE: i64 = 10;

/// The size of the first part that a node asks for, in multiples of a hit's cost.
pub const FIRST_PART: i64 = 16;

/// The identity of an exchange in which a store decided, in the history of a shard. It shows whether the store still
/// has the charges of the exchange. Only the store that issued it can interpret it. Its highest bit is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness(pub NonZeroU64);

/// The reserves that a store has granted to a node, as far as the node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grants {
    /// No hits.
    None,
    /// Some hits, the last of them granted in this exchange.
    UpTo(Witness),
    /// Some hits that the store has lost, so that nothing may be refunded to it.
    Lost,
}

impl Grants {
    const LOST: u64 = u64::MAX;

    /// Encodes the grants as a word.
    pub fn to_word(self) -> u64 {
        match self {
            Grants::None => 0,
            Grants::UpTo(Witness(witness)) => witness.get(),
            Grants::Lost => Self::LOST,
        }
    }

    /// Decodes a word of [`Grants::to_word`].
    pub fn from_word(word: u64) -> Grants {
        match NonZeroU64::new(word) {
            None => Grants::None,
            Some(_) if word == Self::LOST => Grants::Lost,
            Some(witness) => Grants::UpTo(Witness(witness)),
        }
    }
}

/// Whether reserves are used for a limit with windows of `size`, with so many living nodes.
pub fn has_reserves(limit: Hits, size: WindowSize, nodes: u64) -> bool {
    size.millis() >= SMALLEST && limit >= times(LEAST_SHARE, nodes)
}

/// Returns the size of the next part, in whole hits: `wanted`, but at most the node's share less what is `left` of its
/// reserve. The share is half of the unused hits (`remains` and `left`), divided by the living nodes. Returns `None` if
/// the part would be smaller than two hits of `cost`, which is near the limit: the node then asks for single hits.
pub fn part(wanted: Hits, remains: Hits, left: Hits, cost: Hits, nodes: u64) -> Option<Hits> {
    let nodes = i64::try_from(nodes.max(1)).unwrap_or(i64::MAX);
    let free = remains.plus(left).thousandths();
    let share = free.checked_div(nodes.saturating_mul(2)).unwrap_or(0);
    let share = Hits::from_thousandths(share).minus(left);
    let whole = wanted.min(share).whole();
    let part = Hits::from_thousandths(whole.saturating_mul(Hits::ONE.thousandths()));
    (part >= cost.plus(cost) && part > Hits::ZERO).then_some(part)
}

/// Returns the remainder that the store must see before it charges a part. Other nodes may have taken hits meanwhile;
/// even then, the part is at most half of the rest.
pub fn room_for(part: Hits, nodes: u64) -> Hits {
    let nodes = i64::try_from(nodes.max(2)).unwrap_or(i64::MAX);
    Hits::from_thousandths(part.thousandths().saturating_mul(nodes))
}

fn times(factor: i64, nodes: u64) -> Hits {
    let nodes = i64::try_from(nodes.max(1)).unwrap_or(i64::MAX);
    let thousandths = factor.saturating_mul(nodes).saturating_mul(Hits::ONE.thousandths());
    Hits::from_thousandths(thousandths)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, any, prop, proptest};

    use super::*;
    use crate::policy::hits::hits;

    #[test]
    fn small_limits_and_windows_have_no_reserves() {
        for (limit, millis, nodes, is_reserved) in [
            (100, 1000, 10, true),
            (99, 1000, 10, false),
            (100, 999, 10, false),
            (10, 60_000, 1, true),
            (9, 60_000, 1, false),
            (10, 60_000, 0, true),
            (1_000_000_000, 60_000, u64::MAX, false),
            (499, 60_000, 50, false),
            (500, 60_000, 50, true),
            (50, 60_000, 50, false),
            (50, 60_000, 300, false),
            (3000, 60_000, 300, true),
        ] {
            let size = WindowSize::from_millis(millis).unwrap();
            let what = (limit, millis, nodes);
            assert_eq!(has_reserves(hits(limit), size, nodes), is_reserved, "{what:?}");
        }
    }

    #[test]
    fn a_part_shrinks_to_single_hits_near_the_limit() {
        for (wanted, remains, left, cost, nodes, expected) in [
            (16, 1000, 0, 1, 10, Some(16)),
            (500, 1000, 0, 1, 10, Some(50)),
            (500, 1000, 0, 1, 1, Some(500)),
            (500, 999, 0, 1, 1, Some(499)),
            // The reserve that is left counts toward the share.
            (500, 950, 50, 1, 10, None),
            (500, 975, 25, 1, 10, Some(25)),
            (500, 40, 0, 1, 10, Some(2)),
            (500, 39, 0, 1, 10, None),
            (500, 0, 0, 1, 10, None),
            (16, 1000, 0, 9, 10, None),
            (18, 1000, 0, 9, 10, Some(18)),
            (16, 1000, 0, 0, 10, Some(16)),
            (16, 1000, 0, 1, 0, Some(16)),
        ] {
            let part = part(hits(wanted), hits(remains), hits(left), hits(cost), nodes);
            let what = (wanted, remains, left, cost, nodes);
            assert_eq!(part, expected.map(hits), "{what:?}");
        }
    }

    #[test]
    fn a_part_is_at_most_half_of_the_rest() {
        assert_eq!(room_for(hits(50), 10), hits(500));
        assert_eq!(room_for(hits(50), 1), hits(100));
        assert_eq!(room_for(Hits::MAX, u64::MAX), Hits::MAX);
    }

    /// A store's count of a key, and the nodes that ask it.
    struct Asked {
        limit: Hits,
        counted: Hits,
        admitted: Hits,
        /// Each node's reserve, and the count of the store that it last heard of.
        nodes: Vec<(Hits, Hits)>,
    }

    impl Asked {
        fn new(limit: i64, nodes: u64) -> Asked {
            let nodes = vec![(Hits::ZERO, Hits::ZERO); nodes as usize];
            Asked { limit: hits(limit), counted: Hits::ZERO, admitted: Hits::ZERO, nodes }
        }

        /// Returns whether the store admits `cost`, and has charged `charge` then.
        fn ask(&mut self, node: usize, cost: Hits, charge: Hits) -> bool {
            let is_admitted = self.counted.plus(cost) <= self.limit;
            if is_admitted {
                self.counted = self.counted.plus(charge);
            }
            self.nodes[node].1 = self.counted;
            is_admitted
        }

        /// Requests a hit from a node that knows of `known` nodes.
        fn hit(&mut self, node: usize, known: u64, wanted: Hits) -> bool {
            let size = WindowSize::from_millis(60_000).unwrap();
            let (left, heard) = self.nodes[node];
            if has_reserves(self.limit, size, known) && left >= Hits::ONE {
                self.nodes[node].0 = left.minus(Hits::ONE);
                self.admitted = self.admitted.plus(Hits::ONE);
                return true;
            }
            let is_admitted = self.ask(node, Hits::ONE, Hits::ONE);
            if is_admitted {
                self.admitted = self.admitted.plus(Hits::ONE);
            }
            // The part is computed from what was known before.
            let remains = self.limit.minus(heard);
            if has_reserves(self.limit, size, known)
                && let Some(part) = part(wanted, remains, left, Hits::ONE, known)
                && self.ask(node, room_for(part, known), part)
            {
                self.nodes[node].0 = left.plus(part);
            }
            is_admitted
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

        /// Some nodes know of fewer nodes than there are, such as those that have just started.
        #[test]
        fn many_nodes_admit_a_limit_and_never_more(
            nodes in prop::sample::select(&[50_u64, 100, 300][..]),
            limit in prop::sample::select(&[1, 2, 5, 20, 50, 499, 500, 1000, 3000, 10_000][..]),
            order in prop::collection::vec((any::<prop::sample::Index>(), 1..2000_i64), 2000),
            newcomers in 0..5_usize,
        ) {
            let mut asked = Asked::new(limit, nodes);
            let known = |node: usize| if node < newcomers { 1 } else { nodes };
            for (node, wanted) in order {
                let node = node.index(nodes as usize);
                let is_admitted = asked.hit(node, known(node), hits(wanted));
                assert!(asked.counted <= asked.limit && asked.admitted <= asked.counted);
                // Nobody refuses more than what others hold.
                let held = asked.nodes.iter().fold(Hits::ZERO, |sum, (left, _)| sum.plus(*left));
                assert_eq!(asked.admitted.plus(held), asked.counted);
                if !is_admitted {
                    assert!(asked.counted.plus(Hits::ONE) > asked.limit);
                }
                if newcomers == 0 {
                    let held = held.thousandths() * 2;
                    assert!(held <= asked.limit.thousandths(), "more than half is held");
                }
                if limit <= 50 && newcomers == 0 {
                    assert_eq!(asked.admitted, asked.counted, "nothing is held of a small limit");
                }
            }
            // Idle reserves are given back, and the rest of the limit is there for anybody.
            for (left, _) in &mut asked.nodes {
                asked.counted = asked.counted.minus(*left);
                *left = Hits::ZERO;
            }
            while asked.ask(0, Hits::ONE, Hits::ONE) {
                asked.admitted = asked.admitted.plus(Hits::ONE);
            }
            assert_eq!(asked.admitted, asked.limit);
        }
    }
}
