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
}
