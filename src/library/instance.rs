//! Instances: sets of namespaces, and the library's functions on them.

use core::time::Duration;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::SystemTime;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::asking::{AskedIncrement, IncrementOutcome, StoreDecisions, block_on};
use super::datastore::Datastore;
use super::definition::DefinedNamespace;
use super::error::{CallError, NewError};
use super::limiter::{LimiterOptions, RateLimiter};
use super::memory::Memory;
use super::options::{Checked, NewOptions, StoreUse};
use super::store_tasks::StoreTask;
use super::store_thread::StoreThread;
use crate::engine::functions::arguments::{self, ArgumentError};
use crate::engine::{Increment, Machine, Report, SyncCommand, SyncError, SyncResult};
use crate::policy::namespace::{DEFAULT_NAMESPACE, SyncEarly, SyncMode};

/// A set of namespaces that other instances do not see. Clones refer to the same instance.
///
/// All functions can be called concurrently from any thread.
#[derive(Clone, Debug)]
pub struct Instance(Arc<InstanceState>);

#[derive(Debug, Default)]
struct InstanceState {
    namespaces: RwLock<BTreeMap<Box<str>, InstanceNamespace>>,
    /// Started with the first namespace that has a store.
    thread: Mutex<Option<StoreThread>>,
}

#[derive(Clone, Debug)]
struct InstanceNamespace {
    namespace: Arc<DefinedNamespace>,
    /// Sends to the sync task; `None` if the namespace is local.
    commands: Option<UnboundedSender<SyncCommand>>,
    /// Decisions of the store; `None` if it does not decide about each hit.
    decisions: Option<Arc<StoreDecisions>>,
}

/// All instances in use.
static INSTANCES: Mutex<BTreeMap<Box<str>, Weak<InstanceState>>> = Mutex::new(BTreeMap::new());

/// Locks a mutex, even if a thread has panicked while it held the lock: the values are never
/// half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the instance with this name, which is created unless it is in use.
///
/// An instance is in use while it has a clone. After the last clone and the last limiter are
/// dropped, hits that are not pushed yet are pushed in the background for at most two seconds. Call
/// [`Instance::sync`] before that to learn whether the stores took them.
///
/// # Errors
///
/// The name is empty, or longer than 256 bytes.
pub fn new_instance(instance_name: &str) -> Result<Instance, ArgumentError> {
    arguments::instance(instance_name.as_bytes())?;
    let mut instances = lock(&INSTANCES);
    if let Some(known) = instances.get(instance_name).and_then(Weak::upgrade) {
        return Ok(Instance(known));
    }
    instances.retain(|_, instance| instance.strong_count() > 0);
    let new = Arc::new(InstanceState::default());
    instances.insert(instance_name.into(), Arc::downgrade(&new));
    Ok(Instance(new))
}

impl Instance {
    /// Defines a namespace. All namespaces of this name in the same memory share their counters.
    ///
    /// # Errors
    ///
    /// [`NewError::Argument`] if this instance has defined the namespace before, or an option is
    /// wrong; [`NewError::NoRoom`] if the memory has no room for another namespace;
    /// [`NewError::System`].
    #[expect(clippy::new_ret_no_self, reason = "the name that the specification gives it")]
    pub fn new(&self, options: &NewOptions) -> Result<(), NewError> {
        let Checked { name, sizes, store } = options.check()?;
        let mut namespaces = self.0.namespaces.write();
        let namespaces = namespaces.as_deref_mut().unwrap_or_else(|poisoned| poisoned.get_mut());
        let Entry::Vacant(place) = namespaces.entry(name.clone()) else {
            let expected = "a name that this instance has not defined";
            let given = format_args!("\"{name}\"");
            return Err(ArgumentError::new("namespace", expected, given).into());
        };
        let (sync, early) = match store {
            None => (SyncMode::Local, SyncEarly::Off),
            Some((_, StoreUse::Periodic(period, early))) => (SyncMode::Periodic(period), early),
            Some((_, StoreUse::Synchronous(_))) => (SyncMode::Synchronous, SyncEarly::Off),
        };
        let sharing = store.map(|(store, _)| store.sharing(early)).unwrap_or_default();
        let namespace = DefinedNamespace::new(name, sizes, sync, sharing, options.dict.table())?;
        let mut served =
            InstanceNamespace { namespace: Arc::new(namespace), commands: None, decisions: None };
        if let Some((store, store_use)) = store {
            self.serve(&mut served, store, store_use, &options.dict)?;
        }
        place.insert(served);
        Ok(())
    }

