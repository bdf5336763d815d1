//! The traits and types of a store of the caller's own: for
//! [`Datastore::own`](super::Datastore::own).
//!
//! A store has the trait [`Strategy`]; how counts stay exact is told where the source of that begins. A suite
//! of tests, `conformance`, which the crate has with the feature of this name, shows whether they do. A store
//! that can decide about hits has the trait [`Decider`] too.

pub use crate::policy::algorithm::{
    Algorithm, BucketLevel, ElasticCount, Level, LevelKind, MovingCount, Reading, StoredKind,
    WindowCounts,
};
pub use crate::policy::hits::Hits;
pub use crate::policy::window::{UnixMillis, WindowSize};
pub use crate::store::contract::decision::{
    Answer, AskedCounter, AskedLimit, Certainty, Decided, Decider, Few, KeyBytes, Question,
};
pub use crate::store::contract::error::{Failure, Refusal, StoreError};
pub use crate::store::contract::options::{Credentials, Secret, StoreOptions, TlsOptions};
pub use crate::store::contract::server::ServerAddress;
pub use crate::store::contract::strategy::{
    Absolute, Added, Batch, BatchId, CLOCK_MARGIN, Changes, ChangesKind, Count, CountsKind, Diff,
    Epoch, MAX_TOTAL, NODE_LIFE, NodeId, Occupancy, Position, Pushed, Shard, Snapshots, Strategy,
};
#[cfg(feature = "conformance")]
pub use crate::testing::conformance;
