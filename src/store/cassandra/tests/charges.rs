//! Charges of decisions whose exchanges fail.

use tokio::time::timeout;

use crate::policy::algorithm::Algorithm;
use crate::policy::hits::{Hits, hits};
use crate::store::contract::strategy::Strategy as _;
use crate::table::words::system::uptime;
use crate::testing::cassandra::{Server, connect, new_table};
use crate::testing::conformance::{Asking, Node, block_on, question, shard};

#[test]
fn charges_of_a_failed_exchange_are_taken_back() {
    const CUTS: u32 = 60;
    let server = Server::shared();
    let table = new_table();
    block_on(async {
        let mut asking = Asking::new(connect(&server.address, &table));
        // Two counters, of which only one is asked about again.
        let ask = |key| question(key, Algorithm::Fixed, 1_000_000);
        let (busy, both) = ([ask("busy")], [ask("busy"), ask("other")]);
        asking.ask(&both).await;
        asking.ask(&both).await;
        let begin = uptime();
        asking.ask(&both).await;
        let lasts = uptime().saturating_sub(begin);
        let mut reader = Node::join(connect(&server.address, &table), shard("api")).await;
        reader.fetch().await;
        let mut admitted = [3, 3];
        for cut in 0..CUTS {
            let asked = asking.try_to_ask(&both);
            if let Ok(decided) = timeout(lasts * cut / CUTS, asked).await {
                let answers = decided.unwrap().answers;
                assert!(answers.iter().all(|it| it.admitted[0]));
                admitted = admitted.map(|it| it + 1);
            }
        }
        let last = asking.ask(&busy).await;
        admitted[0] += 1;
        let reading = last.answers[0].readings[0].windows();
        assert_eq!(reading.current, hits(admitted[0]));
        let size = busy[0].counters[0].size;
        let shard = shard("api");
        for (key, expected) in [(&b"busy"[..], admitted[0]), (b"other", admitted[1])] {
            let total = asking.store.get_window(&shard, key, size, reading.window);
            assert_eq!(total.await.unwrap(), hits(expected));
        }
        // Other nodes learn of it, too.
        let told = reader.fetch().await;
        let total = |key: &[u8]| {
            let found = told.iter().find(|it| *it.key == *key);
            found.map_or(Hits::ZERO, |it| it.total)
        };
        assert_eq!(total(b"busy"), hits(admitted[0]));
    });
}
