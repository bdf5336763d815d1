//! The connection to a Cassandra: a session, which has a connection to each node, and which all
//! stores of a thread with the same options share.

mod datacenter;
mod reachable;
pub(super) mod statements;

use core::cell::RefCell;
use core::fmt;
use core::mem;
use core::net::SocketAddr;
use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::{Arc, Weak};

use futures_util::future::try_join_all;
use scylla::authentication::PlainTextAuthenticator;
use scylla::client::PoolSize;
use scylla::client::SelfIdentity;
use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileBuilder};
use scylla::client::session::{Session, SessionConfig};
use scylla::cluster::KnownNode;
use scylla::deserialize::row::DeserializeRow;
use scylla::frame::types::{Consistency, SerialConsistency};
use scylla::policies::host_filter::DcHostFilter;
use scylla::policies::load_balancing::{
    DefaultPolicy, NodeIdentifier, SingleTargetLoadBalancingPolicy,
};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::response::query_result::QueryRowsResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Statement;
use scylla::statement::prepared::PreparedStatement;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::failure::{self, CqlFault};
use super::options::{CassandraOptions, ConsistencyLevel};
use super::schema::CqlTables;
use crate::store::contract::error::{Failure, StoreError};
use crate::store::contract::failure::chain;
use crate::store::contract::options::StoreOptions;
use crate::store::contract::server::ServerAddress;
use crate::store::net::connect::Access;
use crate::store::net::current::described;
use crate::store::net::greeting::Greeting;
use crate::store::net::servers::Servers;
use datacenter::datacenter_of;
use reachable::{ReachableNodes, probe, protocol};
use statements::{Cql, STATEMENTS};

/// The connection to a Cassandra: its servers, and a session with all nodes of the ring.
pub(super) struct RingLink {
    servers: Servers,
    access: Access,
    options: CassandraOptions,
    tables: CqlTables,
    /// The place of the thread's session for these options.
    place: Arc<SessionPlace>,
    current: Option<Arc<Connected>>,
    /// Whether an exchange was not answered in time, so that the session must be checked.
    is_suspect: bool,
    connects: u64,
    described: Option<String>,
}

/// Pause before tables that were just created are used again.
const PAUSE: Duration = Duration::from_millis(50);

/// The place of a session, which ends with the last store that uses it.
type SessionPlace = Mutex<Weak<Connected>>;

/// A session, after its keyspace and tables were checked.
pub(super) struct Connected {
    pub(super) session: Session,
    /// The prepared statements, by their number in [`STATEMENTS`].
    statements: Vec<PreparedStatement>,
    /// The first server, with its version.
    described: String,
    /// Whether an operation has failed, so that the session must not be used again.
    has_failed: AtomicBool,
}

thread_local! {
    static PLACES: RefCell<Vec<(StoreOptions, CassandraOptions, Weak<SessionPlace>)>> =
        const { RefCell::new(Vec::new()) };
}

/// Returns this thread's place for these options.
fn place(options: &StoreOptions, own: &CassandraOptions) -> Arc<SessionPlace> {
    let find = |places: &RefCell<Vec<(StoreOptions, CassandraOptions, Weak<SessionPlace>)>>| {
        let mut places = places.borrow_mut();
        places.retain(|(_, _, place)| place.strong_count() > 0);
        let found = places.iter().find(|place| place.0 == *options && place.1 == *own);
        if let Some(place) = found.and_then(|(_, _, place)| place.upgrade()) {
            return place;
        }
        let place = Arc::default();
        places.push((options.clone(), own.clone(), Arc::downgrade(&place)));
        place
    };
    // While the thread ends, nothing is shared.
    PLACES.try_with(find).unwrap_or_default()
}

impl RingLink {
    pub(super) fn new(options: &StoreOptions, own: &CassandraOptions) -> RingLink {
        RingLink {
            servers: Servers::new(&options.servers),
            access: Access::new(options),
            options: own.clone(),
            tables: CqlTables::new(own),
            place: place(options, own),
            current: None,
            is_suspect: false,
            connects: 0,
            described: None,
        }
    }

