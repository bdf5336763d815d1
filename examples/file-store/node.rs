//! A node: a table on the heap, and the engine's own sync of it with the store.

use std::cell::Cell;
use std::error::Error;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::time::Duration;

use ngx_http_rate_limiting_module::engine::{
    Env, Namespace, RateLimiting, RateLimitingError, Report, SyncError, Syncer,
};
use ngx_http_rate_limiting_module::library::store::{Credentials, StoreOptions, Strategy as _};
use ngx_http_rate_limiting_module::policy::algorithm::Algorithm;
use ngx_http_rate_limiting_module::policy::hits::Hits;
use ngx_http_rate_limiting_module::policy::window::{Clock, UnixMillis, WindowSize};
use ngx_http_rate_limiting_module::table::CounterTable;

use crate::store::{FileOptions, FileStore};

/// Time for which another worker would wait for this one, if there were one.
const LEASE: Duration = Duration::from_secs(3);

/// A node of a cluster, with its only worker.
pub(crate) struct Node {
    namespace: Namespace<'static>,
    size: WindowSize,
    directory: PathBuf,
    time: Time,
}

/// Memory as tables want it: all zero, and aligned to cache lines.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Room for some 900 counters.
const LINES: usize = 1 << 10;

impl Node {
    /// A node that has counted nothing. Different nodes have different numbers.
    ///
    /// # Errors
    ///
    /// If its table has no room for what it needs.
    pub(crate) fn new(number: u64, directory: &Path, time: Time) -> Result<Node, Box<dyn Error>> {
        // As long as the process lives: so do the tables of nginx.
        let lines: &'static mut [Line] = Vec::leak(vec![Line([0; 8]); LINES]);
        let region = NonNull::from(&mut *lines);
        let region = NonNull::slice_from_raw_parts(region.cast::<u8>(), size_of_val(lines));
        // A secret should be random; these nodes fear nobody.
        let secret = [number, 0x0123_4567_89ab_cdef];
        // SAFETY: the memory was leaked, so that nothing else uses it, and no other process has it.
        let table = unsafe { CounterTable::create(region, region.len(), secret) }?;
        let table: &'static CounterTable<'static> = Box::leak(Box::new(table));
        let size = WindowSize::from_millis(60_000).ok_or("no size of a window")?;
        Ok(Node {
            namespace: Namespace::new("api", table)?.synced(1)?,
            size,
            directory: directory.to_owned(),
            time,
        })
    }

    /// Counts a hit of `key`.
    ///
    /// # Errors
    ///
    /// If the key is empty.
    pub(crate) fn hit(&self, key: &[u8]) -> Result<(), RateLimitingError> {
        let library = RateLimiting::new(&self.namespace);
        let rate = library.increment(key, self.size, Hits::ONE, Algorithm::Sliding, &self.time);
        rate.map(drop)
    }

    /// Returns the hits of `key` that all nodes counted in the last minute, as far as this one
    /// knows.
    ///
    /// # Errors
    ///
    /// If the key is empty.
    pub(crate) fn rate(&self, key: &[u8]) -> Result<i64, RateLimitingError> {
        let library = RateLimiting::new(&self.namespace);
        let rate = library.sliding_window(key, self.size, Algorithm::Sliding, &self.time);
        rate.map(Hits::whole)
    }

    /// Pushes what was counted here, and fetches what others counted.
    ///
    /// # Errors
    ///
    /// [`SyncError`]; what was begun goes on with the next one.
    pub(crate) async fn sync(&self) -> Result<Option<Report>, SyncError> {
        let options = StoreOptions {
            servers: Vec::new(),
            credentials: Credentials::default(),
            connect_timeout: LEASE,
            timeout: LEASE,
            exchanges: NonZeroU32::MAX,
            tls: None,
        };
        let directory = self.directory.clone();
        let mut store = FileStore::new(&options, &FileOptions { directory });
        match Syncer::new(&self.namespace, &[self.size], LEASE) {
            Some(syncer) => syncer.sync(&mut store, &self.time).await,
            None => Ok(None),
        }
    }
}

/// The time, and random numbers.
pub(crate) struct Time {
    /// The time since 1970.
    now: fn() -> Duration,
    seed: Cell<u64>,
}

impl Time {
    /// A time that is told by `now`. Nodes differ in their seeds.
    pub(crate) fn new(now: fn() -> Duration, seed: u64) -> Time {
        Time { now, seed: Cell::new(seed) }
    }
}

impl Clock for Time {
    fn now(&self) -> UnixMillis {
        let millis = (self.now)().as_millis();
        UnixMillis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    fn fresh(&self) -> UnixMillis {
        self.now()
    }
}

impl Env for Time {
    fn uptime(&self) -> Duration {
        (self.now)()
    }

    fn random(&self) -> NonZeroU64 {
        // SplitMix64.
        let next = self.seed.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.seed.set(next);
        let mixed = (next ^ next >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        NonZeroU64::new(mixed ^ mixed >> 27).unwrap_or(NonZeroU64::MIN)
    }

    fn process(&self) -> u32 {
        std::process::id()
    }
}
