//! nginx's clock.

use nginx_sys::ngx_timeofday;

use crate::engine::Machine;
use crate::policy::window::{Clock, UnixMillis};

/// The time of day: nginx's time at the start of this turn of the event loop, or the system's.
pub(super) struct NgxClock;

impl Clock for NgxClock {
    #[inline]
    fn now(&self) -> UnixMillis {
        let time = ngx_timeofday();
        // Times before 1970 count as 1970.
        let seconds = u64::try_from(time.sec).unwrap_or(0);
        UnixMillis(seconds.wrapping_mul(1000).wrapping_add(time.msec as u64))
    }

    fn fresh(&self) -> UnixMillis {
        Machine.now()
    }
}
