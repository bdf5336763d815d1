//! The settings of a namespace: what the directives of a `ratelimit_namespace` block say.

pub mod block;

use core::time::Duration;

use crate::policy::namespace::{DEFAULT_TIMEOUT, OnError, OnLoss, SyncEarly, SyncMode};
use crate::policy::options::OptionWarning;
use crate::policy::window::WindowSize;

/// The settings of a namespace: what a `ratelimit_namespace` block says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// The zone with its counters; `None`: the only one.
    pub zone: Option<Box<str>>,
    /// The datastore. There is one unless `sync` is [`SyncMode::Local`].
    pub store: Option<Box<str>>,
    /// Mode of the sync with the datastore.
    pub sync: SyncMode,
    /// Share of a limit that is pushed early, if the sync has a period.
    pub sync_early: SyncEarly,
    /// Limit while the datastore is away, if the sync has a period.
    pub on_loss: OnLoss,
    /// The windows that hits are counted in, each once, in the order given; none: every window
    /// that a limit of this namespace names.
    pub window_sizes: Vec<WindowSize>,
    /// Decision on a request when a synchronous datastore does not answer in time.
    pub on_error: OnError,
    /// Longest wait for a synchronous datastore's answer: 1 ms to 1 minute.
    pub timeout: Duration,
    /// Whether a synchronous datastore charges hits of busy keys ahead.
    pub is_reserving: bool,
}

/// An empty block's.
impl Default for NamespaceOptions {
    fn default() -> Self {
        NamespaceOptions {
            zone: None,
            store: None,
            sync: SyncMode::default(),
            sync_early: SyncEarly::default(),
            on_loss: OnLoss::default(),
            window_sizes: Vec::new(),
            on_error: OnError::default(),
            timeout: DEFAULT_TIMEOUT,
            is_reserving: false,
        }
    }
}

impl NamespaceOptions {
    /// Warns of a `sync_rate` above a tenth of `smallest`, the smallest window in use.
    pub fn sync_rate_warning(&self, smallest: WindowSize) -> Option<OptionWarning> {
        let SyncMode::Periodic(period) = self.sync else {
            return None;
        };
        let window = Duration::from_millis(smallest.millis());
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
        for sync in [SyncMode::Local, SyncMode::Synchronous] {
            let options = NamespaceOptions { sync, ..NamespaceOptions::default() };
            assert_eq!(options.sync_rate_warning(second), None);
        }
    }
}
