//! A store outside of the crate: counts are kept in files, which nodes reach by a common file system.
//!
//!     cargo run --no-default-features --features conformance --example file-store [DIRECTORY]
//!     cargo test --no-default-features --features conformance --example file-store
//!
//! It can do as little as a store may: it tells no changes, so that nodes read all that there is once in
//! each of their syncs, and it keeps absolute counts. [`store`] is all that such a store has to do;
//! [`file`] has the files. The program shows two nodes that share them, by the library. The tests have
//! nodes, [`node`], whose time they tell.
#![cfg_attr(
    test,
    allow(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used,
        reason = "a test ends by panicking"
    )
)]

mod file;
#[cfg(test)]
mod node;
mod store;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use ngx_http_rate_limiting_module::library::store::{Credentials, StoreOptions, Strategy as _};
use ngx_http_rate_limiting_module::library::{Datastore, Memory, NewOptions, new_instance};

use self::store::{FileOptions, FileStore};

/// The longest time that files may take.
const SLOWEST: Duration = Duration::from_secs(3);
const MINUTE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let directory = directory.unwrap_or_else(|| std::env::temp_dir().join("file-store"));
    let options = StoreOptions {
        servers: Vec::new(),
        credentials: Credentials::default(),
        connect_timeout: SLOWEST,
        timeout: SLOWEST,
        exchanges: NonZeroU32::MAX,
        tls: None,
    };
    let own = FileOptions { directory: directory.clone() };
    let store = Datastore::own(SLOWEST, move || FileStore::new(&options, &own));
    let nodes = [new_instance("one")?, new_instance("other")?];
    for (node, hits) in nodes.iter().zip([3.0, 4.0]) {
        let options = NewOptions::new(&Memory::heap(64 << 10)?).window_sizes([MINUTE]);
        let options = options.sync_rate(Duration::from_millis(500));
        node.new(&options.strategy(store.clone()))?;
        let rate = node.increment("203.0.113.9", MINUTE, hits, None, None)?;
        println!("{rate} hits are counted here");
    }
    for node in nodes.iter().chain(&nodes) {
        node.sync(None)?;
    }
    for node in &nodes {
        let rate = node.sliding_window("203.0.113.9", MINUTE, None, None, None)?;
        println!("{rate:.0} hits are counted by all");
    }
    println!("they are in {}", directory.display());
    Ok(())
}
