//! Reads the server's state of the counters of questions, after locking the numbers of their keys.

use core::num::NonZeroU64;
use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::{join, join3};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connection::{Connection, Fault, Prepared};
use super::levels::LevelPlace;
use super::log_block::FoundLog;
use super::logs::{self, Obstacles};
use super::{levels, row};
use crate::policy::algorithm::StoredKind;
use crate::policy::window::UnixMillis;
use crate::store::contract::decision::Question;
use crate::store::contract::strategy::{Epoch, Shard};
use crate::store::decide::asked::{AskedPlace, AskedPlaces};
use crate::store::decide::stored::StoredCount;

/// The server's state of the counters.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) now: UnixMillis,
    /// One for each place.
    pub(super) counts: Vec<StoredCount>,
    /// The logs, by place.
    pub(super) logs: BTreeMap<usize, FoundLog>,
    /// One for each shard.
    pub(super) epochs: Vec<Option<Epoch>>,
    /// Obstacles of the questions, if nothing can be charged.
    pub(super) obstacles: Obstacles,
}

impl AskedPlaces<'_> {
    /// Reads the counts. If anything must be locked, leaves a transaction open. `expected` is the time that the server
    /// told last, which selects the windows of the calendar. If they are others by now, reads again.
    pub(super) async fn read(
        &self,
        connection: &Connection,
        questions: &[Question],
        expected: &mut UnixMillis,
    ) -> Result<Read, Fault> {
        let client = &connection.client;
        let shards = self.shards.iter();
        let (namespaces, numbers): (Vec<_>, Vec<_>) = shards.map(|it| row::name(it)).unzip();
        let places = self.places.iter();
        let shards: Vec<_> =
            places.clone().map(|it| row::signed(it.shard).saturating_add(1)).collect();
        let sizes: Vec<_> = places.clone().map(|it| it.size.bits().cast_signed()).collect();
        let keys: Vec<_> = places.map(|it| it.key).collect();
        let logs = (1..).zip(&self.places).filter(|(_, it)| is_log(it));
        let logs: Vec<i64> = logs.map(|(number, _)| number).collect();
        let statement = match logs.as_slice() {
            [] => Prepared::Read,
            _ => Prepared::ReadLogs,
        };
        let statement = connection.statement(statement)?;
        let read_at = async |calendars: &[Option<i64>]| {
            let mut parameters: Vec<&(dyn ToSql + Sync)> =
                vec![&namespaces, &numbers, &shards, &sizes, &keys, &calendars];
            if !logs.is_empty() {
                parameters.push(&logs);
            }
            client.query(statement, &parameters).await
        };
        let calendars = self.calendar_windows(*expected);
        let levels: Vec<_> = (0..).zip(&self.places).filter_map(LevelPlace::of).collect();
        let levels = levels::read(connection, (&namespaces, &numbers), &levels);
        let read = read_at(&calendars);
        let mut obstacles = Obstacles::new();
        let (rows, levels) = if !self.are_charged {
            obstacles = logs::rooms(self, questions);
            let looked = logs::find_obstacles(connection, self, &mut obstacles);
            let (rows, levels, looked) = join3(read, levels, looked).await;
            looked?;
            (rows, levels)
        } else {
            // Sent together.
            let begin = client.batch_execute("BEGIN");
            let locks: [&(dyn ToSql + Sync); 1] = [&locks_of(self)];
            let lock = client.execute(connection.statement(Prepared::Lock)?, &locks);
            let ((begun, locked), read) = join(join(begin, lock), join(read, levels)).await;
            begun?;
            locked?;
            read
        };
        let mut rows = rows?;

        let misunderstood = || Fault::Misunderstood("read.sql");
        let time_of = |rows: &[Row]| {
            let now: i64 = rows.first().ok_or_else(misunderstood)?.try_get("now")?;
            Ok::<_, Fault>(UnixMillis(u64::try_from(now).map_err(|_| misunderstood())?))
        };
        let mut now = time_of(&rows)?;
        for _ in 0..REREADS {
            let before = core::mem::replace(expected, now);
            let calendars = self.calendar_windows(now);
            if self.calendar_windows(before) == calendars {
                break;
            }
            rows = read_at(&calendars).await?;
            now = time_of(&rows)?;
        }
        if self.calendar_windows(now) != self.calendar_windows(*expected) {
            return Err(misunderstood());
        }
        let mut read = Read {
            now,
            counts: self.places.iter().map(|it| StoredCount::none(it.kind)).collect(),
            logs: BTreeMap::new(),
            epochs: vec![None; self.shards.len()],
            obstacles,
        };
        for row in &rows {
            // Without counters, the row has no place.
            let Some(place) = row.try_get::<_, Option<i64>>("place")? else {
                break;
            };
            let place = usize::try_from(place.saturating_sub(1)).map_err(|_| misunderstood())?;
            let shard = self.places.get(place).map(|it| it.shard);
            let shard = shard.and_then(|it| read.epochs.get_mut(it));
            *shard.ok_or_else(misunderstood)? = row
                .try_get::<_, Option<i64>>("epoch")?
                .and_then(|epoch| NonZeroU64::new(epoch.cast_unsigned()).map(Epoch));
            if let Some(asked) = self.places.get(place).filter(|it| is_log(it)) {
                let log = FoundLog::of(row, asked.size, read.now)?;
                if let Some(count) = read.counts.get_mut(place) {
                    *count = log.count();
                }
                read.logs.insert(place, log);
            }
            let count = |name| Ok::<_, Fault>(row.try_get::<_, Option<i64>>(name)?.unwrap_or(0));
            if let Some(StoredCount::Windows { current, previous }) = read.counts.get_mut(place) {
                (*current, *previous) = (count("current")?, count("previous")?);
            }
        }
        for (place, level) in levels? {
            if let Some(count) = read.counts.get_mut(place) {
                *count = level;
            }
        }
        Ok(read)
    }
}

