//! How long it is waited for more questions before some are asked.
//!
//! An exchange costs this node and its datastore as much as some ten to twenty questions in it. Where
//! few come in, that does not matter, and each is asked at once. Where many do, most exchanges would
//! still be small, since the event loops take what is ready more quickly than clients send: there a
//! short pause makes exchanges larger and fewer.

use core::mem::MaybeUninit;
use core::time::Duration;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::time::Instant;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::wake::opened;

/// The pace at which one who asks does so.
pub(super) struct Pace {
    /// `None`: the system has none left, then there are no pauses.
    timer: Option<Timer>,
    /// Since when it is counted how many questions there are, and how many there were.
    since: Instant,
    asked: usize,
    /// How many come in during a pause, as of late.
    expected: usize,
}

/// How long a pause is.
const PAUSE: Duration = Duration::from_micros(400);
/// How many questions have to come in during a pause for it to be worthwhile.
const WORTHWHILE: usize = 8;
/// For how long it is counted.
const SPAN: Duration = Duration::from_millis(2);

impl Pace {
    /// To be called by a task of tokio's.
    pub(super) fn new() -> Pace {
        Pace {
            timer: Timer::new().ok(),
            since: Instant::now(),
            asked: 0,
            expected: 0,
        }
    }

    /// Notes that so many questions are asked.
    pub(super) fn note(&mut self, questions: usize) {
        self.asked = self.asked.saturating_add(questions);
    }

    /// Waits for more than the `waiting` questions, if that is worthwhile.
    pub(super) async fn pause(&mut self, waiting: usize) {
        let passed = self.since.elapsed();
        if passed >= SPAN {
            let asked = (self.asked as u128).saturating_mul(PAUSE.as_nanos());
            let expected = asked.checked_div(passed.as_nanos()).unwrap_or(0);
            self.expected = usize::try_from(expected).unwrap_or(usize::MAX);
            self.since = Instant::now();
            self.asked = 0;
        }
        let is_worthwhile = self.expected >= WORTHWHILE && waiting < self.expected;
        if let Some(timer) = self.timer.as_ref().filter(|_| is_worthwhile) {
            // If it fails, there is no pause.
            let _ = timer.sleep(PAUSE).await;
        }
    }
}

/// A timerfd: tokio's own timers know whole milliseconds.
struct Timer(AsyncFd<File>);

impl Timer {
    fn new() -> io::Result<Timer> {
        // SAFETY: a system call that takes no pointer.
        let fd = unsafe {
            let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
            libc::timerfd_create(libc::CLOCK_MONOTONIC, flags)
        };
        let file = opened(fd)?;
        // SAFETY: the descriptor is open, and the same, as long as this has the file.
        let file = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
        Ok(Timer(file?))
    }

    async fn sleep(&self, time: Duration) -> io::Result<()> {
        let mut setting = MaybeUninit::<libc::itimerspec>::zeroed();
        // SAFETY: all-zero is a valid setting: of a timer that is not repeated.
        let setting = unsafe { setting.assume_init_mut() };
        setting.it_value.tv_nsec = time.subsec_nanos().into();
        // SAFETY: the setting is valid while it is read; the old one is not asked for.
        let is_set = unsafe {
            let fd = self.0.as_raw_fd();
            libc::timerfd_settime(fd, 0, &raw const *setting, core::ptr::null_mut())
        };
        if is_set != 0 {
            return Err(io::Error::last_os_error());
        }
        let expired = self
            .0
            .async_io(Interest::READABLE, |mut file| file.read_exact(&mut [0; 8]));
        expired.await
    }
}
