//! Instances: sets of namespaces, and the library's functions on them.

use core::time::Duration;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::SystemTime;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::asking::StoreDecisions;
use super::block_on::block_on;
use super::counting::{AskedIncrement, Increment, IncrementOutcome};
use super::datastore::Datastore;
use super::definition::DefinedNamespace;
use super::error::{CallError, NewError};
use super::limiter::{LimiterOptions, RateLimiter, number};
use super::options::{Checked, NewOptions, StoreUse};
use super::store_thread::StoreThread;
use super::sync_task::{StoreTask, SyncCall, SyncCommand};
use crate::engine::functions::arguments::{self, ArgumentError};
use crate::engine::{Machine, Report};
use crate::policy::namespace::{DEFAULT_NAMESPACE, SyncMode};

/// A set of namespaces, which no other instance sees. Clones are the same one.
///
/// All functions may be called at the same time, by any number of threads.
#[derive(Clone, Debug)]
pub struct Instance(Arc<InstanceState>);

#[derive(Debug, Default)]
struct InstanceState {
    namespaces: RwLock<BTreeMap<Box<str>, InstanceNamespace>>,
    /// Once there was a namespace with a store.
    thread: Mutex<Option<StoreThread>>,
}

#[derive(Clone, Debug)]
struct InstanceNamespace {
    namespace: Arc<DefinedNamespace>,
    /// To what syncs it; `None`: it is local.
    commands: Option<UnboundedSender<SyncCommand>>,
    /// Decisions of its store, if that decides about each hit.
    decisions: Option<Arc<StoreDecisions>>,
}

/// The instances that are in use.
static INSTANCES: Mutex<BTreeMap<Box<str>, Weak<InstanceState>>> = Mutex::new(BTreeMap::new());