impl AskedPlaces<'_> {
    /// Returns for each place the number of its window of the calendar at `now`; nothing if no place has such a window.
    fn calendar_windows(&self, now: UnixMillis) -> Vec<Option<i64>> {
        let number = |place: &AskedPlace<'_>| {
            let is_of_calendar = place.size.is_of_calendar();
            is_of_calendar.then(|| place.size.at(now).number.cast_signed())
        };
        let numbers: Vec<_> = self.places.iter().map(number).collect();
        if numbers.iter().any(Option::is_some) { numbers } else { Vec::new() }
    }
}

/// Number of times that windows of the calendar are read again: once when the server's time was not known, and when one
/// ends at this moment.
const REREADS: usize = 3;

fn is_log(place: &AskedPlace<'_>) -> bool {
    place.kind == StoredKind::Log
}

/// Upper 32 bits of all locks, since others may lock numbers in the same database.
const LOCKS: i64 = 0x7261_7465 << 32;
/// Number of locks for the keys of a shard. A server has room for a few thousand.
const LOCKS_OF_SHARD: u16 = 1024;

/// Returns the locks for a decision about these places, in order.
fn locks_of(asked: &AskedPlaces<'_>) -> Vec<i64> {
    let locks = asked.places.iter().filter_map(|place| {
        let shard = asked.shards.get(place.shard)?;
        Some(lock(shard, place.key))
    });
    Vec::from_iter(locks.collect::<BTreeSet<_>>())
}

/// Returns the lock of a key. All nodes must agree on it.
pub(super) fn lock(shard: &Shard, key: &[u8]) -> i64 {
    let mut name = shard.namespace.as_bytes().to_vec();
    name.extend(shard.number.to_be_bytes());
    let of_shard = i64::from(Shard::number_of(&name, u16::MAX)) << 16;
    LOCKS | of_shard | i64::from(Shard::number_of(key, LOCKS_OF_SHARD))
}
