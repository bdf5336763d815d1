//! The epoch of a shard, which all nodes agree on.

use core::num::NonZeroU64;

use super::failure::CqlFault;
use super::session::statements::Cql;
use super::session::{Connected, rows};
use crate::policy::window::UnixMillis;
use crate::store::contract::strategy::{Epoch, Shard};

/// Returns the epoch of a shard, and the store's clock.
pub(super) async fn present(
    connected: &Connected,
    shard: &Shard,
) -> Result<Option<(Epoch, UnixMillis)>, CqlFault> {
    let values = (&*shard.namespace, i32::from(shard.number));
    let answer = connected.select(Cql::Epoch, values).await?;
    let row = rows::<(Option<i64>, i64)>(&answer, Cql::Epoch)?.next();
    let Some((epoch, now)) = row.transpose()? else {
        return Ok(None);
    };
    let now = u64::try_from(now).map_err(|_| CqlFault::Misunderstood("a clock before 1970"))?;
    // A zero was written by somebody else.
    let epoch = epoch.and_then(|word| NonZeroU64::new(word.cast_unsigned()));
    Ok(epoch.map(|epoch| (Epoch(epoch), UnixMillis(now))))
}

/// Opens an epoch, as
/// [`Strategy::open_epoch`](crate::store::contract::strategy::Strategy::open_epoch) requires: of
/// several concurrent proposals, one wins.
pub(super) async fn open(
    connected: &Connected,
    shard: &Shard,
    instead_of: Option<Epoch>,
    proposed: Epoch,
) -> Result<Epoch, CqlFault> {
    let new = proposed.0.get().cast_signed();
    let (namespace, number) = (&*shard.namespace, i32::from(shard.number));
    let found = present(connected, shard).await?;
    let (which, answer) = match found {
        None => {
            let (which, values) = (Cql::BeginEpoch, (new, namespace, number));
            (which, connected.select(which, values).await?)
        }
        Some((old, _)) if instead_of == Some(old) => {
            let which = Cql::ReplaceEpoch;
            let values = (new, namespace, number, old.0.get().cast_signed());
            (which, connected.select(which, values).await?)
        }
        Some((present, _)) => return Ok(present),
    };
    // If the statement was not applied, the answer contains the present row.
    if answer.column_specs().get_by_name("epoch").is_none() {
        let is_applied = rows::<(bool,)>(&answer, which)?.next().transpose()?;
        if let Some((true,)) = is_applied {
            return Ok(proposed);
        }
    }
    if let Some((epoch, _)) = present(connected, shard).await? {
        return Ok(epoch);
    }
    // The present value is not a valid epoch.
    let values = (new, namespace, number, 0_i64);
    connected.select(Cql::ReplaceEpoch, values).await?;
    match present(connected, shard).await? {
        Some((epoch, _)) => Ok(epoch),
        None => Err(CqlFault::Misunderstood("an epoch that is there and is not")),
    }
}

/// Returns another epoch to propose. No two shards may have the same, since counters belong to
/// epochs.
pub(super) fn after(Epoch(number): Epoch) -> Epoch {
    Epoch(number.checked_add(1).unwrap_or(NonZeroU64::MIN))
}
