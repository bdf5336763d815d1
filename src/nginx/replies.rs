//! The replies of stores, each of which goes to the kind of asker that waits for it.

use super::capi;
use super::http::api::awaited;
use super::http::{reserves, synchronous};
use super::sync;
use crate::broker::Asker;
use crate::broker::shared::message::Reply;

/// Passes replies to their askers: callers of the library, requests that rules limit, requests to the API, and reserves. The
/// order is kept, and a run of one kind is passed at once: of two readings of a counter, the later one is newer.
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

/// Ends all waits without a store's answer: none will come any more.
pub(super) fn end() {
    sync::end_questions();
    synchronous::fail_all();
    capi::fail_all();
    awaited::fail_all();
    reserves::end();
}
