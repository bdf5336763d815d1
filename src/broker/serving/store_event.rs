//! Log events of stores: one line for each event, by the worker that notices it first.

use core::fmt;
use std::sync::Arc;

use crate::table::{ChannelLease, ExchangeBudget, StoreReturns, StoreState, StoreTransition};

/// Tolerated difference between the clocks of a store and a node, in milliseconds.
const CLOCK_TOLERANCE: u64 = 1000;

/// A store whose events are logged.
#[derive(Debug)]
pub struct WatchedStore {
    /// Name of the store in the configuration.
    pub name: Box<str>,
    /// Description of the decisions while the store is down.
    pub without_it: String,
    /// `None` if the zone has no room for it; then nothing is logged.
    pub state: Option<StoreState<'static>>,
    /// Lease of the worker that listens to the store's channel; `None` if the zone has no room for
    /// it, and then no worker listens.
    pub channel: Option<ChannelLease<'static>>,
    /// Budget of exchanges with the store; `None` if the zone has no room for it.
    pub budget: Option<ExchangeBudget<'static>>,
}

/// A user of a store, which reports whether it succeeds.
#[derive(Clone, Copy, Debug)]
pub enum Observer {
    /// The sync of a namespace, by its number among those of the store.
    Sync(usize),
    /// The broker, which asks about requests.
    Broker,
}

impl Observer {
    /// Returns the user's number in the store's state.
    pub fn number(self) -> usize {
        const BROKER: usize = StoreState::USERS as usize - 1;
        match self {
            Observer::Sync(number) => number % BROKER,
            Observer::Broker => BROKER,
        }
    }
}

/// An event of a store. Its `Display` is the log line.
#[derive(Debug)]
pub struct StoreEvent {
    store: Arc<WatchedStore>,
    kind: StoreEventKind,
}

/// A severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// A fault, or its end.
    Error,
    /// Needs attention.
    Warn,
    /// Information.
    Notice,
}

#[derive(Debug)]
enum StoreEventKind {
    /// The first success, with this server.
    Connected(Option<String>),
    /// The store was never up; with the reason.
    Unreached(String),
    /// The store has failed; with the reason.
    Lost(String),
    Back,
    /// The store knew another node under this node's identity, so this node has taken a new one.
    OtherIdentity,
    /// The store's clock is ahead of this node's by this many milliseconds, which may be negative,
    /// and which is a lot.
    ClockIsOff(i64),
    ClockIsRight,
    /// The store has no channel; with the reason.
    NoChannel(String),
    /// The broker was stopped, and this process has replaced it.
    OtherBroker,
    /// The store did not confirm the last push of this namespace before the process ended.
    Unconfirmed(String),
}

impl WatchedStore {
    /// Returns whether the last operation failed.
    pub fn is_lost(&self) -> bool {
        self.state.and_then(|it| it.is_up()) == Some(false)
    }

    /// Returns how often the store has come back, for [`note`](Self::note); `None` if nothing is
    /// logged.
    pub fn returns(&self) -> Option<StoreReturns> {
        self.state.map(|it| it.returns())
    }

    /// Records the result of an operation like [`StoreState::note`]; `server` is the one that
    /// answered. Returns an event that no worker of this node has logged.
    pub fn note(
        self: &Arc<Self>,
        observer: Observer,
        returns: Option<StoreReturns>,
        result: Result<(), &impl fmt::Display>,
        server: impl FnOnce() -> Option<String>,
    ) -> Option<StoreEvent> {
        let change = self.state?.note(observer.number(), returns?, result.is_ok())?;
        let kind = match (change, result) {
            (StoreTransition::Connected, _) => StoreEventKind::Connected(server()),
            (StoreTransition::Back, _) => StoreEventKind::Back,
            (StoreTransition::Unreached, Err(error)) => {
                StoreEventKind::Unreached(error.to_string())
            }
            (StoreTransition::Lost, Err(error)) => StoreEventKind::Lost(error.to_string()),
            (StoreTransition::Unreached | StoreTransition::Lost, Ok(())) => return None,
        };
        Some(self.event(kind))
    }

