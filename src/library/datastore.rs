//! Stores that namespaces are synced with: Redis, Postgres, or one that the caller implements.

use core::fmt;
use core::num::NonZeroU32;
use core::pin::Pin;
use core::time::Duration;
use std::sync::Arc;

use super::definition::StoreSharing;
use super::store_tasks::{QuestionTasks, StoreTask};
use crate::policy::algorithm::Algorithm;
use crate::policy::namespace::SyncEarly;
use crate::policy::options::OptionError;
use crate::store::contract::decision::Decider;
use crate::store::contract::strategy::Strategy;
use crate::store::registry::{StoreSettings, StoreVisitor};

/// A store that several nodes share. Clones refer to the same store.
#[derive(Clone)]
pub struct Datastore(Arc<dyn StoreSource>);

/// Shortest lifetime of a lease.
const LEASE: Duration = Duration::from_secs(2);

/// Source of clients that sync namespaces with a store, and ask it for decisions.
trait StoreSource: Send + Sync {
    /// Returns the number of shards of a namespace.
    fn shards(&self) -> u16;

    /// Returns the time after which a user that holds a lease without renewing it counts as dead.
    fn lease_lifetime(&self) -> Duration;

    /// Returns the store's servers, and the most exchanges of all nodes with one of them in a
    /// second; `None` without a bound.
    fn exchanges(&self) -> Option<(Box<str>, NonZeroU32)> {
        None
    }

    /// Returns whether the store decides about hits by this algorithm.
    fn decides_by(&self, algorithm: Algorithm) -> bool;

    /// Creates the future that syncs a namespace. It runs in the store thread.
    fn sync(&self, task: StoreTask) -> ServedTask;

    /// Creates the future that asks the store for decisions. It runs in the store thread.
    fn decide(&self, tasks: QuestionTasks) -> ServedTask;
}

/// A future that serves a namespace.
pub(super) type ServedTask = Pin<Box<dyn Future<Output = ()>>>;

impl Datastore {
    /// Creates a store of Redis or Postgres: `strategy` is `redis` or `postgres`, and the options are the
    /// directives of a `ratelimit_store` block, each with its word. Connections are made when they are
    /// needed.
    ///
    /// ```
    /// use ngx_http_rate_limiting_module::library::Datastore;
    ///
    /// let store = Datastore::new("redis", [("server", "127.0.0.1:6379"), ("database", "1")])?;
    /// let error = Datastore::new("redis", [("tabel", "counters")]).unwrap_err();
    /// assert!(error.to_string().starts_with("unknown directive \"tabel\""));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OptionError`] names the option that is wrong; a file that an option names cannot be read. No
    /// message contains a password.
    pub fn new<'o>(
        strategy: &str,
        options: impl IntoIterator<Item = (&'o str, &'o str)>,
    ) -> Result<Datastore, OptionError> {
        let mut block = StoreSettings::builder(|path| std::fs::read(path));
        block.set(b"strategy", &[strategy.as_bytes()])?;
        for (name, word) in options {
            block.set(name.as_bytes(), &[word.as_bytes()])?;
        }
        let mut settings = block.finish()?;
        for (directive, file) in settings.common.files_mut() {
            let content = std::fs::read(&file.path).map_err(|error| {
                let path = file.path.display();
                let message = format!("{directive} \"{path}\" cannot be read ({error})");
                OptionError::new(message).of(directive)
            })?;
            file.content = content.into();
        }
        Ok(Datastore(Arc::new(settings)))
    }

    /// Creates a store that the caller implements. Each call of `connect` creates another client;
    /// `slowest` is the longest time of one exchange, including connecting.
    ///
    /// `connect` is called once where the namespace is defined, for [`Strategy::shards`], and then
    /// in the store thread. Clients stay in their thread.
    pub fn own<S: Strategy + 'static>(
        slowest: Duration,
        connect: impl Fn() -> S + Send + Sync + 'static,
    ) -> Datastore {
        let connect = Arc::new(connect);
        Datastore(Arc::new(OwnSource { slowest, connect }))
    }

    /// Creates a store that the caller implements, and that decides about hits if the
    /// [`NewOptions::sync_rate`] of a namespace is zero. It must not block its thread, which runs
    /// the timers of all hits. See also [`Datastore::own`].
    ///
    /// [`NewOptions::sync_rate`]: super::NewOptions::sync_rate
    pub fn own_deciding<S: Decider + 'static>(
        slowest: Duration,
        connect: impl Fn() -> S + Send + Sync + 'static,
    ) -> Datastore {
        let connect = Arc::new(connect);
        Datastore(Arc::new(DecidingSource(OwnSource { slowest, connect })))
    }

    pub(super) fn shards(&self) -> u16 {
        self.0.shards()
    }

    /// Returns the settings by which nodes share a namespace, with this share of limits unpushed.
    pub(super) fn sharing(&self, early: SyncEarly) -> StoreSharing {
        StoreSharing { shards: self.0.shards(), early: early.into(), exchanges: self.0.exchanges() }
    }

    pub(super) fn lease_lifetime(&self) -> Duration {
        self.0.lease_lifetime()
    }

    pub(super) fn decides_by(&self, algorithm: Algorithm) -> bool {
        self.0.decides_by(algorithm)
    }

    pub(super) fn sync(&self, task: StoreTask) -> ServedTask {
        self.0.sync(task)
    }

    pub(super) fn decide(&self, tasks: QuestionTasks) -> ServedTask {
        self.0.decide(tasks)
    }
}

