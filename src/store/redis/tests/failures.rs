//! Servers that end, hang, forget or refuse, and what is lost: nothing.

use super::*;

#[test]
fn a_killed_server_cannot_be_reached() {
    let mut server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        server.kill();
        // At first, it may not be known yet that the connection is closed.
        for _ in 0..2 {
            let error = failure(&mut node, 1).await;
            assert!(error.is_transient(), "{error}");
        }
        let error = failure(&mut node, 1).await;
        assert!(!error.may_have_applied(), "{error}");
        let message = error.to_string();
        let address = format!("{} cannot be reached (", server.tcp());
        assert!(message.starts_with(&address), "{message}");
    });
}

#[test]
fn a_server_that_restarts_with_its_data_goes_on() {
    let mut server = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        node.push(vec![hits("a", 1)]).await;
        server.kill();
        server.start_again();
        // Lets the connection notice.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(node.push(vec![hits("a", 2)]).await.is_empty());
        let all = node.read_all(&[(MINUTE, 7)]).await;
        assert_eq!(totals(&all), pairs(&[("a", 3)]));
    });
}

#[test]
fn a_server_that_restarts_without_its_data_has_no_epoch() {
    let mut server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        node.push(vec![hits("a", 1)]).await;
        server.kill();
        server.start_again();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(node.send(2, vec![hits("a", 2)]).await, Pushed::NoEpoch);
    });
}

#[test]
fn a_server_that_hangs_may_have_applied_the_batch_and_applies_it_once() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = Node::join(impatient(&[server.tcp()]), shard("api")).await;
        server.signal("STOP");
        let error = failure(&mut node, 1).await;
        assert_eq!(error.failure, Failure::TimedOut(Duration::from_secs(1)));
        assert!(error.may_have_applied() && error.is_transient());
        // Now there is no connection, and none can be made.
        let error = failure(&mut node, 1).await;
        assert!(!error.may_have_applied() && error.is_transient(), "{error}");
        server.signal("CONT");
        // The answer is that to this request, not the late one to the other.
        node.store = connect(server.tcp());
        node.push(vec![hits("a", 1)]).await;
        let total = node.store.get_window(&node.shard, b"a", MINUTE, 7).await;
        assert_eq!(total.unwrap().whole(), 1);
    });
}

#[test]
fn a_late_answer_is_not_taken_for_another_one() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        node.push(vec![hits("a", 5)]).await;
        server.signal("STOP");
        let total = node.store.get_window(&node.shard, b"a", MINUTE, 7);
        // The one who asked has gone.
        let short = Duration::from_millis(50);
        assert!(tokio::time::timeout(short, total).await.is_err());
        server.signal("CONT");
        let total = node.store.get_window(&node.shard, b"b", MINUTE, 7);
        assert_eq!(total.await.unwrap().whole(), 0);
    });
}

#[test]
fn a_batch_whose_answer_was_lost_is_applied_once() {
    let server = Server::start(&[]);
    let proxy = Proxy::start(server.port);
    block_on(async {
        let mut node = join(proxy.address.clone()).await;
        let mut other = join(server.tcp()).await;
        for number in 1..=5 {
            proxy.cut_next_answer();
            let error = failure(&mut node, number).await;
            assert!(matches!(error.failure, Failure::Disconnected(_)), "{error}");
            assert!(error.may_have_applied() && error.is_transient());
            // It was.
            let total = i64::try_from(number).unwrap();
            assert_eq!(totals(&other.fetch().await), pairs(&[("a", total)]));
            node.push(vec![hits("a", 1)]).await;
            assert!(other.fetch().await.is_empty());
        }
    });
}

#[test]
fn a_server_that_forgot_the_scripts_is_given_them_again() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        for number in 1..=3 {
            let _: String = server.ask(&["SCRIPT", "FLUSH"]).unwrap();
            node.push(vec![hits("a", 1)]).await;
            let _: String = server.ask(&["SCRIPT", "FLUSH"]).unwrap();
            let total = node.store.get_window(&node.shard, b"a", MINUTE, 7);
            assert_eq!(total.await.unwrap().whole(), number);
        }
    });
}

#[test]
fn without_memory_nothing_of_a_batch_is_applied() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        let _: String = server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        let error = failure(&mut node, 1).await;
        assert_eq!(error.failure, Failure::Refused(Refusal::OutOfMemory));
        assert!(node.fetch().await.is_empty());
        let _: String = server.ask(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
        node.push(vec![hits("a", 1)]).await;
        let total = node.store.get_window(&node.shard, b"a", MINUTE, 7);
        assert_eq!(total.await.unwrap().whole(), 1);
    });
}

#[test]
fn what_servers_refuse_is_told_apart() {
    let other = |code: &str| Refusal::Other(code.into());
    for (line, refusal) in [
        (
            "-LOADING Redis is loading the dataset in memory",
            Refusal::Loading,
        ),
        ("-MASTERDOWN Link with MASTER is down", Refusal::PrimaryDown),
        (
            "-READONLY You can't write against a read only replica.",
            Refusal::ReadOnly,
        ),
        (
            "-OOM command not allowed when used memory",
            Refusal::OutOfMemory,
        ),
        (
            "-MOVED 3999 127.0.0.1:6381",
            Refusal::Moved("MOVED 3999 127.0.0.1:6381".into()),
        ),
        ("-BUSY Redis is busy running a script.", other("BUSY")),
        (
            "-NOREPLICAS Not enough good replicas to write.",
            other("NOREPLICAS"),
        ),
        ("-NOSCRIPT No matching script.", other("NOSCRIPT")),
    ] {
        let mut store = impatient(&[with_one_answer(line)]);
        let error = block_on(open(&mut store)).unwrap_err();
        assert_eq!(error.failure, Failure::Refused(refusal), "{line}");
        assert!(error.is_transient() && !error.may_have_applied());
    }
    for (line, may_have_applied) in [
        ("-NOAUTH Authentication required.", false),
        ("-NOPERM this user has no permissions", false),
        ("-ERR unknown command 'EVALSHA'", true),
        ("-WRONGTYPE Operation against a key", true),
        ("+OK", true),
        (":1", true),
        ("nonsense", true),
        ("*3\r\n+OK\r\nnonsense", true),
    ] {
        let mut store = impatient(&[with_one_answer(line)]);
        let error = block_on(open(&mut store)).unwrap_err();
        assert_eq!(
            error.may_have_applied(),
            may_have_applied,
            "{line}: {error}"
        );
        assert!(!error.is_transient(), "{line}: {error}");
        assert_eq!(error.to_string().lines().count(), 1, "{line}: {error}");
    }
}
