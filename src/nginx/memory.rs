//! The memory of a request: what is kept in it lives until the main request ends.

use core::ffi::c_void;
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use nginx_sys::{ngx_palloc, ngx_pnalloc, ngx_pool_cleanup_add, ngx_pool_t};

use super::guard::guard;
use super::request::Request;

impl<'r> Request<'r> {
    #[inline]
    pub(super) fn pool(&self) -> *mut ngx_pool_t {
        // SAFETY: a request that has not ended has a pool: that of its main request.
        unsafe { (*self.main().as_ptr()).pool }
    }

    /// Allocates `size` bytes, aligned for a word and not initialized. `None`: there is no memory.
    #[inline]
    pub(super) fn allocate(&self, size: usize) -> Option<NonNull<u8>> {
        // SAFETY: a request's pool.
        NonNull::new(unsafe { ngx_palloc(self.pool(), size) }.cast())
    }

    /// Keeps `value`, which is never dropped. `None`: there is no memory.
    pub(super) fn keep<T>(&self, value: T) -> Option<&'r T> {
        const { assert!(align_of::<T>() <= align_of::<usize>()) };
        let place = self.allocate(size_of::<T>())?.cast::<MaybeUninit<T>>();
        // SAFETY: new memory, as large as is needed, and aligned; it lives as long as the request's.
        Some(unsafe { &mut *place.as_ptr() }.write(value))
    }

    /// Keeps `value`, and drops it when the main request ends. `None`: there is no memory.
    ///
    /// It may have what lives as long as the request's memory, which is freed afterwards.
    pub(super) fn own<T: 'r>(&self, value: T) -> Option<&'r T> {
        const { assert!(align_of::<T>() <= align_of::<usize>()) };
        // SAFETY: a request's pool.
        let cleanup = unsafe { ngx_pool_cleanup_add(self.pool(), size_of::<T>()).as_mut() }?;
        let place = NonNull::new(cleanup.data.cast::<MaybeUninit<T>>())?;
        // SAFETY: as in `keep`.
        let value = unsafe { &mut *place.as_ptr() }.write(value);
        cleanup.handler = Some(drop_owned::<T>);
        Some(value)
    }

    /// Allocates so many zero bytes. `None`: there is no memory.
    fn zeroed(&self, len: usize) -> Option<&'r mut [u8]> {
        // SAFETY: a request's pool, whose memory lives as long; it is new, and so long.
        unsafe {
            let start = NonNull::new(ngx_pnalloc(self.pool(), len).cast::<u8>())?;
            start.write_bytes(0, len);
            Some(core::slice::from_raw_parts_mut(start.as_ptr(), len))
        }
    }

    /// Keeps a copy of `bytes`. `None`: there is no memory.
    pub(super) fn copy(&self, bytes: &[u8]) -> Option<&'r [u8]> {
        // SAFETY: as above.
        unsafe {
            let start = NonNull::new(ngx_pnalloc(self.pool(), bytes.len()).cast::<u8>())?;
            ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), bytes.len());
            Some(core::slice::from_raw_parts(start.as_ptr(), bytes.len()))
        }
    }
}

/// nginx's callback when a main request ends: `data` is what it owns.
unsafe extern "C" fn drop_owned<T>(data: *mut c_void) {
    guard((), || {
        // SAFETY: `Request::own` wrote it; nginx calls this once, before it frees the memory, and
        // no callback with the request is running that might have it.
        unsafe { data.cast::<T>().drop_in_place() }
    });
}

/// A text that is written into the memory of a request.
pub(crate) struct PoolText<'r> {
    bytes: &'r mut [u8],
    len: usize,
}

impl<'r> PoolText<'r> {
    /// An empty text of at most `capacity` bytes; `None`: no memory.
    pub(super) fn new(request: &Request<'r>, capacity: usize) -> Option<PoolText<'r>> {
        Some(PoolText { bytes: request.zeroed(capacity)?, len: 0 })
    }

    /// Appends `part`, if there is room for it.
    pub(super) fn put(&mut self, part: &[u8]) {
        let end = self.len.saturating_add(part.len());
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(part);
            self.len = end;
        }
    }

    /// The text.
    pub(super) fn into_bytes(self) -> &'r [u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl fmt::Write for PoolText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}
