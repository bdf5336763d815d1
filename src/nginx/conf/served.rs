//! The namespaces of a configuration, once its zones are mapped.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::broker::{DecidingStore, Observer, WatchedStore};
use crate::conf::configuration::{Configuration, NamespaceConf};
use crate::engine::{Deciders, Namespace};
use crate::policy::namespace::OnError;
use crate::policy::window::WindowSize;
use crate::store::registry::StoreSettings;

/// The namespaces by their numbers in the configuration; `None` for one that did not fit into its
/// zone. Set when the zones are mapped, before any request.
pub(super) type ServedNamespaces = Rc<OnceCell<Vec<Option<ServedNamespace>>>>;

/// A namespace in its zone.
#[derive(Debug)]
pub(super) struct ServedNamespace {
    pub(super) namespace: Namespace<'static>,
    /// The store that decides; `None` if this node decides.
    pub(super) synchronous: Option<Synchronous>,
}

/// The decisions of a synchronous namespace's store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Synchronous {
    /// The deciders, with their numbers among all in
    /// [`MainConf::deciding`](super::main::MainConf::deciding).
    pub(crate) store: Deciders,
    pub(crate) on_error: OnError,
    /// Longest wait of a request.
    pub(crate) timeout: Duration,
    /// Whether hits of busy keys are reserved ahead.
    pub(crate) is_reserving: bool,
}

/// The data for syncing a namespace with its store.
#[derive(Clone, Debug)]
pub(crate) struct SyncedNamespace {
    pub(crate) name: Box<str>,
    pub(crate) namespace: &'static Namespace<'static>,
    /// The configured window sizes.
    pub(crate) sizes: Vec<WindowSize>,
    /// Period of the sync.
    pub(crate) period: Duration,
    /// Time after which a lease holder that does not renew its lease counts as dead.
    pub(crate) lease_lifetime: Duration,
    pub(crate) store: Arc<WatchedStore>,
    /// The user of the store that the sync is.
    pub(crate) observer: Observer,
    pub(crate) options: StoreSettings,
    /// Whether hits are pushed early; then nodes also subscribe to the store's channel, if it has
    /// one.
    pub(crate) is_early: bool,
    /// Whether the store decides. Then only hits that were counted without it are pushed.
    pub(crate) is_synchronous: bool,
    /// Whether the timer starts with the first sync that a caller of the library asks for.
    pub(crate) waits_for_caller: bool,
    /// Keeps the configuration's `namespace` and its table alive.
    pub(super) _lent: Arc<Lent>,
}

/// Marker whose references keep a configuration's zones and namespaces alive.
#[derive(Debug, Default)]
pub(crate) struct Lent;

/// The synced namespaces that callers have defined in this process.
#[derive(Debug, Default)]
pub(super) struct LateNamespaces {
    /// The configuration's zones and stores, with the namespaces that were defined late and their
    /// stores.
    pub(super) configuration: RefCell<Option<Configuration>>,
    pub(super) served: RefCell<Vec<LateNamespace>>,
    /// Number of their deciders so far.
    deciders: Cell<usize>,
}

/// A synced namespace that was defined late.
#[derive(Clone)]
pub(crate) struct LateNamespace {
    pub(crate) synced: SyncedNamespace,
    /// The store that decides, with the number of its first decider; `None` if this node decides.
    pub(crate) decided: Option<(usize, DecidingStore)>,
}

impl core::fmt::Debug for LateNamespace {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LateNamespace").field("synced", &self.synced).finish_non_exhaustive()
    }
}

impl LateNamespaces {
    /// Returns all of these namespaces.
    pub(super) fn all(&self) -> Vec<LateNamespace> {
        self.served.borrow().clone()
    }

    /// Drops these namespaces, which keep their configuration's zones alive.
    pub(super) fn clear(&mut self) {
        self.served.get_mut().clear();
    }

    /// Takes numbers for `count` deciders. Returns the first one.
    pub(super) fn take_deciders(&self, count: u16) -> usize {
        let before = self.deciders.get();
        self.deciders.set(before.saturating_add(count.into()));
        before
    }
}

impl LateNamespace {
    /// Returns how the namespace's store decides; `None` if it does not.
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
