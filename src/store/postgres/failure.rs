//! Meanings of the errors that Postgres answers.

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

/// Returns the failure of an exchange that could take `timeout`. It has the server's words, but for
/// details, which may hold keys, and for a user's name or a password.
pub(super) fn of(error: &Error, credentials: &Credentials, timeout: Duration) -> Failure {
    let Some(answer) = error.as_db_error() else {
        let cause = chain(error);
        return if error.is_closed() || is_io(error) {
            Failure::Disconnected(cause)
        } else if cause.starts_with("authentication error")
            || cause.starts_with("invalid configuration")
        {
            // Such as a password that the server wants, and that there is not.
            Failure::Denied(cause)
        } else {
            Failure::Misunderstood(cause)
        };
    };
    let words = words(answer, credentials);
    // Postgres undoes what fails, so that what it refuses was not begun.
    match (answer.code().code(), answer.code().code().get(..2)) {
        ("25006", _) => Failure::Refused(Refusal::ReadOnly),
        // The server's own time for a statement, which is ours.
        ("57014", _) => Failure::TimedOut(timeout),
        ("57P03", _) => Failure::Refused(Refusal::Other(words)),
        ("53200", _) => Failure::Refused(Refusal::OutOfMemory),
        // This side was away for too long within a transaction, which the server has given up.
        ("25P03", _) => Failure::Disconnected(words),
        // It ends the connection, perhaps after the statement was done.
        (_, Some("57" | "08")) => Failure::Disconnected(words),
        // Too many connections, a full disk; a deadlock, a lock that is not to be had.
        (_, Some("53" | "40" | "55")) => Failure::Refused(Refusal::Other(words)),
        ("42501", _) | (_, Some("28")) => Failure::Denied(words),
        // A statement that was prepared a moment ago is not there, or one that was not is.
        ("26000" | "42P05", _) => Failure::Unusable(pooler::SHARED.into()),
        // There is no such database.
        ("3D000", _) => Failure::Unusable(words),
        _ => Failure::Failed(words),
    }
}

/// Whether a batch may be refused only since those that listen were to be told of it: by a queue that is full, since
/// some session listens and does not read, or for want of a right.
pub(super) fn is_of_telling(error: &Error) -> bool {
    let answer = error.as_db_error();
    answer.is_some_and(|answer| matches!(answer.code().code(), "54000" | "42501"))
}

/// Whether a statement failed, or its answer cannot be read, by what somebody else wrote in a table: a number that has no
/// successor, an array of another shape, a row where the next one is to be.
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

/// Returns the server's words with the user's name replaced; `None` if they may hold a credential.
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