    /// Starts to serve a namespace in the instance's store thread.
    fn serve(
        &self,
        served: &mut InstanceNamespace,
        store: &Datastore,
        store_use: StoreUse,
        memory: &Memory,
    ) -> io::Result<()> {
        let mut thread = lock(&self.0.thread);
        let thread = match &mut *thread {
            Some(thread) => thread,
            none => none.insert(StoreThread::start()?),
        };
        let (sender, commands) = unbounded_channel();
        let period = match store_use {
            StoreUse::Periodic(period, _) => Some(period),
            StoreUse::Synchronous(options) => {
                let runtime = thread.runtime().clone();
                let (decisions, tasks) =
                    StoreDecisions::new(&served.namespace, store, options, runtime);
                served.decisions = Some(Arc::new(decisions));
                let store = store.clone();
                thread.run(move || store.decide(tasks))?;
                None
            }
        };
        let task = StoreTask {
            namespace: served.namespace.clone(),
            period,
            lease_lifetime: store.lease_lifetime(),
            bell: memory.bell(),
            sender: sender.downgrade(),
            commands,
        };
        served.commands = Some(sender);
        let store = store.clone();
        thread.run(move || store.sync(task))
    }

    /// Counts `value` hits of `key`, whatever the rate. Returns the new rate. If `sync_rate` is
    /// zero, the store counts the hits, and the call waits for it.
    ///
    /// `weight` is the share of the previous window that counts, from 0 (fixed window) to 1.
    /// Without it, the window slides.
    ///
    /// # Errors
    ///
    /// [`CallError::Argument`] if the key is empty, `window_size` is not one of the namespace's,
    /// `value` is negative, the namespace is not defined, or `weight` is not from 0 to 1.
    /// [`CallError::NoAnswer`] if the store does not answer and `on_error` denies.
    pub fn increment(
        &self,
        key: impl AsRef<[u8]>,
        window_size: Duration,
        value: f64,
        namespace: Option<&str>,
        weight: Option<f64>,
    ) -> Result<f64, CallError> {
        let increment = Increment::new(key.as_ref(), window_size.as_secs_f64(), value, weight)?;
        // A future is used only to wait for a store: with it, the call takes a quarter longer.
        match self.count(&increment, namespace)? {
            IncrementOutcome::Here(hits) => Ok(hits.to_f64()),
            IncrementOutcome::ByStore(asked) => Ok(block_on(asked.count(&increment))?.to_f64()),
        }
    }

    /// Async variant of [`Instance::increment`], for any executor. If the future is dropped, the
    /// hits may count.
    ///
    /// # Errors
    ///
    /// See [`Instance::increment`].
    pub async fn increment_async(
        &self,
        key: impl AsRef<[u8]>,
        window_size: Duration,
        value: f64,
        namespace: Option<&str>,
        weight: Option<f64>,
    ) -> Result<f64, CallError> {
        let increment = Increment::new(key.as_ref(), window_size.as_secs_f64(), value, weight)?;
        match self.count(&increment, namespace)? {
            IncrementOutcome::Here(hits) => Ok(hits.to_f64()),
            IncrementOutcome::ByStore(asked) => Ok(asked.count(&increment).await?.to_f64()),
        }
    }

    /// Counts in memory, or returns the increment that the store must count.
    #[inline]
    fn count(
        &self,
        increment: &Increment<'_>,
        namespace: Option<&str>,
    ) -> Result<IncrementOutcome, ArgumentError> {
        self.with(namespace, |served| match &served.decisions {
            None => Ok(IncrementOutcome::Here(served.namespace.increment(increment)?)),
            Some(decisions) => Ok(IncrementOutcome::ByStore(AskedIncrement {
                namespace: served.namespace.clone(),
                decisions: decisions.clone(),
            })),
        })?
    }

    /// Returns the current rate of `key`; 0 for a new key. `cur_diff`, if given, replaces the hits
    /// that were counted here and not pushed yet.
    ///
    /// # Errors
    ///
    /// See [`Instance::increment`]; `cur_diff` may be negative.
    pub fn sliding_window(
        &self,
        key: impl AsRef<[u8]>,
        window_size: Duration,
        cur_diff: Option<f64>,
        namespace: Option<&str>,
        weight: Option<f64>,
    ) -> Result<f64, CallError> {
        let key = arguments::key(key.as_ref())?;
        let size = arguments::window_size("window_size", window_size.as_secs_f64())?;
        let diff = cur_diff.map(|diff| arguments::difference("cur_diff", diff));
        let diff = diff.transpose()?;
        let weight = arguments::weight(weight)?;
        let hits = self.with(namespace, |served| {
            let namespace = &served.namespace;
            namespace.with_windows(size, |it| it.sliding_window(key, diff, weight, &Machine))
        })??;
        Ok(hits.to_f64())
    }

    /// Creates a limiter in a namespace.
    ///
    /// # Errors
    ///
    /// [`NewError::Argument`] if an option is wrong. A synced namespace supports only sliding and
    /// fixed windows, unless its store decides by other algorithms.
    pub fn limiter(&self, options: &LimiterOptions) -> Result<RateLimiter, NewError> {
        let served = self.with(Some(&options.namespace), Clone::clone)?;
        options.make(&served.namespace, served.decisions, served.commands)
    }

