//! A proxy of a datastore, which can delay and lose answers.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use crate::store::contract::server::ServerAddress;

/// A proxy between clients and a server.
pub(crate) struct Proxy {
    pub(crate) address: ServerAddress,
    /// Number of answers until the one that is lost; 0 for none.
    cuts: Arc<AtomicUsize>,
    holds: Arc<AtomicBool>,
    /// Bytes of answers per second on each connection; 0 for no limit.
    rate: Arc<AtomicUsize>,
}

impl Proxy {
    /// Starts a proxy of a server on a port of this machine.
    pub(crate) fn start(server: &ServerAddress) -> Proxy {
        let &ServerAddress::Tcp { port, .. } = server else {
            panic!("{server} has no port");
        };
        Proxy::between(("127.0.0.1", 0), ("127.0.0.1", port))
    }

    /// Starts one that listens at an address of this machine, before a server that has another one.
    pub(crate) fn between(own: (&str, u16), server: (&str, u16)) -> Proxy {
        let (host, port) = (server.0.to_owned(), server.1);
        let (cuts, holds) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let rate = Arc::<AtomicUsize>::default();
        let (cuts_here, holds_here, rate_here) = (cuts.clone(), holds.clone(), rate.clone());
        let address = listen_at(own, move |client| {
            let server = TcpStream::connect((&*host, port)).unwrap();
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || pass_on(from, to, |_| false));
            pass_on(server, client, |length| {
                let micros = (length * 1_000_000).checked_div(rate_here.load(Ordering::Relaxed));
                thread::sleep(Duration::from_micros(micros.unwrap_or(0) as u64));
                while holds_here.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
                let count_down = |left: usize| left.checked_sub(1);
                cuts_here.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count_down) == Ok(1)
            });
        });
        Proxy { address, cuts, holds, rate }
    }

    /// Limits the bytes of answers per second on each connection; 0 for no limit.
    pub(crate) fn slow(&self, rate: usize) {
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// Delays all answers, or ends that.
    pub(crate) fn hold(&self, holds: bool) {
        self.holds.store(holds, Ordering::Relaxed);
    }

    /// Loses the next answer, and closes its connection.
    pub(crate) fn cut_next_answer(&self) {
        self.cut_answer_after(0);
    }

    /// Loses the answer after this number of others, and closes its connection.
    pub(crate) fn cut_answer_after(&self, others: usize) {
        self.cuts.store(others + 1, Ordering::Relaxed);
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, cut: impl Fn(usize) -> bool) {
    let mut buffer = [0; 65536];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if cut(length) || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Starts a server that answers whatever it is told with `words`, and closes the connection.
pub(crate) fn with_greeting(words: &'static [u8]) -> ServerAddress {
    listen(move |mut client| {
        let mut buffer = [0; 65536];
        let _ = client.read(&mut buffer);
        let _ = client.write_all(words);
    })
}

/// Accepts connections until the process ends, each in its own thread.
pub(crate) fn listen(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> ServerAddress {
    listen_at(("127.0.0.1", 0), serve)
}

/// Listens at an address of this machine.
fn listen_at(
    own: (&str, u16),
    serve: impl Fn(TcpStream) + Clone + Send + 'static,
) -> ServerAddress {
    let listener = TcpListener::bind(own).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let serve = serve.clone();
            thread::spawn(move || serve(client.unwrap()));
        }
    });
    ServerAddress::tcp(own.0, port)
}
