//! The connection to the one server in use, and the setup of its sessions.

use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::pin::Pin;
use core::time::Duration;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::try_join_all;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::Sleep;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls, SimpleQueryMessage, Statement};

use super::failure;
use super::options::PostgresOptions;
use super::pooler::{self, ServerSession};
use super::schema::{SchemaError, Tables};
use super::tls::Secure;
use super::told::Notified;
use crate::store::contract::error::{Failure, Refusal, StoreError};
use crate::store::contract::options::{Credentials, Secret, StoreOptions};
use crate::store::contract::server::ServerAddress;
use crate::store::net::connect::{Access, connect_unix};
use crate::store::net::current::{Closable, Current};
use crate::store::net::greeting::{Greeting, Protocol};
use crate::store::net::servers::Servers;

/// The servers of a Postgres, and a connection to one of them.
#[derive(Debug)]
pub(super) struct Link {
    servers: Servers,
    current: Current<Connection>,
    session: Session,
}

/// The options of a connection to any of the servers.
#[derive(Clone, Debug)]
struct Session {
    access: Access,
    database: Box<str>,
    tables: Tables,
}

/// An established connection without a running exchange.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: Client,
    /// The client's port; `None` for a Unix socket.
    port: Option<u16>,
    /// The prepared statements, by their number in [`STATEMENTS`].
    statements: Vec<Statement>,
    /// Version of the server.
    version: String,
    /// Notifications on this connection, if it listens.
    pub(super) told: Arc<Notified>,
    /// Whether it listens.
    pub(super) listens: Cell<bool>,
    /// The rest of the shortest time between two reads of the changes.
    pub(super) apart: RefCell<Option<Pin<Box<Sleep>>>>,
    /// Task that moves bytes between `client` and the socket, and ends with the connection. `None`
    /// if the task continues after `client` is dropped, to close the connection properly.
    driver: Option<JoinHandle<()>>,
}

/// A statement that is prepared on every connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Prepared {
    Push,
    Ask,
    EndEpoch,
    BeginEpoch,
    Epoch,
    Page,
    Total,
    Purge,
    Lock,
    Read,
    Charge,
    ReadLevels,
    SetLevels,
    ReadLogs,
    FindObstacles,
    LowerLogs,
    AddToLogs,
    Living,
    Tell,
    CatchUp,
}

const STATEMENTS: [&str; 20] = [
    concat!(include_str!("push.sql"), include_str!("count.sql"), include_str!("note_change.sql")),
    include_str!("ask.sql"),
    include_str!("end_epoch.sql"),
    include_str!("begin_epoch.sql"),
    include_str!("epoch.sql"),
    include_str!("page.sql"),
    include_str!("total.sql"),
    include_str!("purge.sql"),
    include_str!("lock.sql"),
    concat!(include_str!("read.sql"), include_str!("read_windows.sql")),
    concat!(include_str!("charge.sql"), include_str!("count.sql"), include_str!("note_change.sql")),
    include_str!("read_levels.sql"),
    include_str!("set_levels.sql"),
    concat!(include_str!("read.sql"), include_str!("read_logs.sql")),
    include_str!("find_obstacles.sql"),
    include_str!("lower_logs.sql"),
    include_str!("add_to_logs.sql"),
    include_str!("living.sql"),
    concat!(include_str!("push.sql"), include_str!("count.sql"), include_str!("tell_change.sql")),
    include_str!("catch_up.sql"),
];

/// Settings of a session. Statements are planned once, and use indexes in their order, whatever the
/// size of the tables at that time. Each statement sees all commits before it. Waiting for the disk
/// would save nothing that a crash of the server does not lose anyway.
const SETTINGS: &str = "SET application_name = 'ngx_http_rate_limiting_module';
SET default_transaction_isolation = 'read committed';
SET synchronous_commit = off;
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
SET jit = off;
SET plan_cache_mode = force_generic_plan;
SELECT current_setting('transaction_read_only'), current_setting('server_version_num'),
    current_setting('server_version')";

/// The reason why an exchange has no valid answer.
#[derive(Debug)]
pub(super) enum Fault {
    Error(Error),
    /// An error after a batch was sent, which may have been applied.
    AfterPush(Error),
    /// The connection has ended while it waited for notifications.
    Ended,
    /// The answer does not fit the statement with this name.
    Misunderstood(&'static str),
}

impl Link {
    pub(super) fn new(options: &StoreOptions, own: &PostgresOptions) -> Link {
        Link {
            servers: Servers::new(&options.servers),
            current: Current::none(),
            session: Session {
                access: Access::new(options),
                database: own.database.clone(),
                tables: Tables::new(&own.table),
            },
        }
    }

