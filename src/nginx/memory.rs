//! Memory of a request's pool, which is freed when the main request ends.

use core::ffi::c_void;
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use nginx_sys::{ngx_palloc, ngx_pnalloc, ngx_pool_cleanup_add, ngx_pool_t};

use super::event_loop::guard;
use super::request::Request;

impl<'r> Request<'r> {
    #[inline]
    pub(super) fn pool(&self) -> *mut ngx_pool_t {
        // SAFETY: a live request has a pool, which is its main request's.
        unsafe { (*self.main().as_ptr()).pool }
    }

    /// Allocates `size` uninitialized bytes, aligned for a word. `None` without memory.
    #[inline]
    pub(super) fn allocate(&self, size: usize) -> Option<NonNull<u8>> {
        // SAFETY: the pool is the request's.
        NonNull::new(unsafe { ngx_palloc(self.pool(), size) }.cast())
    }

    /// Stores `value` in the pool. It is never dropped. `None` without memory.
    pub(super) fn keep<T>(&self, value: T) -> Option<&'r T> {
        const { assert!(align_of::<T>() <= align_of::<usize>()) };
        let place = self.allocate(size_of::<T>())?.cast::<MaybeUninit<T>>();
        // SAFETY: the memory is new, large enough and aligned, and lives as long as the pool.
        Some(unsafe { &mut *place.as_ptr() }.write(value))
    }

    /// Stores `value` in the pool, and drops it when the main request ends. `None` without memory.
    ///
    /// `value` may have references to the pool's memory, which is freed after the drop.
    pub(super) fn own<T: 'r>(&self, value: T) -> Option<&'r T> {
        const { assert!(align_of::<T>() <= align_of::<usize>()) };
        // SAFETY: the pool is the request's.
        let cleanup = unsafe { ngx_pool_cleanup_add(self.pool(), size_of::<T>()).as_mut() }?;
        let place = NonNull::new(cleanup.data.cast::<MaybeUninit<T>>())?;
        // SAFETY: as in `keep`.
        let value = unsafe { &mut *place.as_ptr() }.write(value);
        cleanup.handler = Some(drop_owned::<T>);
        Some(value)
    }

    /// Allocates `len` zero bytes. `None` without memory.
    fn zeroed(&self, len: usize) -> Option<&'r mut [u8]> {
        // SAFETY: the pool is the request's; the memory is new, has `len` bytes, and lives as long
        // as the pool.
        unsafe {
            let start = NonNull::new(ngx_pnalloc(self.pool(), len).cast::<u8>())?;
            start.write_bytes(0, len);
            Some(core::slice::from_raw_parts_mut(start.as_ptr(), len))
        }
    }

    /// Copies `bytes` to the pool. `None` without memory.
    pub(super) fn copy(&self, bytes: &[u8]) -> Option<&'r [u8]> {
        // SAFETY: as in `zeroed`; all bytes are written.
        unsafe {
            let start = NonNull::new(ngx_pnalloc(self.pool(), bytes.len()).cast::<u8>())?;
            ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), bytes.len());
            Some(core::slice::from_raw_parts(start.as_ptr(), bytes.len()))
        }
    }
}

/// nginx's callback when a main request ends. `data` points to the owned value.
unsafe extern "C" fn drop_owned<T>(data: *mut c_void) {
    guard((), || {
        // SAFETY: `Request::own` wrote the value. nginx calls this once, before it frees the pool,
        // and no callback that could refer to the value is running.
        unsafe { data.cast::<T>().drop_in_place() }
    });
}

/// Text that is written to a request's pool.
pub(crate) struct PoolText<'r> {
    bytes: &'r mut [u8],
    len: usize,
}

impl<'r> PoolText<'r> {
    /// Creates an empty text of at most `capacity` bytes; `None` without memory.
    pub(super) fn new(request: &Request<'r>, capacity: usize) -> Option<PoolText<'r>> {
        Some(PoolText { bytes: request.zeroed(capacity)?, len: 0 })
    }

    /// Appends `part` if it fits; otherwise drops it.
    pub(super) fn put(&mut self, part: &[u8]) {
        let end = self.len.saturating_add(part.len());
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(part);
            self.len = end;
        }
    }

    /// Returns the text's bytes.
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
