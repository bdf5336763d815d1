//! Reads and writes logs for decisions.

use core::time::Duration;
use std::collections::BTreeMap;

use futures_util::future::join;
use tokio_postgres::types::ToSql;

use super::connection::{Connection, Fault, Prepared};
use super::log_block::{FoundLog, LogChange, NewEntry};
use super::row;
use crate::policy::algorithm::{Algorithm, MovingCount};
use crate::policy::hits::Hits;
use crate::store::contract::decision::Question;
use crate::store::contract::strategy::{CLOCK_MARGIN, Epoch};
use crate::store::decide::asked::{AskedPlace, AskedPlaces};

/// The place of a log, and how many of its latest thousandths may stay in the window so that there
/// is room.
pub(super) type Obstacle = (usize, i64);

/// The times of the hits with which enough others have left, in milliseconds of Unix time.
pub(super) type Obstacles = BTreeMap<Obstacle, i64>;

/// Returns the obstacles of questions that charge nothing to logs: for each limit, the hits with
/// which a window still has room.
pub(super) fn rooms(asked: &AskedPlaces<'_>, questions: &[Question]) -> Obstacles {
    let full = MovingCount { hits: MovingCount::MOST, ..MovingCount::default() };
    let mut rooms: BTreeMap<(usize, usize), Hits> = BTreeMap::new();
    for (number, (question, slots)) in asked.with_slots(questions).enumerate() {
        for limit in &question.limits {
            let excess = full.excess(limit.hits, limit.cost);
            let is_moving = limit.algorithm == Algorithm::Moving;
            if let (Some(excess), Some(slot), true) = (excess, slots.get(limit.counter), is_moving)
            {
                let most = rooms.entry((number, *slot)).or_default();
                *most = excess.max(*most);
            }
        }
    }
    let rooms = rooms.iter().map(|((_, place), excess)| {
        let room = full.hits.minus(*excess);
        ((*place, room.thousandths()), 0)
    });
    rooms.collect()
}

/// Returns the largest limit of each place.
pub(super) fn largest_limits(asked: &AskedPlaces<'_>, questions: &[Question]) -> Vec<Hits> {
    let mut limits = vec![Hits::ZERO; asked.places.len()];
    for (question, slots) in asked.with_slots(questions) {
        for (counter, slot) in slots.iter().enumerate() {
            let of_counter = question.limits.iter().filter(|it| it.counter == counter);
            let largest = of_counter.map(|it| it.hits).max().unwrap_or(Hits::MAX);
            if let Some(limit) = limits.get_mut(*slot) {
                *limit = largest.max(*limit);
            }
        }
    }
    limits
}

/// Reads the times of `obstacles`, as far as the server has them.
pub(super) async fn find_obstacles(
    connection: &Connection,
    asked: &AskedPlaces<'_>,
    obstacles: &mut Obstacles,
) -> Result<(), Fault> {
    let wanted: Vec<Obstacle> = obstacles.keys().copied().collect();
    let places = wanted.iter().filter_map(|(place, _)| asked.places.get(*place));
    let places: Vec<&AskedPlace<'_>> = places.collect();
    if places.is_empty() {
        return Ok(());
    }
    let (namespaces, numbers): (Vec<_>, Vec<_>) =
        asked.shards.iter().map(|it| row::name(it)).unzip();
    let column = |of: fn(&&AskedPlace<'_>) -> i64| places.iter().map(of).collect::<Vec<_>>();
    let shards = column(|it| row::signed(it.shard).saturating_add(1));
    let sizes = column(|it| it.size.millis().cast_signed());
    let keys: Vec<_> = places.iter().map(|it| it.key).collect();
    let rests: Vec<_> = wanted.iter().map(|(_, rest)| *rest).collect();
    let parameters: [&(dyn ToSql + Sync); 6] =
        [&namespaces, &numbers, &shards, &sizes, &keys, &rests];
    let statement = connection.statement(Prepared::FindObstacles)?;
    for row in connection.client.query(statement, &parameters).await? {
        let number: i64 = row.try_get(0)?;
        let index = usize::try_from(number.saturating_sub(1)).ok();
        let wanted = index.and_then(|index| wanted.get(index));
        let time = wanted.and_then(|wanted| obstacles.get_mut(wanted));
        let time = time.ok_or(Fault::Misunderstood("find_obstacles.sql"))?;
        *time = row.try_get::<_, Option<i64>>(1)?.unwrap_or_default();
    }
    Ok(())
}

/// A log to change.
pub(super) struct ChangedLog<'q> {
    pub(super) place: AskedPlace<'q>,
    pub(super) epoch: Epoch,
    pub(super) found: FoundLog,
    pub(super) change: LogChange,
}

