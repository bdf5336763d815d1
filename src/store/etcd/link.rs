//! The connection to one of the servers, and its session: a token, and leases.

use core::fmt;
use core::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::failure::{self, EtcdFault};
use super::http::HttpConnection;
use super::lease::{Leases, Moment, granted};
use super::wire::{Op, TxnAnswer, nested};
use crate::store::contract::error::{Failure, StoreError};
use crate::store::contract::options::{Credentials, Secret, StoreOptions};
use crate::store::contract::server::ServerAddress;
use crate::store::net::connect::Access;
use crate::store::net::current::{Closable, Current};
use crate::store::net::greeting::{Greeting, Protocol};
use crate::store::net::servers::Servers;
use crate::store::net::stream;

/// The servers of an etcd, each of which serves the whole store, and a connection to one of them.
#[derive(Debug)]
pub(super) struct EtcdLink {
    servers: Servers,
    current: Current<EtcdSession>,
    access: Access,
    /// Of the last session, for the next one: to check a password costs etcd a tenth of a second.
    grants: EtcdGrants,
}

/// A connection without a running exchange.
pub(super) struct EtcdSession {
    pub(super) http: HttpConnection,
    credentials: Credentials,
    version: String,
    grants: EtcdGrants,
}

/// All that etcd granted, which is not bound to a connection, and ends by itself.
#[derive(Clone, Debug, Default)]
struct EtcdGrants {
    token: Option<Secret>,
    leases: Leases,
}

impl EtcdLink {
    pub(super) fn new(options: &StoreOptions) -> EtcdLink {
        EtcdLink {
            servers: Servers::new(&options.servers),
            current: Current::none(),
            access: Access::new(options),
            grants: EtcdGrants::default(),
        }
    }

    /// Returns a link to the same servers with a connection of its own.
    pub(super) fn another(&self) -> EtcdLink {
        let (servers, access) = (self.servers.clone(), self.access.clone());
        EtcdLink { servers, current: Current::none(), access, grants: EtcdGrants::default() }
    }

    pub(super) fn connects(&self) -> u64 {
        self.current.connects()
    }

    pub(super) fn described(&self) -> Option<String> {
        self.current.described()
    }

    /// Runs `work` on a connection, within the timeout of an exchange. A failure ends the connection, since a later
    /// answer may still arrive. If the session has ended, runs it once more in another one.
    pub(super) async fn exchange<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut EtcdSession) -> Result<T, EtcdFault>,
    ) -> Result<T, StoreError> {
        let mut has_ended = false;
        loop {
            let mut session = match self.current.take().and_then(EtcdSession::if_idle) {
                Some(session) => session,
                None => self.connect().await?,
            };
            let failure = match self.access.exchange(work(&mut session)).await {
                Ok(Ok(answer)) => {
                    self.current.keep(session);
                    return Ok(answer);
                }
                Ok(Err(EtcdFault::SessionEnded(_))) if !has_ended => {
                    has_ended = true;
                    self.grants = EtcdGrants::default();
                    continue;
                }
                Ok(Err(fault)) => fault.into_failure(),
                Err(failure) => failure,
            };
            self.grants = session.grants;
            let error = StoreError::new(self.servers.current().clone(), failure);
            if matches!(error.failure, Failure::Unconfirmed(_)) {
                // A server that is cut off from the others answers, but cannot do anything.
                self.servers.move_on();
            }
            return Err(error);
        }
    }

    /// Returns the error of a failure at the server in use.
    pub(super) fn error(&self, fault: EtcdFault) -> StoreError {
        StoreError::new(self.servers.current().clone(), fault.into_failure())
    }

    /// Waits for a part of an exchange in a further session, within the timeout.
    pub(super) async fn wait<T>(
        &self,
        part: impl Future<Output = Result<T, EtcdFault>>,
    ) -> Result<T, StoreError> {
        let result = self.access.exchange(part).await;
        result
            .unwrap_or_else(|failure| Err(EtcdFault::Failed(failure)))
            .map_err(|it| self.error(it))
    }

    /// Tries each server once, from the current one on, until one lets this client in.
    pub(super) async fn connect(&mut self) -> Result<EtcdSession, StoreError> {
        let (access, grants) = (&self.access, &self.grants);
        let has_tls = access.has_tls();
        let protocol = Protocol { name: "etcd", first: b"H", has_tls };
        let attempt = async |server: &ServerAddress| {
            let open = async |greeting: &Greeting| {
                let stream = stream::open(access, server, greeting).await?;
                let host = match server {
                    ServerAddress::Tcp { .. } => server.to_string(),
                    ServerAddress::Unix(_) => "localhost".into(),
                };
                let http = HttpConnection::new(stream, host);
                EtcdSession::begin(http, access.credentials.clone(), grants.clone()).await
            };
            access.attempt(&protocol, open).await.map_err(StoreError::of(server))
        };
        let session = self.servers.try_each(attempt).await?;
        let version = format!("etcd {}", session.version);
        self.current.record_made(self.servers.current(), Some(version));
        Ok(session)
    }
}

