//! Layouts on which all nodes must agree, and servers of another kind than configured.

use super::clusters::all_shards;
use super::decisions::{counted, one};
use super::*;
use crate::testing::conformance::Asking;
use crate::testing::redis::cluster::Servers;

const DIVIDED: &str = "other nodes divide the namespace into 16 shards (cluster on), this one into 1 shard (cluster off): \
                       all must have the same \"cluster\"";
const WHOLE: &str = "other nodes divide the namespace into 1 shard (cluster off), this one into 16 shards (cluster on): \
                     all must have the same \"cluster\"";

fn unusable(error: StoreError) -> String {
    match error.failure {
        Failure::Unusable(what) => what.into(),
        other => panic!("{other:?}"),
    }
}

/// Returns a store on the server of a cluster that has the first shard.
fn on_one_server(cluster: &Servers) -> Redis {
    connect(cluster.primaries[cluster.owner(&shard("api"))].tcp())
}

/// Returns the errors of a push, of opening an epoch and of a decision for each shard.
async fn refusals(store: impl Fn() -> Redis) -> Vec<String> {
    let mut refusals = Vec::new();
    let shards = all_shards().filter(|it| it.number < store().shards());
    for shard in shards {
        let mut one_more = one();
        one_more.counters[0].shard = shard.clone();
        let mut asking = Asking::new(store());
        let decided = asking.try_to_ask(&[one_more]).await;
        refusals.push(unusable(decided.unwrap_err()));
        let mut store = store();
        let epoch = crate::testing::conformance::new_epoch();
        let opened = store.open_epoch(&shard, None, epoch).await;
        refusals.push(unusable(opened.unwrap_err()));
    }
    refusals.dedup();
    refusals
}

#[test]
fn a_node_with_another_number_of_shards_does_nothing() {
    let cluster = Servers::start();
    block_on(async {
        for shard in all_shards() {
            Node::join(cluster.connect(), shard).await;
        }
        assert_eq!(refusals(|| on_one_server(&cluster)).await, [DIVIDED]);
        // It was in use, and the store has lost all data.
        for server in &cluster.primaries {
            let _: String = server.ask(&["FLUSHALL"]).unwrap();
        }
        let mut asking = Asking::new(on_one_server(&cluster));
        assert_eq!(counted(&asking.ask(&[one()]).await), [1]);
        assert_eq!(refusals(|| cluster.connect()).await, [WHOLE]);
        // No other shard was created.
        let keys = cluster.primaries.iter().map(|server| {
            let keys: Vec<String> = server.ask(&["KEYS", "rl:*"]).unwrap();
            keys.iter().filter(|key| !key.contains("{api:0}")).count()
        });
        assert_eq!(keys.sum::<usize>(), 0);
    });
}

#[test]
fn data_of_an_older_version_is_used_as_it_is() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        node.push(vec![hits("a", 1)]).await;
        let _: i64 = server.ask(&["HDEL", SHARD, "layout"]).unwrap();
        node.push(vec![hits("a", 1)]).await;
        let noted: String = server.ask(&["HGET", SHARD, "layout"]).unwrap();
        assert_eq!(noted, "1 off");
        let _: i64 = server.ask(&["HDEL", SHARD, "layout"]).unwrap();
        Asking::new(connect(server.tcp())).ask(&[one()]).await;
        let noted: String = server.ask(&["HGET", SHARD, "layout"]).unwrap();
        assert_eq!(noted, "1 off");
    });
}

#[test]
fn an_error_names_the_kind_of_server() {
    let server = Server::start(&[]);
    let sentinel = Server::start_sentinel(&[]);
    sentinel.watch(&server);
    let with = |server: &Server, topology| {
        let (options, redis) = options(&[server.tcp()]);
        Redis::new(&options, &RedisOptions { topology, ..redis })
    };
    let sentinels =
        || Topology::Sentinel { master: "main".into(), credentials: Credentials::default() };
    block_on(async {
        for (server, topology, expected) in [
            (&sentinel, Topology::Single, "it is a sentinel, and \"sentinel_master\" is missing"),
            (
                &server,
                Topology::Cluster,
                "it is no node of a Redis Cluster, which \"cluster on\" is for",
            ),
            (
                &sentinel,
                Topology::Cluster,
                "it is no node of a Redis Cluster, which \"cluster on\" is for",
            ),
            (&server, sentinels(), "it is no sentinel, which \"sentinel_master\" is for"),
        ] {
            let error = open(&mut with(server, topology)).await.unwrap_err();
            assert!(!error.is_transient());
            assert_eq!(unusable(error), expected);
        }
        open(&mut with(&sentinel, sentinels())).await.unwrap();
    });
}
