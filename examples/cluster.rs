//! Two nodes that share a Redis, by functions that wait. A node is a process of its own otherwise.
//!
//!     cargo run --no-default-features --features redis,conformance --example cluster [SERVER]

use std::error::Error;
use std::time::Duration;

use ngx_http_rate_limiting_module::library::{
    Datastore, Instance, Memory, NewOptions, new_instance,
};

#[cfg(test)]
#[path = "testing/redis.rs"]
mod redis;

const HOUR: Duration = Duration::from_secs(3600);

fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args().nth(1);
    run(server.as_deref().unwrap_or("127.0.0.1:6379"))
}

fn run(server: &str) -> Result<(), Box<dyn Error>> {
    let store = Datastore::new("redis", [("server", server), ("prefix", "example")])?;
    let [one, other] = [node("one", &store)?, node("other", &store)?];
    let before = one.sliding_window("203.0.113.9", HOUR, None, None, None)?;
    one.increment("203.0.113.9", HOUR, 3.0, None, None)?;
    other.increment("203.0.113.9", HOUR, 4.0, None, None)?;
    for node in [&one, &other, &one] {
        let report = node.sync(None)?;
        println!("{} pushed, {} fetched", report.pushed, report.fetched);
    }
    for node in [one, other] {
        let rate = node.sliding_window("203.0.113.9", HOUR, None, None, None)?;
        println!("{rate} hits are counted by all");
        if rate < before + 7.0 {
            return Err("hits are missing".into());
        }
    }
    Ok(())
}

/// A node, which begins with what others counted, and is synced once in half a second from then on.
fn node(name: &str, store: &Datastore) -> Result<Instance, Box<dyn Error>> {
    let node = new_instance(name)?;
    let options = NewOptions::new(&Memory::heap(1 << 20)?).window_sizes([HOUR]);
    let options = options.sync_rate(Duration::from_millis(500));
    node.new(&options.strategy(store.clone()))?;
    node.sync(None)?;
    Ok(node)
}

#[test]
fn runs() -> Result<(), Box<dyn Error>> {
    run(redis::Server::start()?.address())
}
