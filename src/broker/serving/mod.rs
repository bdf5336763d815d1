//! The broker: the thread that asks the datastores for all workers of its node.
//!
//! - [`turn`]: waits to be the broker; [`serve`]: serves; [`dispatcher`]: sorts questions by their decider
//! - [`backlog`], [`batching`], [`exchange`]: the questions that wait for a decider, and its exchanges
//! - [`source`], [`decided`]: deciders, and the namespaces that they decide about
//! - [`unsent`]: hits that were admitted while a store was away; [`store_event`]: log lines about stores

#[cfg(not(loom))]
pub(super) mod backlog;
pub(super) mod batching;
#[cfg(not(loom))]
pub(super) mod decided;
#[cfg(not(loom))]
pub(super) mod dispatcher;
#[cfg(not(loom))]
pub(super) mod exchange;
#[cfg(not(loom))]
pub(super) mod serve;
#[cfg(not(loom))]
pub(super) mod source;
#[cfg(not(loom))]
pub(super) mod store_event;
#[cfg(not(loom))]
pub(super) mod turn;
#[cfg(not(loom))]
pub(super) mod unsent;
