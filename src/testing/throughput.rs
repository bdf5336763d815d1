//! The number of pushes and decisions that a store takes in a second. It is only printed, since it depends on the machine.

use core::time::Duration;

use super::conformance::{
    Asking, Fixture, MINUTE, Node, all_at_once, block_on, hits, question, shard,
};
use crate::policy::algorithm::Algorithm;
use crate::store::contract::decision::Decider;
use crate::store::contract::strategy::{Changes, Strategy};
use crate::table::words::system::uptime;

/// Prints both, for some numbers of nodes and of counters, each node with one exchange after another.
pub(crate) fn print<F: Fixture<Store: Decider + Strategy<Changes = Changes>>>(name: &str) {
    for (nodes, counters) in [(1, 1), (3, 1), (10, 1), (1, 100), (3, 100), (1, 500)] {
        let fixture = F::start();
        let pushes = block_on(async {
            let mut all = Vec::new();
            for _ in 0..nodes {
                all.push(Node::join(fixture.connect(), shard("api")).await);
            }
            let until = uptime() + Duration::from_secs(3);
            let done = all.iter_mut().map(async |node| {
                let mut done = 0_u32;
                while uptime() < until {
                    let diffs = (0..counters).map(|number| hits(&format!("key {number}"), 1));
                    node.push(diffs.collect()).await;
                    done += 1;
                }
                done
            });
            all_at_once(done.collect()).await.into_iter().sum::<u32>()
        });
        println!("{name}: {nodes} nodes, {counters} counters: {} pushes/s", pushes / 3);
    }
    for nodes in [1, 3, 10] {
        let fixture = F::start();
        let decisions = block_on(async {
            let mut all: Vec<_> = (0..nodes).map(|_| Asking::new(fixture.connect())).collect();
            let mut asked = question("a", Algorithm::Fixed, 1_000_000_000);
            asked.counters[0].size = MINUTE;
            let until = uptime() + Duration::from_secs(3);
            let done = all.iter_mut().map(async |node| {
                let mut done = 0_u32;
                while uptime() < until {
                    node.ask(&[asked.clone()]).await;
                    done += 1;
                }
                done
            });
            all_at_once(done.collect()).await.into_iter().sum::<u32>()
        });
        println!("{name}: {nodes} nodes: {} exchanges of decisions/s", decisions / 3);
    }
}
