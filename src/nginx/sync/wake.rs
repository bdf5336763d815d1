//! How another thread wakes nginx's event loop, and hands it things: an eventfd that the loop waits
//! for like for a client's socket, and queues.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use nginx_sys::{
    NGX_CLOSE_EVENT, NGX_OK, ngx_connection_t, ngx_event_actions, ngx_event_handler_pt,
    ngx_event_t, ngx_handle_read_event, ngx_int_t, ngx_log_t, ngx_uint_t,
};

/// The end in the event loop. Dropped, it waits for nothing any more.
pub(super) struct Wake {
    /// nginx finds the events by the connection, and the connection by the events.
    connection: Box<ngx_connection_t>,
    read: Box<ngx_event_t>,
    /// nginx looks whether it is active: it never is.
    _write: Box<ngx_event_t>,
    waker: Waker,
}

/// The end of who wakes: another thread, or another process.
#[derive(Clone, Debug)]
pub(super) struct Waker(Arc<File>);

impl Wake {
    /// Has `handler` called by nginx's event loop whenever `waker` was used. The handler calls
    /// [`Wake::clear`].
    pub(super) fn new(
        waker: Waker,
        handler: ngx_event_handler_pt,
        log: *mut ngx_log_t,
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
        read.log = log;
        write.data = read.data;
        write.log = log;
        write.set_write(1);
        connection.fd = waker.as_raw_fd();
        connection.read = &raw mut *read;
        connection.write = &raw mut *write;
        connection.log = log;
        // SAFETY: the events and their connection live, in their places, until `drop` takes them
        // back; this is the thread of nginx's event loop.
        if unsafe { ngx_handle_read_event(&mut *read, 0) } != NGX_OK as ngx_int_t {
            return Err(io::Error::other("the event loop does not take an eventfd"));
        }
        Ok(Wake {
            connection,
            read,
            _write: write,
            waker,
        })
    }

    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Makes the next use of a [`Waker`] be noticed: to be called before it is looked for what the
    /// other thread has done.
    pub(super) fn clear(&self) {
        // If it was not used since, there is nothing to read.
        let _ = (&*self.waker.0).read(&mut [0; 8]);
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        let Wake {
            connection, read, ..
        } = self;
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

impl Waker {
    pub(super) fn new() -> io::Result<Waker> {
        // SAFETY: a system call that takes no pointer.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        Ok(Waker(Arc::new(opened(fd)?)))
    }

    /// Has the event loop call the handler soon.
    pub(super) fn wake(&self) {
        // It only fails if it was used 2^64 - 2 times since it was last noticed.
        let _ = (&*self.0).write(&1_u64.to_ne_bytes());
    }
}

impl AsRawFd for Waker {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The file of a descriptor that a system call returned.
pub(super) fn opened(fd: RawFd) -> io::Result<File> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, for nobody else.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// What another thread has for the event loop, which it wakes for it.
pub(super) struct Inbox<T> {
    items: Arc<Mutex<Vec<T>>>,
    waker: Waker,
}

/// The same queue.
impl<T> Clone for Inbox<T> {
    fn clone(&self) -> Self {
        Inbox {
            items: self.items.clone(),
            waker: self.waker.clone(),
        }
    }
}

impl<T> Inbox<T> {
    pub(super) fn new(waker: Waker) -> Inbox<T> {
        Inbox {
            items: Arc::default(),
            waker,
        }
    }

    pub(super) fn push(&self, more: impl IntoIterator<Item = T>) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.extend(more);
        drop(items);
        // Not before, and always: who found the lock taken looks again then.
        self.waker.wake();
    }

    /// What came since the last look. Never waits: if there is more in this moment, the event loop is
    /// woken again.
    pub(super) fn take(&self) -> Vec<T> {
        match self.items.try_lock() {
            Ok(mut items) => core::mem::take(&mut *items),
            Err(TryLockError::Poisoned(items)) => core::mem::take(&mut *items.into_inner()),
            Err(TryLockError::WouldBlock) => Vec::new(),
        }
    }
}
