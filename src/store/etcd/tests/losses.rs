//! A full server, and leases that are gone.

use super::*;

#[test]
fn a_full_server_refuses_until_there_is_room() {
    let server = Server::start(&["--quota-backend-bytes", "300000"]);
    server.ctl(&["put", "of somebody else", &"x".repeat(100_000)]);
    block_on(async {
        let mut node = Node::join(connect(&server), shard("api")).await;
        let error: StoreError = loop {
            node.number += 1;
            let long = "x".repeat(10_000);
            let batch = node.batch(node.number, vec![hits(&long, 1)]);
            if let Err(error) = node.store.push_diffs(&node.shard, &batch, 500).await {
                break error;
            }
        };
        let full = Failure::Refused(Refusal::Other("mvcc: database space exceeded".into()));
        assert_eq!(error.failure, full);
        assert!(error.is_transient() && !error.may_have_applied());
        server.ctl(&["del", "of somebody else"]);
        let status = server.ctl(&["endpoint", "status", "-w", "json"]);
        let revision = status.split("\"revision\":").nth(1).unwrap().split(',').next().unwrap();
        // Without `--physical`, the revisions may still be there when `defrag` copies the rest.
        server.ctl(&["compact", "--physical", revision]);
        server.ctl(&["defrag"]);
        server.ctl(&["alarm", "disarm"]);
        node.number -= 1;
        node.push(vec![hits("a", 1)]).await;
    });
}

#[test]
fn a_lease_that_is_gone_is_replaced() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = Node::join(connect(&server), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        let leases = server.ctl(&["lease", "list"]);
        for lease in leases.lines().skip(1) {
            server.ctl(&["lease", "revoke", lease]);
        }
        // The node's row is gone with its lease.
        let pushed = node.send(1, vec![]).await;
        assert_eq!(pushed, crate::store::contract::strategy::Pushed::Forgotten);
        let opened = node.store.open_epoch(&node.shard, Some(node.epoch), new_epoch());
        node.epoch = opened.await.unwrap();
        (node.number, node.position) = (0, None);
        let batch = node.batch(1, vec![hits("a", 2)]);
        node.store.push_diffs(&node.shard, &batch, 500).await.unwrap();
        let all = node.read_all(&[(MINUTE, 7)]).await;
        assert_eq!(totals(&all), pairs(&[("a", 2)]));
    });
}
