//! Answers of hostile servers, at the byte level: of each kind of datastore, and of sentinels.
//!
//! An input is the answers, separated by lines of `--`. Each connection gets the next one whenever it has sent something,
//! and is closed after the last one. In an answer, `@PORT` stands for the server's port. Every operation must end in time,
//! and none may damage the node's counts.

use core::cell::Cell;
use core::pin::pin;
use core::time::Duration;
use std::rc::Rc;

use futures_util::future::{Either, LocalBoxFuture, select};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{HOST, T};
use crate::engine::{EarlyPush, Namespace, Subscriber, Syncer};
use crate::policy::algorithm::{Algorithm, StoredKind};
use crate::policy::hits::{Hits, hits};
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::decision::{AskedLimit, Decider, Question};
use crate::store::contract::strategy::{Epoch, NodeId, Shard};
use crate::store::registry::{StoreSettings, StoreVisitor};
use crate::table::Admission;
use crate::testing::table::{SharedTable, Time};

/// Separates answers.
const END: &[u8] = b"\n--\n";
/// Stands for the server's port.
const PORT: &[u8] = b"@PORT";
/// Time after which any operation has given up, with all of its attempts.
const LONG: Duration = Duration::from_secs(3600);

/// Uses a Redis; if the input begins with a `c`, a Redis Cluster.
pub fn redis(data: &[u8]) {
    let (topology, data) = match data {
        [b'c', rest @ ..] => ("on", rest),
        _ => ("off", data),
    };
    run(data, &[("strategy", "redis"), ("cluster", topology)]);
}

/// Finds a Redis by a sentinel.
pub fn sentinel(data: &[u8]) {
    run(data, &[("strategy", "redis"), ("sentinel_master", "main")]);
}

/// Uses a Postgres.
pub fn postgres(data: &[u8]) {
    let settings = [("strategy", "postgres"), ("username", "joe"), ("password", "s3cret")];
    run(data, &settings);
}

/// Uses a memcached.
#[cfg(feature = "memcached")]
pub fn memcached(data: &[u8]) {
    run(data, &[("strategy", "memcached"), ("username", "joe"), ("password", "s3cret")]);
}

/// Uses an etcd.
#[cfg(feature = "etcd")]
pub fn etcd(data: &[u8]) {
    run(data, &[("strategy", "etcd"), ("username", "joe"), ("password", "s3cret")]);
}

/// Uses a Cassandra.
#[cfg(feature = "cassandra")]
pub fn cassandra(data: &[u8]) {
    run(data, &[("strategy", "cassandra"), ("username", "joe"), ("password", "s3cret")]);
}

/// Uses a store of these settings whose server answers with the input. Time passes only when nothing else happens.
fn run(data: &[u8], settings: &[(&str, &str)]) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind((HOST, 0)).await.expect("a port");
        // A port that the system gives has five digits.
        let server = listener.local_addr().expect("an address").to_string();
        let own = [("server", &*server), ("connect_timeout", "1s"), ("timeout", "1s")];
        let mut block = StoreSettings::builder(|_| unreachable!("no files"));
        for (name, word) in settings.iter().copied().chain(own) {
            block.set(name.as_bytes(), &[word.as_bytes()]).expect("a valid directive");
        }
        let client = block.finish().expect("a store").visit(Visit);
        let answers = with_port(data, server.rsplit(':').next().expect("a port").as_bytes());
        let server = pin!(serve(listener, answers));
        let ended = select(client, server).await;
        assert!(matches!(ended, Either::Left(_)), "it serves all the time");
    });
}

/// Returns the answers with the port of the server.
fn with_port(data: &[u8], port: &[u8]) -> Rc<[u8]> {
    let mut data = data.to_vec();
    while let Some(at) = data.windows(PORT.len()).position(|bytes| bytes == PORT) {
        data[at..at + PORT.len()].copy_from_slice(port);
    }
    data.into()
}

/// Answers all connections, one after another or side by side.
async fn serve(listener: TcpListener, data: Rc<[u8]>) {
    let at = Rc::new(Cell::new(0));
    let tasks = tokio::task::LocalSet::new();
    let accept = async {
        loop {
            if let Ok((client, _)) = listener.accept().await {
                tokio::task::spawn_local(answer(client, data.clone(), at.clone()));
            }
        }
    };
    tasks.run_until(accept).await
}

