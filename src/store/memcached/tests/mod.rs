//! Runs the conformance suite with memcached, and tests what is specific to it.

mod access;
mod answers;
mod junk;
mod losses;

use super::Memcached;
use crate::store::contract::error::{Failure, Refusal};
use crate::store::contract::strategy::{Pushed, Strategy as _};
use crate::testing::conformance::{MINUTE, Node, block_on, hits, pairs, shard, totals};
use crate::testing::memcached::{Server, connect};
use crate::testing::server_tests::{denies, open};

mod servers_as_others_have_them {
    use crate::testing::server_tests::server_tests;
    server_tests!(crate::testing::memcached::Server);
}

mod over_tcp {
    use crate::testing::conformance::{conformance_tests, decision_tests};
    use crate::testing::memcached::{Spoken, Tcp};
    conformance_tests!(Spoken<Tcp>, Changes, Added);
    conformance_tests!(Spoken<Tcp>, Nodes);
    decision_tests!(Spoken<Tcp>, of levels);
    decision_tests!(Spoken<Tcp>, Changes, Added, of windows in one shard);

    #[cfg(feature = "measure")]
    #[test]
    fn memcached_takes_so_much() {
        crate::testing::throughput::print::<Spoken<Tcp>>("memcached");
    }
}

mod over_a_unix_socket {
    use crate::testing::conformance::conformance_tests;
    use crate::testing::memcached::{Spoken, Unix};
    conformance_tests!(Spoken<Unix>, Changes, Added);
}
