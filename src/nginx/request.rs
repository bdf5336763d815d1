//! A request, where its raw pointer stops: what nginx passes to a callback becomes a [`Request`] once,
//! and whatever is read of it is borrowed.

use core::cell::{Cell, UnsafeCell};
use core::marker::PhantomData;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ptr::NonNull;

use nginx_sys::{
    ngx_connection_t, ngx_http_request_t, ngx_list_part_t, ngx_module_t, ngx_str_t,
    ngx_table_elt_t, ngx_uint_t, ngx_variable_value_t,
};
use ngx::http::HttpModuleConfExt;

use super::log::Log;

/// A request that has not ended, for as long as a callback of nginx's runs.
///
/// What lives as long as the request's memory has the lifetime `'r`: a callback may keep it with the
/// request ([`Request::keep`]), and cannot take it out of itself. nginx changes a request while it is
/// called, so everything here is read through a pointer; but it never changes nor frees the bytes that
/// it once had, before the request ends.
#[repr(transparent)]
pub(crate) struct Request<'r> {
    raw: UnsafeCell<ngx_http_request_t>,
    /// Invariant: no other lifetime, neither shorter nor longer, stands for the request's memory.
    memory: PhantomData<Cell<&'r ()>>,
}

/// The identity of a request: to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestIdentity(*const ngx_http_request_t);