    /// Pushes the hits counted here to the store, fetches the counts of other nodes, and waits for
    /// both. After the first call, the namespace is also synced every `sync_rate`. Does nothing in
    /// a local namespace.
    ///
    /// # Errors
    ///
    /// [`CallError::Argument`] if the namespace is not defined; [`CallError::Sync`] if the store
    /// fails, which the next sync corrects; [`CallError::Ended`].
    pub fn sync(&self, namespace: Option<&str>) -> Result<Report, CallError> {
        block_on(self.sync_async(namespace))
    }

    /// Async variant of [`Instance::sync`], for any executor. If the future is dropped, a sync that
    /// has begun continues.
    ///
    /// # Errors
    ///
    /// See [`Instance::sync`].
    pub async fn sync_async(&self, namespace: Option<&str>) -> Result<Report, CallError> {
        self.ask(namespace, false)?.done().await
    }

    /// Fetches all current counters of the namespace from its store, even if they were fetched
    /// before, and waits for them. Hits counted here are pushed as well.
    ///
    /// One user of the memory fetches at a time; others wait. `time` and `timeout` are only
    /// checked: counters are those of this machine's time, and others wait until the fetch has
    /// ended.
    ///
    /// # Errors
    ///
    /// See [`Instance::sync`]; also if `time` is before 1970, or `timeout` longer than 366 days.
    pub fn fetch(
        &self,
        namespace: Option<&str>,
        time: SystemTime,
        timeout: Option<Duration>,
    ) -> Result<Report, CallError> {
        block_on(self.fetch_async(namespace, time, timeout))
    }

    /// Async variant of [`Instance::fetch`], for any executor. If the future is dropped, a fetch
    /// that has begun continues.
    ///
    /// # Errors
    ///
    /// See [`Instance::fetch`].
    pub async fn fetch_async(
        &self,
        namespace: Option<&str>,
        time: SystemTime,
        timeout: Option<Duration>,
    ) -> Result<Report, CallError> {
        if let Err(before) = time.duration_since(SystemTime::UNIX_EPOCH) {
            let given = format_args!("{:?} before", before.duration());
            return Err(ArgumentError::new("time", "a time after 1970", given).into());
        }
        if let Some(timeout) = timeout.filter(|timeout| *timeout > LONGEST) {
            let expected = "seconds from 0 to 31622400";
            let given = timeout.as_secs_f64();
            return Err(ArgumentError::new("timeout", expected, given).into());
        }
        self.ask(namespace, true)?.done().await
    }

    /// Requests a sync, which starts the timer, or a fetch.
    fn ask(&self, namespace: Option<&str>, fetches_anew: bool) -> Result<AskedSync, CallError> {
        let commands = self.with(namespace, |served| served.commands.clone())?;
        let Some(commands) = commands else {
            return Ok(AskedSync(None));
        };
        let (reply, answer) = oneshot::channel();
        // The caller may be gone.
        let reply = Box::new(move |result| drop(reply.send(result)));
        // The timer counts from the requested cycle.
        let timer = (!fetches_anew).then_some(SyncCommand::StartTimer);
        for command in [SyncCommand::Sync { fetches_anew, reply }].into_iter().chain(timer) {
            commands.send(command).map_err(|_| CallError::Ended)?;
        }
        Ok(AskedSync(Some(answer)))
    }

    fn with<T>(
        &self,
        namespace: Option<&str>,
        callback: impl FnOnce(&InstanceNamespace) -> T,
    ) -> Result<T, ArgumentError> {
        let name = namespace.unwrap_or(DEFAULT_NAMESPACE);
        let namespaces = self.0.namespaces.read();
        let namespaces = namespaces.unwrap_or_else(PoisonError::into_inner);
        match namespaces.get(name) {
            Some(served) => Ok(callback(served)),
            None => Err(unknown(name)),
        }
    }
}

/// Longest accepted time: 366 days.
const LONGEST: Duration = Duration::from_secs(31_622_400);

#[cold]
fn unknown(name: &str) -> ArgumentError {
    match arguments::name("namespace", name.as_bytes()) {
        Ok(name) => {
            let expected = "one that was defined with \"new\"";
            ArgumentError::new("namespace", expected, format_args!("\"{name}\""))
        }
        Err(error) => error,
    }
}

/// A requested sync; `None` if there is nothing to sync.
struct AskedSync(Option<oneshot::Receiver<SyncResult>>);

impl AskedSync {
    async fn done(self) -> Result<Report, CallError> {
        let Some(answer) = self.0 else {
            return Ok(Report::default());
        };
        match answer.await.map_err(|_| CallError::Ended)?? {
            Some(report) if !report.is_part => Ok(report),
            // The namespace may have another store by now.
            _ => Err(SyncError::LeaseLost.into()),
        }
    }
}
