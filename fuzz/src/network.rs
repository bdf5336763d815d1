//! Replaces two functions of libc: a target connects to its own servers only, whatever addresses an input names, and
//! resolves no names.

use core::ffi::{c_char, c_int, c_void};
use core::net::Ipv4Addr;

use ngx_http_rate_limiting_module::fuzzing::HOST;

/// Connects to an address of the targets' own servers; any other one refuses.
///
/// # Safety
///
/// See connect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(
    fd: c_int,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> c_int {
    let is_inet = length as usize >= size_of::<libc::sockaddr_in>();
    // SAFETY: by the caller's contract, `address` has this length; its family says what it is.
    let is_own = is_inet
        && unsafe {
            (*address).sa_family == libc::AF_INET as libc::sa_family_t
                && (*address.cast::<libc::sockaddr_in>()).sin_addr.s_addr
                    == u32::from_ne_bytes(Ipv4Addr::octets(&HOST))
        };
    if !is_own {
        // SAFETY: the place of this thread's errno.
        unsafe { *libc::__errno_location() = libc::ECONNREFUSED };
        return -1;
    }
    // SAFETY: by the caller's contract.
    unsafe { libc::syscall(libc::SYS_connect, fd, address, length) as c_int }
}

/// Knows no name.
///
/// # Safety
///
/// See getaddrinfo(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getaddrinfo(
    _name: *const c_char,
    _service: *const c_char,
    _hints: *const c_void,
    _result: *mut *mut c_void,
) -> c_int {
    libc::EAI_NONAME
}
