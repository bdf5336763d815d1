//! Errors of a datastore.

use core::error::Error;
use core::fmt;
use core::time::Duration;

use super::server::ServerAddress;

/// A failed exchange with a datastore. Never contains a user's name or a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// The server that was asked, or the last one that was tried.
    pub server: ServerAddress,
    /// Failure of the exchange.
    pub failure: Failure,
    /// The servers that were tried before, in order, with their failures.
    pub earlier: Box<[(ServerAddress, Failure)]>,
}

/// A failure of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection could be made; with the cause.
    Unreachable(Box<str>),
    /// A sentinel does not know the primary; with the reason.
    NoPrimary(Box<str>),
    /// The server rejects the user or the password, or the user lacks a right; with the reason.
    Denied(Box<str>),
    /// The server cannot execute the request in its state, and has not begun.
    Refused(Refusal),
    /// The server returned another error, maybe after it had begun; with the error.
    Failed(Box<str>),
    /// No answer arrived within this time.
    TimedOut(Duration),
    /// Too few replicas answered in time to know whether the store has executed the request; with
    /// the server's words.
    Unconfirmed(Box<str>),
    /// The connection was closed before an answer arrived; with the cause.
    Disconnected(Box<str>),
    /// The answer is invalid; with the reason.
    Misunderstood(Box<str>),
    /// The server lacks something, or has something else in its place; with a description. Nothing
    /// was executed.
    Unusable(Box<str>),
    /// This build does not support an option; with its name.
    Unsupported(&'static str),
}

/// The reason why a server executes nothing at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is a replica, which accepts no writes.
    ReadOnly,
    /// It is a replica that has lost its primary.
    PrimaryDown,
    /// It is loading its data.
    Loading,
    /// It is out of memory.
    OutOfMemory,
    /// Another server has these keys; with its address in the asked server's words.
    Moved(Box<str>),
    /// Another reason; with the server's error code.
    Other(Box<str>),
}

impl StoreError {
    /// Creates the error of a failure at one server.
    pub fn new(server: ServerAddress, failure: Failure) -> StoreError {
        StoreError { server, failure, earlier: Box::default() }
    }

    /// Adds the errors of servers that were tried before.
    pub fn after(self, earlier: Vec<StoreError>) -> StoreError {
        let earlier = earlier.into_iter().map(|it| (it.server, it.failure));
        StoreError { earlier: earlier.collect(), ..self }
    }

    /// Returns whether the same request may succeed later, without a change of the configuration.
    pub fn is_transient(&self) -> bool {
        let earlier = self.earlier.iter().map(|(_, failure)| failure);
        earlier.chain([&self.failure]).any(Failure::is_transient)
    }

    /// Returns whether the connection was closed, maybe before the request.
    pub fn is_disconnected(&self) -> bool {
        matches!(self.failure, Failure::Disconnected(_))
    }

    /// Returns whether the store may have executed the request.
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

/// Formats the failure as it follows a server's name.
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
