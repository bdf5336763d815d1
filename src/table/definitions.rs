//! Namespaces that workers define while a configuration is served: what the zone remembers of each, so that
//! all workers define one alike.
//!
//! One process at a time defines. The first one of a configuration begins the namespace's sync anew, which
//! workers of the configurations before leave to it then; all others join. A process that dies on the way leaves
//! a namespace without a definition, which the next one makes.

use core::fmt;

use super::words::atomic::AtomicU64;
use super::words::atomic::Ordering::{Acquire, Relaxed, Release};
use super::words::fail::fail_point;
use super::words::meta::NamespaceIndex;
use super::zone::counter_table::CounterTable;
use super::zone::sync_state::SyncState;

/// A definition of a namespace by a worker.
#[derive(Clone, Copy, Debug)]
pub struct LateDefinition {
    /// The number of the configuration that the worker serves, as [`CounterTable::begin_configuration`] returned it.
    pub configuration: u64,
    /// A hash of what the worker says of the namespace.
    pub fingerprint: u64,
}

/// The reason why a worker cannot define a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateError {
    /// Another worker has defined it otherwise.
    Differs,
    /// A newer configuration has it.
    Superseded,
    /// The directory is full.
    NoRoom,
    /// There are too few places for its sync.
    NoRoomForSync,
}

/// A definition as the zone remembers it, in a word; 0: there is none.
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
        // 0 says that there is none.
        let fingerprint = (definition.fingerprint & Self::FINGERPRINT).max(1);
        DefinitionWord(definition.configuration << 48 | fingerprint)
    }

    fn is_of(self, configuration: u64) -> bool {
        !self.is_none() && (self.0 >> 48) as u16 == configuration as u16
    }

    fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether it is of an older configuration than `other`.
    fn is_before(self, other: DefinitionWord) -> bool {
        let (own, other) = ((self.0 >> 48) as u16, (other.0 >> 48) as u16);
        (own.wrapping_sub(other) as i16) < 0
    }

    fn says_the_same(self, other: DefinitionWord) -> bool {
        (self.0 ^ other.0) & Self::FINGERPRINT == 0
    }
}

impl<'m> CounterTable<'m> {
    /// Defines the namespace `name`, which is synced in so many shards (0: not at all), or joins those that have
    /// defined it alike.
    ///
    /// Of several processes, one at a time may call it.
    ///
    /// # Errors
    ///
    /// Another worker of this configuration has defined it otherwise; a newer configuration has it; or the zone
    /// has no room.
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
            // What nginx.conf says of it there is not known here.
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
