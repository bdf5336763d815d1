//! API requests that wait for a store's decision, for a sync, or for both in turn.

use core::cell::Cell;
use core::time::Duration;

use nginx_sys::{NGX_DONE, NGX_HTTP_INTERNAL_SERVER_ERROR, ngx_int_t};

use crate::broker::Asker;
use crate::broker::shared::message::Reply;
use crate::engine::Report;
use crate::engine::api::{self, AfterStore, ApiError, StoreCall};
use crate::nginx::conf::Synchronous;
use crate::nginx::event_loop::NgxClock;
use crate::nginx::http::held::{self, Held, OwnedWait, RequestWait, WaitingRequests};
use crate::nginx::http::respond::{refuse, with_json};
use crate::nginx::request::Request;
use crate::nginx::store_wait::StoreWait;
use crate::nginx::sync::{self, SyncWaiter};
use crate::store::contract::decision::Answer;

const SERVER_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;

/// The waiting API requests of this worker.
static AWAITED: WaitingRequests<Awaited<'static>> = WaitingRequests::of(Asker::Api);

/// The wait of an API request.
struct Awaited<'r> {
    /// The wait for the store or the sync. At its deadline, the request is answered without it.
    wait: StoreWait<'r>,
    request: Cell<Option<Held>>,
    stage: Cell<Stage>,
}

/// Progress of the wait.
#[derive(Default)]
enum Stage {
    /// The request is answered.
    #[default]
    Answered,
    /// A sync is running; its end leads to the question to the store.
    SyncsFirst(Box<AskedStore>),
    /// The store is asked.
    Asked(Box<AskedStore>),
    /// A sync is running. If a call led to it, the call makes the answer.
    Syncs(Option<Box<AskedStore>>),
}

/// A call, and the store that is asked about it.
struct AskedStore {
    call: Box<StoreCall<'static, 'static>>,
    synchronous: Synchronous,
    /// Namespace to sync if the call requires that, and the longest time of the sync.
    sync: (&'static str, Duration),
}

/// Syncs `namespace`, and answers when the sync ends, or after `timeout`. Returns the content
/// handler's return value.
pub(super) fn answer_synced(
    request: &Request<'_>,
    namespace: &'static str,
    timeout: Duration,
) -> ngx_int_t {
    let Some(awaited) = wait(request, Stage::Syncs(None)) else {
        return SERVER_ERROR;
    };
    match begin_sync(awaited.id, awaited, namespace, timeout) {
        true => stay(request),
        // This process runs no syncs.
        false => cancel(awaited, |_| send_synced(request, None)),
    }
}

/// Asks the store about a call. The request is answered when the store has decided, when `on_error`
/// has, or after the sync that the decision requires. Returns the content handler's return value.
pub(super) fn answer_asked(
    request: &Request<'_>,
    call: Box<StoreCall<'static, 'static>>,
    synchronous: Synchronous,
    sync: (&'static str, Duration),
) -> ngx_int_t {
    let question = call.question(synchronous.store);
    if !question.is_some_and(|(decider, _)| sync::check_circuit(decider)) {
        return send(request, without_store(&call, synchronous));
    }
    let begins_with_sync = call.begins_with_sync();
    let (namespace, sync_timeout) = sync;
    let asked = Box::new(AskedStore { call, synchronous, sync });
    let Some(awaited) = wait(request, Stage::Answered) else {
        return SERVER_ERROR;
    };
    let is_begun = if begins_with_sync {
        awaited.stage.set(Stage::SyncsFirst(asked));
        begin_sync(awaited.id, awaited, namespace, sync_timeout)
    } else {
        ask(awaited, asked)
    };
    if is_begun {
        return stay(request);
    }
    cancel(awaited, |stage| match stage {
        Stage::SyncsFirst(asked) | Stage::Asked(asked) => {
            send(request, without_store(&asked.call, asked.synchronous))
        }
        Stage::Answered | Stage::Syncs(_) => SERVER_ERROR,
    })
}

/// Asks the store for a request. Returns whether the store was asked.
fn ask(awaited: &Awaited<'_>, asked: Box<AskedStore>) -> bool {
    let Synchronous { store, timeout, .. } = asked.synchronous;
    let question = asked.call.question(store);
    awaited.stage.set(Stage::Asked(asked));
    awaited.wait.begin(timeout);
    question.is_some_and(|(decider, question)| {
        sync::check_circuit(decider) && awaited.wait.ask(decider, &question)
    })
}

/// Registers the wait of a request under a new number. `None` without memory.
fn wait<'r>(request: &Request<'r>, stage: Stage) -> Option<&'r OwnedWait<'r, Awaited<'static>>> {
    AWAITED.add(request, |id| Awaited {
        wait: StoreWait::new(request.log(), time_out, id),
        // SAFETY: the request owns the wait.
        request: Cell::new(Some(unsafe { Held::new(request) })),
        stage: Cell::new(stage),
    })
}

/// Keeps the request alive until it is answered.
fn stay(request: &Request<'_>) -> ngx_int_t {
    held::stay(request);
    NGX_DONE as ngx_int_t
}

/// Ends the wait of a request that could not begin, and answers it.
fn cancel(
    awaited: &OwnedWait<'_, Awaited<'static>>,
    answer: impl FnOnce(Stage) -> ngx_int_t,
) -> ngx_int_t {
    AWAITED.remove(awaited.id);
    awaited.wait.end();
    answer(awaited.stage.take())
}

/// Begins a sync for which the request waits at most `timeout`. Returns whether this process runs
/// syncs.
fn begin_sync(id: u64, awaited: &Awaited<'_>, namespace: &str, timeout: Duration) -> bool {
    let waiter = SyncWaiter { done, id };
    awaited.wait.begin(timeout);
    sync::sync_for(namespace, waiter)
}