/// Locks a mutex. Its value is whole at any time, even after a thread that held it has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The instance of this name, which is made if there is none in use.
///
/// It is in use while there is a clone of it. Then the stores of its namespaces are told what was not
/// pushed yet, in the background and for two seconds at most; [`Instance::sync`] before says whether
/// they took it.
///
/// # Errors
///
/// The name is empty, or longer than 256 bytes.
pub fn new_instance(instance_name: &str) -> Result<Instance, ArgumentError> {
    if !(1..=256).contains(&instance_name.len()) {
        let given = format_args!("{} bytes", instance_name.len());
        return Err(ArgumentError::new("instance_name", "1 to 256 bytes", given));
    }
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
    /// Defines a namespace. Its counters are those of all namespaces of this name in the same memory.
    ///
    /// # Errors
    ///
    /// [`NewError::Argument`]: this instance has a namespace of the name already, or an option is wrong;
    /// [`NewError::NoRoom`]: the memory has no place for another namespace; [`NewError::System`].
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
        let shards = store.map_or(0, |(store, _)| store.shards());
        let sync = match store {
            None => SyncMode::Local,
            Some((_, StoreUse::Periodic(period))) => SyncMode::Periodic(period),
            Some((_, StoreUse::Synchronous(_))) => SyncMode::Synchronous,
        };
        let namespace = DefinedNamespace::new(name, sizes, sync, shards, options.dict.table())?;
        let mut served =
            InstanceNamespace { namespace: Arc::new(namespace), commands: None, decisions: None };
        if let Some((store, store_use)) = store {
            self.serve(&mut served, store, store_use)?;
        }
        place.insert(served);
        Ok(())
    }

    /// Has a namespace served by the instance's thread.
    fn serve(
        &self,
        served: &mut InstanceNamespace,
        store: &Datastore,
        store_use: StoreUse,
    ) -> io::Result<()> {
        let mut thread = lock(&self.0.thread);
        let thread = match &mut *thread {
            Some(thread) => thread,
            none => none.insert(StoreThread::start()?),
        };
        let (sender, commands) = unbounded_channel();
        let period = match store_use {
            StoreUse::Periodic(period) => Some(period),
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
            commands,
        };
        served.commands = Some(sender);
        let store = store.clone();
        thread.run(move || store.sync(task))
    }

    /// Counts `value` hits of `key`, whatever the rate; returns the rate then. Where `sync_rate` is zero, the
    /// store counts them, and this waits for it.
    ///
    /// `weight` is the share of the previous window that counts, from 0, a fixed window, to 1, all of it. Without one,
    /// the window is sliding.
    ///
    /// # Errors
    ///
    /// [`CallError::Argument`] names the argument: the key has at least one byte, `window_size` is one of those
    /// of the namespace, `value` is not negative, the namespace was defined, and `weight` is within 0 to 1.
    /// [`CallError::NoAnswer`]: the store is silent, and hits are denied then.
    pub fn increment(
        &self,
        key: impl AsRef<[u8]>,
        window_size: Duration,
        value: f64,
        namespace: Option<&str>,
        weight: Option<f64>,
    ) -> Result<f64, CallError> {
        let increment = Increment::check(key.as_ref(), window_size, value, weight)?;
        // No future, unless there is something to wait for: with one, it takes a quarter longer.
        match self.count(&increment, namespace)? {
            IncrementOutcome::Here(hits) => Ok(number(hits)),
            IncrementOutcome::ByStore(asked) => Ok(number(block_on(asked.count(&increment))?)),
        }
    }

    /// Counts as [`Instance::increment`] does, as a future that any executor can run. Hits may
    /// count if it is dropped.
    ///
    /// # Errors
    ///
    /// As [`Instance::increment`].
    pub async fn increment_async(
        &self,
        key: impl AsRef<[u8]>,
        window_size: Duration,
        value: f64,
        namespace: Option<&str>,
        weight: Option<f64>,
    ) -> Result<f64, CallError> {
        let increment = Increment::check(key.as_ref(), window_size, value, weight)?;
        match self.count(&increment, namespace)? {
            IncrementOutcome::Here(hits) => Ok(number(hits)),
            IncrementOutcome::ByStore(asked) => Ok(number(asked.count(&increment).await?)),
        }
    }

    /// Counts, unless the store is to be asked.
    #[inline]
    fn count(
        &self,
        increment: &Increment<'_>,
        namespace: Option<&str>,
    ) -> Result<IncrementOutcome, ArgumentError> {
        self.with(namespace, |served| match &served.decisions {
            None => Ok(IncrementOutcome::Here(increment.here(&served.namespace)?)),
            Some(decisions) => Ok(IncrementOutcome::ByStore(AskedIncrement {
                namespace: served.namespace.clone(),
                decisions: decisions.clone(),
            })),
        })?
    }

    /// The rate of `key` now; 0 if it was never seen. `cur_diff`, if it is told, takes the place of what was
    /// counted here and not pushed yet.
    ///
    /// # Errors
    ///
    /// As [`Instance::increment`]; `cur_diff` may be negative.
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
        Ok(number(hits))
    }

    /// A limiter in a namespace.
    ///
    /// # Errors
    ///
    /// [`NewError::Argument`]: an option is wrong; a namespace that is synced has sliding and fixed windows
    /// only, unless its store decides, and knows others.
    pub fn limiter(&self, options: &LimiterOptions) -> Result<RateLimiter, NewError> {
        let served = self.with(Some(&options.namespace), Clone::clone)?;
        options.make(&served.namespace, served.decisions)
    }

    /// Pushes what was counted here to the store, fetches what others counted, and waits for that. The
    /// first call has this done after each `sync_rate` from then on. In a namespace that is local it
    /// does nothing.
    ///
    /// # Errors
    ///
    /// [`CallError::Argument`]: the namespace was not defined; [`CallError::Sync`]: the store did not do as it
    /// was asked, which the next sync makes good; [`CallError::Ended`].
    pub fn sync(&self, namespace: Option<&str>) -> Result<Report, CallError> {
        block_on(self.sync_async(namespace))
    }

    /// Syncs as [`Instance::sync`] does, as a future that any executor can run. A sync that has
    /// begun goes on if the future is dropped.
    ///
    /// # Errors
    ///
    /// As [`Instance::sync`].
    pub async fn sync_async(&self, namespace: Option<&str>) -> Result<Report, CallError> {
        self.ask(namespace, SyncCall::Sync)?.done().await
    }

    /// Fetches all that matters of the namespace from its store, whatever was fetched before, and waits for
    /// that; what was counted here is pushed on the way.
    ///
    /// Of those who share the memory, one does so at a time: others wait. `time` is as of when the counters
    /// matter, and `timeout` how long others are kept from it at most: the one is this machine's own time
    /// in any case, and the other ends with the fetch, so that both are checked only.
    ///
    /// # Errors
    ///
    /// As [`Instance::sync`]; `time` is before 1970, or `timeout` longer than 366 days.
    pub fn fetch(
        &self,
        namespace: Option<&str>,
        time: SystemTime,
        timeout: Option<Duration>,
    ) -> Result<Report, CallError> {
        block_on(self.fetch_async(namespace, time, timeout))
    }

    /// Fetches as [`Instance::fetch`] does, as a future that any executor can run. A fetch that has
    /// begun goes on if the future is dropped.
    ///
    /// # Errors
    ///
    /// As [`Instance::fetch`].
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
        self.ask(namespace, SyncCall::Fetch)?.done().await
    }

    /// Asks for a sync.
    fn ask(&self, namespace: Option<&str>, kind: SyncCall) -> Result<AskedSync, CallError> {
        let commands = self.with(namespace, |served| served.commands.clone())?;
        let Some(commands) = commands else {
            return Ok(AskedSync(None));
        };
        let (reply, answer) = oneshot::channel();
        let sent = commands.send(SyncCommand { kind, reply });
        sent.map_err(|_| CallError::Ended)?;
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

/// The longest time.
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

/// A sync that was asked for; `None`: there is nothing to do.
struct AskedSync(Option<oneshot::Receiver<Result<Report, crate::engine::SyncError>>>);

impl AskedSync {
    async fn done(self) -> Result<Report, CallError> {
        match self.0 {
            None => Ok(Report::default()),
            Some(answer) => Ok(answer.await.map_err(|_| CallError::Ended)??),
        }
    }
}
