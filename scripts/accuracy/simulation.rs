//! Runs traffic through a limiter, and judges each of its decisions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::exact::Trail;
use crate::limiter::{Answer, Limiter, Quota};
use crate::traffic::Traffic;

/// Start of the simulation, in milliseconds of Unix time: a midnight.
const START: u64 = 1_700_006_400_000;

/// The outcomes of all requests.
///
/// A decision is wrong if it is not that of an exact moving window which has counted the same
/// earlier requests. It is far from right if it still were with a limit that is a tenth larger (an
/// admission), or smaller (a rejection).
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) admitted: u64,
    pub(crate) wrongly_admitted: u64,
    pub(crate) wrongly_rejected: u64,
    /// Wrong decisions of both kinds that are far from right.
    pub(crate) far: u64,
    /// The most hits of one client that were admitted in any stretch of a window's length.
    pub(crate) worst: u64,
    /// The sum over all requests of how far the limiter's rate is from the hits of the last window,
    /// in millionths of these.
    pub(crate) rate_off: u64,
}

impl Tally {
    pub(crate) fn wrong(&self) -> u64 {
        self.wrongly_admitted + self.wrongly_rejected
    }

    /// The share of all requests that are `part` of them, in percent.
    pub(crate) fn percent(&self, part: u64) -> f64 {
        part as f64 / self.requests as f64 * 100.0
    }

    /// Returns the mean difference of the limiter's rate from the hits of the last window, in
    /// percent of these.
    pub(crate) fn mean_rate_off(&self) -> f64 {
        self.rate_off as f64 / self.requests as f64 / 10_000.0
    }
}

/// Has the limiter decide on all requests.
pub(crate) fn run(traffic: &Traffic, quota: Quota, limiter: &mut impl Limiter) -> Tally {
    let mut tally = Tally::default();
    let clients = 0..traffic.clients;
    let mut clients: Vec<_> = clients.map(|index| traffic.client(index, quota)).collect();
    // For each client, the counted and the admitted hits.
    let mut trails: Vec<[Trail; 2]> = clients.iter().map(|_| Default::default()).collect();

    let nothing = Answer::default();
    let first = clients.iter_mut().map(|client| client(0, &nothing));
    let mut requests: BinaryHeap<_> = first.zip(0..).map(Reverse).collect();
    let end = traffic.windows * quota.window * 1000;
    while let Some(Reverse((time, client))) = requests.pop() {
        if time >= end {
            break;
        }
        let now = START + time / 1000;
        let [counted, admitted] = &mut trails[client];
        // The hits of a moving window with this request.
        let hits = counted.hits(now, quota) + 1;
        let answer = limiter.decide(client, now);

        tally.requests += 1;
        if answer.admitted {
            admitted.add(now);
            tally.admitted += 1;
            tally.worst = tally.worst.max(admitted.hits(now, quota));
            tally.wrongly_admitted += u64::from(hits > quota.hits);
            tally.far += u64::from(hits * 10 > quota.hits * 11);
        } else {
            tally.wrongly_rejected += u64::from(hits <= quota.hits);
            tally.far += u64::from(hits * 10 <= quota.hits * 9);
        }
        if answer.admitted || traffic.counts_rejected {
            counted.add(now);
        }
        let real = counted.hits(now, quota);
        let off = answer.rate.abs_diff(real * 1000);
        tally.rate_off += off * 1000 / real.max(1);
        requests.push(Reverse((clients[client](time, &answer), client)));
    }
    tally
}
