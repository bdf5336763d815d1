//! The suite for Cassandra, and what only Cassandra does.

mod charges;
mod nodes;
mod races;
mod reads;
mod sessions;
mod suite {
    use crate::store::cassandra::fixtures::Apart;
    use crate::store::conformance::{conformance_tests, decision_tests};
    conformance_tests!(Apart, Changes, Absolute);
    conformance_tests!(Apart, Nodes);
    decision_tests!(Apart, Changes, Absolute, of windows);
}
