//! The lease of the worker that listens to a store's channel: one worker, so that a node has one
//! connection for it.
//!
//! A word, as a [lease](crate::table::Lease) has one: the term, and until when, 0 if it was given back. Nothing
//! depends on it but that; two that listen for a moment do no harm.

use crate::table::zone::named::Named;
use crate::table::zone::sync_slot::LeaseWord;
use crate::table::zone::sync_state::MonotonicMillis;

/// The right to listen to a store, as the processes of a configuration see it.
#[derive(Clone, Copy, Debug)]
pub struct ChannelLease<'m> {
    word: Named<'m>,
}

/// The right to listen, which is given back with it.
#[derive(Debug)]
pub struct HeldChannel<'m> {
    lease: ChannelLease<'m>,
    term: u64,
}

impl<'m> ChannelLease<'m> {
    /// Creates the lease that is kept in `word`, under a new configuration, whose workers may
    /// listen at once.
    pub fn new(word: Named<'m>) -> ChannelLease<'m> {
        let next = |old| Some(LeaseWord::new(LeaseWord(old).term().wrapping_add(1), 0).0);
        word.update(next);
        ChannelLease { word }
    }

    /// Joins those that keep it in `word`: for one more process of the present configuration.
    pub fn join(word: Named<'m>) -> ChannelLease<'m> {
        ChannelLease { word }
    }

    /// Takes it for `lifetime` milliseconds, if no worker has it at `now`.
    pub fn take(&self, now: MonotonicMillis, lifetime: u64) -> Option<HeldChannel<'m>> {
        let taken = self.word.update(|old| {
            let old = LeaseWord(old);
            let deadline = now.0.saturating_add(lifetime);
            let new = LeaseWord::new(old.term().wrapping_add(1), deadline);
            (old.deadline() <= now.0).then_some(new.0)
        });
        taken.map(|(_, new)| HeldChannel { lease: *self, term: LeaseWord(new).term() })
    }
}

impl HeldChannel<'_> {
    /// Keeps it for `lifetime` milliseconds from `now` on. Returns whether no other worker has taken it.
    pub fn renew(&self, now: MonotonicMillis, lifetime: u64) -> bool {
        let deadline = now.0.saturating_add(lifetime);
        self.replace(LeaseWord::new(self.term, deadline));
        LeaseWord(self.lease.word.get()).term() == self.term
    }

    fn replace(&self, new: LeaseWord) {
        let is_ours = |old| (LeaseWord(old).term() == self.term).then_some(new.0);
        self.lease.word.update(is_ours);
    }
}

impl Drop for HeldChannel<'_> {
    fn drop(&mut self) {
        self.replace(LeaseWord::new(self.term, 0));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::NameKind;
    use crate::testing::table::SharedTable;

    fn lease(shared: &SharedTable) -> ChannelLease<'_> {
        let name = (NameKind::Channel, ["main", "127.0.0.1:6379"]);
        let words = shared.table.claim_words([name].into_iter());
        ChannelLease::new(words[0].unwrap())
    }

    #[test]
    fn one_listens_until_it_stops_or_says_nothing_for_long() {
        let shared = SharedTable::new(1 << 20);
        let (at, lease) = (MonotonicMillis, lease(&shared));
        let first = lease.take(at(1000), 100).unwrap();
        assert!(lease.take(at(1099), 100).is_none());
        assert!(first.renew(at(1099), 100));
        assert!(lease.take(at(1198), 100).is_none());
        let second = lease.take(at(1199), 100).unwrap();
        assert!(!first.renew(at(1200), 100));
        drop(first);
        assert!(lease.take(at(1200), 100).is_none());
        drop(second);
        assert!(lease.take(at(1200), 100).is_some());
    }

    #[test]
    fn a_new_configuration_listens_at_once() {
        let shared = SharedTable::new(1 << 20);
        let at = MonotonicMillis;
        let old = lease(&shared).take(at(1000), 100).unwrap();
        let new = lease(&shared).take(at(1000), 100);
        assert!(new.is_some() && !old.renew(at(1000), 100));
    }
}
