//! Two machines with one memory.

use super::memory::{Fault, Kept as _};
use super::node::cluster;
use super::{SIZE, T, hits, size};

#[test]
fn a_clone_takes_another_identity_and_nothing_is_lost_or_doubled() {
    // The node that pushes first, and whether the other has a batch in flight.
    for (is_clone_first, is_sealed) in [(true, false), (true, true), (false, false), (false, true)]
    {
        let (store, nodes) = cluster(2);
        nodes[0].hit(b"a", hits(5));
        nodes.iter().for_each(|node| assert!(node.sync().is_ok()));
        let clone = nodes[0].cloned(2);
        let [first, second] = match is_clone_first {
            true => [&clone, &nodes[0]],
            false => [&nodes[0], &clone],
        };
        let epoch = store[0].borrow().epoch;
        second.hit(b"a", hits(10));
        if is_sealed {
            second.faults(&[Fault::Before]);
            assert!(second.sync().is_err());
        }
        first.hit(b"a", hits(100));
        for _ in 0..3 {
            for node in [first, second, &nodes[1]] {
                node.sync().unwrap();
                node.hit(b"b", hits(1));
            }
        }
        let name = |key: &[u8]| (size(), T / SIZE, key.to_vec());
        assert_eq!(store[0].borrow().count(&name(b"a")).total, hits(115));
        for node in [first, second, &nodes[1], first, second] {
            node.sync().unwrap();
        }
        for node in [first, second] {
            assert_eq!((node.rate(b"a"), node.rate(b"b")), (hits(115), hits(9)));
        }
        assert_eq!(store[0].borrow().epoch, epoch);
        let have_news = [first, second].map(|node| node.shared.table.record_identity());
        assert_eq!(have_news, [false, true]);
    }
}

#[test]
fn clones_that_meet_in_a_new_epoch_come_to_terms() {
    // The node that notices. One that was configured again may have been in the epoch before.
    for notices in 0..2 {
        let (store, nodes) = cluster(1);
        // It has not even read from the store.
        let clone = nodes[0].cloned(1);
        let nodes = [&nodes[0], &clone];
        nodes[1 - notices].hit(b"a", hits(1));
        nodes[1 - notices].sync().unwrap();
        let epoch = store[0].borrow().epoch;
        nodes[notices].hit(b"a", hits(1));
        nodes[notices].sync().unwrap();
        let after = store[0].borrow().epoch;
        assert_eq!(after == epoch, notices == 0);
        for _ in 0..3 {
            nodes.iter().for_each(|node| assert!(node.sync().is_ok()));
        }
        assert_eq!(store[0].borrow().epoch, after);
        assert!(nodes.iter().all(|node| node.rate(b"a") == hits(2)));
    }
}
