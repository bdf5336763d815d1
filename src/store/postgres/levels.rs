//! Reads and writes levels for decisions.

use core::time::Duration;

use tokio_postgres::types::ToSql;

use super::connection::{Connection, Fault, Prepared};
use super::push::MAX_LIFE;
use super::row;
use crate::policy::algorithm::{Level, LevelKind, StoredKind};
use crate::policy::window::WindowSize;
use crate::store::contract::strategy::{CLOCK_MARGIN, Epoch};
use crate::store::decide::asked::AskedPlace;
use crate::store::decide::stored::StoredCount;

/// The place of a level.
#[derive(Clone, Copy, Debug)]
pub(super) struct LevelPlace<'q> {
    /// The caller's index of the place.
    pub(super) index: usize,
    /// Index of the shard.
    pub(super) shard: usize,
    pub(super) kind: LevelKind,
    pub(super) size: WindowSize,
    /// [`StoredKind::measure`], a part of the row's key.
    pub(super) measure: u64,
    pub(super) key: &'q [u8],
}

impl<'q> LevelPlace<'q> {
    /// Returns the place if it is a level; otherwise `None`.
    pub(super) fn of((index, place): (usize, &AskedPlace<'q>)) -> Option<LevelPlace<'q>> {
        let StoredKind::Level(kind) = place.kind else {
            return None;
        };
        let AskedPlace { shard, size, measure, key, .. } = *place;
        Some(LevelPlace { index, shard, kind, size, measure, key })
    }
}

/// Reads the levels of `places`, by their index. Leaves out places without a row.
pub(super) async fn read(
    connection: &Connection,
    (namespaces, numbers): (&Vec<&str>, &Vec<i32>),
    places: &[LevelPlace<'_>],
) -> Result<Vec<(usize, StoredCount)>, Fault> {
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let shards = places.iter().map(|it| row::signed(it.shard).saturating_add(1));
    let shards: Vec<_> = shards.collect();
    let LevelColumns { kinds, sizes, keys } = LevelColumns::of(places);
    let parameters: [&(dyn ToSql + Sync); 6] =
        [namespaces, numbers, &shards, &kinds, &sizes, &keys];
    let statement = connection.statement(Prepared::ReadLevels)?;
    let rows = connection.client.query(statement, &parameters).await?;
    let mut levels = Vec::with_capacity(rows.len());
    for row in rows {
        let number: i64 = row.try_get(0)?;
        let place = usize::try_from(number.saturating_sub(1)).ok();
        let place = place.and_then(|index| places.get(index));
        let place = place.ok_or(Fault::Misunderstood("read_levels.sql"))?;
        let (hits, at, first) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
        levels.push((place.index, StoredCount::level(hits, at, first)));
    }
    Ok(levels)
}

/// Writes levels of one shard, which must be in the order of measures and keys.
pub(super) async fn set(
    connection: &Connection,
    epoch: Epoch,
    levels: &[(LevelPlace<'_>, Level)],
) -> Result<(), Fault> {
    let places: Vec<_> = levels.iter().map(|(place, _)| *place).collect();
    let LevelColumns { kinds, sizes, keys } = LevelColumns::of(&places);
    let column =
        |of: fn(&(LevelPlace<'_>, Level)) -> i64| levels.iter().map(of).collect::<Vec<_>>();
    let (hits, changed, began, lives) = (
        column(|(_, level)| level.hits.thousandths()),
        column(|(_, level)| level.at.0.cast_signed()),
        column(|(_, level)| i64::try_from(level.mark.millis().0).unwrap_or(i64::MAX)),
        column(|(place, level)| {
            let life = match place.kind {
                LevelKind::Elastic => place.size.millis(),
                // The time until the bucket is empty.
                LevelKind::Bucket(_) => level.mark.millis().0.saturating_sub(level.at.0),
            };
            let life = Duration::from_millis(life).saturating_add(CLOCK_MARGIN);
            i64::try_from(life.min(MAX_LIFE).as_millis()).unwrap_or(i64::MAX)
        }),
    );
    let epoch = epoch.0.get().cast_signed();
    let parameters: [&(dyn ToSql + Sync); 8] =
        [&epoch, &kinds, &sizes, &keys, &hits, &changed, &began, &lives];
    let statement = connection.statement(Prepared::SetLevels)?;
    connection.client.execute(statement, &parameters).await?;
    Ok(())
}

/// Names of counters as arrays.
struct LevelColumns<'q> {
    kinds: Vec<i16>,
    sizes: Vec<i64>,
    keys: Vec<&'q [u8]>,
}

impl<'q> LevelColumns<'q> {
    fn of(places: &[LevelPlace<'q>]) -> LevelColumns<'q> {
        let kind = |it: &LevelPlace<'_>| StoredKind::Level(it.kind).wire_id().into();
        LevelColumns {
            kinds: places.iter().map(kind).collect(),
            sizes: places.iter().map(|it| it.measure.cast_signed()).collect(),
            keys: places.iter().map(|it| it.key).collect(),
        }
    }
}
