//! Namespaces that workers define while a configuration is served. The zone stores each definition,
//! so that all workers define it alike.
//!
//! One process defines at a time. The first one of a configuration begins a new sync of the
//! namespace, and workers of previous configurations stop syncing it; all others join. If a process
//! dies during this, the namespace has no definition, and the next process defines it.

use core::fmt;

use super::words::atomic::AtomicU64;
use super::words::atomic::Ordering::{Acquire, Relaxed, Release};
use super::words::fail::fail_point;
use super::words::meta::NamespaceIndex;
use super::zone::counter_table::CounterTable;
use super::zone::sync_state::SyncState;

/// A worker's definition of a namespace.
#[derive(Clone, Copy, Debug)]
pub struct LateDefinition {
    /// Number of the worker's configuration, from [`CounterTable::begin_configuration`].
    pub configuration: u64,
    /// Hash of the definition.
    pub fingerprint: u64,
}

/// The reason why a worker cannot define a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateError {
    /// Another worker has defined it differently.
    Differs,
    /// It belongs to a newer configuration.
    Superseded,
    /// The directory is full.
    NoRoom,
    /// There are not enough places for its sync.
    NoRoomForSync,
}

/// A definition as a word in the zone; 0 without one.
///
/// ```text
///  63           48 47          0
/// +---------------+-------------+
/// | configuration | fingerprint |
/// +---------------+-------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
struct DefinitionWord(u64);

impl DefinitionWord {
    const FINGERPRINT: u64 = (1 << 48) - 1;

    fn of(definition: LateDefinition) -> DefinitionWord {
        // 0 is reserved for no definition.
        let fingerprint = (definition.fingerprint & Self::FINGERPRINT).max(1);
        DefinitionWord(definition.configuration << 48 | fingerprint)
    }

    fn is_of(self, configuration: u64) -> bool {
        !self.is_none() && (self.0 >> 48) as u16 == configuration as u16
    }

    fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns whether this belongs to an older configuration than `other`.
    fn is_before(self, other: DefinitionWord) -> bool {
        let (own, other) = ((self.0 >> 48) as u16, (other.0 >> 48) as u16);
        (own.wrapping_sub(other) as i16) < 0
    }

    fn says_the_same(self, other: DefinitionWord) -> bool {
        (self.0 ^ other.0) & Self::FINGERPRINT == 0
    }
}

impl<'m> CounterTable<'m> {
    /// Defines the namespace `name`, for sync in `shards` shards (0 for a local one), or joins the
    /// workers that have defined it alike.
    ///
    /// Only one process at a time may call this.
    ///
    /// # Errors
    ///
    /// Another worker of this configuration has defined it differently; it belongs to a newer
    /// configuration; or the zone has no room.
    pub fn define(
        &self,
        name: &[u8],
        definition: LateDefinition,
        shards: u16,
    ) -> Result<(NamespaceIndex, Vec<SyncState<'m>>), LateError> {
        let (index, entry) = self.entry_for(name).ok_or(LateError::NoRoom)?;
        let definitions: &'m [AtomicU64] = self.parts.definitions;
        let place = definitions.get(index.get()).ok_or(LateError::NoRoom)?;
        let known = DefinitionWord(place.load(Acquire));
        let (new, now) = (DefinitionWord::of(definition), self.configuration());
        let configured = entry.configured.load(Relaxed);
        if shards > 0 && definition.configuration < now && configured == now && !known.is_of(now) {
            // A newer nginx.conf may define it, with options that are unknown here.
            return Err(LateError::Superseded);
        }
        let is_known = !known.is_none() && !known.is_before(new);
        if is_known && !known.says_the_same(new) {
            return Err(LateError::Differs);
        }
        entry.configured.store(configured.max(definition.configuration), Relaxed);
        let join = || match is_known {
            _ if shards == 0 => Some(Vec::new()),
            true => self.join_sync(index, shards),
            false => self.sync_states(index, shards),
        };
        if !is_known {
            place.store(0, Release);
            fail_point!("definition.begun");
        }
        let syncs = join().ok_or(LateError::NoRoomForSync)?;
        if !is_known {
            place.store(new.0, Release);
            fail_point!("definition.made");
        }
        Ok((index, syncs))
    }
}

impl fmt::Display for LateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LateError::Differs => {
                "another worker has defined it otherwise: expected the same store, sync_rate and \
                 window_sizes until nginx is reloaded"
            }
            LateError::Superseded => {
                "a newer configuration has it, and this worker is to end: expected a worker of that one"
            }
            LateError::NoRoom => "the zone has no room for another namespace",
            LateError::NoRoomForSync => {
                "the zone has no room for another namespace that is synced in as many shards"
            }
        })
    }
}

impl core::error::Error for LateError {}
