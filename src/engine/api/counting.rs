//! The settings of a namespace that determine its counters.

use super::json::ApiError;
use super::request::KeyCall;
use crate::policy::algorithm::Algorithm;
use crate::policy::namespace::SyncMode;
use crate::policy::window::WindowSize;
use crate::store::registry::StoreKind;
use crate::table::CountedRate;

/// The settings of a namespace that determine its counters.
#[derive(Clone, Copy, Debug)]
pub struct Counting<'c> {
    /// The mode of its sync.
    pub sync: SyncMode,
    /// The kind of its store, if it has one.
    pub store: Option<StoreKind>,
    /// The windows in which it counts.
    pub sizes: &'c [WindowSize],
    /// The constant rates of its rules.
    pub rates: &'c [CountedRate],
    /// The names of the counters of its rules, without the shared one.
    pub counters: &'c [Box<str>],
    /// Whether callers may count in other windows, too.
    pub is_open: bool,
}

impl Counting<'_> {
    /// Returns the window of the counter that `call` is about.
    ///
    /// # Errors
    ///
    /// 400 if the window is none of the namespace's, or is missing although the namespace has not exactly one.
    pub(super) fn window_of(&self, call: &KeyCall) -> Result<WindowSize, ApiError> {
        let message = match (call.window, self.sizes) {
            // A rate's time unit is not one of the namespace's windows.
            (Some(size), _) if call.algorithm.is_of_rates() => return Ok(size),
            (Some(size), sizes) if self.is_open || sizes.contains(&size) => return Ok(size),
            (None, [size]) => return Ok(*size),
            (Some(size), _) => format!(
                "the window {size} is not one of the namespace's: expected {}",
                self.expected()
            ),
            (None, []) => "no window: expected window=, such as 60".into(),
            (None, _) => format!("no window: expected window=, one of {}", self.expected()),
        };
        Err(ApiError::new(400, message))
    }

    /// Checks that a rule has the named counter: only rules create them.
    ///
    /// # Errors
    ///
    /// 404 if no rule has it.
    pub(super) fn check_counter(&self, name: Option<&str>) -> Result<(), ApiError> {
        let Some(name) = name.filter(|name| !self.counters.iter().any(|it| **it == **name)) else {
            return Ok(());
        };
        let known = ["default"].into_iter().chain(self.counters.iter().map(|it| &**it));
        let known = known.collect::<Vec<_>>().join(", ");
        let message = format!("there is no counter \"{name}\" in the namespace: expected {known}");
        Err(ApiError::new(404, message))
    }

    /// Whether hits can be counted by `algorithm`: on this node, or in a synchronous store.
    pub(super) fn has(&self, algorithm: Algorithm) -> bool {
        let decides = || self.store.is_none_or(|it| it.decides_by(algorithm));
        self.sync.goes_with(algorithm, decides)
    }

    /// Checks that `algorithm` goes with the namespace, with the same rules as in `nginx.conf`.
    ///
    /// # Errors
    ///
    /// 400 if it does not.
    pub(super) fn check(&self, algorithm: Algorithm) -> Result<(), ApiError> {
        if self.has(algorithm) {
            return Ok(());
        }
        let word = match algorithm.is_of_rates() {
            true => "rate".into(),
            false => format!("window_type={}", algorithm.name()),
        };
        let message = format!(
            "{word} does not go with \"sync_rate {}\" of the namespace: expected a sliding or fixed window",
            self.sync
        );
        Err(ApiError::new(400, message))
    }

    fn expected(&self) -> String {
        let sizes: Vec<_> = self.sizes.iter().map(ToString::to_string).collect();
        sizes.join(", ")
    }
}
