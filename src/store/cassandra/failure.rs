//! Translates errors of the driver and of Cassandra's nodes.

use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError,
    MetadataError, MetadataFetchErrorKind, NewSessionError, NextPageError, NextRowError,
    PrepareError, RequestAttemptError, RequestError,
};

use crate::store::contract::error::{Failure, Refusal};
use crate::store::contract::failure::chain;
use crate::store::contract::options::{Credentials, Secret};

/// The reason why an exchange has no valid answer.
#[derive(Debug)]
pub(super) enum CqlFault {
    Error(Box<ExecutionError>),
    /// A statement could not be prepared.
    Unprepared(Box<PrepareError>),
    /// An error after a batch was sent, which may have been applied.
    AfterPush(Box<CqlFault>),
    /// The answer does not fit the statement.
    Misunderstood(&'static str),
}

impl CqlFault {
    pub(super) fn after_push(self) -> CqlFault {
        CqlFault::AfterPush(Box::new(self))
    }

    /// Returns the failure, with the nodes' words, but without a user's name or password.
    pub(super) fn failure(&self, credentials: &Credentials) -> Failure {
        match self {
            CqlFault::Error(error) => of_execution(error, credentials),
            CqlFault::Unprepared(error) => of_prepare(error, credentials),
            CqlFault::AfterPush(fault) => match fault.failure(credentials) {
                // The session is still good.
                Failure::Refused(refusal) => Failure::Unconfirmed(refusal.to_string().into()),
                failure => failure.after_sending(),
            },
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

/// Returns whether the session is still good after a failure: its nodes answered properly.
pub(super) fn leaves_session(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(_) | Failure::Unconfirmed(_))
}

/// Returns whether the exchange ran out of time, on this side or in the replicas.
pub(super) fn is_late(failure: &Failure) -> bool {
    matches!(failure, Failure::TimedOut(_) | Failure::Unconfirmed(_))
}

/// Returns whether the nodes may not know a table yet: they then reject the statement.
pub(super) fn is_unknown(error: &PrepareError) -> bool {
    let PrepareError::AllAttemptsFailed { first_attempt } = error else {
        return false;
    };
    matches!(
        first_attempt,
        RequestAttemptError::DbError(DbError::Invalid | DbError::ServerError, _)
    )
}

/// Returns the failure of an exchange.
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

/// Returns the failure to create a session.
pub(super) fn of_session(error: &NewSessionError, credentials: &Credentials) -> Failure {
    match error {
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
    }
}

fn of_pool(error: &ConnectionPoolError, credentials: &Credentials) -> Failure {
    let ConnectionPoolError::Broken { last_connection_error } = error else {
        return Failure::Unreachable(chain(error));
    };
    let ConnectionError::ConnectionSetupRequestError(error) = last_connection_error else {
        return Failure::Unreachable(chain(last_connection_error));
    };
    match error.get_error() {
        ConnectionSetupRequestErrorKind::DbError(error, words) => {
            of_answer(error, words, credentials).before_sending()
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

/// Returns the failure of a node's error.
fn of_answer(error: &DbError, words: &str, credentials: &Credentials) -> Failure {
    let said = said(error, words, credentials);
    match error {
        DbError::AuthenticationError | DbError::Unauthorized => Failure::Denied(said),
        // Nothing was begun.
        DbError::Unavailable { .. }
        | DbError::Overloaded
        | DbError::IsBootstrapping
        | DbError::RateLimitReached { .. } => Failure::Refused(Refusal::Other(said)),
        // Some replicas may have executed it.
        DbError::ReadTimeout { .. }
        | DbError::WriteTimeout { .. }
        | DbError::ReadFailure { .. }
        | DbError::WriteFailure { .. }
        | DbError::TruncateError => Failure::Unconfirmed(said),
        _ => Failure::Failed(said),
    }
}

/// Returns the words of an answer, without the user's name.
fn said(error: &DbError, words: &str, credentials: &Credentials) -> Box<str> {
    let told = credentials.taken_out_of(words, |name| format!(" {name}"), "");
    let told = told.filter(|words| !words.is_empty());
    told.unwrap_or_else(|| error.to_string()).into()
}

/// Returns the user's name and password of a session's login; `None` without them.
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
        Credentials { username: Secret::parse(b"alice"), password: Secret::parse(b"hunter2") }
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
            ("'alice' may not", "The logged user doesn't have the right to perform the query"),
            ("hunter2", "The logged user doesn't have the right to perform the query"),
            ("", "The logged user doesn't have the right to perform the query"),
        ] {
            let said = said(&DbError::Unauthorized, words, &credentials());
            assert_eq!(&*said, expected);
        }
    }

    #[test]
    fn a_batch_refused_in_the_middle_may_be_applied_in_part() {
        let overloaded = RequestAttemptError::DbError(DbError::Overloaded, "busy".into());
        let fault = CqlFault::from(ExecutionError::LastAttemptError(overloaded));
        let failure = fault.failure(&credentials());
        assert!(matches!(failure, Failure::Refused(_)), "{failure}");
        let failure = fault.after_push().failure(&credentials());
        assert!(matches!(failure, Failure::Unconfirmed(_)), "{failure}");
    }
}
