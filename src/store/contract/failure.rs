//! Completes failures with their server and with what had been sent, and removes secrets from
//! servers' words.

use core::error::Error;

use super::error::{Failure, StoreError};
use super::options::Credentials;
use super::server::ServerAddress;

impl Failure {
    /// Converts the failure of a connection attempt, before which nothing was sent.
    pub(crate) fn before_sending(self) -> Failure {
        match self {
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

    /// Converts the failure after a batch or a part of one was sent, which may have been applied.
    pub(crate) fn after_sending(self) -> Failure {
        match self {
            Failure::Unreachable(cause) => Failure::Disconnected(cause),
            Failure::Denied(cause) | Failure::Unusable(cause) => Failure::Failed(cause),
            Failure::Refused(refusal) => Failure::Failed(refusal.to_string().into()),
            other => other,
        }
    }
}

impl StoreError {
    /// Returns a function that makes a failure an error of this server.
    pub(crate) fn of(server: &ServerAddress) -> impl FnOnce(Failure) -> StoreError {
        |failure| StoreError::new(server.clone(), failure)
    }
}

impl Credentials {
    /// Replaces the user's name in a server's words by `instead`; `called` formats the name as the
    /// server does. `None` if the name or the password is still contained.
    pub(crate) fn taken_out_of(
        &self,
        words: &str,
        called: impl Fn(&str) -> String,
        instead: &str,
    ) -> Option<String> {
        let words = match &self.username {
            Some(name) => words.replace(&called(name.expose()), instead),
            None => words.into(),
        };
        (!self.are_in(&words)).then_some(words)
    }
}

/// Formats an error and its causes, none of which contains sent data.
pub(crate) fn chain(error: &dyn Error) -> Box<str> {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        // Most errors repeat their cause.
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::store::contract::error::Refusal;

    fn may_have_applied(failure: Failure) -> bool {
        StoreError::new(ServerAddress::Unix("/".into()), failure).may_have_applied()
    }

    #[test]
    fn a_failure_after_a_batch_was_sent_may_have_applied_it() {
        let cause = || "cause".into();
        for failure in [
            Failure::Unreachable(cause()),
            Failure::Denied(cause()),
            Failure::Refused(Refusal::OutOfMemory),
            Failure::Failed(cause()),
            Failure::TimedOut(Duration::ZERO),
            Failure::Unconfirmed(cause()),
            Failure::Disconnected(cause()),
            Failure::Misunderstood(cause()),
            Failure::Unusable(cause()),
        ] {
            assert!(!may_have_applied(failure.clone().before_sending()), "{failure}");
            assert!(may_have_applied(failure.clone().after_sending()), "{failure}");
        }
    }
}
