//! The choice among several servers.

use super::*;
use crate::testing::proxy::with_greeting;

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
        // And so with each attempt, from the first one on.
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
        // And stays so.
        hanging.signal("CONT");
        open(&mut store).await.unwrap();
        assert!(hanging.is_untouched() && !server.is_untouched());
    });
}
