//! Ports of servers that tests start, stop and start again. A file of its own, since all kinds of servers have
//! them.

use core::sync::atomic::{AtomicU16, Ordering};
use std::net::{TcpListener, UdpSocket};

/// First port, and number of ports. A Redis Cluster's own connections have the ports 10,000 above. All are below those
/// that the system gives to clients, so a server that is started again finds its port free.
const FIRST: u16 = 22_000;
const COUNT: u16 = 768;
const TO_BUS: u16 = 10_000;

/// A TCP port of 127.0.0.1 that no other test of any process uses while this value lives.
pub(crate) struct Port {
    pub(crate) number: u16,
    /// Socket that marks the number as taken, whether the server runs or not.
    _kept: UdpSocket,
}

impl Port {
    /// Takes a free port; the one 10,000 above is free, too.
    pub(crate) fn take() -> Port {
        static TAKEN: AtomicU16 = AtomicU16::new(0);
        // Processes begin at different ports.
        let begin = std::process::id() % u32::from(COUNT);
        for _ in 0..COUNT {
            let next = u32::from(TAKEN.fetch_add(1, Ordering::Relaxed)) + begin;
            let number = FIRST + (next % u32::from(COUNT)) as u16;
            let kept = UdpSocket::bind(("127.0.0.1", number));
            let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
            if let Ok(kept) = kept
                && is_free(number)
                && is_free(number + TO_BUS)
            {
                return Port { number, _kept: kept };
            }
        }
        panic!("all ports from {FIRST} to {} are taken", FIRST + COUNT - 1);
    }
}

#[test]
fn a_port_stays_reserved_while_its_server_does_not_run() {
    let ports: Vec<_> = (0..50).map(|_| Port::take()).collect();
    let mut numbers: Vec<_> = ports.iter().map(|port| port.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), ports.len());
    // The system gives none of these ports to a client, either.
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let first: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
    for number in numbers {
        assert!(number + TO_BUS < first, "{number}");
        assert!(UdpSocket::bind(("127.0.0.1", number)).is_err());
    }
}
