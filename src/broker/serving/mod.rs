//! The broker: the thread that asks the datastores for all workers of its node.
//!
//! - [`turn`]: waits for its turn to be the broker; [`serve`]: serves; [`dispatcher`]: sorts
//!   questions by decider
//! - [`backlog`], [`batching`], [`exchange`]: the questions to a decider, and its exchanges
//! - [`unsent`]: hits that were admitted while a store was down; [`store_event`]: log lines about
//!   stores

#[cfg(not(loom))]
pub(super) mod backlog;
pub(super) mod batching;
#[cfg(not(loom))]
pub(super) mod dispatcher;
#[cfg(not(loom))]
pub(super) mod exchange;
#[cfg(not(loom))]
pub(super) mod serve;
#[cfg(not(loom))]
pub(super) mod store_event;
#[cfg(not(loom))]
pub(super) mod turn;
#[cfg(not(loom))]
pub(super) mod unsent;
