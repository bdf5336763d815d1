//! The JSON API: its calls, and their answers.
//!
//! - [`request`]: parsing a call; [`site`]: the site that sends it
//! - [`overview`], [`namespace`](mod@namespace), [`key`](key()), [`reset`](reset()), [`top`](top()), [`rules`](rules()):
//!   the answers
//! - [`bans`](bans()): the answers about banned keys
//! - [`page`]: the live page for browsers
//! - [`counting`]: the settings that answers depend on; [`call_limit`]: the limit of a call; [`json`], [`list`]: the
//!   format, and errors
//! - [`store_call`], [`store_reset`]: calls that a store decides about

mod bans;
mod call_limit;
mod counting;
mod json;
mod key;
mod list;
mod namespace;
mod overview;
mod page;
mod request;
mod reset;
mod rules;
mod site;
mod store_call;
mod store_reset;
#[cfg(all(test, not(loom)))]
mod tests;
mod top;

pub use bans::{bans, lift};
pub use counting::Counting;
pub use json::{ApiError, escaped, no_namespace};
pub use key::key;
pub use namespace::{namespace, namespaces, no_store, synced};
pub use overview::{Health, Overview, OverviewDetail, health};
pub use page::{PAGE, PAGE_HEADERS, PAGE_TYPE};
pub use request::{ApiCall, ApiRequest, CountersCall, ExplainCall, KeyCall, OverviewCall};
pub use reset::{counters, reset};
pub use rules::{explain, rules};
pub use site::Sender;
pub use store_call::StoreCall;
pub use store_reset::AfterStore;
pub use top::top;

/// The media type of all answers but the page.
pub const MEDIA_TYPE: &str = "application/json";
