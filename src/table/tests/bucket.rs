//! Tests buckets against nginx's `limit_req` and the definition of a leaky bucket.

use proptest::prelude::*;

use crate::policy::algorithm::{Algorithm, BucketLevel, Level, LevelKind, Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::limit::{Burst, Limit, Verdict};
use crate::policy::window::{UnixMillis, UnixSeconds, WindowSize};
use crate::table::*;
use crate::testing::table::{SharedTable, TestClock, die_everywhere};

const T: u64 = 1_700_000_000_000;

fn hits(thousandths: i64) -> Hits {
    Hits::from_thousandths(thousandths)
}

fn bucket(reading: Reading) -> BucketLevel {
    reading.into()
}

fn limit(millis: u64, burst: i64, delay: Option<i64>) -> Limit {
    Limit {
        name: "".into(),
        size: WindowSize::from_millis(millis).unwrap(),
        algorithm: Algorithm::Bucket,
        burst: Burst { hits: hits(burst), delay: delay.map(hits), rate: None },
        of_rule: None,
    }
}

/// A limit and its counters.
struct Fixture {
    pub(super) shared: SharedTable,
    limit: Limit,
    rate: Hits,
    pub(super) counter: Counter,
    pub(super) clock: TestClock,
}

/// Returns the counters at a rate.
fn bucket_of(shared: &SharedTable, rate: Hits, millis: u64) -> Counter {
    let kind = StoredKind::Level(LevelKind::Bucket(rate));
    shared.table.counter_in(b"default", kind, millis)
}

impl Fixture {
    /// Creates a bucket that leaks `rate` thousandths in `millis` milliseconds.
    fn new(rate: i64, limit: Limit) -> Fixture {
        let shared = SharedTable::new(1 << 18);
        let rate = hits(rate);
        Fixture {
            counter: bucket_of(&shared, rate, limit.size.millis()),
            shared,
            limit,
            rate,
            clock: TestClock::at(T),
        }
    }

    fn most(&self) -> Hits {
        self.limit.most(self.rate)
    }

    fn add(&self, key: &[u8], at: u64, cost: i64, admission: Admission) -> Counted<'_> {
        let table = &self.shared.table;
        self.clock.set(at);
        let (key, cost) = (table.key(key), hits(cost));
        table.add(&self.counter, key, &self.clock, cost, admission)
    }

    fn request(&self, key: &[u8], at: u64) -> Counted<'_> {
        let within = Admission::Within(self.most(), Algorithm::Bucket);
        self.add(key, at, 1000, within)
    }

    fn verdict(&self, counted: &Counted<'_>) -> Verdict<'_> {
        Verdict {
            limit: &self.limit,
            hits: self.most(),
            reading: counted.reading,
            cost: Hits::ONE,
            admitted: counted.admitted,
        }
    }

    fn reading(&self, key: &[u8], at: u64) -> Reading {
        let table = &self.shared.table;
        self.clock.set(at);
        table.read(&self.counter, table.key(key), &self.clock)
    }

    fn hits(&self, key: &[u8], at: u64) -> i64 {
        bucket(self.reading(key, at)).hits.thousandths()
    }
}

/// The state that `limit_req` keeps of a key: `ngx_http_limit_req_node_t`.
#[derive(Clone, Copy)]
struct Node {
    excess: i64,
    last: i64,
}

/// `limit_req zone=... burst=... delay=...` with one zone and its keys, in the units of nginx.
struct LimitReq {
    rate: i64,
    burst: i64,
    delay: i64,
    nodes: [Option<Node>; 8],
}

impl LimitReq {
    /// `rate=10r/s` is `new(10, 1, ...)`, `rate=10r/m` is `new(10, 60, ...)`.
    fn new(rate: i64, scale: i64, burst: i64, delay: i64) -> LimitReq {
        LimitReq {
            rate: rate * 1000 / scale,
            burst: burst * 1000,
            delay: delay * 1000,
            nodes: [None; 8],
        }
    }

