//! Redis and Valkey, 6.0 or newer: counts in hashes, what changed in a stream, by scripts.
//!
//! The keys of a shard begin with `{<prefix>:<namespace>:<shard>}`, which is a hash tag, so that a
//! cluster keeps them on one node; `changes.lua` describes their content. Counts expire with their
//! window, and an unused shard expires as a whole, after its counts. The server must not evict keys
//! (`maxmemory-policy noeviction`), since counts would be lost unnoticed. The test
//! `a_user_with_only_the_needed_rights_suffices` lists the commands that a user needs.

mod answer;
mod calendars;
mod channel;
mod cluster;
mod connection;
mod connector;
mod decide;
mod failure;
pub(crate) mod key;
mod layout;
pub mod options;
mod script;
mod sentinel;
#[cfg(test)]
mod tests;

use core::slice;
use core::time::Duration;
use std::collections::BTreeMap;

use redis::{Cmd, Value};

use self::answer::{PushRest, RedisAnswer};
use self::cluster::Cluster;
use self::connection::RedisLink;
use self::key::WindowName;
use self::layout::{KnownLayouts, Layout};
use self::options::{RedisDirectives, RedisOptions, Topology};
use self::script::{RedisCall, Script};
use super::contract::batch::PageStep;
use super::contract::decision::ShardHistory;
use super::contract::error::{Failure, StoreError};
use super::contract::options::StoreOptions;
use super::contract::strategy::{
    Added, Batch, Changes, Count, Diff, Epoch, LivingNodes, NODE_LIFE, PushNews, Pushed, Shard,
    Strategy, Subscription,
};
use super::settings::kind::{KindOptions as _, Registered};
use crate::policy::hits::Hits;
use crate::policy::reserve::Witness;
use crate::policy::window::{UnixMillis, WindowSize};

/// The script that decides: its arguments, a file for each kind of counter, and the writes.
const DECIDE: &str = concat!(
    include_str!("decide/arguments.lua"),
    include_str!("decide/windows.lua"),
    include_str!("decide/elastic.lua"),
    include_str!("decide/buckets.lua"),
    include_str!("decide/logs.lua"),
    include_str!("decide/decisions.lua"),
    include_str!("decide/writes.lua"),
);

/// The script that applies a batch, and the one for listeners that lag; both read the stream of changes.
const PUSH: &str = concat!(include_str!("changes_since.lua"), include_str!("push.lua"));
const CATCH_UP: &str = concat!(include_str!("changes_since.lua"), include_str!("catch_up.lua"));

/// A client of Redis: one server, several of which only one accepts writes, or a cluster.
#[derive(Debug)]
pub struct Redis {
    way: Transport,
    shards: u16,
    /// The living nodes, from the last answer.
    living: Option<LivingNodes>,
    /// Whether the charges for reserves are lost.
    has_lost_grants: bool,
    /// See [`Strategy::overdrawn`].
    overdrawn: Vec<Count>,
    /// Exchanges that the next decision must find in the history of shards, and the histories that
    /// the last decision returned.
    followed: Vec<(Shard, Option<Witness>)>,
    histories: Vec<(Shard, ShardHistory)>,
    /// The time that a server told with the last decision, which selects the windows of the calendar.
    now: UnixMillis,
    /// Whether the last read of the channel left news.
    lags: bool,
    prefix: Box<str>,
    push: Script,
    catch_up: Script,
    decide: Script,
    open_epoch: Script,
    get_window: Script,
    check_counts: Script,
    check_layout: Script,
    known_layouts: KnownLayouts,
}

/// The connections to the servers with the counts.
#[derive(Debug)]
enum Transport {
    One(Box<RedisLink>),
    Cluster(Cluster),
}

/// A position in a window's hash.
#[derive(Clone, Copy, Debug, Default)]
pub struct RedisCursor {
    /// The cursor; 0 at the beginning.
    cursor: u64,
    /// The number of the connection that returned it.
    connection: u64,
}

impl Registered for Redis {
    type Directives = RedisDirectives;
}

impl Strategy for Redis {
    type Options = RedisOptions;
    type Step = PageStep<RedisCursor>;
    type Changes = Changes;
    type Counts = Added;

    fn new(options: &StoreOptions, own: &RedisOptions) -> Redis {
        let layout = Layout { shards: own.shards(), is_cluster: own.topology == Topology::Cluster };
        let script = |name, code| Script::new(name, code, layout);
        Redis {
            way: match own.topology {
                Topology::Cluster => Transport::Cluster(Cluster::new(options)),
                Topology::Single | Topology::Sentinel { .. } => {
                    Transport::One(Box::new(RedisLink::new(options, own)))
                }
            },
            shards: own.shards(),
            living: None,
            has_lost_grants: false,
            overdrawn: Vec::new(),
            followed: Vec::new(),
            histories: Vec::new(),
            now: UnixMillis::default(),
            lags: false,
            prefix: own.prefix.clone(),
            push: script("push.lua", PUSH),
            catch_up: script("catch_up.lua", CATCH_UP).finding_keys(),
            decide: script("decide", DECIDE).finding_keys(),
            open_epoch: script("open_epoch.lua", include_str!("open_epoch.lua")),
            get_window: script("get_window.lua", include_str!("get_window.lua")),
            check_counts: script("check_counts.lua", include_str!("check_counts.lua")),
            check_layout: script("check_layout.lua", include_str!("check_layout.lua")),
            known_layouts: KnownLayouts::default(),
        }
    }

