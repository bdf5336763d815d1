//! The leases that a session was granted. A file of its own, since a wrong end of a lease loses counts.

use std::collections::BTreeMap;

use crate::table::words::system::{unix_millis, uptime};

/// The present time by two clocks, in seconds: since the machine started, and since 1970. The first one stops while the
/// machine is suspended. The second one can be set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    uptime: u64,
    unix: u64,
}

/// The leases, by their ends. etcd ends none earlier: a restart or another leader lets each begin again.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    /// By the ends in uptime: the ends in Unix time, and the ids.
    ends: BTreeMap<u64, (u64, i64)>,
}

/// The seconds for which a lease is granted to a value that matters for `life` seconds: half as many more, so that many
/// values share it.
pub(super) fn granted(life: u64) -> u64 {
    life.saturating_add(life / 2)
}

impl Moment {
    pub(super) fn now() -> Moment {
        Moment { uptime: uptime().as_secs(), unix: unix_millis() / 1000 }
    }
}

impl Leases {
    /// Returns the id of a lease that lives for `life` seconds from now on by both clocks, and for no more than [`granted`].
    pub(super) fn find(&self, life: u64, now: Moment) -> Option<i64> {
        let [first, last] = [life, granted(life)].map(|it| now.uptime.saturating_add(it));
        let mut leases = self.ends.range(first..=last);
        let lives = |until: u64| until >= now.unix.saturating_add(life);
        leases.find_map(|(_, (until, id))| lives(*until).then_some(*id))
    }

    /// Adds a lease that was granted after `now`, for `life` seconds.
    pub(super) fn add(&mut self, id: i64, life: u64, now: Moment) {
        let [end, until] = [now.uptime, now.unix].map(|it| it.saturating_add(life));
        self.ends = self.ends.split_off(&now.uptime);
        self.ends.insert(end, (until, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_used_while_it_lives_long_enough_by_both_clocks() {
        let at = |uptime, unix| Moment { uptime, unix };
        let (minute, longer) = (60, 90);
        let mut leases = Leases::default();
        leases.add(7, longer, at(1000, 500_000));
        for (uptime, unix, expected) in [
            (1000, 500_000, Some(7)),
            (1030, 500_030, Some(7)),
            (1031, 500_031, None),
            // The clock was set back.
            (1030, 400_000, Some(7)),
            (1031, 400_000, None),
            // The machine was suspended.
            (1001, 500_031, None),
        ] {
            assert_eq!(leases.find(minute, at(uptime, unix)), expected, "{uptime} {unix}");
        }
        assert_eq!(leases.find(59, at(1000, 500_000)), None);
        leases.add(8, longer, at(1001, 500_031));
        assert_eq!(leases.find(minute, at(1001, 500_031)), Some(8));
        leases.add(9, longer, at(2000, 500_000));
        assert_eq!(leases.ends.len(), 1);
    }
}
