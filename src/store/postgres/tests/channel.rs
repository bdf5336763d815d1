//! The channel is open to every role; tests which notifications have an effect.

use core::num::NonZeroU32;

use super::*;
use crate::store::contract::strategy::{LivingNodes, PushNews};
use crate::testing::conformance::Listener;

async fn tell(node: &mut Node<Postgres>, diffs: Vec<Diff>) {
    node.number += 1;
    let batch = Batch { is_news: true, ..node.batch(node.number, diffs) };
    let pushed = node.send_batch(&batch).await;
    assert!(matches!(pushed, Pushed::Applied { .. }), "{pushed:?}");
}

/// Returns a node, and a listener of another one.
async fn node_and_listener(server: &Server) -> (Node<Postgres>, Listener<Postgres>) {
    let join = async || Node::join(connect(server.tcp(), PUBLIC), shard("api")).await;
    let node = join().await;
    (node, Listener::of(&join().await))
}

/// Returns the next news, if they arrive at once.
async fn heard(listener: &mut Listener<Postgres>) -> Vec<PushNews> {
    listener.store.recv(&listener.subscriptions).await.unwrap()
}

/// Has a node push as one of a number of nodes.
fn push_among(node: &mut Node<Postgres>, nodes: u64) {
    node.store.living = Some(LivingNodes { count: nodes, place: None });
    node.store.exchanges = NonZeroU32::new(1000).unwrap();
}

/// Returns all notifications that a session without rights receives of a node's pushes.
async fn overheard(server: &Server, node: &mut Node<Postgres>) -> Vec<String> {
    let stream = tokio::net::UnixStream::connect(server.socket()).await.unwrap();
    let mut config = tokio_postgres::Config::new();
    config.user("postgres").dbname("postgres");
    let (client, mut driver) = config.connect_raw(stream, tokio_postgres::NoTls).await.unwrap();
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) =
            core::future::poll_fn(|context| driver.poll_message(context)).await
        {
            if let tokio_postgres::AsyncMessage::Notification(told) = message {
                let _ = sender.send(told.payload().to_owned());
            }
        }
    });
    client.batch_execute("LISTEN ngx_rate_limiting").await.unwrap();
    for _ in 0..3 {
        tell(node, vec![hits("203.0.113.9", 7)]).await;
    }
    server.ask("NOTIFY ngx_rate_limiting, 'the last one'");
    let mut payloads = Vec::new();
    loop {
        match heard.recv().await.unwrap() {
            last if last == "the last one" => return payloads,
            payload => payloads.push(payload),
        }
    }
}

#[test]
fn a_role_without_rights_hears_no_key_and_no_total() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = Node::join(connect(server.tcp(), PUBLIC), shard("api")).await;
        let payloads = overheard(&server, &mut node).await;
        assert_eq!(payloads.len(), 3);
        assert!(payloads.iter().all(|it| it.parse::<i64>().is_ok()), "{payloads:?}");
        // They do not even show the number of changes.
        assert!(payloads.iter().all(|it| *it == payloads[0]), "{payloads:?}");
    });
}

#[test]
fn foreign_notifications_change_nothing() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, mut listener) = node_and_listener(&server).await;
        tell(&mut node, vec![hits("a", 4)]).await;
        let news = listener.recv(1).await;
        assert_eq!(totals(&news[0].counts), pairs(&[("a", 4)]));

        let epoch = node.epoch.0.get().cast_signed();
        let number = epoch & !0xffff_ffff;
        let key: String = b"a".iter().map(|byte| format!("{byte:02x}")).collect();
        for payload in [
            // The former format of a total.
            format!("{epoch} 2 {} 60000:7:100000:{key}", "f".repeat(32)),
            format!("{epoch} 9223372036854775807 {}", "f".repeat(32)),
            format!("{epoch} 9223372036854775807"),
            i64::MAX.to_string(),
            number.to_string(),
            (number | 0xdead_beef).to_string(),
            "x".repeat(7999),
            String::new(),
        ] {
            server.ask(&format!("SELECT pg_notify('ngx_rate_limiting', '{payload}')"));
            assert!(heard(&mut listener).await.is_empty(), "{payload}");
            // A push is received all the same.
            tell(&mut node, vec![hits("a", 1)]).await;
            let news = listener.recv(1).await;
            let [(key, total)] = &*totals(&news[0].counts) else {
                panic!("{news:?}");
            };
            assert_eq!((&**key, *total), ("a", 3 + node.number as i64));
        }
    });
}

