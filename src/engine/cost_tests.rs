//! What a sync cycle costs with a real Redis: measured, not judged, since that depends on the machine.
//!
//! `cargo test --release --no-default-features --features measure -- --nocapture a_cycle_costs`

use core::cell::Cell;
use core::time::Duration;
use std::time::Instant;

use super::sync_tests::Time;
use super::{Namespace, Report, Syncer};
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::conformance::block_on;
use crate::store::redis::testing::{Server, connect};
use crate::table::Admission;
use crate::table::testing::{SharedTable, TestClock};

/// Some millions of keys fit.
const ZONE: usize = 512 << 20;

struct Node {
    namespace: &'static Namespace<'static>,
    time: Time,
}

impl Node {
    fn new(number: u64) -> Node {
        // As long as the process lives: the library's namespaces are.
        let shared: &SharedTable = Box::leak(Box::new(SharedTable::with_secret(ZONE, [number, 7])));
        let namespace = Namespace::new("api", &shared.table).unwrap();
        Node {
            namespace: Box::leak(Box::new(namespace.synced(1).unwrap())),
            time: Time {
                unix: TestClock::at(1_700_000_000_000),
                monotonic: Cell::new(1000),
                random: Cell::new((number + 1) << 32),
            },
        }
    }

    /// A hit for each of so many keys of 32 bytes.
    fn hit(&self, keys: usize) {
        let counter = self.namespace.counter(size()).synced(true);
        let table = self.namespace.table();
        for n in 0..keys {
            let key = format!("a key that has 32 bytes {n:08}");
            let key = table.key(key.as_bytes());
            let one = Hits::from_thousandths(1000);
            table.add(&counter, key, &self.time, one, Admission::Unconditional);
        }
    }

    /// Prints what a cycle does, and costs.
    fn sync(&self, server: &Server, what: &str) {
        let syncer = Syncer::new(self.namespace, &[size()], Duration::from_secs(60)).unwrap();
        let (bytes, cpu, start) = (traffic(server), server.cpu_micros(), Instant::now());
        let report = block_on(async { syncer.sync(&mut connect(server.tcp()), &self.time).await });
        let (took, cpu) = (start.elapsed(), server.cpu_micros() - cpu);
        let bytes = traffic(server) - bytes;
        let Report {
            pushed, fetched, ..
        } = report.unwrap().unwrap();
        println!(
            "{what}: {pushed} pushed, {fetched} fetched, {:.1} ms, of which Redis worked {:.1} ms; {bytes} bytes",
            took.as_secs_f64() * 1000.0,
            Duration::from_micros(cpu).as_secs_f64() * 1000.0,
        );
    }
}

fn size() -> WindowSize {
    WindowSize::from_millis(3_600_000).unwrap()
}

/// What the server has received and sent so far.
fn traffic(server: &Server) -> u64 {
    let info: String = server.ask(&["INFO", "stats"]).unwrap();
    let totals = info.lines().filter_map(|line| line.split_once(':'));
    let totals = totals
        .filter(|(name, _)| matches!(*name, "total_net_input_bytes" | "total_net_output_bytes"));
    totals
        .map(|(_, bytes)| bytes.trim().parse::<u64>().unwrap())
        .sum()
}

#[test]
fn a_cycle_costs() {
    let server = Server::start(&[]);
    let [one, other] = [Node::new(0), Node::new(1)];
    one.sync(&server, "the first one, with nothing");
    other.sync(&server, "the same on another node");
    for keys in [100_000, 1_000_000] {
        one.hit(keys);
        one.sync(&server, &format!("{keys} changed here"));
        other.sync(&server, &format!("{keys} changed elsewhere"));
    }
    for keys in [100, 0] {
        one.hit(keys);
        one.sync(
            &server,
            &format!("of 1,000,000 live keys, {keys} changed here"),
        );
        other.sync(
            &server,
            &format!("of 1,000,000 live keys, {keys} changed elsewhere"),
        );
    }
    for _ in 0..3 {
        one.hit(100_000);
        one.sync(&server, "of 1,000,000 live keys, 100,000 changed here");
        other.sync(&server, "of 1,000,000 live keys, 100,000 changed elsewhere");
    }
}
