//! Runs the conformance suite with etcd, and tests what is specific to it.

mod access;
mod answers;
mod junk;
mod losses;
mod members;

use super::Etcd;
use crate::store::contract::error::{Failure, Refusal, StoreError};
use crate::store::contract::options::Credentials;
use crate::store::contract::strategy::{Batch, Strategy as _};
use crate::testing::conformance::{MINUTE, Node, block_on, hits, new_epoch, pairs, shard, totals};
use crate::testing::etcd::{PREFIX, Server, connect, options};
use crate::testing::server_tests::{denies, failure, open};

mod servers_as_others_have_them {
    use crate::testing::server_tests::server_tests;
    server_tests!(crate::testing::etcd::Server);
}

mod over_tcp {
    use crate::testing::conformance::{conformance_tests, decision_tests};
    use crate::testing::etcd::{Place, Tcp};
    conformance_tests!(Place<Tcp>, Changes, Added);
    conformance_tests!(Place<Tcp>, Channel);
    conformance_tests!(Place<Tcp>, Nodes);
    decision_tests!(Place<Tcp>, of several shards);
    decision_tests!(Place<Tcp>, of levels);
    decision_tests!(Place<Tcp>, Changes, Added, of windows in one shard);

    #[cfg(feature = "measure")]
    #[test]
    fn etcd_takes_so_much() {
        crate::testing::throughput::print::<Place<Tcp>>("etcd");
    }
}

mod over_tls {
    use crate::testing::conformance::conformance_tests;
    use crate::testing::etcd::{Place, Tls};
    conformance_tests!(Place<Tls>, Changes, Added);
    conformance_tests!(Place<Tls>, Channel);
}

mod over_a_unix_socket {
    use crate::testing::conformance::conformance_tests;
    use crate::testing::etcd::{Place, Unix};
    conformance_tests!(Place<Unix>, Changes, Added);
    conformance_tests!(Place<Unix>, Channel);
}