impl EtcdSession {
    /// Checks that a server is an etcd, and gets a token if there is a user, and not one yet.
    async fn begin(
        http: HttpConnection,
        credentials: Credentials,
        grants: EtcdGrants,
    ) -> Result<EtcdSession, Failure> {
        let mut session = EtcdSession { http, credentials, version: String::new(), grants };
        let version = session.find_version().await.map_err(EtcdFault::into_failure)?;
        let mut numbers = version.split('.').map(str::parse::<u32>);
        if let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next())
            && (major, minor) < (3, 4)
        {
            return Err(Failure::Unsupported("etcd before 3.4"));
        }
        session.version = version;
        let Credentials { username, password } = &session.credentials;
        if let (Some(name), Some(password), None) = (username, password, &session.grants.token) {
            let log_in = json!({ "name": name.expose(), "password": password.expose() });
            let answer: Value = session
                .call("auth/authenticate", &log_in)
                .await
                .map_err(EtcdFault::into_failure)?;
            let token = answer.get("token").and_then(Value::as_str).unwrap_or_default();
            // It becomes a part of requests.
            let is_legal = token.bytes().all(|it| it.is_ascii_graphic());
            session.grants.token = Secret::parse(token.as_bytes()).filter(|_| is_legal);
        }
        Ok(session)
    }

    async fn find_version(&mut self) -> Result<String, EtcdFault> {
        let status = self.http.send("GET /version", None, b"").await?;
        let answer: Option<Value> = serde_json::from_slice(&self.http.body().await?).ok();
        let version = answer.as_ref().and_then(|it| it.get("etcdserver")?.as_str());
        version.map(str::to_owned).ok_or_else(|| {
            let cause =
                format!("it does not speak the etcd protocol, but says \"HTTP/1.1 {status}\"");
            EtcdFault::Failed(Failure::Unreachable(cause.into()))
        })
    }

    /// Sends a request. Returns whether the answer, whose body follows, is the result.
    pub(super) async fn send(&mut self, path: &str, request: &[u8]) -> Result<(), EtcdFault> {
        let token = self.grants.token.as_ref().map(Secret::expose);
        let status = self.http.send(&format!("POST /v3/{path}"), token, request).await?;
        if status.starts_with("200 ") {
            return Ok(());
        }
        let body = self.http.body().await?;
        Err(failure::of(&status, &body, &self.credentials))
    }

    async fn call<T: DeserializeOwned>(
        &mut self,
        path: &str,
        request: &Value,
    ) -> Result<T, EtcdFault> {
        self.send(path, request.to_string().as_bytes()).await?;
        let answer = self.http.body().await?;
        serde_json::from_slice(&answer).map_err(|_| EtcdFault::misunderstood(path))
    }

    /// Reads without a condition. Writes are allowed, too.
    pub(super) async fn read(&mut self, ops: Vec<Op>) -> Result<TxnAnswer, EtcdFault> {
        self.call("kv/txn", &json!({ "success": nested(ops) })).await
    }

    /// Executes `success` in one step if all of `compare` holds, and `failure` otherwise.
    pub(super) async fn change(
        &mut self,
        compare: Vec<Value>,
        success: Vec<Op>,
        failure: &[Op],
    ) -> Result<TxnAnswer, EtcdFault> {
        let (success, failure) = (nested(success), nested(failure.to_vec()));
        let txn = json!({ "compare": compare, "success": success, "failure": failure });
        self.call("kv/txn", &txn).await
    }

    /// Returns a lease for a value that matters for `life`.
    pub(super) async fn lease(&mut self, life: Duration) -> Result<i64, EtcdFault> {
        let now = Moment::now();
        let life = life.min(LONGEST).as_secs().saturating_add(1);
        if let Some(id) = self.grants.leases.find(life, now) {
            return Ok(id);
        }
        let granted = granted(life);
        let answer: Value = self.call("lease/grant", &json!({ "TTL": granted })).await?;
        let id = answer.get("ID").and_then(|it| it.as_str()?.parse().ok());
        let id = id.ok_or_else(|| EtcdFault::misunderstood("lease/grant"))?;
        self.grants.leases.add(id, granted, now);
        Ok(id)
    }

    /// Returns the session if the server has not closed it.
    fn if_idle(mut self) -> Option<EtcdSession> {
        self.http.is_idle().then_some(self)
    }
}

/// Longest life of a value; etcd allows leases of 285 years.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// A closed one is found by [`HttpConnection::is_idle`], which reads.
impl Closable for EtcdSession {
    fn is_closed(&self) -> bool {
        false
    }
}

impl fmt::Debug for EtcdSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdSession").field("version", &self.version).finish_non_exhaustive()
    }
}
