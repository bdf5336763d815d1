//! The exact moving window, as a list of times: what algorithms are compared with.

use std::collections::VecDeque;

use ngx_http_rate_limiting_module::policy::headers::retry_after;

use crate::limiter::{Answer, Limiter, Quota};

/// The times of one client's hits in the last window.
#[derive(Default)]
pub(crate) struct Trail(VecDeque<u64>);

impl Trail {
    /// The hits of the window that ends at `now`. A hit that is as old as a window still counts.
    pub(crate) fn hits(&mut self, now: u64, quota: Quota) -> u64 {
        while self.0.front().is_some_and(|&hit| now - hit > quota.window) {
            self.0.pop_front();
        }
        self.0.len() as u64
    }

    /// Adds a hit.
    pub(crate) fn add(&mut self, now: u64) {
        self.0.push_back(now);
    }

    /// Returns the time at which one more hit fits in, if none comes before it.
    fn free_at(&self, quota: Quota) -> u64 {
        let last_to_leave = self.0.len() - quota.hits as usize;
        self.0[last_to_leave] + quota.window + 1
    }
}

/// A limiter that is exact.
pub(crate) struct Exact {
    quota: Quota,
    counts_rejected: bool,
    trails: Vec<Trail>,
}

impl Exact {
    pub(crate) fn new(quota: Quota, clients: usize, counts_rejected: bool) -> Exact {
        let trails = (0..clients).map(|_| Trail::default()).collect();
        Exact { quota, counts_rejected, trails }
    }
}

impl Limiter for Exact {
    fn decide(&mut self, client: usize, now: u64) -> Answer {
        let trail = &mut self.trails[client];
        let admitted = trail.hits(now, self.quota) < self.quota.hits;
        if admitted || self.counts_rejected {
            trail.add(now);
        }
        let wait = (!admitted).then(|| trail.free_at(self.quota) - now);
        Answer {
            admitted,
            retry_after: wait.map(retry_after::whole_seconds),
            rate: trail.hits(now, self.quota) * 1000,
        }
    }
}
