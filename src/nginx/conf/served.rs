//! The namespaces of a configuration, once its zones are mapped.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::broker::{DecidingStore, WatchedStore};
use crate::conf::configuration::{Configuration, NamespaceConf};
use crate::engine::{Deciders, Namespace};
use crate::policy::namespace::OnError;
use crate::policy::window::WindowSize;
use crate::store::registry::StoreSettings;

/// The namespaces, by their numbers in the configuration; `None` for one that has no place in its zone.
/// Set when the zones are mapped, before any request.
pub(super) type ServedNamespaces = Rc<OnceCell<Vec<Option<ServedNamespace>>>>;

/// A namespace in its zone.
#[derive(Debug)]
pub(super) struct ServedNamespace {
    pub(super) namespace: Namespace<'static>,
    /// Decisions of its store, if it decides.
    pub(super) synchronous: Option<Synchronous>,
}

/// The decisions of a synchronous namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Synchronous {
    /// The deciders: their numbers are those of all deciders in
    /// [`MainConf::deciding`](super::main::MainConf::deciding).
    pub(crate) store: Deciders,
    pub(crate) on_error: OnError,
    /// Longest wait of a request.
    pub(crate) timeout: Duration,
    /// Whether hits of busy keys are charged ahead.
    pub(crate) is_reserving: bool,
}

/// A namespace that is synced with a store: all that takes.
#[derive(Clone, Debug)]
pub(crate) struct SyncedNamespace {
    pub(crate) name: Box<str>,
    pub(crate) namespace: &'static Namespace<'static>,
    /// The windows that are counted in.
    pub(crate) sizes: Vec<WindowSize>,
    /// Period of its sync.
    pub(crate) period: Duration,
    /// Time after which a silent worker counts as dead.
    pub(crate) lease_lifetime: Duration,
    pub(crate) store: Arc<WatchedStore>,
    /// The number of this namespace among those with the store.
    pub(crate) number: usize,
    pub(crate) options: StoreSettings,
    /// Whether hits are pushed before their time, and nodes hear each other if the store has a channel.
    pub(crate) is_early: bool,
    /// Whether the store decides: only what was counted without it is pushed.
    pub(crate) is_synchronous: bool,
    /// Whether the timer starts when a caller of the library syncs for the first time.
    pub(crate) waits_for_caller: bool,
    /// Keeps the configuration's `namespace` and its table as long as there is this.
    pub(super) _lent: Arc<Lent>,
}

/// While there is another one of a configuration's, its zones and namespaces stay.
#[derive(Debug, Default)]
pub(super) struct Lent;

/// The synced namespaces that callers have defined in this process.
#[derive(Debug, Default)]
pub(super) struct LateNamespaces {
    /// The zones and stores of the configuration, and the namespaces that were defined late, with their stores.
    pub(super) configuration: RefCell<Option<Configuration>>,
    pub(super) served: RefCell<Vec<LateNamespace>>,
    /// Number of their deciders.
    deciders: Cell<usize>,
}

/// A namespace that is synced, and was defined late.
#[derive(Clone)]
pub(crate) struct LateNamespace {
    pub(crate) synced: SyncedNamespace,
    /// The store that decides, if not the node, with the number of its first decider.
    pub(crate) decided: Option<(usize, DecidingStore)>,
}

impl core::fmt::Debug for LateNamespace {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LateNamespace").field("synced", &self.synced).finish_non_exhaustive()
    }
}

impl LateNamespaces {
    /// Returns all of them.
    pub(super) fn all(&self) -> Vec<LateNamespace> {
        self.served.borrow().clone()
    }

    /// Forgets them: they lend what their configuration has.
    pub(super) fn clear(&mut self) {
        self.served.get_mut().clear();
    }

    /// Takes numbers for `count` deciders; returns how many were taken before.
    pub(super) fn take_deciders(&self, count: u16) -> usize {
        let before = self.deciders.get();
        self.deciders.set(before.saturating_add(count.into()));
        before
    }
}

impl LateNamespace {
    /// Returns how its store decides, if it does.
    pub(super) fn synchronous(&self, conf: &NamespaceConf) -> Option<Synchronous> {
        let (first, _) = self.decided.as_ref()?;
        Some(Synchronous {
            store: Deciders { first: *first, shards: self.synced.options.shards() },
            on_error: conf.options.on_error,
            timeout: conf.options.timeout,
            is_reserving: false,
        })
    }
}
