//! What the log tells of stores: one line for each change, of whichever worker notices it.

use core::fmt;
use std::sync::Arc;

use crate::table::{StoreNews, StoreState};

/// How far a store's clock may be from a node's, in milliseconds.
const CLOCK_TOLERANCE: u64 = 1000;

/// A store that the log tells of.
#[derive(Debug)]
pub struct Watched {
    /// Its name in the configuration.
    pub name: Box<str>,
    /// What becomes of requests while it is away.
    pub without_it: String,
    /// `None`: the zone has no room for it, and nothing is told.
    pub state: Option<StoreState<'static>>,
}

/// Who finds a store there or not.
#[derive(Clone, Copy, Debug)]
pub enum Finder {
    /// The sync of a namespace, by its number among those with the store.
    Sync(usize),
    /// Whoever asks it about requests.
    Asker,
}

impl Finder {
    fn number(self) -> usize {
        const ASKER: usize = StoreState::USERS as usize - 1;
        match self {
            Finder::Sync(number) => number % ASKER,
            Finder::Asker => ASKER,
        }
    }
}

/// What is new of a store; displayed, the line that tells of it.
#[derive(Debug)]
pub struct News {
    store: Arc<Watched>,
    what: What,
}

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A fault, or its end.
    Error,
    /// To be looked at.
    Warn,
    /// Good to know.
    Notice,
}

#[derive(Debug)]
enum What {
    /// For the first time, with this server.
    Connected(Option<String>),
    /// It never was. Holds why.
    Unreached(String),
    /// Holds why.
    Lost(String),
    Back,
    /// It knew another node by this one's identity, so that this one has taken a new one.
    OtherIdentity,
    /// Its clock is ahead of this node's, or behind it, by so many milliseconds, which is much.
    ClockIsOff(i64),
    ClockIsRight,
}

impl Watched {
    /// Notes what came of asking the store, `server` of which answered. Returns what no worker of this
    /// node has told.
    pub fn note(
        self: &Arc<Self>,
        finder: Finder,
        result: Result<(), &impl fmt::Display>,
        server: impl FnOnce() -> Option<String>,
    ) -> Option<News> {
        let news = self.state?.note(finder.number(), result.is_ok())?;
        let what = match (news, result) {
            (StoreNews::Connected, _) => What::Connected(server()),
            (StoreNews::Back, _) => What::Back,
            (StoreNews::Unreached, Err(error)) => What::Unreached(error.to_string()),
            (StoreNews::Lost, Err(error)) => What::Lost(error.to_string()),
            (StoreNews::Unreached | StoreNews::Lost, Ok(())) => return None,
        };
        Some(self.news(what))
    }

    /// Notes how far the store's clock is ahead of this node's, likewise.
    pub fn note_clock(self: &Arc<Self>, offset: i64) -> Option<News> {
        let is_off = offset.unsigned_abs() > CLOCK_TOLERANCE;
        let what = match is_off {
            true => What::ClockIsOff(offset),
            false => What::ClockIsRight,
        };
        let is_news = self.state?.note_clock(is_off);
        is_news.then(|| self.news(what))
    }

    /// That this node has another identity.
    pub fn other_identity(self: &Arc<Self>) -> News {
        self.news(What::OtherIdentity)
    }

    fn news(self: &Arc<Self>, what: What) -> News {
        News {
            store: self.clone(),
            what,
        }
    }
}

impl News {
    /// How much it matters.
    pub fn level(&self) -> Level {
        match self.what {
            What::Unreached(_) | What::Lost(_) | What::Back | What::OtherIdentity => Level::Error,
            What::ClockIsOff(_) => Level::Warn,
            What::Connected(_) | What::ClockIsRight => Level::Notice,
        }
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Watched {
            name, without_it, ..
        } = &*self.store;
        write!(f, "ratelimit_store \"{name}\" ")?;
        match &self.what {
            What::Connected(Some(server)) => write!(f, "is connected to {server}"),
            What::Connected(None) => f.write_str("is connected"),
            What::Unreached(error) => write!(f, "cannot be reached yet, {without_it}: {error}"),
            What::Lost(error) => write!(f, "is lost, {without_it}: {error}"),
            What::Back => f.write_str("is back"),
            What::OtherIdentity => f.write_str(
                "knows another node by this one's identity, is it a copy of this machine? This one \
                 has taken a new identity",
            ),
            What::ClockIsOff(offset) => {
                let millis = offset.unsigned_abs();
                let where_ = if *offset > 0 { "ahead of" } else { "behind" };
                write!(
                    f,
                    "has a clock that is {millis} ms {where_} this node's: nodes agree on windows as \
                     far as their clocks agree"
                )
            }
            What::ClockIsRight => f.write_str("has a clock that agrees with this node's again"),
        }
    }
}
