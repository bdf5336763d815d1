//! Passes the stores' replies to the kinds of askers that wait for them.

use super::capi;
use super::http::api::awaited;
use super::http::{reserves, synchronous};
use super::sync;
use crate::broker::Asker;
use crate::broker::shared::message::Reply;

/// Passes replies to callers of the library, requests, API requests, and reserves. Keeps their
/// order, in runs of one kind, since a later reply about a counter is newer.
pub(super) fn pass(replies: Vec<Reply>) {
    let mut replies = replies.into_iter().peekable();
    while let Some(first) = replies.next() {
        let asker = Asker::of(first.0);
        let mut run = vec![first];
        while let Some(next) = replies.next_if(|(id, _)| Asker::of(*id) == asker) {
            run.push(next);
        }
        match asker {
            Asker::Caller => capi::take_replies(run),
            Asker::Api => awaited::take_replies(run),
            Asker::Request => synchronous::take_replies(run),
            Asker::Reserve => run.into_iter().for_each(reserves::take),
        }
    }
}

/// Ends all waits without an answer, since no answers will come any more.
pub(super) fn end() {
    sync::end_questions();
    synchronous::fail_all();
    capi::fail_all();
    awaited::fail_all();
    reserves::end();
}