    /// Returns the number of sessions created so far.
    pub(super) fn connects(&self) -> u64 {
        self.connects
    }

    /// Returns the server of the last session, with its version; `None` before the first.
    pub(super) fn described(&self) -> Option<String> {
        self.described.clone()
    }

    /// Runs `work` once with a session, within the time of an exchange. A failure ends the session
    /// for all stores, unless its nodes answered properly. After a timeout, which may be due to
    /// much work, the session is checked before it is used again.
    pub(super) async fn exchange<T>(
        &mut self,
        work: impl AsyncFnOnce(&Connected) -> Result<T, CqlFault>,
    ) -> Result<T, StoreError> {
        let session = self.session().await?;
        let failure = match self.access.exchange(work(&session)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(fault)) => fault.failure(&self.access.credentials),
            Err(failure) => failure,
        };
        match failure {
            Failure::TimedOut(_) => self.is_suspect = true,
            _ if failure::leaves_session(&failure) => {}
            _ => {
                session.fail();
                self.current = None;
            }
        }
        Err(StoreError::new(self.servers.current().clone(), failure))
    }

    /// Returns the preferred nodes, for tests.
    #[cfg(test)]
    pub(super) async fn preferred(&mut self) -> String {
        let session = self.session().await.unwrap();
        let profile = session.session.get_default_execution_profile_handle();
        let profile = format!("{profile:?}");
        let start = profile.find("preferences").unwrap();
        profile[start..].split("latency").next().unwrap().to_owned()
    }

    /// Returns the session, which is created if needed.
    async fn session(&mut self) -> Result<Arc<Connected>, StoreError> {
        self.current.take_if(|it| it.has_failed());
        let is_suspect = mem::take(&mut self.is_suspect);
        if let Some(session) = self.current.clone() {
            if !is_suspect || session.is_awake(silence(&self.access)).await {
                return Ok(session);
            }
            session.fail();
            self.current = None;
        }
        let place = self.place.clone();
        // Other stores of the thread wait, and then use this session.
        let mut place = place.lock().await;
        let session = match place.upgrade().filter(|it| !it.has_failed()) {
            Some(session) => session,
            None => {
                let session = Arc::new(self.connect().await?);
                self.connects = self.connects.saturating_add(1);
                *place = Arc::downgrade(&session);
                session
            }
        };
        self.described = Some(session.described.clone());
        self.current = Some(session.clone());
        Ok(session)
    }

    /// Tries each server once, from the current one on, until one leads to a session.
    async fn connect(&mut self) -> Result<Connected, StoreError> {
        let (access, options, tables) = (&self.access, &self.options, &self.tables);
        let attempt = async |server: &ServerAddress| {
            let session = open(access, options, tables, server).await;
            session.map_err(StoreError::of(server))
        };
        self.servers.try_each(attempt).await
    }
}

