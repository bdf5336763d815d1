//! A log in the simplest form: a list of hits with their times.

use crate::policy::window::WindowSize;

/// The hits of a key with their times, oldest first: in thousandths and milliseconds.
#[derive(Debug, Default)]
pub(crate) struct ListOfHits(Vec<(u64, i64)>);

impl ListOfHits {
    /// Takes away what has left the window.
    pub(crate) fn leave(&mut self, size: WindowSize, now: u64) {
        self.0.retain(|(at, _)| at + size.millis() >= now);
    }

    /// All of them.
    pub(crate) fn sum(&self) -> i64 {
        self.0.iter().map(|(_, hits)| hits).sum()
    }

    /// Adds hits, or takes the newest away.
    pub(crate) fn charge(&mut self, now: u64, cost: i64) {
        if cost > 0 {
            self.0.push((now, cost));
            return;
        }
        let mut back = -cost;
        while let Some((_, hits)) = self.0.last_mut() {
            let taken = back.min(*hits);
            *hits -= taken;
            back -= taken;
            if *hits > 0 {
                break;
            }
            self.0.pop();
        }
    }

    /// Returns the time of the oldest hit; `now` if there are none.
    pub(crate) fn oldest(&self, now: u64) -> u64 {
        self.0.first().map_or(now, |(at, _)| *at)
    }

    /// Milliseconds until no more than `most` are left: `None` where that is so, or never will be.
    pub(crate) fn wait(&self, size: WindowSize, now: u64, most: i64) -> Option<u64> {
        if most < 0 {
            return None;
        }
        let mut left = self.sum();
        self.0.iter().find_map(|(at, hits)| {
            let is_full = left > most;
            left -= hits;
            (is_full && left <= most).then(|| at + size.millis() + 1 - now)
        })
    }
}
