//! What was decided about a request, kept with the request.

use core::ffi::c_void;
use core::ptr::{self, NonNull};

use nginx_sys::{ngx_http_request_t, ngx_pool_cleanup_add, ngx_pool_cleanup_pt};
use ngx::http::HttpModule as _;

use super::super::conf::{Headers, RuleSet};
use super::super::module::Module;
use crate::engine::Charge;

/// The decision on a request.
#[derive(Debug)]
pub(super) struct Context {
    /// The rules that were applied.
    pub(super) rules: &'static RuleSet,
    /// What each limit said, the tightest first; empty if no hit was accounted.
    pub(super) charges: Vec<Charge<'static, 'static>>,
    pub(super) admitted: bool,
    pub(super) headers: Headers,
}

/// Keeps `context` with the main request of `request`, until that ends. `None`: no memory.
pub(super) fn keep(request: *mut ngx_http_request_t, context: Context) -> Option<()> {
    // SAFETY: a request has a main request (perhaps itself), and that its pool, which is destroyed
    // when the request ends. The cleanup's memory is aligned for any type of C, as `Context` is.
    unsafe {
        let main = (*request).main;
        let cleanup = ngx_pool_cleanup_add((*main).pool, size_of::<Context>()).as_mut()?;
        let data = cleanup.data.cast::<Context>();
        data.write(context);
        cleanup.handler = CLEANUP;
        *(*main).ctx.add(Module::module().ctx_index) = data.cast();
    }
    Some(())
}

/// The decision on the main request of `request`, if there was one.
#[inline]
pub(super) fn of<'r>(request: *mut ngx_http_request_t) -> Option<&'r Context> {
    // SAFETY: as in `keep`; the slot holds null or what `keep` wrote.
    unsafe {
        let main = (*request).main;
        let slot = (*main).ctx.add(Module::module().ctx_index);
        if (*slot).is_null() {
            // An internal redirect cleared it: find it again.
            *slot = find(main)?.as_ptr();
        }
        (*slot).cast::<Context>().as_ref()
    }
}

/// Finds what `keep` left, by its cleanup.
///
/// # Safety
///
/// `main` is a request that has not ended.
#[inline]
unsafe fn find(main: *mut ngx_http_request_t) -> Option<NonNull<c_void>> {
    // SAFETY: the cleanups of a pool are a list; those with our handler have a `Context`.
    unsafe {
        let mut cleanup = (*(*main).pool).cleanup;
        while let Some(entry) = cleanup.as_ref() {
            if let (Some(handler), Some(ours)) = (entry.handler, CLEANUP) {
                if ptr::fn_addr_eq(handler, ours) {
                    return NonNull::new(entry.data);
                }
            }
            cleanup = entry.next;
        }
        None
    }
}

const CLEANUP: ngx_pool_cleanup_pt = Some(drop_context);

unsafe extern "C" fn drop_context(data: *mut c_void) {
    // SAFETY: nginx calls it once, with what `keep` wrote.
    unsafe { data.cast::<Context>().drop_in_place() }
}