/// Takes the stores' replies about calls.
pub(crate) fn take_replies(replies: Vec<Reply>) {
    for (id, answer) in replies {
        // A request that has ended or was decided on without the store is not at this stage any
        // more.
        let asked = take(id, |stage| match stage {
            Stage::Asked(asked) => Ok(asked),
            other => Err(other),
        });
        if let Some(asked) = asked {
            decide(id, asked, answer);
        }
    }
}

/// Answers all waiting requests without a store or sync, since this process runs no more syncs.
pub(crate) fn fail_all() {
    AWAITED.ids().into_iter().for_each(fail);
}

/// Answers request `id` without the store, which has not answered in time.
fn time_out(id: u64) {
    AWAITED.with(id, |awaited| awaited.wait.record_timeout());
    fail(id);
}

/// Answers request `id` without the store.
fn fail(id: u64) {
    match take(id, Ok) {
        Some(Stage::SyncsFirst(asked)) => end_without_store(id, &asked),
        Some(Stage::Asked(asked)) => decide(id, asked, None),
        Some(Stage::Syncs(asked)) => answer_of_sync(id, asked, None),
        Some(Stage::Answered) | None => {}
    }
}

/// Continues request `id` after its sync, unless it was answered meanwhile. `report` is `None` if
/// the sync did not end in time.
fn done(id: u64, report: Option<Report>) {
    let stage = take(id, |stage| match stage {
        Stage::SyncsFirst(_) | Stage::Syncs(_) => Ok(stage),
        other => Err(other),
    });
    match stage {
        Some(Stage::SyncsFirst(asked)) if report.is_some() => {
            let is_asked = AWAITED.with(id, |awaited| ask(awaited, asked));
            if is_asked == Some(false) {
                fail(id);
            }
        }
        Some(Stage::SyncsFirst(asked)) => end_without_store(id, &asked),
        Some(Stage::Syncs(asked)) => answer_of_sync(id, asked, report),
        _ => {}
    }
}

/// Answers request `id` without the store.
fn end_without_store(id: u64, asked: &AskedStore) {
    end(id, |request| send(request, without_store(&asked.call, asked.synchronous)));
}

/// Continues request `id` with the store's answer, or without one.
fn decide(id: u64, mut asked: Box<AskedStore>, answer: Option<Answer>) {
    if let Some(waited) = AWAITED.with(id, |awaited| awaited.wait.end()).flatten() {
        asked.call.count_wait(waited);
    }
    let store = asked.synchronous.store;
    let Some(answer) = answer else {
        return end_without_store(id, &asked);
    };
    match asked.call.answered(store, &answer, &NgxClock) {
        Ok(AfterStore::Body(body)) => end(id, |request| send(request, Ok(body))),
        Ok(AfterStore::Ask) => {
            if AWAITED.with(id, |awaited| ask(awaited, asked)) == Some(false) {
                fail(id);
            }
        }
        Err(error) => end(id, |request| send(request, Err(error))),
        Ok(AfterStore::Sync) => {
            let (namespace, timeout) = asked.sync;
            let begun = AWAITED.with(id, |awaited| {
                awaited.stage.set(Stage::Syncs(Some(asked)));
                begin_sync(id, awaited, namespace, timeout)
            });
            if begun == Some(false) {
                fail(id);
            }
        }
    }
}

/// Answers request `id` after its sync.
fn answer_of_sync(id: u64, asked: Option<Box<AskedStore>>, report: Option<Report>) {
    let Some((mut asked, _)) = asked.zip(report) else {
        return end(id, |request| send_synced(request, report));
    };
    for (decider, question) in asked.call.repairs(asked.synchronous.store) {
        // The call does not wait for a repair, which is rarely needed.
        sync::tell(decider, &question);
    }
    end(id, |request| send(request, asked.call.synced(&NgxClock)));
}

/// Takes the stage of request `id`, if `of` returns it as `Ok`; otherwise restores the stage.
fn take<T>(id: u64, of: impl FnOnce(Stage) -> Result<T, Stage>) -> Option<T> {
    let taken = AWAITED.with(id, |awaited| match of(awaited.stage.take()) {
        Ok(taken) => Some(taken),
        Err(other) => {
            awaited.stage.set(other);
            None
        }
    });
    taken.flatten()
}

/// Answers request `id`, if it waits.
fn end(id: u64, answer: impl FnOnce(&Request<'_>) -> ngx_int_t) {
    let held = AWAITED.with(id, |awaited| {
        awaited.wait.end();
        awaited.request.take()
    });
    AWAITED.remove(id);
    if let Some(held) = held.flatten() {
        let sent = held.with(answer);
        // SAFETY: the event loop calls this function, which holds no reference to the request.
        unsafe { held.finalize(sent) };
    }
}

fn send_synced(request: &Request<'_>, report: Option<Report>) -> ngx_int_t {
    let (status, body) = api::synced(report);
    with_json(request, status, &body)
}

fn send(request: &Request<'_>, answer: Result<String, ApiError>) -> ngx_int_t {
    match answer {
        Ok(body) => with_json(request, 200, &body),
        Err(error) => refuse(request, &error),
    }
}

/// Returns the answer to a call without the store.
fn without_store(
    call: &StoreCall<'static, 'static>,
    synchronous: Synchronous,
) -> Result<String, ApiError> {
    let Synchronous { store, on_error, .. } = synchronous;
    call.without_store(store, on_error, &NgxClock, |decider, question| {
        sync::charge_later(decider, &question);
    })
}

impl RequestWait for Awaited<'static> {
    type Of<'r> = Awaited<'r>;
}
