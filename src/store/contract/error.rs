//! Errors of a datastore.

use core::error::Error;
use core::fmt;
use core::time::Duration;

use super::server::ServerAddress;

/// An exchange with a datastore that failed. Never holds a user's name or a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// The server that was talked to, or that was tried last.
    pub server: ServerAddress,
    /// Failure of the exchange.
    pub failure: Failure,
    /// The servers that were tried before, in their order, and what happened with each.
    pub earlier: Box<[(ServerAddress, Failure)]>,
}

/// A failure of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There was no connection, and none could be made. Holds the cause.
    Unreachable(Box<str>),
    /// A sentinel knows no primary. Holds why.
    NoPrimary(Box<str>),
    /// The server does not accept the user or the password, or they may not do what is needed.
    /// Holds which.
    Denied(Box<str>),
    /// The server is in no state to do what it was asked, and has not begun.
    Refused(Refusal),
    /// The server answered with another error, which may have happened midway. Holds it.
    Failed(Box<str>),
    /// There was no answer within this time.
    TimedOut(Duration),
    /// Too few replicas answered in time to know whether the store has done it. Holds
    /// the server's words.
    Unconfirmed(Box<str>),
    /// The connection broke before there was an answer. Holds the cause.
    Disconnected(Box<str>),
    /// The answer makes no sense. Holds what is wrong with it.
    Misunderstood(Box<str>),
    /// The server lacks something, or has another thing in its place. Holds what; nothing was done.
    Unusable(Box<str>),
    /// The options ask for what this build cannot do. Holds what.
    Unsupported(&'static str),
}

/// The reason why a server does nothing at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is a replica, on which nothing can be written.
    ReadOnly,
    /// It is a replica that has lost its primary.
    PrimaryDown,
    /// It is reading its data in.
    Loading,
    /// It has no memory left.
    OutOfMemory,
    /// Another server has these keys. Holds which, in the words of the one that was asked.
    Moved(Box<str>),
    /// Something else. Holds the server's own code for it.
    Other(Box<str>),
}

impl StoreError {
    /// Creates the error of a failure with one server.
    pub fn new(server: ServerAddress, failure: Failure) -> StoreError {
        StoreError { server, failure, earlier: Box::default() }
    }

    /// Adds the errors of other servers that were tried before.
    pub fn after(self, earlier: Vec<StoreError>) -> StoreError {
        let earlier = earlier.into_iter().map(|it| (it.server, it.failure));
        StoreError { earlier: earlier.collect(), ..self }
    }

    /// Whether the same may succeed a little later with the same configuration.
    pub fn is_transient(&self) -> bool {
        let earlier = self.earlier.iter().map(|(_, failure)| failure);
        earlier.chain([&self.failure]).any(Failure::is_transient)
    }

    /// Whether the store may have done what it was asked: `false` if it has not.
    pub fn may_have_applied(&self) -> bool {
        match self.failure {
            Failure::Failed(_)
            | Failure::TimedOut(_)
            | Failure::Unconfirmed(_)
            | Failure::Disconnected(_)
            | Failure::Misunderstood(_) => true,
            Failure::Unreachable(_)
            | Failure::NoPrimary(_)
            | Failure::Denied(_)
            | Failure::Refused(_)
            | Failure::Unusable(_)
            | Failure::Unsupported(_) => false,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (server, failure) in &self.earlier {
            write!(f, "{server} {failure}; ")?;
        }
        write!(f, "{} {}", self.server, self.failure)
    }
}

impl Failure {
    fn is_transient(&self) -> bool {
        match self {
            Failure::Unreachable(_)
            | Failure::NoPrimary(_)
            | Failure::Refused(_)
            | Failure::TimedOut(_)
            | Failure::Unconfirmed(_)
            | Failure::Disconnected(_) => true,
            Failure::Denied(_)
            | Failure::Failed(_)
            | Failure::Misunderstood(_)
            | Failure::Unusable(_)
            | Failure::Unsupported(_) => false,
        }
    }
}

/// Writes the failure as it follows the name of a server.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unreachable(cause) => write!(f, "cannot be reached ({cause})"),
            Failure::NoPrimary(cause) => write!(f, "knows no primary ({cause})"),
            Failure::Denied(cause) => write!(f, "denies access ({cause})"),
            Failure::Refused(refusal) => write!(f, "refuses for now ({refusal})"),
            Failure::Failed(cause) => write!(f, "answered with an error ({cause})"),
            Failure::TimedOut(after) => write!(f, "did not answer ({} ms)", after.as_millis()),
            Failure::Unconfirmed(words) => write!(f, "has too few answers of replicas ({words})"),
            Failure::Disconnected(cause) => write!(f, "closed the connection ({cause})"),
            Failure::Misunderstood(cause) => write!(f, "is not understood ({cause})"),
            Failure::Unusable(what) => write!(f, "cannot be used ({what})"),
            Failure::Unsupported(what) => write!(f, "cannot be used by this build ({what})"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Moved(to) => {
                return write!(f, "another server has the keys: is it a cluster? {to}");
            }
            Refusal::ReadOnly => "it is a read-only replica",
            Refusal::PrimaryDown => "it is a replica without its primary",
            Refusal::Loading => "it is loading its data",
            Refusal::OutOfMemory => "it is out of memory",
            Refusal::Other(code) => code,
        })
    }
}

impl Error for StoreError {}
