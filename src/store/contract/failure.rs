//! Failures once their server is known, and whether anything was sent before; and the server's
//! words that may be shown.

use core::error::Error;

use super::error::{Failure, StoreError};
use super::options::Credentials;
use super::server::ServerAddress;

impl Failure {
    /// Returns the failure of a connection that was being made: nothing was asked for yet.
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

    /// Returns the failure after a batch, or a part of one, was sent, and may have been applied.
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
    /// Returns a function that makes a failure one of this server.
    pub(crate) fn of(server: &ServerAddress) -> impl FnOnce(Failure) -> StoreError {
        |failure| StoreError::new(server.clone(), failure)
    }
}

impl Credentials {
    /// Replaces the user in a server's words by `instead`; `called` makes the server's form of the
    /// name. `None`: the name or the password is still in them.
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

/// An error and its causes: none holds what was sent.
pub(crate) fn chain(error: &dyn Error) -> Box<str> {
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

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::store::contract::error::Refusal;

    fn may_have_applied(failure: Failure) -> bool {
        StoreError::new(ServerAddress::Unix("/".into()), failure).may_have_applied()
    }

    #[test]
    fn what_follows_a_batch_may_have_applied_it() {
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
