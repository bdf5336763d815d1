//! Tests with servers that cannot be reached, end, hang or lose data: another one is chosen, and nothing is lost.

use super::*;
use crate::testing::proxy::{Proxy, with_greeting};

/// Waits until a connection has noticed the end of its server.
async fn notice() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

pub(crate) fn a_server_that_has_ended_cannot_be_reached<F: Served>() {
    let mut server = F::start();
    block_on(async {
        let mut node = join(&server, server.address()).await;
        server.crash();
        // At first, the client may not know yet that the connection is closed.
        for _ in 0..2 {
            let error = failure(&mut node, 1).await;
            assert!(error.is_transient(), "{error}");
        }
        let error = failure(&mut node, 1).await;
        assert!(!error.may_have_applied(), "{error}");
        let message = error.to_string();
        let address = format!("{} cannot be reached (", server.address());
        assert!(message.starts_with(&address), "{message}");
    });
}

pub(crate) fn a_server_that_restarts_with_its_data_goes_on<F: Served>() {
    let mut server = F::start_durable();
    block_on(async {
        let mut node = join(&server, server.address()).await;
        node.push(vec![hits("a", 1)]).await;
        server.restart();
        notice().await;
        assert!(node.push(vec![hits("a", 2)]).await.is_empty());
        let all = node.read_all(&[(MINUTE, 7)]).await;
        assert_eq!(totals(&all), pairs(&[("a", 3)]));
    });
}

pub(crate) fn a_server_that_crashed_has_no_epoch<F: Served>() {
    let mut server = F::start();
    block_on(async {
        let mut node = join(&server, server.address()).await;
        for round in 0..2 {
            node.push(vec![hits("a", 1)]).await;
            server.crash();
            server.start_again();
            notice().await;
            let pushed = node.send(node.number + 1, vec![hits("a", 2)]).await;
            assert_eq!(pushed, Pushed::NoEpoch, "{round}");
            node = join(&server, server.address()).await;
            assert!(node.read_all(&[(MINUTE, 7)]).await.is_empty());
        }
    });
}

pub(crate) fn a_server_that_hangs_may_have_applied_the_batch_and_applies_it_once<F: Served>() {
    let server = F::start();
    block_on(async {
        let impatient = impatient(&[server.address()]);
        let mut node = Node::join(server.store(&impatient), shard("api")).await;
        server.signal("STOP");
        let error = failure(&mut node, 1).await;
        assert_eq!(error.failure, Failure::TimedOut(impatient.timeout));
        assert!(error.may_have_applied() && error.is_transient());
        // Now there is no connection, and none can be made.
        let error = failure(&mut node, 1).await;
        assert!(!error.may_have_applied() && error.is_transient(), "{error}");
        server.signal("CONT");
        // The answer belongs to this request; it is not the late one to the other.
        node.store = server.store(&options(&[server.address()]));
        node.push(vec![hits("a", 1)]).await;
        assert_eq!(total(&mut node, b"a").await, 1);
    });
}

pub(crate) fn a_late_answer_is_not_taken_for_another_one<F: Served>() {
    let server = F::start();
    block_on(async {
        let mut node = join(&server, server.address()).await;
        node.push(vec![hits("a", 5)]).await;
        server.signal("STOP");
        let of_a = node.store.get_window(&node.shard, b"a", MINUTE, 7);
        // The caller has gone.
        let short = Duration::from_millis(50);
        assert!(tokio::time::timeout(short, of_a).await.is_err());
        server.signal("CONT");
        assert_eq!(total(&mut node, b"b").await, 0);
    });
}

pub(crate) fn a_batch_whose_answer_was_lost_is_applied_once<F: Served>() {
    let server = F::shared();
    let proxy = Proxy::start(&server.address());
    block_on(async {
        let mut node = join(&server, proxy.address.clone()).await;
        let mut other = join(&server, server.address()).await;
        for number in 1..=5 {
            let mut heard = Vec::new();
            // A store may have several answers before that of the batch.
            for others in 0..F::MOST_ANSWERS {
                proxy.cut_answer_after(others);
                let error = failure(&mut node, number).await;
                assert!(matches!(error.failure, Failure::Disconnected(_)), "{error}");
                assert!(error.may_have_applied() && error.is_transient());
                heard = other.fetch().await;
                if !heard.is_empty() {
                    break;
                }
            }
            // The batch was applied.
            let total = i64::try_from(number).unwrap();
            assert_eq!(totals(&heard), pairs(&[("a", total)]));
            node.push(vec![hits("a", 1)]).await;
            assert!(other.fetch().await.is_empty());
        }
    });
}

pub(crate) fn a_server_that_cannot_be_reached_is_passed_over<F: Served>() {
    let server = F::shared();
    let missing = ServerAddress::Unix("/nonexistent/socket".into());
    let both = options(&[missing.clone(), server.address()]);
    block_on(async {
        open(&mut server.store(&both)).await.unwrap();
        let mut alone = server.store(&options(&[missing]));
        let error = open(&mut alone).await.unwrap_err();
        let message = error.to_string();
        assert_eq!(
            message,
            "unix:/nonexistent/socket cannot be reached (No such file or directory (os error 2))"
        );
    });
}

pub(crate) fn of_several_servers_each_is_told_what_happened_with_it<F: Served>() {
    let [one, two] =
        ["/nonexistent/1", "/nonexistent/2"].map(|path| ServerAddress::Unix(path.into()));
    let http = with_greeting(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let mut store = F::shared().store(&impatient(&[one, two, http.clone()]));
    let (protocol, missing) =
        (F::PROTOCOL, "cannot be reached (No such file or directory (os error 2))");
    let expected = format!(
        "unix:/nonexistent/1 {missing}; unix:/nonexistent/2 {missing}; {http} cannot be reached \
         (it does not speak the {protocol} protocol, but says \"HTTP/1.1 400 Bad Request\")"
    );
    block_on(async {
        // Each attempt fails, from the first one on.
        for _ in 0..2 {
            let error = open(&mut store).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert!(error.is_transient() && !error.may_have_applied());
        }
    });
}

pub(crate) fn a_server_that_hangs_at_the_beginning_is_passed_over<F: Served>() {
    let [hanging, server] = [F::start(), F::start()];
    hanging.signal("STOP");
    block_on(async {
        let both = impatient(&[hanging.address(), server.address()]);
        let mut store = server.store(&both);
        open(&mut store).await.unwrap();
        // This does not change.
        hanging.signal("CONT");
        open(&mut store).await.unwrap();
        assert!(hanging.is_untouched());
        assert!(!server.is_untouched());
    });
}
