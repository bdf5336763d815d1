//! Translates errors of Postgres.

use core::error::Error as _;
use core::time::Duration;
use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::DbError;
use tokio_postgres::types::WasNull;

use super::pooler;
use crate::store::contract::error::{Failure, Refusal};
use crate::store::contract::failure::chain;
use crate::store::contract::options::Credentials;

/// Returns the failure of an exchange with this timeout. It contains the server's words without the
/// details, which may contain keys, and without a user's name or password.
pub(super) fn of(error: &Error, credentials: &Credentials, timeout: Duration) -> Failure {
    let Some(answer) = error.as_db_error() else {
        let cause = chain(error);
        return if error.is_closed() || is_io(error) {
            Failure::Disconnected(cause)
        } else if cause.starts_with("authentication error")
            || cause.starts_with("invalid configuration")
        {
            // For example, the server requires a password, and none is configured.
            Failure::Denied(cause)
        } else {
            Failure::Misunderstood(cause)
        };
    };
    let words = words(answer, credentials);
    // Postgres rolls back a failed statement, so a refusal means that nothing was executed.
    match (answer.code().code(), answer.code().code().get(..2)) {
        ("25006", _) => Failure::Refused(Refusal::ReadOnly),
        // The server's own timeout of a statement, which this client has set.
        ("57014", _) => Failure::TimedOut(timeout),
        ("57P03", _) => Failure::Refused(Refusal::Other(words)),
        ("53200", _) => Failure::Refused(Refusal::OutOfMemory),
        // This client did nothing in a transaction for too long, and the server ended it.
        ("25P03", _) => Failure::Disconnected(words),
        // The server ends the connection, maybe after it executed the statement.
        (_, Some("57" | "08")) => Failure::Disconnected(words),
        // Too many connections, a full disk, a deadlock, or a lock that is not available.
        (_, Some("53" | "40" | "55")) => Failure::Refused(Refusal::Other(words)),
        ("42501", _) | (_, Some("28")) => Failure::Denied(words),
        // A prepared statement is missing, or one exists that should not.
        ("26000" | "42P05", _) => Failure::Unusable(pooler::SHARED.into()),
        // The database does not exist.
        ("3D000", _) => Failure::Unusable(words),
        _ => Failure::Failed(words),
    }
}

/// Returns whether a batch may have failed only because of its notification: the queue is full,
/// since some session listens but does not read; or the role lacks a right.
pub(super) fn is_of_telling(error: &Error) -> bool {
    let answer = error.as_db_error();
    answer.is_some_and(|answer| matches!(answer.code().code(), "54000" | "42501"))
}

/// Returns whether a statement failed, or its answer cannot be parsed, because of data that
/// somebody else wrote: a number without a successor, an array of another shape, or a row in the
/// place of the next one.
pub(super) fn is_of_data(error: &Error) -> bool {
    match error.as_db_error() {
        Some(answer) => matches!(answer.code().code().get(..2), Some("22" | "23")),
        None => error.source().is_some_and(|cause| cause.is::<WasNull>()),
    }
}

fn is_io(error: &Error) -> bool {
    error.source().is_some_and(|cause| cause.is::<io::Error>())
}

fn words(answer: &DbError, credentials: &Credentials) -> Box<str> {
    let code = answer.code().code();
    match told(answer.message(), credentials) {
        Some(message) => format!("{message}, SQLSTATE {code}").into(),
        None => format!("SQLSTATE {code}").into(),
    }
}

/// Returns the server's words with the user's name replaced; `None` if they may contain a
/// credential.
fn told(words: &str, credentials: &Credentials) -> Option<String> {
    credentials.taken_out_of(words, |name| format!(" \"{name}\""), "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::contract::options::Secret;

    #[test]
    fn no_words_with_a_name_or_a_password_are_kept() {
        let secret = |text: &str| Secret::parse(text.as_bytes());
        let credentials = Credentials { username: secret("alice"), password: secret("hunter2") };
        for (words, expected) in [
            (
                "password authentication failed for user \"alice\"",
                Some("password authentication failed for user"),
            ),
            ("role \"alice\" does not exist", Some("role does not exist")),
            ("alice may not", None),
            ("hunter2", None),
            ("permission denied for table t", Some("permission denied for table t")),
        ] {
            assert_eq!(told(words, &credentials).as_deref(), expected);
        }
    }
}
