//! Support for tests and fuzz targets: memory and time, servers, and the tests that every datastore passes.
//!
//! - `table`: memory that processes share, and simulated time; `certificates`, `proxy`: for connections to servers
//! - `model`: operations on a table, and a naive model of it; `answers`: a store whose answers a test gives
//! - `port`: ports of servers that are started again; `dir`: their directories; `process`: their processes
//! - `redis`, `postgres`, `cassandra`, `memcached`, `etcd`: servers that tests start
//! - `conformance`: tests that every datastore passes; `server_tests`: tests of those that have servers
//! - `throughput`: prints measurements

#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) mod answers;
#[cfg(all(test, feature = "cassandra", not(loom)))]
pub(crate) mod cassandra;
#[cfg(all(test, not(loom)))]
pub(crate) mod certificates;
#[cfg(all(any(test, feature = "conformance"), not(loom)))]
pub mod conformance;
#[cfg(all(test, not(loom)))]
pub(crate) mod dir;
#[cfg(all(test, feature = "etcd", not(loom)))]
pub(crate) mod etcd;
#[cfg(all(test, feature = "memcached", not(loom)))]
pub(crate) mod memcached;
#[cfg(all(any(test, fuzzing), not(loom)))]
#[cfg_attr(fuzzing, allow(dead_code, unused_imports, reason = "some of it is for tests only"))]
pub(crate) mod model;
#[cfg(all(test, not(loom)))]
pub(crate) mod port;
#[cfg(all(test, not(loom)))]
pub(crate) mod postgres;
#[cfg(all(test, not(loom)))]
pub(crate) mod process;
#[cfg(all(test, not(loom)))]
pub(crate) mod proxy;
#[cfg(all(test, not(loom)))]
pub(crate) mod redis;
#[cfg(all(test, not(loom)))]
pub(crate) mod server_tests;
#[cfg(all(any(test, fuzzing), not(loom)))]
#[cfg_attr(fuzzing, allow(dead_code, reason = "some of it is for tests only"))]
pub(crate) mod table;
#[cfg(all(test, feature = "measure", any(feature = "etcd", feature = "memcached"), not(loom)))]
pub(crate) mod throughput;
