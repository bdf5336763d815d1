//! The eventfd by which another thread wakes nginx's event loop, which waits for it like for a
//! client's socket.

use std::io;
use std::os::fd::AsRawFd as _;

use nginx_sys::{
    NGX_CLOSE_EVENT, NGX_OK, ngx_connection_t, ngx_event_actions, ngx_event_handler_pt,
    ngx_event_t, ngx_handle_read_event, ngx_int_t, ngx_uint_t,
};

use crate::broker::EventFd;
use crate::nginx::log::Log;

/// The end in the event loop. Dropped, it waits for nothing any more.
pub(super) struct Wake {
    /// nginx finds the events by the connection, and the connection by the events.
    connection: Box<ngx_connection_t>,
    read: Box<ngx_event_t>,
    /// nginx looks whether it is active: it never is.
    _write: Box<ngx_event_t>,
    eventfd: EventFd,
}

impl Wake {
    /// Has `handler` called by nginx's event loop whenever `eventfd` was used. The handler calls
    /// [`Wake::clear`].
    pub(super) fn new(
        eventfd: EventFd,
        handler: ngx_event_handler_pt,
        log: Log<'static>,
    ) -> io::Result<Wake> {
        // SAFETY: all-zero is a valid connection, and a valid event.
        let (mut connection, mut read, mut write): (Box<ngx_connection_t>, Box<_>, Box<_>) = unsafe {
            (
                Box::new(core::mem::zeroed()),
                Box::new(core::mem::zeroed::<ngx_event_t>()),
                Box::new(core::mem::zeroed::<ngx_event_t>()),
            )
        };
        read.data = (&raw mut *connection).cast();
        read.handler = handler;
        read.log = log.as_ptr();
        write.data = read.data;
        write.log = log.as_ptr();
        write.set_write(1);
        connection.fd = eventfd.as_raw_fd();
        connection.read = &raw mut *read;
        connection.write = &raw mut *write;
        connection.log = log.as_ptr();
        // SAFETY: the events and their connection live, in their places, until `drop` takes them
        // back; this is the thread of nginx's event loop.
        if unsafe { ngx_handle_read_event(&mut *read, 0) } != NGX_OK as ngx_int_t {
            return Err(io::Error::other("the event loop does not take an eventfd"));
        }
        Ok(Wake { connection, read, _write: write, eventfd })
    }

    pub(super) fn eventfd(&self) -> EventFd {
        self.eventfd.clone()
    }

    /// Makes the next use of a [`EventFd`] be noticed: to be called before it is looked for what the
    /// other thread has done.
    pub(super) fn clear(&self) {
        self.eventfd.clear();
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        let Wake { connection, read, .. } = self;
        // SAFETY: nginx chose its actions before the first worker; the event was added, and it and
        // its connection live until this has returned. Methods that know connections (epoll) take
        // them back as a whole, the others their events.
        unsafe {
            match ngx_event_actions.del_conn {
                Some(delete) => delete(&mut **connection, 0),
                None => ngx_handle_read_event(&mut **read, NGX_CLOSE_EVENT as ngx_uint_t),
            }
        };
    }
}
