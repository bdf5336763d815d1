//! Deciders that charge at the same time, and charges of exchanges that fail.

use futures_util::future::join;
use tokio::time::timeout;

use crate::policy::algorithm::Algorithm;
use crate::policy::hits::{Hits, hits};
use crate::store::contract::decision::{Answer, Certainty, Decided};
use crate::store::contract::strategy::Strategy as _;
use crate::table::words::system::uptime;
use crate::testing::cassandra::{Server, connect, new_table};
use crate::testing::conformance::{Asking, Node, block_on, question, shard};

fn only(decided: Decided) -> Answer {
    decided.answers.into_iter().next().unwrap()
}

#[test]
fn a_refusal_is_certain_if_it_rests_on_charges_that_stay() {
    let server = Server::shared();
    let table = new_table();
    block_on(async {
        let asking = || Asking::new(connect(&server.address, &table));
        let mut both = [asking(), asking()];
        for one in &mut both {
            one.ask(&[]).await;
        }
        let mut races = 0;
        for number in 0..100 {
            let key = format!("k{number}");
            let one_place = [question(&key, Algorithm::Fixed, 1)];
            let [first, second] = &mut both;
            let answers = join(first.ask(&one_place), second.ask(&one_place)).await;
            let answers = [only(answers.0), only(answers.1)];
            let admitted = answers.iter().filter(|it| it.admitted[0]).count();
            assert!(admitted <= 1, "{answers:?}");
            for refused in answers.iter().filter(|it| !it.admitted[0]) {
                assert_ne!(refused.certainty, Certainty::Settled);
            }
            let mut raced = answers.iter().map(|it| it.certainty == Certainty::Raced);
            if admitted == 0 {
                races += 1;
                assert!(raced.any(|it| it), "{answers:?}");
                // No other decider asks.
                assert!(only(both[0].ask(&one_place).await).admitted[0]);
            }
        }
        assert!(races > 0);
        // Hits that are charged although they are refused are not to be asked again.
        for number in 0..20 {
            let mut rejected = question(&format!("r{number}"), Algorithm::Fixed, 1);
            rejected.counts_rejected = true;
            let rejected = [rejected];
            let [first, second] = &mut both;
            let answers = join(first.ask(&rejected), second.ask(&rejected)).await;
            for answer in [only(answers.0), only(answers.1)] {
                assert_ne!(answer.certainty, Certainty::Raced);
            }
        }
        // A counter that is full for longer than exchanges take is certainly full.
        let full = [question("full", Algorithm::Fixed, 1)];
        assert!(only(both[0].ask(&full).await).admitted[0]);
        // The first refusal by this decider.
        let since = both[1].ask(&full).await.now;
        loop {
            let Decided { now, answers } = both[1].ask(&full).await;
            let is_settled = answers[0].certainty == Certainty::Settled;
            assert!(!answers[0].admitted[0]);
            if now.0 - since.0 < 900 {
                assert!(!is_settled);
            } else if is_settled {
                break;
            }
            assert!(now.0 - since.0 < 10_000);
            tokio::time::sleep(core::time::Duration::from_millis(20)).await;
        }
        // A counter that had room in between is not certainly full.
        let more = [question("full", Algorithm::Fixed, 2)];
        assert!(only(both[1].ask(&more).await).admitted[0]);
        let again = only(both[1].ask(&more).await);
        assert_eq!(again.certainty, Certainty::Unsettled);
    });
}

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