#[test]
fn a_flood_of_notifications_causes_few_reads() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, mut listener) = node_and_listener(&server).await;
        heard(&mut listener).await;
        let number = (node.epoch.0.get().cast_signed() & !0xffff_ffff) | 1;
        let flood = format!(
            "SELECT pg_notify('ngx_rate_limiting', '{number}' || repeat(' ', n % 2)) FROM generate_series(1, 20000) AS n"
        );
        server.ask(&flood);
        server.ask(&format!("NOTIFY ngx_rate_limiting, '{number}'"));
        // All of it is one read, or two if it arrives in parts.
        let mut looks = 0;
        let looking = async {
            loop {
                heard(&mut listener).await;
                looks += 1;
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(900), looking).await;
        assert!(looks <= 4, "{looks}");
        tell(&mut node, vec![hits("a", 1)]).await;
        assert_eq!(totals(&listener.recv(1).await[0].counts), pairs(&[("a", 1)]));
    });
}

#[test]
fn among_many_nodes_only_the_first_of_several_pushes_notifies() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, mut listener) = node_and_listener(&server).await;
        // Each push is followed by a silence of two seconds.
        push_among(&mut node, 1000);
        assert_eq!(overheard(&server, &mut node).await.len(), 1);
        let news = listener.recv(1).await;
        assert_eq!(totals(&news[0].counts), pairs(&[("203.0.113.9", 21)]));
        // Without a notification, the listener learns of another push when the silence ends.
        tell(&mut node, vec![hits("a", 1)]).await;
        let news = listener.recv(1).await;
        assert_eq!(totals(&news[0].counts), pairs(&[("a", 1)]));
        // After it, a push notifies again.
        assert_eq!(overheard(&server, &mut node).await.len(), 1);
        // In another namespace, there was no silence.
        let mut other = Node::join(connect(server.tcp(), PUBLIC), shard("other")).await;
        push_among(&mut other, 1000);
        assert_eq!(overheard(&server, &mut other).await.len(), 1);
    });
}

#[test]
fn a_node_that_has_notified_learns_of_the_silent_pushes_of_others() {
    // Of its own: on a shared one, other tests notify.
    let server = Server::start(&[]);
    block_on(async {
        let mut node = Node::join(connect(server.tcp(), PUBLIC), shard("api")).await;
        let mut two = Node::join(connect(server.tcp(), PUBLIC), shard("api")).await;
        let mut listener = Listener::of(&node);
        listener.subscriptions[0].node = node.id;
        assert!(heard(&mut listener).await.is_empty());
        push_among(&mut node, 100);
        push_among(&mut two, 100);
        tell(&mut node, vec![hits("a", 1)]).await;
        tell(&mut two, vec![hits("b", 1)]).await;
        let mut counts = Vec::new();
        while counts.is_empty() {
            counts = listener.recv(1).await.swap_remove(0).counts;
        }
        assert_eq!(totals(&counts), pairs(&[("b", 1)]));
    });
}

#[test]
fn rows_of_others_do_not_silence_pushes() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, mut listener) = node_and_listener(&server).await;
        push_among(&mut node, 1000);
        for number in ["-9223372036854775808", "9223372036854775807", "0", "-1", "-20000000000000"]
        {
            server.ask(&format!(
                "INSERT INTO rl_counters_nodes
                 SELECT epoch, '00000000-0000-0000-0000-000000000000', {number}, 'infinity'
                 FROM rl_counters_epochs
                 ON CONFLICT (epoch, node) DO UPDATE SET number = excluded.number"
            ));
            assert_eq!(overheard(&server, &mut node).await.len(), 1, "{number}");
            listener.recv(1).await;
        }
    });
}
