//! Tests that every store passes, and two tables that are synced with this one.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::path::{Path, PathBuf};
use std::{env, fs, process, thread};

use ngx_http_rate_limiting_module::engine::Report;
use tokio::runtime::Runtime;

use crate::node::{Node, Time};

/// A directory of a test's own, removed with the value.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("file-store-{}-{number}", process::id());
        Directory(env::temp_dir().join(name))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

mod suite {
    use super::Directory;
    use crate::store::{FileOptions, FileStore};
    use core::time::Duration;
    use ngx_http_rate_limiting_module::library::store::conformance::{Fixture, conformance_tests};
    use ngx_http_rate_limiting_module::library::store::{Credentials, StoreOptions, Strategy as _};
    use std::fs;

    impl Fixture for Directory {
        type Store = FileStore;

        fn start() -> Directory {
            Directory::new()
        }

        fn connect(&self) -> FileStore {
            let options = StoreOptions {
                servers: Vec::new(),
                credentials: Credentials::default(),
                connect_timeout: Duration::from_secs(20),
                timeout: Duration::from_secs(20),
                exchanges: core::num::NonZeroU32::MAX,
                tls: None,
            };
            let directory = self.0.clone();
            FileStore::new(&options, &FileOptions { directory })
        }

        fn flush(&self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    conformance_tests!(Directory, Snapshots, Absolute);
}

fn node(number: u64, directory: &Path) -> Node {
    // No window ends.
    let now = || Duration::from_secs(1_700_000_000);
    Node::new(number, directory, Time::new(now, number << 32)).unwrap()
}

fn sync(node: &Node) -> Report {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime: Runtime = builder.enable_time().build().unwrap();
    runtime.block_on(node.sync()).unwrap().unwrap()
}

#[test]
fn two_tables_have_what_both_counted() {
    let directory = Directory::new();
    let nodes = [node(1, &directory.0), node(2, &directory.0)];
    for round in 1..=3 {
        for (node, hits) in nodes.iter().zip([3, 4]) {
            (0..hits).for_each(|_| node.hit(b"a").unwrap());
        }
        nodes[1].hit(b"b").unwrap();
        assert_eq!(sync(&nodes[0]).pushed, 1);
        assert_eq!(sync(&nodes[1]).pushed, 2);
        assert_eq!(sync(&nodes[0]).pushed, 0);
        for node in &nodes {
            assert_eq!(node.rate(b"a").unwrap(), 7 * round);
            assert_eq!(node.rate(b"b").unwrap(), round);
        }
    }
}

#[test]
fn living_nodes_restore_files_that_were_removed() {
    let directory = Directory::new();
    let nodes = [node(1, &directory.0), node(2, &directory.0)];
    for round in 1..=2 {
        for node in &nodes {
            node.hit(b"a").unwrap();
        }
        for node in nodes.iter().chain(&nodes) {
            sync(node);
        }
        for node in &nodes {
            assert_eq!(node.rate(b"a").unwrap(), 2 * round);
        }
        fs::remove_dir_all(&directory.0).unwrap();
    }
}

#[test]
fn nodes_that_sync_at_the_same_time_wait_for_each_other() {
    const NODES: u64 = 4;
    let directory = Directory::new();
    let synced = |number| {
        let node = node(number, &directory.0);
        for _ in 0..20 {
            node.hit(b"a").unwrap();
            sync(&node);
        }
        node
    };
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..NODES).map(|number| scope.spawn(move || drop(synced(number)))).collect();
        threads.into_iter().for_each(|it| it.join().unwrap());
    });
    let other = node(NODES, &directory.0);
    sync(&other);
    assert_eq!(other.rate(b"a").unwrap(), 80);
}