/// Answers one connection with the answers from `at` on.
async fn answer(mut client: TcpStream, data: Rc<[u8]>, at: Rc<Cell<usize>>) {
    let mut read = [0; 65536];
    while let Ok(1..) = client.read(&mut read).await {
        let Some(left) = data.get(at.get()..).filter(|left| !left.is_empty()) else { return };
        let end = left.windows(END.len()).position(|bytes| bytes == END);
        let answer = &left[..end.unwrap_or(left.len())];
        at.set(at.get() + answer.len() + END.len());
        if client.write_all(answer).await.is_err() {
            return;
        }
    }
}

/// Runs all operations of a node with a store.
struct Visit;

impl StoreVisitor for Visit {
    type Output = LocalBoxFuture<'static, ()>;

    fn visit<S: Decider + 'static>(self, connect: impl Fn() -> S + 'static) -> Self::Output {
        Box::pin(async move {
            let operations = operations(connect());
            timeout(LONG, operations).await.expect("operations that end");
        })
    }
}

async fn operations<S: Decider>(mut store: S) {
    let shared = SharedTable::new(16 * 4096);
    let time = Time::at(T, 3);
    let minute = WindowSize::from_millis(60_000).expect("a window");
    let namespace = Namespace::new("api", &shared.table).expect("a namespace");
    let namespace = namespace.synced(store.shards().min(2)).expect("a few shards");
    let counter = namespace.counter(minute);
    let key = shared.table.key(b"k");
    let count =
        |cost: i64| shared.table.add(&counter, key, &time, hits(cost), Admission::Unconditional);
    let syncer = Syncer::new(&namespace, &[minute], Duration::from_secs(3)).expect("shards");
    let syncer = syncer.living_for(Duration::from_secs(60)).telling();
    for cost in 1..4 {
        count(cost);
        let _ = syncer.sync(&mut store, &time).await;
        let _ = syncer.sync_early(EarlyPush::Near, &mut store, &time).await;
        // A lease that was lost ends.
        time.monotonic.set(time.monotonic.get() + 10_000);
    }
    let shard = Shard { namespace: "api".into(), number: 0 };
    for kind in S::KINDS.iter().copied() {
        decide(&mut store, &shard, kind).await;
    }
    let _ = store.get_window(&shard, b"k", minute, minute.at(UnixMillis(T)).number).await;
    let _ = store.purge(&shard, UnixMillis(T)).await;
    listen(&store, &namespace, minute, &time).await;
    // Whatever the store has told, this node counts. Counts below zero are read as zero, and the largest one stays.
    let (before, after) = (count(1), count(1));
    assert!(after.receipt.is_some(), "it is not counted");
    let [before, after] = [before, after].map(|it| it.reading.windows().current);
    assert!(after >= before, "{before:?}, {after:?}");
}

/// Asks the store for a decision.
async fn decide<S: Decider>(store: &mut S, shard: &Shard, kind: StoredKind) {
    let mut question = Question::trial(shard.clone(), kind);
    let algorithm = Algorithm::ALL.into_iter().find(|it| it.kind() == kind);
    let limit = algorithm.map(|algorithm| AskedLimit {
        counter: 0,
        algorithm,
        hits: hits(5),
        cost: Hits::ONE,
    });
    question.limits.extend(limit);
    store.follow(shard, None);
    let asked = store.decide(NodeId([1, 2]), Epoch::proposed(), &[question.clone()]).await;
    if let Ok(decided) = asked {
        assert_eq!(decided.answers.len(), 1);
        let answer = &decided.answers[0];
        assert_eq!(answer.admitted.len(), question.limits.len());
        assert_eq!(answer.readings.len(), question.counters.len());
    }
    store.take_history(shard);
}

/// Listens to the channel, if the store has one.
async fn listen<S: Decider>(store: &S, of: &Namespace<'_>, size: WindowSize, time: &Time) {
    let (Some(mut channel), Some(mut subscriber)) = (store.channel(), Subscriber::new(of, &[size]))
    else {
        return;
    };
    let subscriptions: Vec<_> = subscriber.subscriptions().into_iter().take(1).collect();
    if let Ok(Ok(news)) = timeout(LONG / 2, channel.recv(&subscriptions)).await {
        for news in news {
            subscriber.note(news, time);
        }
    }
}
