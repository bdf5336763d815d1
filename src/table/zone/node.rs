//! The node's identity for stores.

use super::counter_table::CounterTable;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire};

/// The word of the zone's identity: the current identity, and the last one that was logged.
#[derive(Clone, Copy)]
struct IdentityWord(u64);

impl IdentityWord {
    fn new(present: u32, logged: u32) -> IdentityWord {
        IdentityWord(u64::from(logged) << 32 | u64::from(present))
    }

    fn present(self) -> u32 {
        self.0 as u32
    }

    fn logged(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl<'m> CounterTable<'m> {
    /// Returns this node's identity. It is random, and constant while the zone exists, unless another node has the same one
    /// ([`Lease::take_identity`](super::lease::Lease::take_identity)).
    pub fn node(&self) -> [u64; 2] {
        self.node_of(IdentityWord(self.parts.identity.load(Acquire)).present())
    }

    /// Returns the identity of this node's decisions by stores. It is not that of its pushes: if the node changes to
    /// a sync that fetches, it learns of decisions whose answers it did not get as it does of other nodes' hits.
    pub fn decider(&self) -> [u64; 2] {
        const DECIDER: u64 = 1 << 63;
        let [high, low] = self.node();
        [high ^ DECIDER, low]
    }

    pub(crate) fn node_of(&self, identity: u32) -> [u64; 2] {
        const NODE: u8 = 255;
        let [high, low] = self.hasher.mask(b"node", NODE, 0).0;
        [high ^ u64::from(identity), low]
    }

    /// Records that the current identity is logged. Returns whether no worker had recorded it, so
    /// that this one must log it.
    pub fn record_identity(&self) -> bool {
        let note = |word| {
            let word = IdentityWord(word);
            let is_new = word.present() != word.logged();
            is_new.then(|| IdentityWord::new(word.present(), word.present()).0)
        };
        let logged = self.parts.identity.fetch_update(AcqRel, Acquire, note);
        logged.is_ok()
    }

    /// Returns the identity that replaces `old`: `random`, unless it was replaced before.
    pub(crate) fn identity_after(&self, old: u32, random: u32) -> u32 {
        let take = |word| {
            let word = IdentityWord(word);
            let is_old = word.present() == old;
            is_old.then(|| IdentityWord::new(random, word.logged()).0)
        };
        match self.parts.identity.fetch_update(AcqRel, Acquire, take) {
            Ok(_) => random,
            Err(word) => IdentityWord(word).present(),
        }
    }
}
