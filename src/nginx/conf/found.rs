//! A namespace, and a limiter, that a caller of the library has found.

use core::cell::RefCell;
use std::rc::Rc;

use super::library_error::LibraryError;
use super::served::Synchronous;
use crate::engine::functions::arguments::ArgumentError;
use crate::engine::{Limiter, Namespace, Refund, WindowCounters};
use crate::policy::hits::Hits;
use crate::policy::key::counted_name;
use crate::policy::namespace::SyncMode;
use crate::policy::window::WindowSize;
use crate::store::registry::StoreKind;

/// A namespace that a caller has found.
#[derive(Debug)]
pub(crate) struct FoundNamespace {
    pub(crate) name: Box<str>,
    pub(crate) namespace: &'static Namespace<'static>,
    /// The windows that are counted in.
    pub(super) sizes: Vec<WindowSize>,
    /// Whether others are, too.
    pub(super) is_open: bool,
    pub(crate) sync: SyncMode,
    /// The kind of its store, if it has one.
    pub(crate) store: Option<StoreKind>,
    /// The store that decides, if not the node.
    pub(crate) synchronous: Option<Synchronous>,
    pub(super) windows: RefCell<Vec<WindowCounters<'static>>>,
    /// For increments about which a store is asked.
    pub(crate) unlimited: RefCell<Vec<Rc<LibraryLimiter>>>,
}

/// A limiter, with what it has committed of late.
#[derive(Debug)]
pub(crate) struct LibraryLimiter {
    pub(crate) limiter: Limiter<'static>,
    pub(crate) synchronous: Option<Synchronous>,
    committed: RefCell<Vec<Committed>>,
}

/// Hits that were counted.
#[derive(Debug)]
pub(crate) enum Committed {
    /// Hits in a counter of this node.
    Here(Refund<'static>),
    /// Hits that a store counted, with the key's name there.
    InStore(Box<[u8]>, Hits),
}

impl FoundNamespace {
    /// Makes a local namespace of these windows that a caller has found; in one that `is_open`, others are counted in,
    /// too.
    pub(super) fn local(
        name: &str,
        namespace: &'static Namespace<'static>,
        sizes: Vec<WindowSize>,
        is_open: bool,
    ) -> FoundNamespace {
        FoundNamespace {
            name: name.into(),
            namespace,
            sizes,
            is_open,
            sync: SyncMode::Local,
            store: None,
            synchronous: None,
            windows: RefCell::default(),
            unlimited: RefCell::default(),
        }
    }

    /// Calls `callback` with the counters in windows of this size.
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
        self.check_size("window_size", size)?;
        let windows = WindowCounters::new(self.namespace, size);
        let mut all = self.windows.borrow_mut();
        // One that asks for ever others does not fill the memory.
        if all.len() >= 64 {
            all.remove(0);
        }
        all.push(windows);
        Ok(())
    }

    /// Checks that windows of this size are counted in.
    pub(crate) fn check_size(&self, argument: &str, size: WindowSize) -> Result<(), LibraryError> {
        if self.is_open || self.sizes.contains(&size) {
            return Ok(());
        }
        let sizes: Vec<_> = self.sizes.iter().map(ToString::to_string).collect();
        let sizes = sizes.join(", ");
        let expected = format!("one of the window_sizes of namespace \"{}\" ({sizes})", self.name);
        Err(ArgumentError::new(argument, &expected, size).into())
    }
}

impl LibraryLimiter {
    /// Greatest number of remembered commits.
    const REMEMBERED: usize = 64;

    pub(crate) fn new(
        limiter: Limiter<'static>,
        synchronous: Option<Synchronous>,
    ) -> LibraryLimiter {
        LibraryLimiter { limiter, synchronous, committed: RefCell::default() }
    }

    /// Remembers hits that were counted.
    pub(crate) fn remember(&self, committed: Committed) {
        let mut all = self.committed.borrow_mut();
        if all.len() >= Self::REMEMBERED {
            all.remove(0);
        }
        all.push(committed);
    }

    /// Takes the last commit of a key.
    pub(crate) fn take_committed(&self, key: &[u8]) -> Option<Committed> {
        let mut all = self.committed.borrow_mut();
        let index = all.iter().rposition(|it| match it {
            Committed::Here(refund) => refund.is_of(self.limiter.bound(), key),
            Committed::InStore(known, _) => **known == *counted_name(key, None),
        });
        index.map(|index| all.remove(index))
    }
}