impl<'r> Request<'r> {
    /// Calls `callback` with a request.
    ///
    /// # Safety
    ///
    /// The request has not ended, and does not before `callback` has returned: as one that nginx passes
    /// to a callback that ends none.
    #[inline(always)]
    pub(super) unsafe fn with<T>(
        request: *mut ngx_http_request_t,
        callback: impl FnOnce(&Request<'_>) -> T,
    ) -> T {
        // SAFETY: the caller's promise. The type is transparent, and all in it may be changed. The
        // lifetime is any, so that nothing that has it leaves the callback.
        callback(unsafe { &*request.cast::<Request<'_>>() })
    }

    /// For nginx's functions.
    #[inline]
    pub(super) fn as_ptr(&self) -> *mut ngx_http_request_t {
        self.raw.get()
    }

    /// Returns the identity of this request.
    #[inline]
    pub(super) fn identity(&self) -> RequestIdentity {
        RequestIdentity(self.as_ptr())
    }

    /// The main request, perhaps this one.
    #[inline]
    pub(super) fn main(&self) -> &Request<'r> {
        // SAFETY: a request has a main request, which ends last, and whose memory is its own.
        unsafe { &*(*self.as_ptr()).main.cast::<Request<'r>>() }
    }

    /// Whether this is no subrequest.
    #[inline]
    pub(super) fn is_main(&self) -> bool {
        // SAFETY: a request that has not ended.
        unsafe { (*self.as_ptr()).main == self.as_ptr() }
    }

    /// The request that made this subrequest; `None`: this is a main request.
    pub(super) fn parent(&self) -> Option<&Request<'r>> {
        // SAFETY: a request has a parent that ends later, whose memory is the main request's, or none.
        unsafe { (*self.as_ptr()).parent.cast::<Request<'r>>().as_ref() }
    }

    /// The connection, which ends later.
    #[inline]
    pub(super) fn connection(&self) -> *mut ngx_connection_t {
        // SAFETY: a request that has not ended.
        unsafe { (*self.as_ptr()).connection }
    }

    /// The log of the connection, which names the request in its lines.
    #[inline]
    pub(super) fn log(&self) -> Log<'r> {
        // SAFETY: a request that has not ended has a connection, whose log lives longer.
        unsafe { Log::new((*self.connection()).log) }
    }

    /// The value of variable number `index`.
    ///
    /// # Safety
    ///
    /// The index is of the configuration that the request is served by.
    #[inline]
    pub(super) unsafe fn variable(&self, index: ngx_uint_t) -> *mut ngx_variable_value_t {
        // SAFETY: a request has values for all variables of its configuration.
        unsafe { (*self.as_ptr()).variables.add(index) }
    }

    /// The address of the client as text: realip's, if that has changed it.
    #[inline]
    pub(super) fn client_text(&self) -> &'r [u8] {
        // SAFETY: a request has a connection, whose memory lives longer.
        unsafe { bytes(&(*self.connection()).addr_text) }
    }

    /// The address of the client, as above; `None`: a Unix socket.
    pub(super) fn client_address(&self) -> Option<IpAddr> {
        // SAFETY: a request has a connection, which has the client's address: it is at least as long as
        // its family says, and need not be aligned.
        unsafe {
            let address = (*self.connection()).sockaddr;
            match i32::from((*address).sa_family) {
                libc::AF_INET => {
                    let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                    Some(Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr)).into())
                }
                libc::AF_INET6 => {
                    let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                    Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
                }
                _ => None,
            }
        }
    }

    /// The method, one of the bits `NGX_HTTP_GET` and so on.
    pub(super) fn method(&self) -> ngx_uint_t {
        // SAFETY: a request that has not ended.
        unsafe { (*self.as_ptr()).method }
    }

    /// The method as it was sent.
    pub(super) fn method_name(&self) -> &'r [u8] {
        // SAFETY: a request that has not ended, whose strings live as long as its memory.
        unsafe { bytes(&(*self.as_ptr()).method_name) }
    }

    /// The path, decoded.
    pub(super) fn uri(&self) -> &'r [u8] {
        // SAFETY: as above.
        unsafe { bytes(&(*self.as_ptr()).uri) }
    }

    /// Path and arguments as they were sent.
    pub(super) fn unparsed_uri(&self) -> &'r [u8] {
        // SAFETY: as above.
        unsafe { bytes(&(*self.as_ptr()).unparsed_uri) }
    }

    /// The arguments, as they were sent.
    #[inline]
    pub(super) fn args(&self) -> &'r [u8] {
        // SAFETY: as above.
        unsafe { bytes(&(*self.as_ptr()).args) }
    }

    /// The host that is asked, with its port if that was sent.
    pub(super) fn host(&self) -> &'r [u8] {
        // SAFETY: as above; so do its headers. Without the header, as in HTTP/3, there is what stands for
        // it.
        unsafe {
            let headers = &raw const (*self.as_ptr()).headers_in;
            let header = (*headers).host.as_ref();
            header.map_or_else(|| bytes(&(*headers).server), |header| bytes(&header.value))
        }
    }

    /// The first header of that name; `None`: there is none.
    pub(super) fn header(&self, name: &str) -> Option<&'r [u8]> {
        // SAFETY: the request has not ended; its headers are a list of `ngx_table_elt_t`, whose strings
        // live as long as its memory.
        unsafe {
            let headers = &raw const (*self.as_ptr()).headers_in.headers;
            let mut part: *const ngx_list_part_t = &raw const (*headers).part;
            while let Some(entries) = part.as_ref() {
                for index in 0..entries.nelts {
                    let entry = &*entries.elts.cast::<ngx_table_elt_t>().add(index);
                    if bytes(&entry.key).eq_ignore_ascii_case(name.as_bytes()) {
                        return Some(bytes(&entry.value));
                    }
                }
                part = entries.next;
            }
        }
        None
    }

    /// The header `Content-Type`, empty without one.
    pub(super) fn content_type(&self) -> &'r [u8] {
        // SAFETY: as above; so do its headers.
        unsafe {
            let header = (*self.as_ptr()).headers_in.content_type.as_ref();
            header.map_or(&[], |header| bytes(&header.value))
        }
    }
}

/// The bytes of a string of nginx's.
///
/// # Safety
///
/// They live as long as `'a`.
#[inline]
pub(super) unsafe fn bytes<'a>(text: &ngx_str_t) -> &'a [u8] {
    if text.is_empty() {
        return &[];
    }
    // SAFETY: a string of nginx's that is not empty points to so many bytes.
    unsafe { core::slice::from_raw_parts(text.data, text.len) }
}

impl HttpModuleConfExt for Request<'_> {
    #[inline]
    unsafe fn http_main_conf_unchecked<T>(&self, module: &ngx_module_t) -> Option<NonNull<T>> {
        // SAFETY: a request has the configurations of its cycle; the type is the caller's promise.
        unsafe { (*self.as_ptr()).http_main_conf_unchecked(module) }
    }

    #[inline]
    unsafe fn http_location_conf_unchecked<T>(&self, module: &ngx_module_t) -> Option<NonNull<T>> {
        // SAFETY: as above, those of the location that it is in now.
        unsafe { (*self.as_ptr()).http_location_conf_unchecked(module) }
    }
}