    /// Returns a client that shares the connections to the nodes of a cluster; `None` without a
    /// cluster.
    fn share(&self) -> Option<Redis> {
        let Transport::Cluster(cluster) = &self.way else {
            return None;
        };
        Some(self.over(Transport::Cluster(cluster.clone())))
    }

    fn connects(&self) -> u64 {
        self.way.connects()
    }

    fn server(&self) -> Option<String> {
        match &self.way {
            Transport::One(link) => link.described(),
            Transport::Cluster(cluster) => cluster.described(),
        }
    }

    fn shards(&self) -> u16 {
        self.shards
    }

    fn servers(&self) -> u16 {
        match &self.way {
            Transport::One(_) => 1,
            Transport::Cluster(cluster) => cluster.servers(),
        }
    }

    fn living(&self) -> Option<LivingNodes> {
        self.living
    }

    fn has_lost_grants(&self) -> bool {
        self.has_lost_grants
    }

    fn overdrawn(&self) -> &[Count] {
        &self.overdrawn
    }

    async fn push_diffs(
        &mut self,
        shard: &Shard,
        batch: &Batch,
        limit: usize,
    ) -> Result<Pushed, StoreError> {
        self.check_layout(shard).await?;
        let windows = by_window(&batch.diffs);
        let shard = self.shard_key(shard);
        // All changed keys are named. So a cluster that is moving the keys one by one refuses the
        // call before anything is executed, if some of them are missing.
        let counts = windows.keys();
        let counts = counts.map(|window| key::counts(&shard, batch.epoch, *window));
        let keys = [shard.clone(), key::stream(&shard, batch.epoch)];
        let living = batch.lives_for.map(|_| key::living(&shard));
        let news = batch.is_news.then(|| key::news(&shard, batch.epoch));
        let keys = keys.into_iter().chain(living).chain(counts).chain(news);
        let keys: Vec<_> = keys.collect();
        let mut call = self.push.command(&keys);
        call.arg(batch.epoch.to_string())
            .arg(batch.node.to_string())
            .arg(batch.id.map(|id| id.0.to_string()).unwrap_or_default())
            .arg(batch.previous.0)
            .arg(millis(batch.life().saturating_add(NODE_LIFE)))
            .arg(tag(batch))
            .arg(batch.position.map(key::position).unwrap_or_default())
            .arg(limit)
            .arg(batch.lives_for.map(|life| life.as_millis().to_string()).unwrap_or_default())
            .arg(u8::from(batch.is_news))
            .arg(key::grants(batch.grants));
        for (window, diffs) in windows {
            let expires_in = diffs.iter().map(|diff| diff.expires_in).max();
            call.arg(window.to_string())
                .arg(millis(expires_in.unwrap_or_default()))
                .arg(diffs.len());
            for diff in diffs {
                call.arg(&diff.key).arg(diff.diff.thousandths());
            }
        }
        let read = |value| RedisAnswer(value).pushed(batch);
        let result = self.way.run(&shard, &self.push, call, read).await;
        if !matches!(result, Ok((Pushed::Applied { .. }, _))) {
            self.known_layouts.forget();
        }
        let (pushed, PushRest { living, has_lost_grants, overdrawn }) = result?;
        self.living = living.or(self.living);
        self.has_lost_grants = has_lost_grants;
        self.overdrawn = overdrawn;
        Ok(pushed)
    }

    async fn open_epoch(
        &mut self,
        shard: &Shard,
        instead_of: Option<Epoch>,
        proposed: Epoch,
    ) -> Result<Epoch, StoreError> {
        self.check_layout(shard).await?;
        let shard = self.shard_key(shard);
        let mut call = self.open_epoch.command(slice::from_ref(&shard));
        call.arg(instead_of.map(|old| old.to_string()).unwrap_or_default())
            .arg(proposed.to_string())
            .arg(proposed.0.get());
        let read = |value| RedisAnswer(value).epoch();
        self.way.run(&shard, &self.open_epoch, call, read).await
    }

