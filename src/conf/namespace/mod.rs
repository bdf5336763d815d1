//! The settings of a namespace.

pub mod block;

use core::time::Duration;

use crate::policy::namespace::{OnError, OnLoss, SyncEarly, SyncMode};
use crate::policy::options::OptionWarning;
use crate::policy::window::WindowSize;

/// The settings of a namespace, from its `ratelimit_namespace` block or from defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// The zone with its counters; `None` for the only zone.
    pub zone: Option<Box<str>>,
    /// The datastore; present unless `sync` is [`SyncMode::Local`].
    pub store: Option<Box<str>>,
    /// The mode of the sync with the datastore.
    pub sync: SyncMode,
    /// The share of a limit that is pushed early, with periodic sync.
    pub sync_early: SyncEarly,
    /// The limit while the datastore is down, with periodic sync.
    pub on_loss: OnLoss,
    /// The windows in which hits are counted, each once, in the order given. If empty, hits are counted in every window
    /// of the namespace's limits.
    pub window_sizes: Vec<WindowSize>,
    /// The fallback when a synchronous datastore does not answer in time.
    pub on_error: OnError,
    /// The maximum wait for a synchronous datastore's answer: 1 ms to 1 minute.
    pub timeout: Duration,
    /// Whether a synchronous datastore charges hits of busy keys ahead.
    pub is_reserving: bool,
}

impl NamespaceOptions {
    /// Returns a warning if `sync_rate` is above a tenth of `smallest`, the smallest window in use.
    pub fn sync_rate_warning(&self, smallest: WindowSize) -> Option<OptionWarning> {
        let SyncMode::Periodic(period) = self.sync else {
            return None;
        };
        let window = Duration::from_millis(smallest.usual());
        (period.saturating_mul(10) > window).then(|| OptionWarning {
            message: format!(
                "sync_rate {} is above a tenth of the smallest window, {}s: within it, nodes learn \
                 late of each other's hits",
                self.sync,
                window.as_secs_f64()
            ),
            directive: "sync_rate".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_rate_above_a_tenth_of_a_window_is_warned_about() {
        let second = WindowSize::from_millis(1000).unwrap();
        let warning = |millis| {
            let options = NamespaceOptions {
                sync: SyncMode::Periodic(Duration::from_millis(millis)),
                ..NamespaceOptions::default()
            };
            options.sync_rate_warning(second)
        };
        assert_eq!(warning(100), None);
        assert!(warning(101).is_some());
        assert_eq!(
            warning(500).unwrap().message,
            "sync_rate 0.5 is above a tenth of the smallest window, 1s: within it, nodes learn \
             late of each other's hits"
        );
        // An hour of the calendar has an hour, too.
        let hour = WindowSize::parse(b"hour").unwrap();
        for (seconds, is_warned) in [(360, false), (361, true)] {
            let sync = SyncMode::Periodic(Duration::from_secs(seconds));
            let options = NamespaceOptions { sync, ..NamespaceOptions::default() };
            assert_eq!(options.sync_rate_warning(hour).is_some(), is_warned);
        }
        for sync in [SyncMode::Local, SyncMode::Synchronous] {
            let options = NamespaceOptions { sync, ..NamespaceOptions::default() };
            assert_eq!(options.sync_rate_warning(second), None);
        }
    }
}