impl fmt::Debug for Datastore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datastore").finish_non_exhaustive()
    }
}

impl StoreSource for StoreSettings {
    fn shards(&self) -> u16 {
        StoreSettings::shards(self)
    }

    fn lease_lifetime(&self) -> Duration {
        StoreSettings::lease_lifetime(self)
    }

    fn exchanges(&self) -> Option<(Box<str>, NonZeroU32)> {
        let servers = self.common.servers.iter().map(ToString::to_string);
        Some((servers.collect::<Vec<_>>().join(" ").into(), self.common.exchanges))
    }

    fn decides_by(&self, algorithm: Algorithm) -> bool {
        self.kind().decides_by(algorithm)
    }

    fn sync(&self, task: StoreTask) -> ServedTask {
        self.visit(task)
    }

    fn decide(&self, tasks: QuestionTasks) -> ServedTask {
        self.visit(tasks)
    }
}

impl StoreVisitor for StoreTask {
    type Output = ServedTask;

    fn visit<S: Decider + 'static>(self, connect: impl Fn() -> S + 'static) -> ServedTask {
        Box::pin(self.run(connect))
    }
}

impl StoreVisitor for QuestionTasks {
    type Output = ServedTask;

    fn visit<S: Decider + 'static>(self, connect: impl Fn() -> S + 'static) -> ServedTask {
        Box::pin(self.run(connect))
    }
}

/// A store that the caller implements.
struct OwnSource<F> {
    slowest: Duration,
    connect: Arc<F>,
}

impl<S, F> StoreSource for OwnSource<F>
where
    S: Strategy + 'static,
    F: Fn() -> S + Send + Sync + 'static,
{
    fn shards(&self) -> u16 {
        (self.connect)().shards().max(1)
    }

    fn lease_lifetime(&self) -> Duration {
        self.slowest.saturating_mul(2).max(LEASE)
    }

    fn decides_by(&self, _: Algorithm) -> bool {
        false
    }

    fn sync(&self, task: StoreTask) -> ServedTask {
        let connect = self.connect.clone();
        Box::pin(task.run(move || connect()))
    }

    fn decide(&self, _: QuestionTasks) -> ServedTask {
        Box::pin(core::future::ready(()))
    }
}

/// A store that the caller implements, and that decides.
struct DecidingSource<F>(OwnSource<F>);

impl<S, F> StoreSource for DecidingSource<F>
where
    S: Decider + 'static,
    F: Fn() -> S + Send + Sync + 'static,
{
    fn shards(&self) -> u16 {
        self.0.shards()
    }

    fn lease_lifetime(&self) -> Duration {
        self.0.lease_lifetime()
    }

    fn decides_by(&self, algorithm: Algorithm) -> bool {
        S::KINDS.contains(&algorithm.kind())
    }

    fn sync(&self, task: StoreTask) -> ServedTask {
        self.0.sync(task)
    }

    fn decide(&self, tasks: QuestionTasks) -> ServedTask {
        let connect = self.0.connect.clone();
        Box::pin(tasks.run(move || connect()))
    }
}
