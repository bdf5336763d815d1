//! What the errors of the driver, and those that nodes answer, mean.

use core::error::Error;

use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError,
    MetadataError, MetadataFetchErrorKind, NewSessionError, NextPageError, NextRowError,
    PrepareError, RequestAttemptError, RequestError,
};

use crate::store::error::{Failure, Refusal};
use crate::store::options::{Credentials, Secret};

/// Why an exchange ended without its answer.
#[derive(Debug)]
pub(super) enum CqlFault {
    Error(Box<ExecutionError>),
    /// A statement was not prepared.
    Unprepared(Box<PrepareError>),
    /// After a batch was sent, which may have been applied.
    AfterPush(Box<CqlFault>),
    /// The answer was not what this statement says.
    Misunderstood(&'static str),
}

impl CqlFault {
    pub(super) fn after_push(self) -> CqlFault {
        CqlFault::AfterPush(Box::new(self))
    }

    /// What it means. What nodes say is kept, but for a user's name or a password.
    pub(super) fn failure(&self, credentials: &Credentials) -> Failure {
        match self {
            CqlFault::Error(error) => of_execution(error, credentials),
            CqlFault::Unprepared(error) => of_prepare(error, credentials),
            CqlFault::AfterPush(fault) => after_sending(fault.failure(credentials)),
            CqlFault::Misunderstood(what) => Failure::Misunderstood((*what).into()),
        }
    }
}

impl From<ExecutionError> for CqlFault {
    fn from(error: ExecutionError) -> Self {
        CqlFault::Error(error.into())
    }
}

impl From<PrepareError> for CqlFault {
    fn from(error: PrepareError) -> Self {
        CqlFault::Unprepared(error.into())
    }
}

/// Whether the session is none the worse for it: its nodes answered in good order.
pub(super) fn leaves_session(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(_) | Failure::Unconfirmed(_))
}

/// What an error of an exchange means.
pub(super) fn of_execution(error: &ExecutionError, credentials: &Credentials) -> Failure {
    match error {
        ExecutionError::LastAttemptError(attempt) => of_attempt(attempt, credentials),
        ExecutionError::ConnectionPoolError(error) => of_pool(error, credentials),
        ExecutionError::PrepareError(error) => of_prepare(error, credentials),
        ExecutionError::EmptyPlan => {
            Failure::Unreachable("no node of the datacenter is known".into())
        }
        other => Failure::Misunderstood(chain(other)),
    }
}

fn of_prepare(error: &PrepareError, credentials: &Credentials) -> Failure {
    match error {
        PrepareError::AllAttemptsFailed { first_attempt } => of_attempt(first_attempt, credentials),
        PrepareError::ConnectionPoolError(error) => of_pool(error, credentials),
        other => Failure::Misunderstood(chain(other)),
    }
}

/// Why there is no session.
pub(super) fn of_session(error: &NewSessionError, credentials: &Credentials) -> Failure {
    let failure = match error {
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(error)) => {
            of_pool(error, credentials)
        }
        NewSessionError::MetadataError(MetadataError::FetchError(error)) => match &error.error {
            MetadataFetchErrorKind::PrepareError(attempt)
            | MetadataFetchErrorKind::NextRowError(NextRowError::NextPageError(
                NextPageError::RequestFailure(RequestError::LastAttemptError(attempt)),
            )) => of_attempt(attempt, credentials),
            _ => Failure::Unreachable(chain(error)),
        },
        other => Failure::Unreachable(chain(other)),
    };
    before_sending(failure)
}

fn of_pool(error: &ConnectionPoolError, credentials: &Credentials) -> Failure {
    let ConnectionPoolError::Broken {
        last_connection_error,
    } = error
    else {
        return Failure::Unreachable(chain(error));
    };
    let ConnectionError::ConnectionSetupRequestError(error) = last_connection_error else {
        return Failure::Unreachable(chain(last_connection_error));
    };
    match error.get_error() {
        ConnectionSetupRequestErrorKind::DbError(error, words) => {
            before_sending(of_answer(error, words, credentials))
        }
        ConnectionSetupRequestErrorKind::MissingAuthentication => {
            Failure::Denied("it wants a username and a password".into())
        }
        _ => Failure::Unreachable(chain(error)),
    }
}

fn of_attempt(error: &RequestAttemptError, credentials: &Credentials) -> Failure {
    match error {
        RequestAttemptError::DbError(error, words) => of_answer(error, words, credentials),
        RequestAttemptError::BrokenConnectionError(error) => Failure::Disconnected(chain(error)),
        RequestAttemptError::UnableToAllocStreamId => {
            Failure::Refused(Refusal::Other("too much is asked at once".into()))
        }
        other => Failure::Misunderstood(chain(other)),
    }
}

