//! Translates errors of etcd and of connections to it.

use std::io;

use super::wire::Problem;
use crate::store::contract::error::{Failure, Refusal};
use crate::store::contract::options::Credentials;
use crate::store::net::stream::failed;

/// The reason why an exchange has no valid answer.
#[derive(Debug)]
pub(super) enum EtcdFault {
    Failed(Failure),
    /// The token or a lease of the session has ended, and nothing was executed; with the server's words.
    SessionEnded(Box<str>),
}

impl EtcdFault {
    pub(super) fn misunderstood(what: &str) -> EtcdFault {
        EtcdFault::Failed(Failure::Misunderstood(what.into()))
    }

    /// Returns the failure of an exchange, if it cannot be repeated.
    pub(super) fn into_failure(self) -> Failure {
        match self {
            EtcdFault::Failed(failure) => failure,
            EtcdFault::SessionEnded(words) => Failure::Refused(Refusal::Other(words)),
        }
    }
}

impl From<io::Error> for EtcdFault {
    fn from(error: io::Error) -> EtcdFault {
        EtcdFault::Failed(failed(error))
    }
}

/// Returns the fault of an answer with this HTTP status, from its code of gRPC:
/// <https://grpc.io/docs/guides/status-codes>. A transaction that fails has executed nothing.
pub(super) fn of(status: &str, body: &[u8], credentials: &Credentials) -> EtcdFault {
    let Ok(Problem { code, message }) = serde_json::from_slice(body) else {
        return EtcdFault::misunderstood(&format!("HTTP status {status}"));
    };
    let told = credentials.taken_out_of(&message, str::to_owned, "the user");
    let words: Box<str> = match told {
        Some(words) => words.trim_start_matches("etcdserver: ").into(),
        None => format!("gRPC code {code}").into(),
    };
    let is_ended = |what| message.contains(what);
    if is_ended("lease not found") || is_ended("invalid auth token") || is_ended("is old") {
        return EtcdFault::SessionEnded(words);
    }
    EtcdFault::Failed(match code {
        // A user without a password, a wrong password, or no authentication to give a token.
        3 if message.contains("user name") || message.contains("authentication failed") => {
            Failure::Denied(words)
        }
        7 | 16 => Failure::Denied(words),
        9 if message.contains("authentication is not enabled") => Failure::Denied(words),
        // No space, or too many requests.
        8 => Failure::Refused(Refusal::Other(words)),
        // The leader has changed or is missing, or too few members have answered it.
        4 | 14 => Failure::Unconfirmed(words),
        _ => Failure::Failed(words),
    })
}
