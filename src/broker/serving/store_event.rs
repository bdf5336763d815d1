//! Log events of stores: one line for each event, by the worker that notices it first.

use core::fmt;
use std::sync::Arc;

use crate::table::{ChannelLease, ExchangeBudget, StoreMoment, StoreState, StoreTransition};

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
    /// The sync of a namespace that a caller has defined, by its number in the zone.
    Late(usize),
    /// The broker, which asks about requests.
    Broker,
}

impl Observer {
    /// Returns the user's number in the store's state.
    pub fn number(self) -> usize {
        const BROKER: usize = StoreState::USERS as usize - 1;
        match self {
            Observer::Sync(number) => number % BROKER,
            // From the other end, so that most have a number of their own.
            Observer::Late(number) => (BROKER - 1).saturating_sub(number % BROKER),
            Observer::Broker => BROKER,
        }
    }
}

/// A record of one observer's exchanges with a store, over a connection of its own, which tells new
/// events.
#[derive(Debug)]
pub struct StoreWatch {
    store: Arc<WatchedStore>,
    observer: Observer,
    /// The state of the store when the last exchange began.
    began: Option<StoreMoment>,
    /// The state at a time since which the connection may have been closed: it worked then, or was
    /// made later.
    connected: Option<StoreMoment>,
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

    fn moment(&self) -> Option<StoreMoment> {
        self.state.map(|it| it.moment())
    }

    /// Records how far the store's clock is ahead of this node's. Returns an event that no worker of
    /// this node has logged.
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

impl StoreWatch {
    /// Creates the record of `observer`, which has no connection yet.
    pub fn new(store: Arc<WatchedStore>, observer: Observer) -> StoreWatch {
        let connected = store.moment();
        StoreWatch { store, observer, began: None, connected }
    }

    /// Records that an exchange begins.
    pub fn begin(&mut self) {
        self.began = self.store.moment();
    }

    /// Records that it succeeded; `server` is the one that answered. Returns an event that no
    /// worker of this node has logged.
    pub fn succeed(&mut self, server: impl FnOnce() -> Option<String>) -> Option<StoreEvent> {
        let change = self.note(self.began, true);
        // Not the present state: this process may have been stopped since the answer.
        self.connected =
            self.began.map(|began| if change.is_some() { began.back() } else { began });
        let kind = match change? {
            StoreTransition::Connected => StoreEventKind::Connected(server()),
            StoreTransition::Back => StoreEventKind::Back,
            StoreTransition::Unreached | StoreTransition::Lost => return None,
        };
        Some(self.store.event(kind))
    }

    /// Records that it failed. Returns an event that no worker of this node has logged. The
    /// connection may have been closed before the exchange, by an outage that is over:
    /// `is_disconnected` tells that this is the error.
    pub fn fail(&mut self, error: &impl fmt::Display, is_disconnected: bool) -> Option<StoreEvent> {
        let since = if is_disconnected { self.connected } else { self.began };
        let change = self.note(since, false);
        self.connected = self.store.moment();
        let kind = match change? {
            StoreTransition::Unreached => StoreEventKind::Unreached(error.to_string()),
            StoreTransition::Lost => StoreEventKind::Lost(error.to_string()),
            StoreTransition::Connected | StoreTransition::Back => return None,
        };
        Some(self.store.event(kind))
    }

    fn note(&self, since: Option<StoreMoment>, is_there: bool) -> Option<StoreTransition> {
        self.store.state?.note(self.observer.number(), since?, is_there)
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::NameKind;
    use crate::testing::table::SharedTable;

    #[test]
    fn an_outage_is_told_once() {
        let zone: &SharedTable = Box::leak(Box::new(SharedTable::new(1 << 20)));
        let name = (NameKind::Store, ["main", ""]);
        let word = zone.table.claim_words([name].into_iter())[0].unwrap();
        let state = StoreState::new(word, [0].into_iter());
        let store = Arc::new(WatchedStore {
            name: "main".into(),
            without_it: String::new(),
            state: Some(state),
            channel: None,
            budget: None,
        });
        // Two workers that sync the same namespace.
        let [mut one, mut other] =
            [(); 2].map(|()| StoreWatch::new(store.clone(), Observer::Sync(0)));
        let exchange = |worker: &mut StoreWatch, result: Result<(), bool>| {
            worker.begin();
            let event = match result {
                Ok(()) => worker.succeed(|| None),
                Err(is_disconnected) => worker.fail(&"failed", is_disconnected),
            };
            event.map(|it| it.to_string())
        };
        let is = |event: Option<String>, what: &str| event.is_some_and(|it| it.contains(what));
        assert!(is(exchange(&mut one, Ok(())), "is connected"));
        assert_eq!(exchange(&mut other, Ok(())), None);
        // An outage that only one of them notices.
        assert!(is(exchange(&mut one, Err(true)), "is lost"));
        assert!(is(exchange(&mut one, Ok(())), "is back"));
        assert_eq!(exchange(&mut other, Err(true)), None);
        assert_eq!(state.is_up(), Some(true));
        // It has no connection now, so that the next failure is of another outage.
        assert!(is(exchange(&mut other, Err(true)), "is lost"));
        assert!(is(exchange(&mut other, Ok(())), "is back"));
        // An answer is one of now, on whatever connection.
        assert!(is(exchange(&mut one, Err(false)), "is lost"));
        assert!(is(exchange(&mut one, Ok(())), "is back"));
        assert_eq!(exchange(&mut other, Ok(())), None);
        // One that was stopped during an outage, after an answer from before it.
        other.begin();
        assert!(is(exchange(&mut one, Err(false)), "is lost"));
        assert!(is(exchange(&mut one, Ok(())), "is back"));
        assert!(other.succeed(|| None).is_none());
        assert_eq!(exchange(&mut other, Err(true)), None);
        assert_eq!(state.is_up(), Some(true));
        // One that goes on during the outage.
        other.begin();
        assert!(is(exchange(&mut one, Err(false)), "is lost"));
        assert!(other.succeed(|| None).is_none());
        assert_eq!(state.is_up(), Some(false));
        assert!(is(exchange(&mut one, Ok(())), "is back"));
    }
}