    async fn get_counters(
        &mut self,
        shard: &Shard,
        epoch: Epoch,
        windows: &[(WindowSize, u64)],
        step: PageStep<RedisCursor>,
    ) -> Result<(Vec<Count>, Option<PageStep<RedisCursor>>), StoreError> {
        let Some(&(size, number)) = windows.get(step.section) else {
            return Ok((Vec::new(), None));
        };
        let window = WindowName { size, number };
        let shard = self.shard_key(shard);
        let counts = key::counts(&shard, epoch, window);
        let mut scan = Cmd::new();
        scan.arg("HSCAN").arg(&counts).arg(step.after.cursor).arg("COUNT").arg(step.counters);
        let value = match self.way.call(&shard, &scan.into()).await {
            Err(error) if script::is_of_wrong_type(&error) => {
                // The script deletes it, unless somebody else has done so in between.
                let check = self.check_counts.command(&[counts]);
                let call = self.check_counts.call(check);
                self.way.call(&shard, &call).await?;
                return Err(error);
            }
            answer => answer?,
        };
        let connection = self.way.connection();
        if step.after.cursor != 0 && step.after.connection != connection {
            // A cursor is valid for one run of a server, which ends its connections. Another server
            // may have another order.
            let after = RedisCursor::default();
            return Ok((Vec::new(), Some(PageStep { after, ..step })));
        }
        let page = RedisAnswer(value).page(window);
        let (cursor, counts) = page.ok_or_else(|| self.way.misunderstood("HSCAN"))?;
        let last = (cursor != 0).then_some(RedisCursor { cursor, connection });
        let next = step.next(&counts, last, windows.len());
        Ok((counts, next))
    }

    async fn get_window(
        &mut self,
        shard: &Shard,
        key: &[u8],
        size: WindowSize,
        window: u64,
    ) -> Result<Hits, StoreError> {
        let name = WindowName { size, number: window };
        let shard = self.shard_key(shard);
        let mut call = self.get_window.command(slice::from_ref(&shard));
        call.arg(name.to_string()).arg(key);
        let read = |value| RedisAnswer(value).total();
        self.way.run(&shard, &self.get_window, call, read).await
    }

    fn channel(&self) -> Option<Redis> {
        Some(self.listener())
    }

    async fn recv(&mut self, subscriptions: &[Subscription]) -> Result<Vec<PushNews>, StoreError> {
        self.listen(subscriptions).await
    }
}

impl Redis {
    /// Returns a client with another transport.
    fn over(&self, way: Transport) -> Redis {
        Redis {
            way,
            shards: self.shards,
            living: None,
            has_lost_grants: false,
            overdrawn: Vec::new(),
            followed: Vec::new(),
            histories: Vec::new(),
            now: self.now,
            lags: false,
            prefix: self.prefix.clone(),
            push: self.push.clone(),
            catch_up: self.catch_up.clone(),
            decide: self.decide.clone(),
            open_epoch: self.open_epoch.clone(),
            get_window: self.get_window.clone(),
            check_counts: self.check_counts.clone(),
            check_layout: self.check_layout.clone(),
            known_layouts: KnownLayouts::default(),
        }
    }

    /// Checks that the namespace of a shard has this node's layout. If the first shard's server
    /// does not answer, the check is repeated next time.
    async fn check_layout(&mut self, shard: &Shard) -> Result<(), StoreError> {
        if self.known_layouts.have(shard) {
            return Ok(());
        }
        let first = self.shard_key(&Shard { number: 0, ..shard.clone() });
        let call = self.check_layout.command(slice::from_ref(&first));
        let read = |value| RedisAnswer(value).text();
        match self.way.run(&first, &self.check_layout, call, read).await {
            Ok(_) => {
                self.known_layouts.note(shard);
                Ok(())
            }
            Err(error) if matches!(error.failure, Failure::Unusable(_)) => Err(error),
            Err(_) => Ok(()),
        }
    }

    fn shard_key(&self, shard: &Shard) -> String {
        key::shard(&self.prefix, shard)
    }
}

impl Transport {
    /// Sends a call to the server with this shard.
    async fn call(&mut self, shard: &str, call: &RedisCall<'_>) -> Result<Value, StoreError> {
        match self {
            Transport::One(link) => link.call(call, None).await,
            Transport::Cluster(cluster) => cluster.call(shard, call).await,
        }
    }

    /// Runs a script with its command. `read` parses the answer; `None` if it is invalid.
    async fn run<T>(
        &mut self,
        shard: &str,
        script: &Script,
        command: Cmd,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, StoreError> {
        let answer = self.call(shard, &script.call(command)).await?;
        read(answer).ok_or_else(|| self.misunderstood(script.name))
    }

    /// Returns the number of connections created so far.
    fn connects(&self) -> u64 {
        match self {
            Transport::One(link) => link.connects(),
            Transport::Cluster(cluster) => cluster.connects(),
        }
    }

    /// Returns the number of the last connection.
    fn connection(&self) -> u64 {
        match self {
            Transport::One(link) => link.connection(),
            Transport::Cluster(cluster) => cluster.connection(),
        }
    }

    fn misunderstood(&self, what: &str) -> StoreError {
        match self {
            Transport::One(link) => link.misunderstood(what),
            Transport::Cluster(cluster) => cluster.misunderstood(what),
        }
    }
}

/// Returns a tag that distinguishes a batch's entry in the stream from those of all other batches,
/// in all epochs.
fn tag(batch: &Batch) -> u64 {
    let [random, _] = batch.node.0;
    random ^ batch.last().0 ^ batch.epoch.0.get()
}

fn by_window(diffs: &[Diff]) -> BTreeMap<WindowName, Vec<&Diff>> {
    let mut windows: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for diff in diffs {
        let name = WindowName { size: diff.size, number: diff.window };
        windows.entry(name).or_default().push(diff);
    }
    windows
}

/// Converts a time to whole milliseconds, at least one, since Redis rejects 0.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}
