//! The deciding part: the module's own counter table and evaluation, as nginx uses them.

use std::cell::Cell;
use std::ptr::NonNull;

use ngx_http_rate_limiting_module::engine::{BoundLimit, Evaluation, Namespace};
use ngx_http_rate_limiting_module::policy::algorithm::Algorithm;
use ngx_http_rate_limiting_module::policy::headers::retry_after;
use ngx_http_rate_limiting_module::policy::hits::Hits;
use ngx_http_rate_limiting_module::policy::limit::{Burst, Limit};
use ngx_http_rate_limiting_module::policy::window::{Clock, UnixMillis, WindowSize};
use ngx_http_rate_limiting_module::table::{CounterTable, Outcome, ZoneStats};

/// A limit: so many hits in a window of so many milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Quota {
    pub(crate) hits: u64,
    pub(crate) window: u64,
}

/// All algorithms.
pub(crate) const ALGORITHMS: [Algorithm; 5] = {
    let [sliding, fixed, elastic, moving] = Algorithm::ALL;
    [sliding, fixed, elastic, moving, Algorithm::Bucket]
};

/// The answer to a request.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) admitted: bool,
    /// The header `Retry-After` of a rejection, in seconds.
    pub(crate) retry_after: Option<u64>,
    /// The limiter's rate of the last window, after the request, in thousandths.
    pub(crate) rate: u64,
}

/// Decides on requests.
pub(crate) trait Limiter {
    /// Decides on a request of client number `client` at `now`, in milliseconds of Unix time.
    fn decide(&mut self, client: usize, now: u64) -> Answer;
}

/// A limit in a zone, and a clock that is set.
pub(crate) struct Engine<'m> {
    table: &'m CounterTable<'m>,
    limit: BoundLimit<'m>,
    hits: Hits,
    counts_rejected: bool,
    clock: StoppedClock,
}

/// Runs `run` with an engine that has counted nothing so far. With a rate, as many hits are
/// admitted in the window's time, and as many at once.
pub(crate) fn with_engine<T>(
    algorithm: Algorithm,
    quota: Quota,
    counts_rejected: bool,
    run: impl FnOnce(&mut Engine<'_>) -> T,
) -> T {
    #[derive(Clone, Copy)]
    #[repr(align(4096))]
    #[expect(dead_code, reason = "the table knows what is in it")]
    struct Page([u8; 4096]);

    let mut zone = vec![Page([0; 4096]); 16_384];
    let pages = NonNull::from(zone.as_mut_slice());
    let region = NonNull::slice_from_raw_parts(pages.cast(), size_of_val(zone.as_slice()));
    // SAFETY: the memory is all zero, lives longer than the table, and is used by it only.
    let table = unsafe { CounterTable::create(region, region.len(), [1, 2]) }.expect("a table");
    let namespace = Namespace::new("default", &table).expect("a namespace");
    let hits = Hits::from_thousandths(quota.hits.cast_signed() * 1000);
    let limit = Limit {
        name: "default".into(),
        size: WindowSize::from_millis(quota.window).expect("a window"),
        algorithm,
        burst: Burst { hits: hits.minus(Hits::ONE), delay: None, rate: None },
        of_rule: None,
    };
    let mut engine = Engine {
        table: &table,
        limit: BoundLimit::new(limit, &namespace, []),
        hits,
        counts_rejected,
        clock: StoppedClock(Cell::new(0)),
    };
    let result = run(&mut engine);
    let nothing = ZoneStats::default();
    assert_eq!(table.zone_stats(), nothing, "a key was evicted");
    result
}

impl Limiter for Engine<'_> {
    fn decide(&mut self, client: usize, now: u64) -> Answer {
        self.clock.0.set(now);
        let name = client.to_le_bytes();
        let key = self.table.key(&name);
        let mut evaluation = Evaluation::new(Vec::with_capacity(1), self.counts_rejected);
        evaluation.charge(&self.limit, self.hits, &key, Hits::ONE, &self.clock);
        let (outcome, charges) = evaluation.finish(Outcome::Rejected, &self.clock);
        let [charge] = charges.as_slice() else {
            panic!("one limit says one thing");
        };
        let (admitted, verdict) = (outcome == Outcome::Passed, charge.verdict());
        let wait = if admitted { None } else { retry_after::retry_after([verdict]) };
        Answer {
            admitted,
            retry_after: wait.map(retry_after::whole_seconds),
            rate: verdict.rate().thousandths().unsigned_abs(),
        }
    }
}

/// Shows the time that it was set to.
struct StoppedClock(Cell<u64>);

impl Clock for StoppedClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.get())
    }

    fn fresh(&self) -> UnixMillis {
        self.now()
    }
}
