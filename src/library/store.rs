//! Traits and types for a store that the caller implements: see
//! [`Datastore::own`](super::Datastore::own). A public module of its own, since other callers do not
//! need these names.
//!
//! A store implements [`Strategy`], whose documentation says how counts stay exact. The test suite
//! `conformance`, a feature of this crate, tests that. A store that decides about hits implements
//! [`Decider`] too.

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
    Epoch, MAX_TOTAL, NODE_LIFE, NodeId, Occupancy, Position, PushNews, Pushed, Shard, Snapshots,
    Strategy, Subscription,
};
#[cfg(feature = "conformance")]
pub use crate::testing::conformance;
