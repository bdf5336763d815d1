//! Directories of servers that tests start.

use core::sync::atomic::{AtomicU64, Ordering};
use std::fs;
use std::path::PathBuf;

/// Creates a directory for a server of this kind.
pub(crate) fn new_dir(kind: &str) -> PathBuf {
    below(std::env::temp_dir(), kind)
}

/// Creates a directory in memory, for a server that would wait for its disk.
#[cfg(any(feature = "etcd", feature = "memcached"))]
pub(crate) fn new_dir_in_memory(kind: &str) -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    below(if memory.is_dir() { memory } else { std::env::temp_dir() }, kind)
}

fn below(parent: PathBuf, kind: &str) -> PathBuf {
    static CREATED: AtomicU64 = AtomicU64::new(0);
    let number = CREATED.fetch_add(1, Ordering::Relaxed);
    let dir = parent.join(format!("ratelimit-{kind}-{}-{number}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}
