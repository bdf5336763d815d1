//! The eventfd by which the sync thread wakes nginx's event loop. The event loop polls it like a
//! client's socket.

use std::io;
use std::os::fd::AsRawFd as _;

use nginx_sys::{
    NGX_CLOSE_EVENT, NGX_OK, ngx_connection_t, ngx_event_actions, ngx_event_handler_pt,
    ngx_event_t, ngx_handle_read_event, ngx_int_t, ngx_uint_t,
};

use crate::broker::EventFd;
use crate::nginx::log::Log;

/// The event loop's end of the eventfd. Dropping it removes the eventfd from the event loop.
pub(super) struct Wake {
    /// The connection and the events have pointers to each other.
    connection: Box<ngx_connection_t>,
    read: Box<ngx_event_t>,
    /// Never active, but nginx reads whether it is.
    _write: Box<ngx_event_t>,
    eventfd: EventFd,
}

impl Wake {
    /// Makes nginx's event loop call `handler` when `eventfd` is written. The handler must call
    /// [`Wake::clear`].
    pub(super) fn new(
        eventfd: EventFd,
        handler: ngx_event_handler_pt,
        log: Log<'static>,
    ) -> io::Result<Wake> {
        // SAFETY: an all-zero connection and an all-zero event are valid.
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
        // SAFETY: the events and their connection stay in place until `drop` removes them; this is
        // the event loop's thread.
        if unsafe { ngx_handle_read_event(&mut *read, 0) } != NGX_OK as ngx_int_t {
            return Err(io::Error::other("the event loop does not take an eventfd"));
        }
        Ok(Wake { connection, read, _write: write, eventfd })
    }

    pub(super) fn eventfd(&self) -> EventFd {
        self.eventfd.clone()
    }

    /// Clears the eventfd, so that the next write wakes the event loop again. To be called before
    /// the results are taken.
    pub(super) fn clear(&self) {
        self.eventfd.clear();
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        let Wake { connection, read, .. } = self;
        // SAFETY: nginx has set its event actions before the first worker starts. The event was
        // added, and it and its connection live until this returns. Event methods that know
        // connections (epoll) remove the connection; the others remove its events.
        unsafe {
            match ngx_event_actions.del_conn {
                Some(delete) => delete(&mut **connection, 0),
                None => ngx_handle_read_event(&mut **read, NGX_CLOSE_EVENT as ngx_uint_t),
            }
        };
    }
}