    /// `ngx_http_limit_req_lookup()` of the last zone: the excess, or `Err` for NGX_BUSY.
    fn lookup(&mut self, key: usize, now: i64) -> Result<i64, i64> {
        let Some(lr) = &mut self.nodes[key] else {
            self.nodes[key] = Some(Node { excess: 0, last: now });
            return Ok(0);
        };
        let mut ms = now - lr.last;
        if ms < -60_000 {
            ms = 1;
        } else if ms < 0 {
            ms = 0;
        }
        let mut excess = lr.excess - self.rate * ms / 1000 + 1000;
        if excess < 0 {
            excess = 0;
        }
        if excess > self.burst {
            return Err(excess);
        }
        lr.excess = excess;
        if ms != 0 {
            lr.last = now;
        }
        Ok(excess)
    }

    /// `ngx_http_limit_req_account()` of one zone: the delay of a request in milliseconds.
    fn account(&self, excess: i64) -> i64 {
        if excess <= self.delay { 0 } else { (excess - self.delay) * 1000 / self.rate }
    }
}

#[test]
fn a_million_arrivals_are_admitted_and_delayed_as_by_limit_req() {
    // `delay` is above `burst` where limit_req says `nodelay`.
    let limits = [
        (1, 1, 0, 0),
        (10, 1, 20, 8),
        (10, 1, 20, 0),
        (1000, 1, 100, 1_000_000),
        (7, 1, 3, 2),
        (1, 60, 5, 1),
        (10, 60, 2, 0),
        (7, 60, 30, 12),
        (100, 60, 1, 1_000_000),
        (3333, 60, 40, 7),
    ];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let (mut refused, mut delayed) = (0, 0);
    for (rate, scale, burst, delay) in limits {
        let mut theirs = LimitReq::new(rate, scale, burst, delay);
        let size = u64::try_from(scale).unwrap() * 1000;
        let ours = Fixture::new(
            rate * 1000,
            limit(size, burst * 1000, Some((delay * 1000).min(burst * 1000))),
        );
        // About as many arrivals as the rate admits, in bursts, with a long pause from time to
        // time.
        let mean = u64::try_from(1000 * scale / rate).unwrap();
        let mut now = T;
        for _ in 0..100_000 {
            now += match next(1000) {
                0 => next(300 * mean + 2),
                1..400 => 0,
                400..700 => next(3),
                _ => next(mean / 2 + 2),
            };
            let key = next(8);
            let counted = ours.request(&[key as u8], now);
            let at = i64::try_from(now).unwrap();
            let what = (rate, scale, burst, now);
            match theirs.lookup(key as usize, at) {
                Ok(excess) => {
                    assert!(counted.admitted, "{what:?}");
                    assert_eq!(bucket(counted.reading).hits, hits(excess + 1000), "{what:?}");
                    let delay = theirs.account(excess);
                    let ours = ours.verdict(&counted).delay();
                    assert_eq!(i64::try_from(ours), Ok(delay), "{what:?}");
                    delayed += u64::from(delay > 0);
                }
                Err(excess) => {
                    assert!(!counted.admitted, "{what:?}");
                    // Not below an empty bucket's: rejected hits are above the burst.
                    assert_eq!(bucket(counted.reading).hits, hits(excess), "{what:?}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 100_000 && delayed > 100_000, "{refused} {delayed}");
}

#[test]
fn other_times_and_parts_of_hits_leak_exactly() {
    for (rate, millis, wait) in [
        // A third of a hit per second.
        (1000, 3000, 3000),
        // limit_req rounds 1/60 down, and cannot express half of it.
        (1000, 60_000, 62_500),
        (500, 60_000, 120_000),
        (1000, 3_600_000, 3_600_000),
        (1, 31_622_400_000, 31_622_400_000_000),
    ] {
        let fixture = Fixture::new(rate, limit(millis, 0, None));
        assert!(fixture.request(b"a", T).admitted);
        let refused = fixture.request(b"a", T);
        assert_eq!(fixture.verdict(&refused).retry_after(), Some(wait));
        assert!(!fixture.request(b"a", T + wait - 1).admitted);
        assert!(fixture.request(b"a", T + wait).admitted, "{rate} {millis}");
    }
}

#[test]
fn rejected_hits_change_nothing() {
    let fixture = Fixture::new(1000, limit(60_000, 0, None));
    assert!(fixture.request(b"a", T).admitted);
    // No part of the leak between two requests is lost, however small.
    assert!((T..T + 62_500).all(|at| !fixture.request(b"a", at).admitted));
    assert!(fixture.request(b"a", T + 62_500).admitted);
}

#[test]
fn refunded_hits_change_nothing() {
    let fixture = Fixture::new(1000, limit(60_000, 1000, None));
    assert!(fixture.request(b"a", T).admitted);
    for at in T..T + 62_500 {
        let receipt = fixture.request(b"a", at).receipt.unwrap();
        let (table, counter) = (&fixture.shared.table, &fixture.counter);
        assert!(table.refund(counter, &receipt));
    }
    assert_eq!(fixture.hits(b"a", T + 62_499), 1);
    assert_eq!(fixture.hits(b"a", T + 62_500), 0);
}

#[test]
fn a_refund_leaves_the_hits_of_others() {
    let fixture = Fixture::new(1000, limit(1000, 9000, None));
    let receipt = fixture.request(b"a", T).receipt.unwrap();
    assert!(fixture.request(b"a", T + 500).admitted);
    let (table, counter) = (&fixture.shared.table, &fixture.counter);
    assert!(table.refund(counter, &receipt));
    assert_eq!(fixture.hits(b"a", T + 500), 500);
}

#[test]
fn each_rate_has_a_counter_of_its_own() {
    let fixture = Fixture::new(1000, limit(1000, 9000, None));
    for _ in 0..5 {
        assert!(fixture.request(b"a", T).admitted);
    }
    let left = |rate: i64, millis: u64| {
        let counter = bucket_of(&fixture.shared, hits(rate), millis);
        let table = &fixture.shared.table;
        fixture.clock.set(T + 1000);
        let level = bucket(table.read(&counter, table.key(b"a"), &fixture.clock));
        assert_eq!(level.hits > Hits::ZERO, fixture.counter.is_same(&counter));
        level.hits.thousandths()
    };
    assert_eq!((left(1000, 1000), left(4000, 1000)), (4000, 0));
    // The same rate in other numbers. limit_req rounds rates per minute down.
    for (rate, millis) in [(60_000, 60_000), (60_999, 61_000), (2, 2), (86_400_000, 86_400_000)] {
        let is_same = rate * 1000 == 1000 * i64::try_from(millis).unwrap();
        assert_eq!(left(rate, millis), if is_same { 4000 } else { 0 }, "{rate} {millis}");
    }
}

#[test]
fn rates_are_the_same_if_their_fractions_are() {
    let measure = |rate, millis| {
        let size = WindowSize::from_millis(millis).unwrap();
        StoredKind::Level(LevelKind::Bucket(hits(rate))).measure(size)
    };
    let (most, longest) = (Hits::MAX.thousandths(), WindowSize::MAX_MILLIS);
    for (rate, millis) in [(1, 1), (1, 7), (3, 7000), (999_999_937, 31_337), (10_000, 1000)] {
        for times in [1_i64, 2, 3, 7, 1000, 31_337] {
            let (more, longer) = (rate * times, millis * times.unsigned_abs());
            let is_minute = more % 1000 == 0 && longer == 60_000;
            assert!(is_minute || measure(rate, millis) == measure(more, longer));
        }
    }
    for (one, other) in [
        ((1, longest), (1, longest - 1)),
        ((most, 1), (most - 1, 1)),
        ((most, longest), (most, longest - 1)),
        ((1, 7), (1, 8)),
        ((0, 1000), (1, longest)),
    ] {
        assert_ne!(measure(one.0, one.1), measure(other.0, other.1));
    }
}

#[test]
fn rejected_hits_fill_a_bucket_and_no_more() {
    let fixture = Fixture::new(10_000, limit(1000, 4000, None));
    let fill = |at, cost| {
        let counted = fixture.add(b"a", at, cost, Admission::Filling(fixture.most()));
        (counted.receipt.unwrap().value().thousandths(), bucket(counted.reading).hits.thousandths())
    };
    assert_eq!(fill(T, 3000), (3000, 3000));
    assert_eq!(fill(T, 3000), (2000, 5000));
    assert_eq!(fill(T, 3000), (0, 5000));
    assert_eq!(fill(T + 100, 1000), (1000, 5000));
    // A fuller bucket stays full.
    fixture.add(b"a", T + 100, 7000, Admission::Unconditional);
    assert_eq!(fill(T + 200, 3000), (0, 11_000));
}

#[test]
fn a_wait_that_no_number_tells_is_not_none() {
    let verdict = |rate, millis, level: i64| {
        let limit = limit(millis, Hits::MAX.thousandths(), Some(0));
        let level = Level { hits: hits(level), at: UnixMillis(T), mark: UnixSeconds(0) };
        let kind = LevelKind::Bucket(hits(rate));
        let reading = kind.reading(limit.size, level, UnixMillis(T));
        let verdict =
            Verdict { limit: &limit, hits: Hits::MAX, reading, cost: Hits::ONE, admitted: true };
        verdict.delay()
    };
    let longest = WindowSize::MAX_MILLIS;
    let most = Hits::MAX.thousandths();
    assert_eq!(verdict(1, longest, most), u64::MAX);
    assert!(verdict(1, longest, most / 1_000_000) > 1 << 60);
    assert_eq!(verdict(0, 1000, 1001), u64::MAX);
    assert_eq!((verdict(0, 1000, 1000), verdict(1, longest, 1000)), (0, 0));
}

#[test]
fn a_clock_that_is_set_back_blocks_nobody_for_longer() {
    let fixture = Fixture::new(1000, limit(1000, 1000, None));
    for _ in 0..2 {
        assert!(fixture.request(b"a", T + 3_600_000).admitted);
    }
    assert!(!fixture.request(b"a", T).admitted);
    assert!(!fixture.request(b"a", T + 999).admitted);
    assert!(fixture.request(b"a", T + 1000).admitted);
}

#[test]
fn a_worker_whose_clock_is_behind_gives_nothing_away() {
    let fixture = Fixture::new(1000, limit(1000, 0, None));
    assert!(fixture.request(b"a", T + 900).admitted);
    assert!(!fixture.request(b"a", T).admitted);
    assert!(!fixture.request(b"a", T + 1899).admitted);
    assert!(fixture.request(b"a", T + 1900).admitted);
}

#[test]
fn a_full_zone_keeps_a_bucket_until_it_is_empty() {
    // Ten seconds, ten times the time unit of the rate.
    let fixture = Fixture::new(1000, limit(1000, 9000, None));
    (0..10).for_each(|_| assert!(fixture.request(b"a", T).admitted));
    // More keys than slots; a few at a time, so that no bucket is full of non-empty ones.
    let crowd = fixture.shared.table.capacity() / 8;
    for second in 1..10 {
        for key in second * crowd..(second + 1) * crowd {
            let at = T + second * 1000;
            assert!(fixture.request(&key.to_be_bytes(), at).admitted);
        }
    }
    assert_eq!(fixture.hits(b"a", T + 9000), 1000);
    let stats = fixture.shared.table.zone_stats();
    assert!(stats.evicted_ended > 0, "{stats:?}");
}

#[test]
fn dying_while_filling_loses_at_most_the_hit() {
    let points = ["level.changed", "level.prepared", "touch.dated"];
    die_everywhere(
        || {
            let fixture = Fixture::new(1000, limit(1000, 9000, None));
            for _ in 0..3 {
                assert!(fixture.request(b"a", T).admitted);
            }
            fixture
        },
        |fixture| {
            fixture.request(b"a", T + 900);
        },
        &points,
        |fixture, point| {
            let counted = i64::from(point != "level.prepared") * 1000;
            assert_eq!(fixture.hits(b"a", T + 900), 2100 + counted);
            assert!(fixture.request(b"a", T + 950).admitted);
            assert_eq!(fixture.hits(b"a", T + 950), 3050 + counted);
        },
    );
}

#[test]
fn workers_never_admit_one_too_many() {
    const WORKERS: u64 = 4;
    const REQUESTS: u64 = 20_000;
    let fixture = Fixture::new(1_000_000, limit(1000, 999_000, None));
    let (table, most) = (&fixture.shared.table, fixture.most());
    let admitted: usize = std::thread::scope(|scope| {
        let worker = |n: u64| {
            let counter = &fixture.counter;
            move || {
                let clock = TestClock::at(T);
                let ask = |request: u64| {
                    clock.set(T + (request + n) / 64);
                    let within = Admission::Within(most, Algorithm::Bucket);
                    let key = table.key(b"a");
                    table.add(counter, key, &clock, Hits::ONE, within).admitted
                };
                (0..REQUESTS).filter(|request| ask(*request)).count()
            }
        };
        let workers: Vec<_> = (0..WORKERS).map(|n| scope.spawn(worker(n))).collect();
        let workers = workers.into_iter();
        workers.map(|worker| worker.join().unwrap()).sum()
    });
    // The bucket's capacity, and the leak meanwhile: one hit per millisecond.
    let passed = usize::try_from((REQUESTS + WORKERS) / 64).unwrap();
    assert!(admitted <= 1000 + passed, "{admitted}");
    assert!(admitted >= 1000, "{admitted}");
}

/// A key's bucket with fractions of thousandths, which `limit_req` drops when it fills a bucket.
#[derive(Clone, Copy, Default)]
struct Model {
    hits: i64,
    at: u64,
}

impl Model {
    fn hits(&self, rate: i64, millis: u64, now: u64) -> i64 {
        let passed = i128::from(now.saturating_sub(self.at));
        let leaked = i128::from(rate) * passed / i128::from(millis);
        (i128::from(self.hits) - leaked).max(0) as i64
    }
}

proptest! {
    #[test]
    fn the_table_counts_as_the_model_does(
        rate in 1..5_000_000_i64,
        millis in prop::sample::select(&[1, 1000, 1500, 10_000, 3_600_000, 31_622_400_000_u64][..]),
        requests in prop::collection::vec(
            (0..3_u8, 0..1500_u64, 1..4000_i64, prop::option::of(0..9000_i64)),
            1..200,
        ),
    ) {
        let fixture = Fixture::new(rate, limit(millis, 0, None));
        let mut models = [Model::default(); 3];
        let mut now = T;
        for (key, passed, cost, limit) in requests {
            // Half of the requests arrive in the same millisecond as the previous one.
            now += passed.saturating_sub(750);
            let model = &mut models[usize::from(key)];
            let before = model.hits(rate, millis, now);
            let admitted = limit.is_none_or(|limit| before + cost <= limit);
            let admission = limit.map_or(Admission::Unconditional, |limit| {
                Admission::Within(hits(limit), Algorithm::Bucket)
            });
            let counted = fixture.add(&[key], now, cost, admission);
            prop_assert_eq!(counted.admitted, admitted);
            if admitted {
                *model = Model { hits: before + cost, at: now };
            }
            let left = bucket(counted.reading).hits.thousandths();
            prop_assert_eq!(left, model.hits(rate, millis, now));
        }
    }

    #[test]
    fn a_recorded_bucket_leaks_as_a_counted_one(
        rate in 0..5_000_000_i64,
        millis in prop::sample::select(&[1, 1000, 1500, 60_000, 3_600_000_u64][..]),
        filled in 0..20_000_i64,
        passed in 0..5000_u64,
        later in prop::collection::vec(0..100_000_u64, 1..5),
        // Difference between the clock that recorded the level and the one that reads it.
        offset in -1_000_000..1_000_000_i64,
    ) {
        let size = WindowSize::from_millis(millis).unwrap();
        let kind = LevelKind::Bucket(hits(rate));
        let level = kind.after_hit(size, Level::default(), UnixMillis(T), hits(filled));
        let reading = |at| kind.reading(size, level, UnixMillis(at));
        let noted_at = (T + passed).checked_add_signed(offset).unwrap();
        let noted = kind.level_of(size, reading(T + passed), UnixMillis(noted_at));
        // The part of the level that may have leaked and is not recorded.
        let most = (rate as u64).div_ceil(millis).max(1) as i64;
        for later in [&[0][..], &later].concat() {
            let left = bucket(reading(T + passed + later)).hits.thousandths();
            let read = kind.reading(size, noted, UnixMillis(noted_at + later));
            let read = bucket(read).hits.thousandths();
            prop_assert!((left..=left + most).contains(&read), "{left} {read} {noted:?}");
            let is_over = noted.is_over(size, UnixMillis(noted_at + later));
            prop_assert!(!is_over || read == 0, "{noted:?}");
        }
        // A request after this time finds the bucket empty, and gets a slot.
        let reset = Algorithm::Bucket.reset(size, &reading(T + passed));
        if rate > 0 {
            prop_assert!(noted.is_over(size, UnixMillis(noted_at + reset + 2001)));
        }
    }

    #[test]
    fn retry_after_is_the_first_moment_that_admits(
        rate in 1..5_000_000_i64,
        millis in prop::sample::select(&[1, 1000, 1500, 60_000, 3_600_000_u64][..]),
        filled in 0..20_000_i64,
        burst in 0..10_000_i64,
        cost in 0..12_000_i64,
        passed in 0..5000_u64,
    ) {
        let limit = limit(millis, burst, None);
        let (most, size) = (limit.most(hits(rate)), limit.size);
        let fixture = Fixture::new(rate, limit);
        if filled > 0 {
            fixture.add(b"a", T, filled, Admission::Unconditional);
        }
        let admits = |at| {
            let reading = fixture.reading(b"a", at);
            Algorithm::Bucket.admits(size, &reading, most, hits(cost))
        };
        let reading = fixture.reading(b"a", T + passed);
        let wait = Algorithm::Bucket.retry_after(size, &reading, most, hits(cost));
        match wait {
            None => prop_assert!(cost > most.thousandths()),
            Some(wait) => {
                prop_assert!(admits(T + passed + wait));
                prop_assert!(wait == 0 || !admits(T + passed + wait - 1));
            }
        }
        let reset = Algorithm::Bucket.reset(size, &reading);
        prop_assert_eq!(fixture.hits(b"a", T + passed + reset), 0);
        prop_assert!(reset == 0 || fixture.hits(b"a", T + passed + reset - 1) > 0);
    }
}

#[test]
fn the_window_of_a_rate_is_the_time_in_which_its_admitted_hits_leak() {
    let window = |rate, millis, burst| limit(millis, burst, None).window(hits(rate));
    assert_eq!(window(10_000, 1000, 19_000), Some(2000));
    assert_eq!(window(10_000, 1000, 20_000), Some(2100));
    assert_eq!(window(100_000, 60_000, 99_000), Some(60_000));
    assert_eq!(window(0, 1000, 20_000), None);
    // The time unit is not a whole second.
    assert_eq!(window(2001, 1000, 1000), Some(999));
    assert_eq!(window(1999, 1000, 1000), Some(1001));
    assert_eq!(limit(1000, 5000, None).most(Hits::ZERO), Hits::ZERO, "at no rate, nothing");
    let kind = StoredKind::Level(LevelKind::Bucket(Hits::ZERO));
    assert_eq!(Algorithm::Bucket.kind(), kind);
}
