//! Tests what ends a session, and which nodes are asked.

use core::time::Duration;

use crate::store::cassandra::session::RingLink;
use crate::store::cassandra::{Cassandra, CassandraOptions};
use crate::store::contract::error::{Failure, StoreError};
use crate::store::contract::options::StoreOptions;
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::{Epoch, Strategy as _};
use crate::testing::cassandra::{KEYSPACE, Server, connect, new_table, options};
use crate::testing::conformance::{MINUTE, block_on, new_epoch, shard};
use crate::testing::proxy::Proxy;

fn parts(address: &ServerAddress) -> (&str, u16) {
    match address {
        ServerAddress::Tcp { host, port } => (host, *port),
        ServerAddress::Unix(_) => unreachable!("Cassandra has no socket"),
    }
}

/// Creates missing tables.
async fn with_table_of(server: &Server, table: &str) -> Result<Epoch, StoreError> {
    let mut store = connect(&server.address, table);
    let shard = shard("api");
    store.open_epoch(&shard, None, new_epoch()).await
}

#[test]
fn an_exchange_that_takes_too_long_ends_no_session_whose_nodes_answer() {
    let server = parts(&Server::shared().address);
    // The ring's own address, so that the driver reaches all nodes through the proxy.
    let proxy = Proxy::between((server.0, 0), server);
    let table = new_table();
    let (options, own) = options(core::slice::from_ref(&proxy.address), &table);
    let impatient = StoreOptions {
        timeout: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(2),
        ..options
    };
    block_on(async {
        with_table_of(Server::shared(), &table).await.unwrap();
        let store = || Cassandra::new(&impatient, &own);
        let (mut one, mut other) = (store(), store());
        let shard = shard("api");
        let window = |number| (&shard, &b"k"[..], MINUTE, number);
        for store in [&mut one, &mut other] {
            let (shard, key, size, number) = window(7);
            // The machine may be busy.
            while store.get_window(shard, key, size, number).await.is_err() {}
        }
        let connects = one.connects() + other.connects();
        proxy.hold(true);
        let (shard, key, size, number) = window(7);
        let late = one.get_window(shard, key, size, number).await.unwrap_err();
        assert!(matches!(late.failure, Failure::TimedOut(_)), "{late:?}");
        proxy.hold(false);
        for store in [&mut other, &mut one] {
            store.get_window(shard, key, size, number).await.unwrap();
        }
        assert_eq!(one.connects() + other.connects(), connects);
        // A session that is held for longer than a node may be silent is useless.
        proxy.hold(true);
        one.get_window(shard, key, size, number).await.unwrap_err();
        let end = one.get_window(shard, key, size, number).await.unwrap_err();
        assert!(matches!(end.failure, Failure::Unreachable(_)), "{end:?}");
        proxy.hold(false);
        one.get_window(shard, key, size, number).await.unwrap();
        other.get_window(shard, key, size, number).await.unwrap();
        assert_eq!(one.connects() + other.connects(), connects + 1);
    });
}

#[test]
fn the_datacenter_of_a_server_behind_a_nat_is_found() {
    let server = parts(&Server::shared().address);
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let nat = format!("127.{}.{b}.{}", 240 + u32::from(a % 8), c.max(1));
    // The nodes of the ring have this port, too.
    let proxy = Proxy::between((&nat, server.1), server);
    block_on(async {
        let datacenter = async |address: &ServerAddress| {
            let (options, own) = options(core::slice::from_ref(address), &new_table());
            let own = CassandraOptions { keyspace: KEYSPACE.into(), ..own };
            RingLink::new(&options, &own).preferred().await
        };
        let expected = datacenter(&Server::shared().address).await;
        assert!(expected.contains("datacenter1"), "{expected}");
        assert_eq!(datacenter(&proxy.address).await, expected);
    });
}

#[test]
fn nodes_that_create_tables_at_the_same_time_all_have_them() {
    let server = Server::shared();
    for _ in 0..4 {
        let table = new_table();
        let opened = std::thread::scope(|scope| {
            // Staggered, so that some connect while the last table is being created.
            let threads: Vec<_> = (0..16)
                .map(|_| {
                    std::thread::sleep(Duration::from_millis(15));
                    scope.spawn(|| block_on(with_table_of(server, &table)))
                })
                .collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(opened.iter().all(Result::is_ok), "{opened:?}");
    }
}
