//! nginx's clock.

use std::time::{SystemTime, UNIX_EPOCH};

use nginx_sys::ngx_timeofday;

use crate::policy::window::{Clock, UnixMillis};

/// The time of day: what nginx looked up at the start of this turn of its event loop, or afresh.
pub(super) struct NgxClock;

impl Clock for NgxClock {
    #[inline]
    fn now(&self) -> UnixMillis {
        let time = ngx_timeofday();
        // Before 1970 time stands still.
        let seconds = u64::try_from(time.sec).unwrap_or(0);
        UnixMillis(seconds.wrapping_mul(1000).wrapping_add(time.msec as u64))
    }

    fn fresh(&self) -> UnixMillis {
        unix_now()
    }
}

/// The time of day, looked up: in any thread.
pub(super) fn unix_now() -> UnixMillis {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
