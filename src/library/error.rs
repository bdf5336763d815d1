//! Errors, by operation.

use core::fmt;
use std::io;

use crate::engine::functions::arguments::ArgumentError;
use crate::engine::{RateLimitingError, SyncError};

/// The reason why there is no new namespace.
#[derive(Debug)]
#[non_exhaustive]
pub enum NewError {
    /// An argument is none, which the message names.
    Argument(ArgumentError),
    /// The memory has no room for another namespace. Holds what there is no room for.
    NoRoom(RateLimitingError),
    /// The system has no thread to give, or does not lock the memory's file. Holds the cause.
    System(io::Error),
}

/// The reason why a call did nothing, or is not known to have done something.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CallError {
    /// An argument is none, which the message names.
    Argument(ArgumentError),
    /// The sync with the store ended early. What it had begun goes on with the next one: no hit is lost.
    Sync(SyncError),
    /// The thread that talks to stores has ended: a strategy has panicked.
    Ended,
    /// The store did not decide in time, and [`OnError::Deny`](super::OnError::Deny) is what is to be done
    /// then.
    NoAnswer,
}

impl From<ArgumentError> for NewError {
    fn from(error: ArgumentError) -> Self {
        NewError::Argument(error)
    }
}

impl From<RateLimitingError> for NewError {
    fn from(error: RateLimitingError) -> Self {
        NewError::NoRoom(error)
    }
}

impl From<io::Error> for NewError {
    fn from(error: io::Error) -> Self {
        NewError::System(error)
    }
}

impl From<ArgumentError> for CallError {
    fn from(error: ArgumentError) -> Self {
        CallError::Argument(error)
    }
}

impl From<SyncError> for CallError {
    fn from(error: SyncError) -> Self {
        CallError::Sync(error)
    }
}

impl fmt::Display for NewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NewError::Argument(error) => error.fmt(f),
            NewError::NoRoom(error) => error.fmt(f),
            NewError::System(error) => write!(f, "the system refuses what is needed ({error})"),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Argument(error) => error.fmt(f),
            CallError::Sync(error) => write!(f, "the sync ended early ({error})"),
            CallError::NoAnswer => f.write_str("the store does not answer"),
            CallError::Ended => f.write_str("the thread that talks to stores has ended"),
        }
    }
}

impl core::error::Error for NewError {}

impl core::error::Error for CallError {}