    /// Returns a link to the same servers with a connection of its own and a longer timeout of an
    /// exchange.
    pub(super) fn with_longer_timeout(&self, longer: Duration) -> Link {
        Link {
            servers: self.servers.clone(),
            current: Current::none(),
            session: Session {
                access: self.session.access.with_longer_timeout(longer),
                ..self.session.clone()
            },
        }
    }

    pub(super) fn connects(&self) -> u64 {
        self.current.connects()
    }

    /// Returns the server of the last connection, with its version; `None` before the first.
    pub(super) fn described(&self) -> Option<String> {
        self.current.described()
    }

    /// Runs `work` once on a connection, within the timeout of an exchange. A failure ends the
    /// connection, since later answers may still arrive, or its state may be unknown.
    pub(super) async fn exchange<T>(
        &mut self,
        work: impl AsyncFnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let connection = match self.current.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let session = &self.session;
        let failure = match session.access.exchange(work(&connection)).await {
            Ok(Ok(answer)) => {
                self.current.keep(connection);
                return Ok(answer);
            }
            Ok(Err(Fault::Error(error))) => session.failure(&error),
            Ok(Err(Fault::AfterPush(error))) => session.failure(&error).after_sending(),
            Ok(Err(Fault::Ended)) => Failure::Disconnected("it has ended".into()),
            Ok(Err(Fault::Misunderstood(what))) => Failure::Misunderstood(what.into()),
            Err(failure) => failure,
        };
        let error = StoreError::new(self.servers.current().clone(), failure);
        if error.failure == Failure::Refused(Refusal::ReadOnly) {
            // Another server is the primary now.
            self.servers.move_on();
        }
        Err(error)
    }

    /// Tries each server once, from the current one on, until one accepts writes.
    async fn connect(&mut self) -> Result<Connection, StoreError> {
        let (session, protocol) = (&self.session, self.session.protocol());
        let attempt = async |server: &ServerAddress| {
            let open = async |greeting: &Greeting| session.open(server, greeting).await;
            let attempt = session.access.attempt(&protocol, open);
            attempt.await.map_err(StoreError::of(server))
        };
        let connection = self.servers.try_each(attempt).await?;
        let version = format!("PostgreSQL {}", connection.version);
        self.current.record_made(self.servers.current(), Some(version));
        Ok(connection)
    }
}

impl Session {
    /// Returns the first bytes of a server: its answer to the client's first message.
    fn protocol(&self) -> Protocol {
        Protocol {
            name: "PostgreSQL",
            first: match self.access.has_tls() {
                // The answer whether the server has TLS, or an error.
                true => b"SNE",
                // A request for authentication, an error, a notice, or another protocol version.
                false => b"RENv",
            },
            has_tls: self.access.has_tls(),
        }
    }

    async fn open(
        &self,
        server: &ServerAddress,
        greeting: &Greeting,
    ) -> Result<Connection, Failure> {
        let connection = self.log_in(server, greeting).await?;
        let failure = |error: Error| self.failure(&error);
        let session = ServerSession::of(&connection.client).await;
        let session = session.map_err(failure)?;
        if !session.is_direct(connection.port) {
            let one = &connection.client;
            let other = async {
                let other = self.log_in(server, &Greeting::default()).await.ok()?;
                ServerSession::of(&other.client).await.ok()?;
                Some(other)
            };
            let other = pooler::other_client(one, other).await.map_err(failure)?;
            if let Some(other) = other.flatten()
                && pooler::is_shared(&session, one, &other.client).await.unwrap_or(false)
            {
                return Err(Failure::Unusable(pooler::SHARED.into()));
            }
        }
        self.introduce(connection).await
    }

    /// Connects to a server and logs in.
    async fn log_in(
        &self,
        server: &ServerAddress,
        greeting: &Greeting,
    ) -> Result<Connection, Failure> {
        match server {
            ServerAddress::Tcp { host, port } => {
                let stream = self.access.connect_tcp(host, *port).await?;
                let own = stream.local_addr().ok().map(|it| it.port());
                let stream = greeting.of(stream);
                let mut connection = match self.access.tls()? {
                    None => self.begin(stream, SslMode::Disable, NoTls).await?,
                    Some(client) => {
                        let tls = Secure { client, host };
                        self.begin(stream, SslMode::Require, tls).await?
                    }
                };
                connection.port = own;
                Ok(connection)
            }
            ServerAddress::Unix(path) => {
                let stream = match connect_unix(path).await {
                    Ok(stream) => stream,
                    // Postgres names its socket by the directory.
                    Err(failure) => {
                        let stream = connect_unix(&in_directory(path)).await;
                        stream.map_err(|_| failure)?
                    }
                };
                let stream = greeting.of(stream);
                self.begin(stream, SslMode::Disable, NoTls).await
            }
        }
    }

