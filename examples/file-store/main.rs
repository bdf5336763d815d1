//! A store outside of the crate: counts are kept in files, which nodes reach by a common file system.
//!
//!     cargo run --no-default-features --features conformance --example file-store [DIRECTORY]
//!     cargo test --no-default-features --features conformance --example file-store
//!
//! It can do as little as a store may: it tells no changes, so that nodes read all that there is once in
//! each of their syncs, and it keeps absolute counts. [`store`] is all that such a store has to do;
//! [`file`] has the files; [`node`] is a node as the engine has it, with a table on the heap. The program
//! shows two of them.
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
mod node;
mod store;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::path::PathBuf;

use self::node::{Node, Time};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let directory = directory.unwrap_or_else(|| std::env::temp_dir().join("file-store"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let node = |number| Node::new(number, &directory, Time::of_machine(number));
    let nodes = [node(1)?, node(2)?];
    for (node, hits) in nodes.iter().zip([3, 4]) {
        for _ in 0..hits {
            node.hit(b"203.0.113.9")?;
        }
        println!("{} hits are counted here", node.rate(b"203.0.113.9")?);
    }
    for node in nodes.iter().chain(&nodes) {
        runtime.block_on(node.sync())?;
    }
    for node in &nodes {
        let rate = node.rate(b"203.0.113.9")?;
        println!("{rate} hits are counted by all");
    }
    println!("they are in {}", directory.display());
    Ok(())
}
