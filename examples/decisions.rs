//! Two nodes for which a Redis decides about each hit, so that never more is admitted than the limit says. A
//! node is a process of its own otherwise.
//!
//!     cargo run --no-default-features --features redis,conformance --example decisions [SERVER]

use std::error::Error;
use std::thread;
use std::time::Duration;

use ngx_http_rate_limiting_module::library::{
    Datastore, Instance, LimiterOptions, Memory, NewOptions, OnError, WindowType, new_instance,
};

#[cfg(test)]
#[path = "testing/redis.rs"]
mod redis;

/// Window so long that it does not end during the example.
const WINDOW: Duration = Duration::from_secs(366 * 86_400);
const LIMIT: u32 = 25;

fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args().nth(1);
    run(server.as_deref().unwrap_or("127.0.0.1:6379"))
}

fn run(server: &str) -> Result<(), Box<dyn Error>> {
    let store = Datastore::new("redis", [("server", server), ("prefix", "example")])?;
    let nodes = [node("one", &store)?, node("other", &store)?];
    // One that no run before has counted.
    let key = format!("process {}", std::process::id());
    let admitted = thread::scope(|scope| {
        let threads = nodes.each_ref().map(|node| scope.spawn(|| ask(node, &key)));
        let counts = threads.map(|it| it.join().unwrap_or_else(|_| Err("a panic".into())));
        counts.into_iter().sum::<Result<u32, _>>()
    });
    let admitted = admitted.map_err(|error| -> Box<dyn Error> { error })?;
    println!("{admitted} hits were admitted");
    match admitted == LIMIT {
        true => Ok(()),
        false => Err("there are too many, or too few".into()),
    }
}

/// Asks for as many hits as both nodes may have; returns how many are admitted.
fn ask(node: &Instance, key: &str) -> Result<u32, Box<dyn Error + Send + Sync>> {
    let options = LimiterOptions::window(LIMIT.into(), WINDOW).window_type(WindowType::Fixed);
    let limiter = node.limiter(&options)?;
    let admitted = (0..LIMIT).map(|_| Ok(u32::from(limiter.incoming(key, true)?.is_admitted)));
    admitted.sum()
}

/// A node that denies what the store does not decide in ten seconds.
fn node(name: &str, store: &Datastore) -> Result<Instance, Box<dyn Error>> {
    let node = new_instance(name)?;
    let options = NewOptions::new(&Memory::heap(1 << 20)?).window_sizes([WINDOW]);
    let options = options.sync_rate(Duration::ZERO).strategy(store.clone());
    let options = options.timeout(Duration::from_secs(10));
    node.new(&options.on_error(OnError::Deny))?;
    Ok(node)
}

#[test]
fn runs() -> Result<(), Box<dyn Error>> {
    run(redis::Server::start()?.address())
}
