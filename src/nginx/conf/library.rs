//! State of the library's callers under one configuration: instances with the namespaces that they
//! define, namespaces that were found, and limiters. A caller refers to each by a handle, which
//! contains the number of the configuration.

use core::cell::RefCell;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::rc::Rc;

use super::found::{FoundNamespace, LibraryLimiter};
use super::library_error::LibraryError;

/// The state of all callers.
#[derive(Debug)]
pub(crate) struct Library {
    /// Number of the configuration. A handle with another number is stale.
    number: u32,
    /// The instances. The first is the default one.
    instances: RefCell<Vec<LibraryInstance>>,
    /// Names of namespaces that instances define and nginx.conf does not.
    defined: RefCell<Vec<Box<str>>>,
    found: RefCell<Vec<Rc<FoundNamespace>>>,
    limiters: RefCell<Vec<Rc<LibraryLimiter>>>,
}

/// An instance: a set of definitions.
#[derive(Debug, Default)]
struct LibraryInstance {
    name: Box<[u8]>,
    defines: Vec<Box<str>>,
}

/// The kind of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandleKind {
    Instance,
    Namespace,
    Limiter,
}

impl Default for Library {
    fn default() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        Library {
            number: NUMBER.fetch_add(1, Relaxed).wrapping_add(1),
            instances: RefCell::new(vec![LibraryInstance::default()]),
            defined: RefCell::default(),
            found: RefCell::default(),
            limiters: RefCell::default(),
        }
    }
}

impl Library {
    /// Bits of a handle's index. The two bits above are the kind, and the rest is the number of the
    /// configuration.
    const INDEX_BITS: u32 = 18;
    /// Most handles of one kind.
    const MOST: usize = 1 << 16;

    fn handle(&self, kind: HandleKind, index: usize) -> Result<u32, LibraryError> {
        if index >= Self::MOST {
            return Err(LibraryError::TooMany);
        }
        let index = u32::try_from(index).map_err(|_| LibraryError::TooMany)?;
        Ok(self.tag(kind) << Self::INDEX_BITS | index.wrapping_add(1))
    }

    #[inline]
    fn tag(&self, kind: HandleKind) -> u32 {
        (self.number << 2 | kind as u32) & (u32::MAX >> Self::INDEX_BITS)
    }

    #[inline]
    fn index(&self, kind: HandleKind, handle: u32) -> Result<usize, LibraryError> {
        let index = handle & ((1 << Self::INDEX_BITS) - 1);
        match handle >> Self::INDEX_BITS == self.tag(kind) {
            // Handle 0 is invalid: its index wraps around to one that is never used.
            true => Ok(index.wrapping_sub(1) as usize),
            false => Err(LibraryError::Stale),
        }
    }

    /// Returns the handle of the instance with this name, which is created if needed.
    pub(crate) fn instance(&self, name: &[u8]) -> Result<u32, LibraryError> {
        let mut instances = self.instances.borrow_mut();
        let known = instances.iter().position(|it| *it.name == *name);
        let index = known.unwrap_or(instances.len());
        let handle = self.handle(HandleKind::Instance, index)?;
        if known.is_none() {
            instances.push(LibraryInstance { name: name.into(), defines: Vec::new() });
        }
        Ok(handle)
    }

    /// Calls `callback` with an instance. Handle 0 is the default instance.
    fn with_instance<T>(
        &self,
        handle: u32,
        callback: impl FnOnce(&mut LibraryInstance) -> T,
    ) -> Result<T, LibraryError> {
        let index = match handle {
            0 => 0,
            handle => self.index(HandleKind::Instance, handle)?,
        };
        let mut instances = self.instances.borrow_mut();
        let instance = instances.get_mut(index).ok_or(LibraryError::Stale)?;
        Ok(callback(instance))
    }

    /// Returns whether an instance defines this namespace.
    pub(super) fn defines(&self, instance: u32, name: &str) -> Result<bool, LibraryError> {
        self.with_instance(instance, |it| it.defines.iter().any(|it| **it == *name))
    }

    /// Records that an instance defines a namespace. `is_new` means that nothing else had defined
    /// it.
    pub(super) fn record_definition(
        &self,
        instance: u32,
        name: &str,
        is_new: bool,
    ) -> Result<(), LibraryError> {
        self.with_instance(instance, |it| it.defines.push(name.into()))?;
        if is_new {
            self.defined.borrow_mut().push(name.into());
        }
        Ok(())
    }

    /// Returns whether this namespace is defined by instances and not by nginx.conf.
    pub(super) fn is_defined(&self, name: &str) -> bool {
        self.defined.borrow().iter().any(|it| **it == *name)
    }

    pub(super) fn keep_found(&self, found: FoundNamespace) -> Result<u32, LibraryError> {
        let mut all = self.found.borrow_mut();
        let handle = self.handle(HandleKind::Namespace, all.len())?;
        all.push(Rc::new(found));
        Ok(handle)
    }

    pub(super) fn handle_of(&self, name: &str) -> Option<Result<u32, LibraryError>> {
        let index = self.found.borrow().iter().position(|it| *it.name == *name);
        index.map(|index| self.handle(HandleKind::Namespace, index))
    }

    /// Calls `callback` with the namespace of a handle. `callback` must not find other namespaces.
    #[inline]
    pub(crate) fn with_found<T>(
        &self,
        handle: u32,
        callback: impl FnOnce(&FoundNamespace) -> Result<T, LibraryError>,
    ) -> Result<T, LibraryError> {
        let index = self.index(HandleKind::Namespace, handle)?;
        let found = self.found.borrow();
        callback(found.get(index).ok_or(LibraryError::Stale)?)
    }

    /// Returns the limiter of a handle.
    #[inline]
    pub(crate) fn limiter(&self, handle: u32) -> Result<Rc<LibraryLimiter>, LibraryError> {
        let index = self.index(HandleKind::Limiter, handle)?;
        let limiters = self.limiters.borrow();
        limiters.get(index).cloned().ok_or(LibraryError::Stale)
    }

    /// Stores a limiter, unless an equal one exists: callers may create theirs for each request.
    /// Returns its handle.
    pub(crate) fn keep_limiter(&self, limiter: LibraryLimiter) -> Result<u32, LibraryError> {
        let mut all = self.limiters.borrow_mut();
        let mut known = all.iter();
        let known = known.position(|it| it.limiter.is_same(&limiter.limiter));
        let handle = self.handle(HandleKind::Limiter, known.unwrap_or(all.len()))?;
        if known.is_none() {
            all.push(Rc::new(limiter));
        }
        Ok(handle)
    }
}
