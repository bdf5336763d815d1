//! Fixtures for the tests that every datastore passes. Tables take long to be created, so tests share
//! them, and each has its own namespaces.

use std::sync::OnceLock;

use super::{KEYSPACE, Server, connect, new_table};
use crate::policy::algorithm::StoredKind;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::cassandra::position::{Progress, Vector, name_bytes, name_of};
use crate::store::cassandra::{Cassandra, CassandraOptions};
use crate::store::contract::decision::{Decided, Decider, Question};
use crate::store::contract::error::StoreError;
use crate::store::contract::options::StoreOptions;
use crate::store::contract::strategy::{
    Absolute, Batch, BatchId, Changes, Count, Epoch, LivingNodes, NodeId, Position, Pushed, Shard,
    Strategy,
};
use crate::testing::conformance::{Fixture, LogFixture, block_on, new_epoch, shard};

/// Namespaces of a test.
pub(crate) struct Apart {
    name: String,
}

/// A store in which a test has its own namespaces.
pub(crate) struct OfTest {
    store: Cassandra,
    name: String,
}

/// The tables that tests share.
fn table() -> &'static str {
    static TABLE: OnceLock<String> = OnceLock::new();
    TABLE.get_or_init(|| {
        let table = new_table();
        let mut store = connect(&Server::shared().address, &table);
        let created = async { store.open_epoch(&shard("created"), None, new_epoch()).await };
        // Fixtures are created outside of asynchronous code.
        block_on(created).unwrap();
        table
    })
}

impl Apart {
    /// Executes a statement, in which `{}` stands for the beginning of the names of tables.
    fn ask<R>(&self, statement: &str) -> Vec<R>
    where
        R: for<'a> scylla::deserialize::row::DeserializeRow<'a, 'a> + Send,
    {
        let tables = format!("{KEYSPACE}.{}", table());
        Server::shared().ask(&statement.replace("{}", &tables))
    }

    fn epochs(&self) -> Vec<(String, i32, i64)> {
        let mut epochs = self.ask("SELECT namespace, shard, epoch FROM {}_shards");
        epochs.retain(|(namespace, _, _): &(String, _, _)| namespace.starts_with(&self.name));
        epochs
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}

impl Fixture for Apart {
    type Store = OfTest;

    fn start() -> Apart {
        table();
        let name = format!("{}:", new_table());
        Apart { name }
    }

    fn connect(&self) -> OfTest {
        OfTest { store: connect(&Server::shared().address, table()), name: self.name.clone() }
    }

    /// Ends the epoch, after which nothing reads its rows.
    fn flush(&self) {
        for (namespace, shard, _) in self.epochs() {
            self.ask::<(bool,)>(&format!(
                "DELETE FROM {{}}_shards WHERE namespace = '{namespace}' AND shard = {shard} IF EXISTS"
            ));
        }
    }
}

impl LogFixture for Apart {
    fn forget_changes(&self, shard: &Shard) {
        let name = format!("{}{}", self.name, shard.namespace);
        let number = i32::from(shard.number);
        let mut epochs = self.epochs().into_iter();
        let found = epochs.find(|(namespace, shard, _)| *namespace == name && *shard == number);
        let (_, _, epoch) = found.unwrap();
        let parts: Vec<(i64, Vec<u8>, i64)> =
            self.ask("SELECT DISTINCT epoch, node, part FROM {}_changes");
        for (_, node, part) in parts.iter().filter(|(of, _, _)| *of == epoch) {
            self.ask::<(bool,)>(&format!(
                "DELETE FROM {{}}_changes WHERE epoch = {epoch} AND node = {} AND part = {part}",
                hex(node)
            ));
        }
    }

    fn ahead_of(&self, position: Position) -> Position {
        let name = hex(&name_bytes(position));
        let statement = format!("SELECT nodes FROM {{}}_positions WHERE position = {name}");
        let (bytes,): (Vec<u8>,) = self.ask(&statement).remove(0);
        let epoch = u64::from_be_bytes(bytes[..8].try_into().unwrap());
        let epoch = Epoch(epoch.try_into().unwrap());
        let ahead = Vector::from_bytes(&bytes, epoch).unwrap().ahead().to_bytes(epoch);
        let name = name_of(&ahead);
        self.ask::<(bool,)>(&format!(
            "INSERT INTO {{}}_positions (position, nodes) VALUES ({}, {})",
            hex(&name_bytes(name)),
            hex(&ahead)
        ));
        name
    }
}

impl Vector {
    /// As if each node's next batch had been read.
    fn ahead(&self) -> Vector {
        Vector::new(
            self.nodes()
                .map(|progress| Progress {
                    last: BatchId::new(progress.last.number() + 1, 0),
                    ..*progress
                })
                .collect(),
        )
    }
}

impl OfTest {
    fn shard(&self, shard: &Shard) -> Shard {
        Shard { namespace: format!("{}{}", self.name, shard.namespace).into(), ..*shard }
    }
}

impl Strategy for OfTest {
    type Options = CassandraOptions;
    type Step = <Cassandra as Strategy>::Step;
    type Changes = Changes;
    type Counts = Absolute;

    fn new(options: &StoreOptions, own: &CassandraOptions) -> OfTest {
        OfTest { store: Cassandra::new(options, own), name: String::new() }
    }

    fn connects(&self) -> u64 {
        self.store.connects()
    }

    fn server(&self) -> Option<String> {
        self.store.server()
    }

    fn shards(&self) -> u16 {
        self.store.shards()
    }

    fn living(&self) -> Option<LivingNodes> {
        self.store.living()
    }

    fn has_lost_grants(&self) -> bool {
        self.store.has_lost_grants()
    }

    fn overdrawn(&self) -> &[Count] {
        self.store.overdrawn()
    }

    async fn push_diffs(
        &mut self,
        shard: &Shard,
        batch: &Batch,
        limit: usize,
    ) -> Result<Pushed, StoreError> {
        let shard = self.shard(shard);
        self.store.push_diffs(&shard, batch, limit).await
    }

    async fn open_epoch(
        &mut self,
        shard: &Shard,
        instead_of: Option<Epoch>,
        proposed: Epoch,
    ) -> Result<Epoch, StoreError> {
        let shard = self.shard(shard);
        self.store.open_epoch(&shard, instead_of, proposed).await
    }

    async fn get_counters(
        &mut self,
        shard: &Shard,
        epoch: Epoch,
        windows: &[(WindowSize, u64)],
        step: Self::Step,
    ) -> Result<(Vec<Count>, Option<Self::Step>), StoreError> {
        let shard = self.shard(shard);
        self.store.get_counters(&shard, epoch, windows, step).await
    }

    async fn get_window(
        &mut self,
        shard: &Shard,
        key: &[u8],
        size: WindowSize,
        window: u64,
    ) -> Result<Hits, StoreError> {
        let shard = self.shard(shard);
        self.store.get_window(&shard, key, size, window).await
    }

    async fn purge(&mut self, shard: &Shard, now: UnixMillis) -> Result<bool, StoreError> {
        let shard = self.shard(shard);
        self.store.purge(&shard, now).await
    }
}

impl Decider for OfTest {
    const KINDS: &'static [StoredKind] = Cassandra::KINDS;

    async fn decide(
        &mut self,
        node: NodeId,
        proposed: Epoch,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let mut questions = questions.to_vec();
        for question in &mut questions {
            for counter in &mut question.counters {
                counter.shard = self.shard(&counter.shard);
            }
        }
        self.store.decide(node, proposed, &questions).await
    }
}