    async fn begin<S, T>(&self, stream: S, mode: SslMode, tls: T) -> Result<Connection, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: TlsConnect<S, Stream: Send + 'static>,
    {
        let mut config = Config::new();
        let Credentials { username, password } = &self.access.credentials;
        config
            .dbname(&*self.database)
            .user(username.as_ref().map_or("postgres", Secret::expose))
            .ssl_mode(mode);
        if let Some(password) = password {
            config.password(password.expose());
        }
        let failure = |error: Error| self.failure(&error);
        let (client, driver) = config.connect_raw(stream, tls).await.map_err(failure)?;
        let told = Arc::<Notified>::default();
        Ok(Connection {
            client,
            port: None,
            statements: Vec::new(),
            version: String::new(),
            driver: Some(tokio::spawn(drive(driver, told.clone()))),
            told,
            listens: Cell::new(false),
            apart: RefCell::new(None),
        })
    }

    /// Checks that the server accepts writes, and prepares everything.
    async fn introduce(&self, mut connection: Connection) -> Result<Connection, Failure> {
        let failure = |error: Error| self.failure(&error);
        let client = &connection.client;
        let answer = client.simple_query(SETTINGS).await.map_err(failure)?;
        connection.version = check_server(&answer)?;
        // The server must not block others for a node that stopped in a transaction, the first of
        // which may create tables;
        let millis = self.access.timeout.as_millis();
        let limit = format!("SET idle_in_transaction_session_timeout = {millis}");
        client.batch_execute(&limit).await.map_err(failure)?;
        self.tables.provide(client).await.map_err(|error| match error {
            SchemaError::Failed(error) => self.failure(&error),
            SchemaError::NotCreated(table, error) => match self.failure(&error) {
                Failure::Denied(cause) => Failure::Denied(
                    format!("table {table} is missing, and cannot be created ({cause})").into(),
                ),
                other => other,
            },
            SchemaError::OtherShape(table) => Failure::Unusable(
                format!("table {table} has another shape than ours: drop it, or use another name")
                    .into(),
            ),
        })?;
        // and it must not continue a statement for which nobody waits.
        let limit = format!("SET statement_timeout = {millis}");
        client.batch_execute(&limit).await.map_err(failure)?;
        let statements = STATEMENTS.map(|statement| self.tables.fill(statement));
        let prepared = statements.iter().map(|statement| client.prepare(statement));
        connection.statements = try_join_all(prepared).await.map_err(failure)?;
        Ok(connection)
    }

    fn failure(&self, error: &Error) -> Failure {
        failure::of(error, &self.access.credentials, self.access.timeout)
    }
}

/// Moves bytes until the connection ends, which a waiting caller detects, and passes notifications
/// on.
async fn drive<S, T>(mut driver: tokio_postgres::Connection<S, T>, told: Arc<Notified>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| driver.poll_message(context)).await {
        if let AsyncMessage::Notification(notification) = message {
            told.note(notification.payload());
        }
    }
    told.end();
}

impl Connection {
    /// Returns a prepared statement.
    pub(super) fn statement(&self, which: Prepared) -> Result<&Statement, Fault> {
        let statement = self.statements.get(which as usize);
        statement.ok_or(Fault::Misunderstood("no such statement"))
    }
}

impl Fault {
    /// Returns whether the error may be due to data that somebody else has written, so that it
    /// would recur in the same epoch.
    pub(super) fn is_of_data(&self) -> bool {
        match self {
            Fault::Error(error) | Fault::AfterPush(error) => failure::is_of_data(error),
            Fault::Misunderstood(_) => true,
            Fault::Ended => false,
        }
    }
}

impl Closable for Connection {
    fn is_closed(&self) -> bool {
        self.client.is_closed() || self.driver.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(driver) = &self.driver {
            driver.abort();
        }
    }
}

/// A TLS server logs each connection that ends without a closing message.
impl Drop for Link {
    fn drop(&mut self) {
        if let Some(connection) = self.current.get_mut() {
            connection.driver = None;
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Error(error)
    }
}

/// Checks that the server which answered [`SETTINGS`] can be used. Returns its version.
fn check_server(answer: &[SimpleQueryMessage]) -> Result<String, Failure> {
    let mut rows = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let row = rows.next();
    let column = |column: usize| row.and_then(|row| row.try_get(column).ok().flatten());
    if column(0) != Some("off") {
        return Err(Failure::Refused(Refusal::ReadOnly));
    }
    let version: Option<u32> = column(1).and_then(|version| version.parse().ok());
    if version < Some(130_000) {
        return Err(Failure::Unsupported("PostgreSQL before 13"));
    }
    Ok(column(2).unwrap_or_default().into())
}

fn in_directory(path: &Path) -> std::path::PathBuf {
    path.join(".s.PGSQL.5432")
}
