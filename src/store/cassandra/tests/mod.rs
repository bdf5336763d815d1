//! Runs the conformance suite with Cassandra, and tests what is specific to it.

#[cfg(all(test, feature = "measure"))]
mod cost;
mod nodes;
#[cfg(test)]
mod options;
mod races;
mod reads;
mod sessions;
mod suite {
    use crate::testing::cassandra::fixtures::Apart;
    use crate::testing::conformance::{conformance_tests, decision_tests};
    conformance_tests!(Apart, Changes, Absolute);
    conformance_tests!(Apart, Nodes);
    decision_tests!(Apart, Changes, Absolute, of windows);
}