/// Creates a session through one server, and prepares everything.
async fn open(
    access: &Access,
    options: &CassandraOptions,
    tables: &CqlTables,
    server: &ServerAddress,
) -> Result<Connected, Failure> {
    let credentials = &access.credentials;
    let attempt = async |greeting: &Greeting| {
        let address = probe(access, server, greeting).await?;
        begin(access, options, server, address).await
    };
    let session = access.attempt(&protocol(access), attempt).await?;
    // Creating missing tables may take longer.
    tables.provide(&session, credentials).await?;
    let limit = access.timeout.max(Duration::from_secs(1));
    // Another node may have just created the tables, which not all nodes of the ring know yet.
    // Nodes that never agree still work if they have the tables.
    let _agreed = timeout(limit, session.await_schema_agreement()).await;
    let prepared = async {
        let pauses = limit.as_millis().checked_div(PAUSE.as_millis()).unwrap_or(0);
        let mut pauses = 0..pauses;
        loop {
            let statements = STATEMENTS.iter();
            let prepared =
                statements.map(async |statement| session.prepare(tables.fill(statement)).await);
            match try_join_all(prepared).await {
                // The table was announced before it can be used.
                Err(error) if failure::is_unknown(&error) && pauses.next().is_some() => {
                    tokio::time::sleep(PAUSE).await;
                }
                prepared => break prepared,
            }
        }
    };
    let version = async {
        let found = session.query_unpaged("SELECT release_version FROM system.local", ());
        let found = found.await.ok()?.into_rows_result().ok()?;
        found.first_row::<(String,)>().ok().map(|(version,)| version)
    };
    let ready = async {
        let statements = prepared.await.map_err(CqlFault::from)?;
        Ok::<_, CqlFault>((statements, version.await))
    };
    let ready = timeout(limit.saturating_mul(2), ready).await;
    let ready = ready.map_err(|_| Failure::TimedOut(limit).before_sending())?;
    let failed = |fault: CqlFault| fault.failure(credentials).before_sending();
    let (statements, version) = ready.map_err(failed)?;
    let version = version.map(|version| format!("Cassandra {version}"));
    Ok(Connected {
        session,
        statements,
        described: described(server, version),
        has_failed: AtomicBool::new(false),
    })
}

/// Logs in, reads the topology of the ring, and connects to its nodes.
async fn begin(
    access: &Access,
    options: &CassandraOptions,
    server: &ServerAddress,
    address: SocketAddr,
) -> Result<Session, Failure> {
    let mut config = SessionConfig::new();
    config.known_nodes = vec![KnownNode::Address(address)];
    let unreachable = |error| Failure::Unreachable(chain(&error));
    let tls = match (access.tls()?, server) {
        (Some(tls), ServerAddress::Tcp { host, .. }) => Some((tls.clone(), host.clone())),
        _ => None,
    };
    if let Some((tls, host)) = &tls {
        let tls = tls.for_nodes(host, address.ip()).map_err(unreachable)?;
        config.tls_context = Some(tls.into());
    }
    if let Some((user, password)) = failure::login(&access.credentials) {
        config.authenticator = Some(Arc::new(PlainTextAuthenticator::new(user, password)));
    }
    config.connection_pool_size = PoolSize::PerHost(NonZeroUsize::MIN);
    config.disallow_shard_aware_port = true;
    // The keyspace's replication determines which nodes have a row.
    config.keyspaces_to_fetch = vec![options.keyspace.as_ref().into()];
    config.fetch_full_schema_metadata = false;
    config.schema_agreement_interval = Duration::from_millis(50);
    config.keepalive_interval = Some(Duration::from_secs(5));
    config.keepalive_timeout = Some(Duration::from_secs(5));
    config.driver_config_reporting = false;
    config.identity = SelfIdentity::new().with_application_name("ngx_http_rate_limiting_module");
    let of_one_server = config.clone();
    let within = silence(access);
    config.address_translator = Some(Arc::new(ReachableNodes { within, tls }));
    let profile = profile(options);
    if let Some(datacenter) = &options.datacenter {
        config.host_filter = Some(Arc::new(DcHostFilter::new(datacenter.as_ref().into())));
    }
    let everywhere = match &options.datacenter {
        Some(datacenter) => in_datacenter(profile, datacenter),
        None => profile,
    };
    config.default_execution_profile_handle = everywhere.build().into_handle();
    let failed = |error| failure::of_session(&error, &access.credentials);
    let session = Session::connect(config).await.map_err(failed)?;
    if options.datacenter.is_none() {
        let ring = session.get_cluster_state();
        let mut nodes = ring.get_nodes_info().iter();
        let datacenter = match nodes.find(|node| node.address.ip() == address.ip()) {
            Some(node) => node.datacenter.clone(),
            None => datacenter_of(address, of_one_server).await.map_err(failed)?,
        };
        if let Some(datacenter) = datacenter {
            let mut handle = session.get_default_execution_profile_handle().clone();
            let local = in_datacenter(self::profile(options), &datacenter);
            handle.map_to_another_profile(local.build());
        }
    }
    Ok(session)
}