/// Writes logs, in the order of their shards, sizes and keys.
pub(super) async fn change(
    connection: &Connection,
    mut logs: Vec<ChangedLog<'_>>,
) -> Result<(), Fault> {
    logs.sort_by_key(|it| (it.place.shard, it.place.size, it.place.key));
    // Sent together, in this order.
    let (lowered, added) = join(lower(connection, &logs), add(connection, &logs)).await;
    lowered.and(added)
}

async fn lower(connection: &Connection, logs: &[ChangedLog<'_>]) -> Result<(), Fault> {
    let lowered = logs.iter().filter_map(|it| it.change.lowered.map(|sum| (it, sum)));
    let (logs, sums): (Vec<_>, Vec<_>) = lowered.unzip();
    if logs.is_empty() {
        return Ok(());
    }
    let names = LogNames::of(&logs);
    let parameters: [&(dyn ToSql + Sync); 5] =
        [&names.epochs, &names.sizes, &names.keys, &names.logs, &sums];
    let statement = connection.statement(Prepared::LowerLogs)?;
    connection.client.execute(statement, &parameters).await?;
    Ok(())
}

async fn add(connection: &Connection, logs: &[ChangedLog<'_>]) -> Result<(), Fault> {
    let added = logs.iter().filter_map(|it| it.change.added.map(|entry| (it, entry)));
    let (logs, entries): (Vec<_>, Vec<NewEntry>) = added.unzip();
    if logs.is_empty() {
        return Ok(());
    }
    let names = LogNames::of(&logs);
    let column = |of: fn(&NewEntry) -> i64| entries.iter().map(of).collect::<Vec<_>>();
    let blocks: Vec<_> = entries.iter().map(|it| it.block.map(|(at, _)| at)).collect();
    let kept: Vec<_> = entries.iter().map(|it| it.block.map_or(0, |(_, length)| length)).collect();
    let (times, sums) = (column(|it| it.at), column(|it| it.sum));
    let (numbers, bases) = (column(|it| it.number), column(|it| it.base));
    let gone: Vec<_> = entries.iter().map(|it| it.gone_block).collect();
    let lives = logs.iter().map(|it| {
        let life = Duration::from_millis(it.place.size.millis()).saturating_add(CLOCK_MARGIN);
        i64::try_from(life.as_millis()).unwrap_or(i64::MAX)
    });
    let lives: Vec<_> = lives.collect();
    let parameters: [&(dyn ToSql + Sync); 12] = [
        &names.epochs,
        &names.sizes,
        &names.keys,
        &names.logs,
        &blocks,
        &kept,
        &times,
        &sums,
        &numbers,
        &bases,
        &gone,
        &lives,
    ];
    let statement = connection.statement(Prepared::AddToLogs)?;
    connection.client.execute(statement, &parameters).await?;
    Ok(())
}

/// Names of logs as arrays.
struct LogNames<'q> {
    epochs: Vec<i64>,
    sizes: Vec<i64>,
    keys: Vec<&'q [u8]>,
    logs: Vec<i64>,
}

impl<'q> LogNames<'q> {
    fn of(logs: &[&ChangedLog<'q>]) -> LogNames<'q> {
        let column = |of: fn(&ChangedLog<'q>) -> i64| logs.iter().map(|it| of(it)).collect();
        LogNames {
            epochs: column(|it| it.epoch.0.get().cast_signed()),
            sizes: column(|it| it.place.size.millis().cast_signed()),
            keys: logs.iter().map(|it| it.place.key).collect(),
            logs: column(|it| it.found.log),
        }
    }
}
