//! Bounds of an algorithm's figures.

use crate::limiter::Quota;
use crate::simulation::Tally;

/// The promises of an algorithm: facts, which docs/accuracy.md proves.
pub(crate) struct Bounds {
    /// The most hits that it admits in any stretch of a window's length.
    pub(crate) worst: u64,
    admits_wrongly: bool,
    rejects_wrongly: bool,
}

impl Bounds {
    /// Returns the bounds of the algorithm of this name; `None`: nothing is promised.
    /// `counts_rejected`: more hits than the limit may count.
    pub(crate) fn of(algorithm: &str, quota: Quota, counts_rejected: bool) -> Option<Bounds> {
        let Quota { hits, window } = quota;
        let (worst, admits_wrongly, rejects_wrongly) = match algorithm {
            "sliding" => (2 * hits - hits.div_ceil(window), true, true),
            "fixed" => (2 * hits, true, false),
            // The algorithm remembers as many times as the limit has hits; further hits leave later
            // than they should.
            "moving" => (hits, false, counts_rejected),
            // A stretch overlaps only one of its windows, since they are a window's length apart,
            // and no two hits of different windows have exactly this distance. Its hits count for
            // longer than in an exact window.
            "elastic" => (hits, false, true),
            // The limit at once, and the same number leaks meanwhile.
            "rate" => (2 * hits, true, true),
            _ => return None,
        };
        Some(Bounds { worst, admits_wrongly, rejects_wrongly })
    }

    /// Whether `tally` keeps within them.
    pub(crate) fn hold(&self, tally: &Tally) -> bool {
        tally.worst <= self.worst
            && (self.admits_wrongly || tally.wrongly_admitted == 0)
            && (self.rejects_wrongly || tally.wrongly_rejected == 0)
    }
}

/// Measured figures, rounded up: no facts.
pub(crate) struct Measured {
    /// The most requests, in percent, that sliding windows decide wrongly.
    pub(crate) sliding: f64,
    /// Figure of fixed windows.
    pub(crate) fixed: f64,
}

impl Measured {
    /// Whether `tally`, of the algorithm of this name, is not worse.
    pub(crate) fn holds(&self, algorithm: &str, tally: &Tally) -> bool {
        let most = match algorithm {
            "sliding" => self.sliding,
            "fixed" => self.fixed,
            _ => return true,
        };
        tally.percent(tally.wrong()) <= most
    }
}