    /// Records how far the store's clock is ahead of this node's, like `note`.
    pub fn record_clock(self: &Arc<Self>, offset: i64) -> Option<StoreEvent> {
        let is_off = offset.unsigned_abs() > CLOCK_TOLERANCE;
        let kind = match is_off {
            true => StoreEventKind::ClockIsOff(offset),
            false => StoreEventKind::ClockIsRight,
        };
        let is_news = self.state?.record_clock(is_off);
        is_news.then(|| self.event(kind))
    }

    /// Creates the event that other nodes' pushes are unknown before the next sync, with the
    /// reason.
    pub fn channel_unavailable(self: &Arc<Self>, error: &impl fmt::Display) -> StoreEvent {
        self.event(StoreEventKind::NoChannel(error.to_string()))
    }

    /// Creates the event that another process of this node now serves as the broker.
    pub fn other_broker(self: &Arc<Self>) -> StoreEvent {
        self.event(StoreEventKind::OtherBroker)
    }

    /// Creates the event that this node has another identity.
    pub fn other_identity(self: &Arc<Self>) -> StoreEvent {
        self.event(StoreEventKind::OtherIdentity)
    }

    /// Creates the event that hits of a namespace may be lost with a process that ends.
    pub fn unconfirmed(self: &Arc<Self>, namespace: &str) -> StoreEvent {
        self.event(StoreEventKind::Unconfirmed(namespace.to_owned()))
    }

    fn event(self: &Arc<Self>, kind: StoreEventKind) -> StoreEvent {
        StoreEvent { store: self.clone(), kind }
    }
}

impl StoreEvent {
    /// Returns the severity of the event.
    pub fn severity(&self) -> Severity {
        match self.kind {
            StoreEventKind::Unreached(_)
            | StoreEventKind::Lost(_)
            | StoreEventKind::Back
            | StoreEventKind::OtherIdentity
            | StoreEventKind::OtherBroker
            | StoreEventKind::Unconfirmed(_) => Severity::Error,
            StoreEventKind::ClockIsOff(_) | StoreEventKind::NoChannel(_) => Severity::Warn,
            StoreEventKind::Connected(_) | StoreEventKind::ClockIsRight => Severity::Notice,
        }
    }
}

impl fmt::Display for StoreEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WatchedStore { name, without_it, .. } = &*self.store;
        write!(f, "ratelimit_store \"{name}\" ")?;
        match &self.kind {
            StoreEventKind::Connected(Some(server)) => write!(f, "is connected to {server}"),
            StoreEventKind::Connected(None) => f.write_str("is connected"),
            StoreEventKind::Unreached(error) => {
                write!(f, "cannot be reached yet, {without_it}: {error}")
            }
            StoreEventKind::Lost(error) => write!(f, "is lost, {without_it}: {error}"),
            StoreEventKind::Back => f.write_str("is back"),
            StoreEventKind::OtherIdentity => f.write_str(
                "knows another node by this one's identity, is it a copy of this machine? This one \
                 has taken a new identity",
            ),
            StoreEventKind::ClockIsOff(offset) => {
                let millis = offset.unsigned_abs();
                let where_ = if *offset > 0 { "ahead of" } else { "behind" };
                write!(
                    f,
                    "has a clock that is {millis} ms {where_} this node's: nodes agree on windows as \
                     far as their clocks agree"
                )
            }
            StoreEventKind::NoChannel(error) => write!(
                f,
                "has no channel, this node learns what others count with its next sync: {error}"
            ),
            StoreEventKind::OtherBroker => f.write_str(
                "is asked by this worker from now on, in place of another one, which has stopped",
            ),
            StoreEventKind::Unconfirmed(namespace) => write!(
                f,
                "did not confirm the last push of namespace \"{namespace}\" in time, hits since \
                 its last sync may be lost"
            ),
            StoreEventKind::ClockIsRight => {
                f.write_str("has a clock that agrees with this node's again")
            }
        }
    }
}
