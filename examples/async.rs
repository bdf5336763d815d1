//! The library in a program that tokio runs: tasks count, and wait for syncs without holding a thread.
//!
//!     cargo run --no-default-features --features redis,conformance --example async [SERVER]

use std::error::Error;
use std::time::{Duration, SystemTime};

use ngx_http_rate_limiting_module::library::{
    CallError, Datastore, Instance, Memory, NewOptions, new_instance,
};
use tokio::runtime::Builder;

#[cfg(test)]
#[path = "testing/redis.rs"]
mod redis;

const HOUR: Duration = Duration::from_secs(3600);
const CLIENTS: u32 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args().nth(1);
    run(server.as_deref().unwrap_or("127.0.0.1:6379"))
}

fn run(server: &str) -> Result<(), Box<dyn Error>> {
    let store = Datastore::new("redis", [("server", server), ("prefix", "example")])?;
    let node = new_instance("async")?;
    let options = NewOptions::new(&Memory::heap(1 << 20)?).window_sizes([HOUR]);
    let options = options.sync_rate(Duration::from_secs(1));
    node.new(&options.strategy(store))?;
    let runtime = Builder::new_current_thread().build()?;
    let counted = runtime.block_on(serve(node))?;
    println!("{counted} hits were counted by all");
    match counted >= f64::from(CLIENTS) {
        true => Ok(()),
        false => Err("hits are missing".into()),
    }
}

/// Begins with what others counted, serves clients, and tells the store of it in the end.
async fn serve(node: Instance) -> Result<f64, Box<dyn Error>> {
    node.fetch_async(None, SystemTime::now(), None).await?;
    let tasks: Vec<_> =
        (0..CLIENTS).map(|client| tokio::spawn(handle(node.clone(), client))).collect();
    for task in tasks {
        task.await??;
    }
    // The first one starts the timer, too.
    node.sync_async(None).await?;
    Ok(node.sliding_window("all", HOUR, None, None, None)?)
}

async fn handle(node: Instance, client: u32) -> Result<(), CallError> {
    node.increment(format!("client {client}"), HOUR, 1.0, None, None)?;
    node.increment("all", HOUR, 1.0, None, None)?;
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn Error>> {
    run(redis::Server::start()?.address())
}
