//! Access to a request through its raw pointer. A callback converts nginx's pointer to a
//! [`Request`] once; all data of the request is borrowed from it.

use core::cell::{Cell, UnsafeCell};
use core::marker::PhantomData;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ptr::NonNull;

use nginx_sys::{
    ngx_connection_t, ngx_http_request_t, ngx_list_part_t, ngx_module_t, ngx_str_t,
    ngx_table_elt_t, ngx_uint_t, ngx_variable_value_t,
};
use ngx::http::HttpModuleConfExt;

use super::event_loop::NgxClock;
use super::log::Log;
use crate::policy::window::Clock as _;

/// A live request, for the time of a callback.
///
/// `'r` is the lifetime of the request's pool. A callback may store such references in the request
/// ([`Request::keep`]), but cannot return them. nginx changes a request while its functions run, so
/// all fields are read through a pointer. It never changes or frees bytes that the request had
/// once, until the request ends.
#[repr(transparent)]
pub(crate) struct Request<'r> {
    raw: UnsafeCell<ngx_http_request_t>,
    /// Invariant: the pool's lifetime can be neither shortened nor extended.
    memory: PhantomData<Cell<&'r ()>>,
}

/// The identity of a request, for comparison only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestIdentity(*const ngx_http_request_t);

impl<'r> Request<'r> {
    /// Calls `callback` with a request.
    ///
    /// # Safety
    ///
    /// The request is live until `callback` has returned, as one that nginx passes to a callback
    /// that does not end requests.
    #[inline(always)]
    pub(super) unsafe fn with<T>(
        request: *mut ngx_http_request_t,
        callback: impl FnOnce(&Request<'_>) -> T,
    ) -> T {
        // SAFETY: by the caller's contract. The type is transparent, and the cell allows changes to
        // the request. `callback` must accept any lifetime, so it cannot return a reference with
        // it.
        callback(unsafe { &*request.cast::<Request<'_>>() })
    }

    /// Returns the pointer, for nginx's functions.
    #[inline]
    pub(super) fn as_ptr(&self) -> *mut ngx_http_request_t {
        self.raw.get()
    }

    /// Returns the identity of this request.
    #[inline]
    pub(super) fn identity(&self) -> RequestIdentity {
        RequestIdentity(self.as_ptr())
    }

    /// Returns the main request, which may be this one.
    #[inline]
    pub(super) fn main(&self) -> &Request<'r> {
        // SAFETY: a request has a main request, which ends last, and whose pool it shares.
        unsafe { &*(*self.as_ptr()).main.cast::<Request<'r>>() }
    }

    /// Returns the milliseconds since the request began.
    pub(super) fn age(&self) -> u64 {
        // SAFETY: the request is live.
        let (second, millis) = unsafe { ((*self.as_ptr()).start_sec, (*self.as_ptr()).start_msec) };
        let began =
            u64::try_from(second).unwrap_or(0).wrapping_mul(1000).wrapping_add(millis as u64);
        NgxClock.now().0.saturating_sub(began)
    }

    /// Returns whether this is a main request.
    #[inline]
    pub(super) fn is_main(&self) -> bool {
        // SAFETY: the request is live.
        unsafe { (*self.as_ptr()).main == self.as_ptr() }
    }

    /// Returns the parent of a subrequest; `None` for a main request.
    pub(super) fn parent(&self) -> Option<&Request<'r>> {
        // SAFETY: a request has no parent, or one that ends later and shares its pool.
        unsafe { (*self.as_ptr()).parent.cast::<Request<'r>>().as_ref() }
    }

    /// Returns the connection, which lives longer than the request.
    #[inline]
    pub(super) fn connection(&self) -> *mut ngx_connection_t {
        // SAFETY: the request is live.
        unsafe { (*self.as_ptr()).connection }
    }

    /// Returns the connection's log, whose lines name the request.
    #[inline]
    pub(super) fn log(&self) -> Log<'r> {
        // SAFETY: a live request has a connection, whose log lives longer.
        unsafe { Log::new((*self.connection()).log) }
    }

    /// Returns the value of variable number `index`.
    ///
    /// # Safety
    ///
    /// `index` belongs to the configuration that serves the request.
    #[inline]
    pub(super) unsafe fn variable(&self, index: ngx_uint_t) -> *mut ngx_variable_value_t {
        // SAFETY: a request has a value for each variable of its configuration.
        unsafe { (*self.as_ptr()).variables.add(index) }
    }

    /// Returns the client's address as text. The realip module may have changed it.
    #[inline]
    pub(super) fn client_text(&self) -> &'r [u8] {
        // SAFETY: a request has a connection, whose memory lives longer.
        unsafe { bytes(&(*self.connection()).addr_text) }
    }

    /// Returns the client's address, which the realip module may have changed; `None` for a Unix
    /// socket.
    pub(super) fn client_address(&self) -> Option<IpAddr> {
        // SAFETY: a request has a connection with the client's address, which is as long as its
        // family requires, but may be unaligned.
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

    /// Returns the method, as one of the bits `NGX_HTTP_GET` and so on.
    pub(super) fn method(&self) -> ngx_uint_t {
        // SAFETY: the request is live.
        unsafe { (*self.as_ptr()).method }
    }

    /// Returns the method as it was sent.
    pub(super) fn method_name(&self) -> &'r [u8] {
        // SAFETY: the request is live; its strings live as long as its pool.
        unsafe { bytes(&(*self.as_ptr()).method_name) }
    }

    /// Returns the decoded path.
    pub(super) fn uri(&self) -> &'r [u8] {
        // SAFETY: as in `method_name`.
        unsafe { bytes(&(*self.as_ptr()).uri) }
    }