/// Returns the longest time that a node may take to answer: the part of the connection's time that
/// a hanging node may use up.
fn silence(access: &Access) -> Duration {
    access.connect_timeout.checked_div(2).unwrap_or_default()
}

/// Returns the execution profile of statements: executed once, by any node.
fn profile(options: &CassandraOptions) -> ExecutionProfileBuilder {
    ExecutionProfile::builder()
        .consistency(match options.consistency {
            ConsistencyLevel::LocalQuorum => Consistency::LocalQuorum,
            ConsistencyLevel::Quorum => Consistency::Quorum,
            ConsistencyLevel::All => Consistency::All,
        })
        // An epoch is the same in all datacenters.
        .serial_consistency(Some(SerialConsistency::Serial))
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        // This module limits the time of an exchange itself.
        .request_timeout(None)
}

fn in_datacenter(profile: ExecutionProfileBuilder, name: &str) -> ExecutionProfileBuilder {
    let policy = DefaultPolicy::builder().prefer_datacenter(name.into());
    profile.load_balancing_policy(policy.permit_dc_failover(false).build())
}

impl Connected {
    // Both accesses are relaxed: the flag orders no other memory.

    fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Returns whether each connected node answers a small statement within this time.
    async fn is_awake(&self, within: Duration) -> bool {
        let ring = self.session.get_cluster_state();
        let nodes = ring.get_nodes_info().iter();
        let answers = nodes.filter(|node| node.is_connected()).map(async |node| {
            let mut question = Statement::new("SELECT key FROM system.local");
            let node = NodeIdentifier::Node(node.clone());
            let policy = SingleTargetLoadBalancingPolicy::new(node, None);
            question.set_load_balancing_policy(Some(policy));
            self.session.query_unpaged(question, ()).await
        });
        let answers: Vec<_> = answers.collect();
        let is_connected = !answers.is_empty();
        let answered = timeout(within, try_join_all(answers)).await;
        is_connected && answered.is_ok_and(|answers| answers.is_ok())
    }

    /// Executes a statement that returns rows.
    pub(super) async fn select(
        &self,
        which: Cql,
        values: impl SerializeRow,
    ) -> Result<QueryRowsResult, CqlFault> {
        let statement = self.statement(which)?;
        let answer = self.session.execute_unpaged(statement, values).await?;
        let rows = answer.into_rows_result();
        rows.map_err(|_| CqlFault::Misunderstood(which.text()))
    }

    /// Executes a statement that returns nothing.
    pub(super) async fn execute(
        &self,
        which: Cql,
        values: impl SerializeRow,
    ) -> Result<(), CqlFault> {
        let statement = self.statement(which)?;
        self.session.execute_unpaged(statement, values).await?;
        Ok(())
    }

    /// Returns a prepared statement.
    pub(super) fn statement(&self, which: Cql) -> Result<&PreparedStatement, CqlFault> {
        let statement = self.statements.get(which as usize);
        statement.ok_or(CqlFault::Misunderstood("no such statement"))
    }
}

/// Parses the rows of an answer.
pub(super) fn rows<'a, R: DeserializeRow<'a, 'a>>(
    answer: &'a QueryRowsResult,
    which: Cql,
) -> Result<impl Iterator<Item = Result<R, CqlFault>>, CqlFault> {
    let misunderstood = move || CqlFault::Misunderstood(which.text());
    let rows = answer.rows::<R>().map_err(|_| misunderstood())?;
    Ok(rows.map(move |row| row.map_err(|_| misunderstood())))
}

/// Shows no credentials or keys.
impl fmt::Debug for RingLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = f.debug_struct("RingLink");
        parts.field("servers", &self.servers);
        parts.field("connects", &self.connects).finish_non_exhaustive()
    }
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = f.debug_struct("Connected");
        parts.field("described", &self.described).finish_non_exhaustive()
    }
}