/// What a node says.
fn of_answer(error: &DbError, words: &str, credentials: &Credentials) -> Failure {
    let said = said(error, words, credentials);
    match error {
        DbError::AuthenticationError | DbError::Unauthorized => Failure::Denied(said),
        // Before anything was begun.
        DbError::Unavailable { .. }
        | DbError::Overloaded
        | DbError::IsBootstrapping
        | DbError::RateLimitReached { .. } => Failure::Refused(Refusal::Other(said)),
        // Some replicas may have done it.
        DbError::ReadTimeout { .. }
        | DbError::WriteTimeout { .. }
        | DbError::ReadFailure { .. }
        | DbError::WriteFailure { .. }
        | DbError::TruncateError => Failure::Unconfirmed(said),
        _ => Failure::Failed(said),
    }
}

/// What a failure means where nothing was asked for yet: the session was being made.
pub(super) fn before_sending(failure: Failure) -> Failure {
    match failure {
        Failure::Disconnected(cause)
        | Failure::Misunderstood(cause)
        | Failure::Unconfirmed(cause) => Failure::Unreachable(cause),
        Failure::TimedOut(after) => {
            Failure::Unreachable(format!("no answer within {} ms", after.as_millis()).into())
        }
        // Such as a table that cannot be created.
        Failure::Failed(cause) => Failure::Unusable(cause),
        other => other,
    }
}

/// What a failure means where a part of a batch was sent before, and may have been applied.
fn after_sending(failure: Failure) -> Failure {
    match failure {
        Failure::Unreachable(cause) => Failure::Disconnected(cause),
        Failure::Denied(cause) | Failure::Unusable(cause) => Failure::Failed(cause),
        Failure::Refused(refusal) => Failure::Unconfirmed(refusal.to_string().into()),
        other => other,
    }
}

/// An error and its causes: none holds what was sent.
pub(super) fn chain(error: &dyn Error) -> Box<str> {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        // Most repeat their cause.
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text.into()
}

/// The words of an answer, with no name for the user.
fn said(error: &DbError, words: &str, credentials: &Credentials) -> Box<str> {
    let words = match &credentials.username {
        Some(name) => words.replace(&format!(" {}", name.expose()), ""),
        None => words.into(),
    };
    match words.is_empty() || credentials.are_in(&words) {
        true => error.to_string().into(),
        false => words.into(),
    }
}

/// The user and the password that a session logs in with.
pub(super) fn login(credentials: &Credentials) -> Option<(String, String)> {
    let Credentials { username, password } = credentials;
    (username.is_some() || password.is_some()).then(|| {
        let name = username.as_ref().map_or("cassandra", Secret::expose);
        let password = password.as_ref().map_or("", Secret::expose);
        (name.to_owned(), password.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials() -> Credentials {
        Credentials {
            username: Secret::parse(b"alice"),
            password: Secret::parse(b"hunter2"),
        }
    }

    #[test]
    fn no_words_with_a_name_or_a_password_are_kept() {
        for (words, expected) in [
            (
                "Provided username alice and/or password are incorrect",
                "Provided username and/or password are incorrect",
            ),
            (
                "User alice has no MODIFY permission on <table k.t> or any of its parents",
                "User has no MODIFY permission on <table k.t> or any of its parents",
            ),
            (
                "'alice' may not",
                "The logged user doesn't have the right to perform the query",
            ),
            (
                "hunter2",
                "The logged user doesn't have the right to perform the query",
            ),
            (
                "",
                "The logged user doesn't have the right to perform the query",
            ),
        ] {
            let said = said(&DbError::Unauthorized, words, &credentials());
            assert_eq!(&*said, expected);
        }
    }

    #[test]
    fn what_follows_a_batch_may_have_applied_it() {
        let cause = || "cause".into();
        for failure in [
            Failure::Unreachable(cause()),
            Failure::Denied(cause()),
            Failure::Unusable(cause()),
            Failure::Refused(Refusal::Other(cause())),
            Failure::Unconfirmed(cause()),
        ] {
            let after = after_sending(failure);
            let may_have_applied = matches!(
                after,
                Failure::Disconnected(_) | Failure::Failed(_) | Failure::Unconfirmed(_)
            );
            assert!(may_have_applied, "{after:?}");
        }
    }
}
