//! The lease for a store's channel: one worker of the node listens, so that the node has one
//! connection for that.
//!
//! A lease is a word, as a sync [lease](crate::table::Lease): the term and the deadline, which is 0
//! after a release. If two workers listen for a moment, that does no harm.

use crate::table::words::fail::fail_point;
use crate::table::zone::named::Named;
use crate::table::zone::sync_slot::LeaseWord;
use crate::table::zone::sync_state::MonotonicMillis;

/// The lease for a store's channel, as the processes of a configuration see it.
#[derive(Clone, Copy, Debug)]
pub struct ChannelLease<'m> {
    word: Named<'m>,
}

/// The held lease. Dropping it releases the lease.
#[derive(Debug)]
pub struct HeldChannel<'m> {
    lease: ChannelLease<'m>,
    term: u64,
}

impl<'m> ChannelLease<'m> {
    /// Creates the lease in `word` for a new configuration, whose workers can take it at once.
    pub fn new(word: Named<'m>) -> ChannelLease<'m> {
        let next = |old| Some(LeaseWord::new(LeaseWord(old).term().wrapping_add(1), 0).0);
        word.update(next);
        ChannelLease { word }
    }

    /// Opens the lease in `word` for another process of the current configuration.
    pub fn join(word: Named<'m>) -> ChannelLease<'m> {
        ChannelLease { word }
    }

    /// Takes the lease for `lifetime` milliseconds, if no worker holds it at `now`.
    pub fn take(&self, now: MonotonicMillis, lifetime: u64) -> Option<HeldChannel<'m>> {
        let taken = self.word.update(|old| {
            let old = LeaseWord(old);
            let deadline = now.0.saturating_add(lifetime);
            let new = LeaseWord::new(old.term().wrapping_add(1), deadline);
            (old.deadline() <= now.0).then_some(new.0)
        });
        fail_point!("channel.taken");
        taken.map(|(_, new)| HeldChannel { lease: *self, term: LeaseWord(new).term() })
    }
}

impl HeldChannel<'_> {
    /// Extends the lease to `lifetime` milliseconds from `now`. Returns false if another worker has
    /// taken it.
    pub fn renew(&self, now: MonotonicMillis, lifetime: u64) -> bool {
        let deadline = now.0.saturating_add(lifetime);
        self.replace(LeaseWord::new(self.term, deadline));
        fail_point!("channel.renewed");
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
        fail_point!("channel.released");
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
