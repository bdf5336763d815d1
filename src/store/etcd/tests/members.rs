//! An etcd of three members, of which some are away.

use core::time::Duration;

use super::*;
use crate::store::contract::options::StoreOptions;

/// A store that tries one member after another, each for two seconds.
fn store_of(members: &[Server; 3]) -> Etcd {
    let (options, own) = options(&members.each_ref().map(Server::tcp), PREFIX);
    let timeout = Duration::from_secs(2);
    Etcd::new(&StoreOptions { connect_timeout: timeout, timeout, ..options }, &own)
}

/// Pushes hits of the key `a` until a member takes the batch, whose failures must be transient.
async fn push_at_last(node: &mut Node<Etcd>, count: i64) {
    node.number += 1;
    let batch = node.batch(node.number, vec![hits("a", count)]);
    let mut tries = 0;
    while let Err(error) = node.store.push_diffs(&node.shard, &batch, 500).await {
        assert!(error.is_transient(), "{error}");
        tries += 1;
        assert!(tries < 100, "{error}");
    }
}

async fn total(node: &mut Node<Etcd>) -> Vec<(String, i64)> {
    let all = node.read_all(&[(MINUTE, 7)]).await;
    totals(&all)
}

#[test]
fn nodes_go_on_with_the_members_that_are_left() {
    let mut members = Server::start_members();
    block_on(async {
        let mut node = Node::join(store_of(&members), shard("api")).await;
        // One of them is the leader.
        for (index, hits) in (0..3).zip([1, 3, 5]) {
            members[index].kill();
            push_at_last(&mut node, hits).await;
            members[index].start_again();
            push_at_last(&mut node, 1).await;
        }
        assert_eq!(total(&mut node).await, pairs(&[("a", 12)]));
    });
}

#[test]
fn a_member_that_has_lost_the_others_takes_nothing() {
    let members = Server::start_members();
    block_on(async {
        let mut node = Node::join(store_of(&members), shard("api")).await;
        push_at_last(&mut node, 1).await;
        members[1..].iter().for_each(|it| it.signal("STOP"));
        let batch = node.batch(2, vec![hits("a", 10)]);
        for _ in 0..3 {
            let error = node.store.push_diffs(&node.shard, &batch, 500).await.unwrap_err();
            assert!(error.is_transient(), "{error}");
        }
        members[1..].iter().for_each(|it| it.signal("CONT"));
        push_at_last(&mut node, 10).await;
        assert_eq!(total(&mut node).await, pairs(&[("a", 11)]));
    });
}
