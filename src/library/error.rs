//! Errors, by operation.

use core::fmt;
use std::io;

use crate::engine::functions::arguments::ArgumentError;
use crate::engine::{RateLimitingError, SyncError};

/// The reason why a namespace or limiter was not created.
#[derive(Debug)]
#[non_exhaustive]
pub enum NewError {
    /// An argument is invalid. The message names it.
    Argument(ArgumentError),
    /// The memory has no room for another namespace.
    NoRoom(RateLimitingError),
    /// The system cannot start a thread or lock the memory's file.
    System(io::Error),
}

/// The reason why a call failed. It may have had an effect.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CallError {
    /// An argument is invalid. The message names it.
    Argument(ArgumentError),
    /// The sync with the store ended early. The next sync continues it; no hit is lost.
    Sync(SyncError),
    /// The store thread has ended, because a strategy has panicked.
    Ended,
    /// The store did not decide in time, and `on_error` is [`OnError::Deny`](super::OnError::Deny).
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
