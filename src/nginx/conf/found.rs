//! Namespaces and limiters that callers of the library use.

use core::cell::RefCell;
use std::rc::Rc;

use super::library_error::LibraryError;
use super::served::Synchronous;
use crate::conf::configuration::NamespaceConf;
use crate::engine::functions::arguments;
use crate::engine::{Committed, Limiter, Namespace, WindowCounters};
use crate::policy::namespace::SyncMode;
use crate::policy::window::WindowSize;
use crate::store::registry::StoreKind;

/// A namespace for callers of the library.
#[derive(Debug)]
pub(crate) struct FoundNamespace {
    pub(crate) name: Box<str>,
    pub(crate) namespace: &'static Namespace<'static>,
    /// The window sizes that callers may use; `None` if they may use any.
    pub(super) sizes: Option<Vec<WindowSize>>,
    pub(crate) sync: SyncMode,
    /// The kind of its store; `None` without one.
    pub(crate) store: Option<StoreKind>,
    /// The store that decides; `None` if this node decides.
    pub(crate) synchronous: Option<Synchronous>,
    pub(super) windows: RefCell<Vec<WindowCounters<'static>>>,
    /// Limiters without a limit, for increments that a store decides.
    pub(super) unlimited: RefCell<Vec<Rc<LibraryLimiter>>>,
}

/// A limiter, with its latest commits.
#[derive(Debug)]
pub(crate) struct LibraryLimiter {
    pub(crate) limiter: Limiter<'static>,
    pub(crate) synchronous: Option<Synchronous>,
    committed: RefCell<Vec<Committed<'static>>>,
}

impl FoundNamespace {
    /// Creates a local namespace with windows of any size.
    pub(super) fn local(name: &str, namespace: &'static Namespace<'static>) -> FoundNamespace {
        FoundNamespace {
            name: name.into(),
            namespace,
            sizes: None,
            sync: SyncMode::Local,
            store: None,
            synchronous: None,
            windows: RefCell::default(),
            unlimited: RefCell::default(),
        }
    }

    /// Creates a namespace of the configuration, without its store.
    pub(super) fn of(
        conf: &NamespaceConf,
        namespace: &'static Namespace<'static>,
    ) -> FoundNamespace {
        let sizes = (!conf.is_open()).then(|| conf.window_sizes.clone());
        let sync = conf.options.sync;
        FoundNamespace { sizes, sync, ..FoundNamespace::local(&conf.name, namespace) }
    }

    /// Calls `callback` with the counters of windows of this size.
    #[inline]
    pub(crate) fn with_windows<T>(
        &self,
        size: WindowSize,
        callback: impl FnOnce(&WindowCounters<'static>) -> T,
    ) -> Result<T, LibraryError> {
        if let Some(windows) = self.windows.borrow().iter().find(|it| it.size() == size) {
            return Ok(callback(windows));
        }
        self.add_windows(size)?;
        let windows = self.windows.borrow();
        windows.last().map(callback).ok_or(LibraryError::Fault)
    }

    #[cold]
    fn add_windows(&self, size: WindowSize) -> Result<(), LibraryError> {
        arguments::counted_size("window_size", size, self.counted())?;
        remember(&self.windows, WindowCounters::new(self.namespace, size));
        Ok(())
    }

    /// Returns the limiter without a limit that counts in windows of this size.
    pub(crate) fn unlimited(&self, size: WindowSize) -> Result<Rc<LibraryLimiter>, LibraryError> {
        arguments::counted_size("window_size", size, self.counted())?;
        let of_size = |it: &&Rc<LibraryLimiter>| it.limiter.bound().limit.size == size;
        if let Some(known) = self.unlimited.borrow().iter().find(of_size) {
            return Ok(known.clone());
        }
        let limiter = Limiter::unlimited(self.namespace, size);
        let limiter = Rc::new(LibraryLimiter::new(limiter, self.synchronous));
        remember(&self.unlimited, limiter.clone());
        Ok(limiter)
    }

    /// Returns its name, and the sizes that callers may use; `None` if they may use any.
    pub(crate) fn counted(&self) -> (&str, Option<&[WindowSize]>) {
        (&self.name, self.sizes.as_deref())
    }
}

/// Adds a value to the latest 64. Bounds the memory for callers that use ever new ones.
fn remember<T>(latest: &RefCell<Vec<T>>, new: T) {
    let mut latest = latest.borrow_mut();
    if latest.len() >= 64 {
        latest.remove(0);
    }
    latest.push(new);
}

impl LibraryLimiter {
    pub(crate) fn new(
        limiter: Limiter<'static>,
        synchronous: Option<Synchronous>,
    ) -> LibraryLimiter {
        LibraryLimiter { limiter, synchronous, committed: RefCell::default() }
    }

    /// Remembers hits that were committed.
    pub(crate) fn remember(&self, committed: Option<Committed<'static>>) {
        if let Some(committed) = committed {
            remember(&self.committed, committed);
        }
    }

    /// Removes and returns the latest commit of a key.
    pub(crate) fn take_committed(&self, key: &[u8]) -> Option<Committed<'static>> {
        let mut all = self.committed.borrow_mut();
        let index = all.iter().rposition(|it| it.is_of(self.limiter.bound(), key));
        index.map(|index| all.remove(index))
    }
}
