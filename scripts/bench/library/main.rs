//! Times the Rust library beside the crate `governor`, in one process and one thread.
//!
//!     cargo run --release --locked --manifest-path scripts/bench/library/Cargo.toml [ROUNDS]
//!
//! Each round times all contestants in turn, so that what the machine does otherwise concerns them alike. Prints the
//! median round of each, in nanoseconds for a decision, and the median ratio to governor.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use governor::{DefaultKeyedRateLimiter, Quota};
use ngx_http_rate_limiting_module::library::{
    LimiterOptions, Memory, NewOptions, RateLimiter, WindowType, new_instance,
};

const KEYS: usize = 100_000;

/// Keys in an order in which no key is near the one before.
fn keys() -> Vec<String> {
    let mut keys: Vec<_> = (0..KEYS).map(|number| format!("198.51.100.{number}")).collect();
    let mut state = 1_u64;
    for last in (1..KEYS).rev() {
        // Knuth's MMIX generator.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        keys.swap(last, (state >> 33) as usize % (last + 1));
    }
    keys
}

/// Nanoseconds for each of the keys.
fn time(keys: &[String], mut decide: impl FnMut(&String) -> bool) -> f64 {
    let start = Instant::now();
    for key in keys {
        assert!(black_box(decide(black_box(key))));
    }
    start.elapsed().as_nanos() as f64 / keys.len() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let rounds =
        std::env::args().nth(1).map_or(31, |word| word.parse().expect("a number of rounds"));
    let hour = Duration::from_secs(3600);
    let instance = new_instance("bench").expect("an instance");
    let memory = Memory::heap(16 << 20).expect("memory");
    instance.new(&NewOptions::new(&memory)).expect("a namespace");
    let ours = |options: LimiterOptions| instance.limiter(&options).expect("a limiter");
    let most = 1_000_000_000;
    let limiters: [(&str, RateLimiter); 2] = [
        (
            "sliding window",
            ours(LimiterOptions::window(f64::from(most), hour).window_type(WindowType::Sliding)),
        ),
        ("rate", ours(LimiterOptions::rate(1_000_000.0, 1_000_000.0))),
    ];
    let quota = Quota::per_second(NonZeroU32::new(most).expect("some"));
    let governor: DefaultKeyedRateLimiter<String> = DefaultKeyedRateLimiter::keyed(quota);

    let many = keys();
    let one = vec![many[0].clone(); KEYS];
    println!(
        "| | ns, 100,000 keys | of governor | ns, the same key | of governor |\n|---|---|---|---|---|"
    );
    let mut times = vec![[Vec::new(), Vec::new()]; 1 + limiters.len()];
    for round in 0..=rounds {
        for (which, keys) in [&many, &one].into_iter().enumerate() {
            let mut note = |contestant: usize, time: f64| {
                // The first round makes the counters.
                if round > 0 {
                    times[contestant][which].push(time);
                }
            };
            note(0, time(keys, |key| governor.check_key(key).is_ok()));
            for (number, (_, limiter)) in limiters.iter().enumerate() {
                let decide =
                    |key: &String| limiter.incoming(key, true).is_ok_and(|it| it.is_admitted);
                note(1 + number, time(keys, decide));
            }
        }
    }
    let names = ["governor 0.10"].into_iter().chain(limiters.iter().map(|(name, _)| *name));
    for (number, name) in names.enumerate() {
        let cells: String = (0..2)
            .map(|which| {
                let own = &times[number][which];
                let ratios = own.iter().zip(&times[0][which]).map(|(own, other)| own / other);
                format!(" {:.0} | {:.2} |", median(own.clone()), median(ratios.collect()))
            })
            .collect();
        println!("| {name} |{cells}");
    }
}
