//! Servers that lose data or refuse requests: no hit is lost.

use super::*;

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
fn refusals_of_servers_are_distinguished() {
    let other = |code: &str| Refusal::Other(code.into());
    for (line, refusal) in [
        ("-LOADING Redis is loading the dataset in memory", Refusal::Loading),
        ("-MASTERDOWN Link with MASTER is down", Refusal::PrimaryDown),
        ("-READONLY You can't write against a read only replica.", Refusal::ReadOnly),
        ("-OOM command not allowed when used memory", Refusal::OutOfMemory),
        ("-MOVED 3999 127.0.0.1:6381", Refusal::Moved("MOVED 3999 127.0.0.1:6381".into())),
        ("-BUSY Redis is busy running a script.", other("BUSY")),
        ("-NOREPLICAS Not enough good replicas to write.", other("NOREPLICAS")),
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
        assert_eq!(error.may_have_applied(), may_have_applied, "{line}: {error}");
        assert!(!error.is_transient(), "{line}: {error}");
        assert_eq!(error.to_string().lines().count(), 1, "{line}: {error}");
    }
}
