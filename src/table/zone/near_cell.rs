//! The cells of counters near their limits, and the rule for when a counter is due.

use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::namespace::SyncEarly;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::meta::Meta;

/// A cell: a counter that came near its limit, or none.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct NearCell {
    /// A [`NearWord`].
    pub(crate) counter: AtomicU64,
    /// A `LimitWord`: the counter's limit.
    pub(crate) limit: AtomicU64,
}

/// The counter of a cell: the index of its slot plus one, so that 0 stands for none; the slot's
/// generation; and whether the counter is due.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NearWord(pub(crate) u64);

impl NearWord {
    const DUE: u64 = 1;

    pub(crate) fn new(index: usize, meta: Meta) -> NearWord {
        let index = (index as u64).wrapping_add(1);
        NearWord(index << 32 | u64::from(meta.generation().bits()) << 16)
    }

    pub(crate) fn due(self) -> NearWord {
        NearWord(self.0 | Self::DUE)
    }

    pub(crate) fn is_due(self) -> bool {
        self.0 & Self::DUE != 0
    }

    pub(crate) fn not_due(self) -> NearWord {
        NearWord(self.0 & !Self::DUE)
    }

    /// Returns the slot's index and its generation; `None` for an empty cell.
    pub(crate) fn counter(self) -> Option<(usize, u16)> {
        let index = usize::try_from(self.0 >> 32).ok()?.checked_sub(1)?;
        Some((index, (self.0 >> 16) as u16))
    }

    /// Returns the tag that distinguishes the cell's limit from that of an earlier counter.
    pub(super) fn tag(self) -> u64 {
        (self.0 >> 32 ^ self.0 >> 16) & LimitWord::TAG
    }
}

/// A limit, its algorithm, and the tag of its counter.
pub(crate) struct LimitWord(pub(crate) u64);

impl LimitWord {
    const TAG: u64 = 0x7fff;
    const SLIDING: u64 = 0x8000;

    pub(crate) fn new(of: NearWord, limit: Hits, algorithm: Algorithm) -> LimitWord {
        let sliding = match algorithm {
            Algorithm::Sliding => Self::SLIDING,
            _ => 0,
        };
        LimitWord(limit.to_upper_bits() | sliding | of.tag())
    }

    pub(crate) fn limit_of(self, of: NearWord) -> Option<(Hits, Algorithm)> {
        let algorithm = match self.0 & Self::SLIDING {
            0 => Algorithm::Fixed,
            _ => Algorithm::Sliding,
        };
        let is_it = self.0 & Self::TAG == of.tag();
        is_it.then_some((Hits::from_upper_bits(self.0), algorithm))
    }
}

/// The share of a limit that a node may keep from the store for a while, `share*L/N` hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyShare(u32);

impl EarlyShare {
    /// No early pushes.
    pub const OFF: EarlyShare = EarlyShare(0);
    const BITS: u32 = 16;

    /// Creates a share in thousandths of a percent, from 1 to 50,000.
    pub fn of_milli_percent(share: u32) -> EarlyShare {
        // Twice the share, since the rest of the limit is compared with twice the unpushed hits.
        let doubled = (u64::from(share) << (Self::BITS + 1)) / 100_000;
        let most = 1 << Self::BITS;
        EarlyShare(u32::try_from(doubled).unwrap_or(most).clamp(1, most))
    }

    /// Returns the share of a limit, in hits.
    pub fn of(self, limit: Hits) -> Hits {
        let doubled = limit.thousandths().saturating_mul(self.0.into()) >> Self::BITS;
        Hits::from_thousandths(doubled / 2)
    }

    /// Returns the number of unpushed hits with which a counter is due, for its limit and the rest
    /// of it. `None` while the number of nodes is unknown.
    pub fn kept(self, nodes: u32, limit: Hits, rest: Hits) -> Option<Hits> {
        // At most 2^47 times 2^16: if it saturates, it is more than any hits.
        let product = limit.thousandths().saturating_mul(self.0.into());
        let most = (product >> Self::BITS).max(rest.thousandths());
        let twice_nodes = i64::from(nodes).wrapping_mul(2);
        // Rounded up.
        let most = most.saturating_add(twice_nodes.saturating_sub(1));
        let kept = Hits::from_thousandths(most.checked_div(twice_nodes)?);
        Some(kept.max(Hits::ONE))
    }
}

impl From<SyncEarly> for EarlyShare {
    fn from(early: SyncEarly) -> EarlyShare {
        match early {
            SyncEarly::Off => EarlyShare::OFF,
            SyncEarly::MilliPercent(share) => EarlyShare::of_milli_percent(share),
        }
    }
}

/// The limit that a counter was just asked about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NearLimit {
    pub(crate) hits: Hits,
    /// The limit's algorithm; `None` if the limit refuses nothing, and only the counted hits
    /// matter.
    pub(crate) algorithm: Option<Algorithm>,
}

/// Most nodes that are distinguished.
pub(super) const MAX_NODES: u64 = (1 << 14) - 1;
