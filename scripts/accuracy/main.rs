//! Measures how exactly algorithms limit: what `scripts/accuracy.sh` runs.
//!
//!     cargo run --release --no-default-features --example accuracy [-- [--quick] [DIRECTORY]]
//!
//! Into DIRECTORY go the tables, and their figures in JSON, a line for each row. The figures are the
//! same at each run and on each machine. It fails if one is not within the bounds.
//!
//! - [`traffic`], [`random`]: when requests come
//! - [`limiter`], [`exact`]: what decides on them, and what would be right
//! - [`simulation`]: runs it, and judges the decisions
//! - [`bounds`], [`report`]: what figures may be at most; how they are printed
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a measurement ends by panicking, and has no large numbers"
)]

mod bounds;
mod exact;
mod limiter;
mod random;
mod report;
mod simulation;
mod traffic;

use std::process::ExitCode;

use bounds::Measured;
use exact::Exact;
use limiter::{ALGORITHMS, Quota, with_engine};
use report::Report;
use simulation::run;
use traffic::{Pattern::*, Traffic};

/// The limit of most rows: 100/1m.
const QUOTA: Quota = Quota { hits: 100, window: 60_000 };

/// Traffic under a limit.
struct Row {
    traffic: Traffic,
    quota: Quota,
    /// Value that tells it from other rows in a plot.
    x: f64,
    /// Figures that must not get worse.
    measured: Option<Measured>,
}

fn main() -> ExitCode {
    let (mut is_quick, mut directory) = (false, None);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => is_quick = true,
            _ if directory.is_none() && !argument.starts_with('-') => directory = Some(argument),
            _ => panic!("usage: accuracy [--quick] [DIRECTORY]"),
        }
    }
    let sections: Vec<(&str, Vec<Row>)> = if is_quick {
        vec![("traffic", traffics().map(shortened).collect())]
    } else {
        vec![
            ("traffic", traffics().collect()),
            ("load", loads().collect()),
            ("limit", limits().collect()),
        ]
    };
    let mut violations = Vec::new();
    for (name, rows) in sections {
        let mut report = Report::default();
        rows.iter().for_each(|row| measure(row, &mut report));
        println!("{}", report.text);
        if let Some(directory) = &directory {
            report.keep(directory, name);
        }
        violations.append(&mut report.violations);
    }
    for violation in &violations {
        eprintln!("out of bounds: {violation}");
    }
    match violations.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// All kinds of traffic, under one limit.
fn traffics() -> impl Iterator<Item = Row> {
    let zipf = Traffic::new("Zipf", 10_000, 60, Zipf { load: 1000 });
    let (most, attack) = (70, 1000);
    let attacked = Traffic::new("attacked", 1_000, 60, Attacked { most, attack });
    let counting_rejected = |traffic: Traffic| Traffic {
        name: format!("{}, counts rejected", traffic.name),
        counts_rejected: true,
        ..traffic
    };
    let (least, most, day) = (10, 150, 1440);
    let all = [
        (Traffic::new("Poisson, load 0.7", 100, 100, Poisson { load: 70 }), [0.1, 0.1]),
        (Traffic::new("Poisson, load 1", 100, 100, Poisson { load: 100 }), [15.0, 32.0]),
        (Traffic::new("Poisson, load 3", 100, 100, Poisson { load: 300 }), [54.0, 17.0]),
        (Traffic::new("on and off", 100, 100, OnOff { load: 300 }), [31.0, 26.0]),
        (Traffic::new("diurnal", 10, day, Diurnal { least, most }), [22.0, 30.0]),
        (Traffic::new("at boundaries", 50, 100, Boundaries), [1.0, 50.0]),
        (Traffic::new("late", 50, 99, Late), [33.0, 33.4]),
        (Traffic::new("obeys Retry-After", 100, 100, Patient), [22.0, 49.0]),
        (zipf.clone(), [18.0, 5.0]),
        (attacked.clone(), [5.0, 0.5]),
        (counting_rejected(zipf), [0.3, 10.0]),
        (counting_rejected(attacked), [0.02, 0.8]),
    ];
    all.into_iter().map(|(traffic, [sliding, fixed])| Row {
        traffic,
        quota: QUOTA,
        x: 0.0,
        measured: Some(Measured { sliding, fixed }),
    })
}

/// Poisson traffic of many loads.
fn loads() -> impl Iterator<Item = Row> {
    let loads = [50, 60, 70, 80, 90, 100, 110, 120, 150, 200, 300, 500, 1000];
    loads.into_iter().map(|load| {
        let x = load as f64 / 100.0;
        let clients = 10_000 / load as usize;
        Row {
            traffic: Traffic::new(&format!("load {x}"), clients, 100, Poisson { load }),
            quota: QUOTA,
            x,
            measured: None,
        }
    })
}

/// Poisson traffic of load 1, under many limits.
fn limits() -> impl Iterator<Item = Row> {
    let limits = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
    limits.into_iter().map(|hits| {
        let (name, windows) = (format!("limit {hits}/1m"), (10_000 / hits).min(1000));
        Row {
            traffic: Traffic::new(&name, 100, windows, Poisson { load: 100 }),
            quota: Quota { hits, ..QUOTA },
            x: hits as f64,
            measured: None,
        }
    })
}

/// Shortens the row to fewer requests: with fewer windows if clients differ, else with fewer
/// clients.
fn shortened(mut row: Row) -> Row {
    let traffic = &mut row.traffic;
    match traffic.pattern {
        Zipf { .. } | Attacked { .. } => traffic.windows = traffic.windows.div_ceil(10),
        _ => traffic.clients = traffic.clients.div_ceil(50),
    }
    row
}

/// Runs the traffic through every algorithm.
fn measure(row: &Row, report: &mut Report) {
    let Row { traffic, quota, .. } = row;
    let (clients, counts_rejected) = (traffic.clients, traffic.counts_rejected);
    let mut exact = Exact::new(*quota, clients, counts_rejected);
    let exact = run(traffic, *quota, &mut exact);
    let is_exact = exact.wrong() == 0 && exact.rate_off == 0 && exact.worst <= quota.hits;
    assert!(is_exact, "{exact:?}");
    for algorithm in ALGORITHMS {
        let tally =
            with_engine(algorithm, *quota, counts_rejected, |engine| run(traffic, *quota, engine));
        report.row(row, algorithm, &tally, &exact);
    }
}
