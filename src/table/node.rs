//! Which node a zone is to stores.

use super::atomic::Ordering::{AcqRel, Acquire};
use super::counter_table::CounterTable;

/// The word of the zone's identity: the present one, and the last one that was logged.
#[derive(Clone, Copy)]
struct IdentityWord(u64);

impl IdentityWord {
    fn new(present: u32, told: u32) -> IdentityWord {
        IdentityWord(u64::from(told) << 32 | u64::from(present))
    }

    fn present(self) -> u32 {
        self.0 as u32
    }

    fn told(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl<'m> CounterTable<'m> {
    /// What tells this node from all others: random, and the same as long as the zone lives, unless
    /// another node turns out to have it too ([`Lease::take_identity`]).
    pub fn node(&self) -> [u64; 2] {
        self.node_of(IdentityWord(self.parts.identity.load(Acquire)).present())
    }

    pub(super) fn node_of(&self, identity: u32) -> [u64; 2] {
        const NODE: u8 = 255;
        let [high, low] = self.hasher.mask(b"node", NODE, 0).0;
        [high ^ u64::from(identity), low]
    }

    /// Takes note that the log is told of the node's present identity; returns whether it was not told
    /// yet, by any worker: then this one is to tell it.
    pub fn note_identity(&self) -> bool {
        let tell = |word| {
            let word = IdentityWord(word);
            let is_news = word.present() != word.told();
            is_news.then(|| IdentityWord::new(word.present(), word.present()).0)
        };
        let told = self.parts.identity.fetch_update(AcqRel, Acquire, tell);
        told.is_ok()
    }

    /// The identity that is taken in place of `old`: `random`, unless there is another one by now.
    pub(super) fn identity_after(&self, old: u32, random: u32) -> u32 {
        let take = |word| {
            let word = IdentityWord(word);
            let is_old = word.present() == old;
            is_old.then(|| IdentityWord::new(random, word.told()).0)
        };
        match self.parts.identity.fetch_update(AcqRel, Acquire, take) {
            Ok(_) => random,
            Err(word) => IdentityWord(word).present(),
        }
    }
}