    /// Returns the path and the arguments as they were sent.
    pub(super) fn unparsed_uri(&self) -> &'r [u8] {
        // SAFETY: as in `method_name`.
        unsafe { bytes(&(*self.as_ptr()).unparsed_uri) }
    }

    /// Returns the arguments as they were sent.
    #[inline]
    pub(super) fn args(&self) -> &'r [u8] {
        // SAFETY: as in `method_name`.
        unsafe { bytes(&(*self.as_ptr()).args) }
    }

    /// Returns the requested host, with its port if that was sent.
    pub(super) fn host(&self) -> &'r [u8] {
        // SAFETY: as in `method_name`; the headers live as long. Without a Host header, as in
        // HTTP/3, nginx stores the authority in `server`.
        unsafe {
            let headers = &raw const (*self.as_ptr()).headers_in;
            let header = (*headers).host.as_ref();
            header.map_or_else(|| bytes(&(*headers).server), |header| bytes(&header.value))
        }
    }

    /// Returns the first header with this name; `None` without one.
    pub(super) fn header(&self, name: &str) -> Option<&'r [u8]> {
        // SAFETY: the request is live; its headers are a list of `ngx_table_elt_t`, whose strings
        // live as long as its pool.
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

    /// Returns the Content-Type header; empty without one.
    pub(super) fn content_type(&self) -> &'r [u8] {
        // SAFETY: as in `method_name`; the headers live as long.
        unsafe {
            let header = (*self.as_ptr()).headers_in.content_type.as_ref();
            header.map_or(&[], |header| bytes(&header.value))
        }
    }
}

/// Returns the bytes of an nginx string.
///
/// # Safety
///
/// The bytes live as long as `'a`.
#[inline]
pub(super) unsafe fn bytes<'a>(text: &ngx_str_t) -> &'a [u8] {
    if text.is_empty() {
        return &[];
    }
    // SAFETY: a non-empty nginx string points to `len` bytes.
    unsafe { core::slice::from_raw_parts(text.data, text.len) }
}

impl HttpModuleConfExt for Request<'_> {
    #[inline]
    unsafe fn http_main_conf_unchecked<T>(&self, module: &ngx_module_t) -> Option<NonNull<T>> {
        // SAFETY: a request has the configurations of its cycle; the caller vouches for the type.
        unsafe { (*self.as_ptr()).http_main_conf_unchecked(module) }
    }

    #[inline]
    unsafe fn http_location_conf_unchecked<T>(&self, module: &ngx_module_t) -> Option<NonNull<T>> {
        // SAFETY: as above; the request has the configurations of its current location.
        unsafe { (*self.as_ptr()).http_location_conf_unchecked(module) }
    }
}
