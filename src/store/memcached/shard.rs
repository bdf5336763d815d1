//! A shard in memcached: reads that see whole transactions, and transactions.

use core::time::Duration;
use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::head::{ItemWrite, ShardHead};
use super::index::{self, IndexPage};
use super::wire::{Expected, MetaConnection, MetaReply, Requests};
use crate::policy::window::UnixMillis;
use crate::store::contract::error::{Failure, Refusal};
use crate::store::contract::strategy::{CLOCK_MARGIN, Epoch, NodeId, Shard};
use crate::store::keyed::change::{CHANGE_LIFE, LoggedChange};
use crate::store::keyed::decide::ChangedValues;
use crate::store::keyed::name::{self, CounterId};
use crate::store::keyed::value::now;

/// The transactions of shards whose writes this client has found done, by the names of their heads.
pub(super) type DoneTransactions = HashMap<Vec<u8>, (Epoch, u64)>;

/// A shard, by a connection to its server.
pub(super) struct ShardSession<'a> {
    connection: &'a mut MetaConnection,
    done: &'a mut DoneTransactions,
    /// The beginning of all names.
    prefix: String,
    /// CAS numbers of the items that were read since the head, by their names.
    seen: BTreeMap<Vec<u8>, u64>,
}

/// A head as it was read.
#[derive(Debug, Default)]
pub(super) struct ReadHead {
    /// `None` if there is none, or somebody else wrote it.
    pub(super) head: Option<ShardHead>,
    /// `None` if there is no item.
    cas: Option<u64>,
}

/// An item as it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Item {
    /// The value, after the number of its transaction. `None` if there is no item, or somebody else wrote it.
    pub(super) value: Option<Vec<u8>>,
    cas: Option<u64>,
    /// Number of the transaction that wrote it.
    number: u64,
}

impl ReadHead {
    /// Returns the head, if it is of this epoch.
    pub(super) fn of_epoch(&self, epoch: Epoch) -> Option<&ShardHead> {
        self.head.as_ref().filter(|head| head.epoch == epoch)
    }

    fn expected(&self) -> Expected {
        self.cas.map_or(Expected::Missing, Expected::Unchanged)
    }
}

impl Item {
    fn of(reply: MetaReply) -> Item {
        let MetaReply::Value(value, cas) = reply else {
            return Item::default();
        };
        let space = value.iter().position(|byte| *byte == b' ');
        let parts =
            space.and_then(|at| Some((value.get(..at)?, value.get(at.saturating_add(1)..)?)));
        let number = parts.and_then(|(number, _)| str::from_utf8(number).ok()?.parse().ok());
        match (number, parts) {
            (Some(number), Some((_, rest))) => {
                Item { value: Some(rest.into()), cas: Some(cas), number }
            }
            // No value of any kind is empty.
            _ => Item { value: Some(Vec::new()), cas: Some(cas), number: 0 },
        }
    }
}

/// Returns the Unix time in milliseconds at which an item ends that matters for `life`.
fn end_of(life: Duration, now: UnixMillis) -> u64 {
    now.0.saturating_add(u64::try_from(life.as_millis()).unwrap_or(u64::MAX))
}

impl<'a> ShardSession<'a> {
    pub(super) fn new(
        connection: &'a mut MetaConnection,
        done: &'a mut DoneTransactions,
        prefix: &str,
        Shard { namespace, number }: &Shard,
    ) -> ShardSession<'a> {
        let prefix = format!("{prefix}/{namespace}/{number}/");
        ShardSession { connection, done, prefix, seen: BTreeMap::new() }
    }

    fn head_name(&self) -> Vec<u8> {
        format!("{}head", self.prefix).into()
    }

    /// Returns the name of an item of an epoch. A long one, or one of other bytes than visible ones, is digested.
    fn name(&self, epoch: Epoch, name: &[u8]) -> Vec<u8> {
        let prefix = format!("{}{epoch}/", self.prefix);
        let is_plain = name.iter().all(u8::is_ascii_graphic);
        if is_plain && prefix.len().saturating_add(name.len()) <= LONGEST_NAME {
            return [prefix.as_bytes(), name].concat();
        }
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(name));
        format!("{prefix}#{digest}").into()
    }

    /// Reads the head, with which everything begins anew.
    pub(super) async fn head(&mut self) -> Result<ReadHead, Failure> {
        self.seen.clear();
        let mut requests = Requests::default();
        requests.get(&self.head_name());
        let reply = self.connection.exchange(&requests).await?.pop();
        Ok(match reply {
            Some(MetaReply::Value(value, cas)) => {
                ReadHead { head: ShardHead::parse(&value), cas: Some(cas) }
            }
            _ => ReadHead::default(),
        })
    }

    /// Reads items by their names in the epoch of `head`, after all writes of its transaction are done.
    pub(super) async fn read(
        &mut self,
        head: &ShardHead,
        names: &[Vec<u8>],
    ) -> Result<Vec<Item>, Failure> {
        let is_done = self.done.get(&self.head_name()) == Some(&(head.epoch, head.number));
        let writes = if is_done { &[][..] } else { &head.writes };
        loop {
            let mut requests = Requests::default();
            for name in writes.iter().map(|it| &it.name).chain(names) {
                requests.get(&self.name(head.epoch, name));
            }
            if requests.is_empty() {
                return Ok(Vec::new());
            }
            let replies = self.connection.exchange(&requests).await?;
            let mut items: Vec<_> = replies.into_iter().map(Item::of).collect();
            let found = items.split_off(writes.len());
            let seen =
                names.iter().zip(&found).filter_map(|(name, it)| Some((name.clone(), it.cas?)));
            self.seen.extend(seen);
            let left = writes.iter().zip(items).filter(|(_, item)| item.number < head.number);
            let left = left.map(|(write, item)| (write, item.cas));
            let written = self.write(head, left).await?;
            if written.contains(&MetaReply::NoMemory) {
                return Err(Failure::Refused(Refusal::OutOfMemory));
            }
            if written.is_empty() {
                if !writes.is_empty() {
                    self.done.insert(self.head_name(), (head.epoch, head.number));
                }
                return Ok(found);
            }
        }
    }

    /// Does writes of a transaction, unless others have done them. Returns the replies; none if there was nothing to do.
    async fn write<'w>(
        &mut self,
        head: &ShardHead,
        writes: impl Iterator<Item = (&'w ItemWrite, Option<u64>)>,
    ) -> Result<Vec<MetaReply>, Failure> {
        /// Seconds that are no Unix time, and the last Unix time that memcached knows.
        const MONTH: u64 = 30 * 24 * 60 * 60;
        const LAST: u64 = i32::MAX as u64;
        let (now, mut requests) = (now().0, Requests::default());
        for (ItemWrite { name, value, until }, cas) in writes.filter(|(it, _)| it.until > now) {
            // memcached's clock has only seconds, and is late.
            let left = (until.saturating_sub(now) / 1000).saturating_add(2);
            let seconds = match until / 1000 {
                _ if left <= MONTH => left,
                until if until <= LAST => until,
                _ => 0,
            };
            let value = [format!("{} ", head.number).as_bytes(), value].concat();
            let expected = cas.map_or(Expected::Missing, Expected::Unchanged);
            requests.set(&self.name(head.epoch, name), &value, seconds, expected);
        }
        match requests.is_empty() {
            true => Ok(Vec::new()),
            false => self.connection.exchange(&requests).await,
        }
    }

    /// Changes values, and with that the shard, unless the head has changed. `next` is the next head without writes.
    /// Returns whether it was changed. If counters are found to be lost, ends the epoch instead.
    pub(super) async fn change(
        &mut self,
        found: &ReadHead,
        mut next: ShardHead,
        by: (NodeId, bool),
        ChangedValues { totals, levels }: ChangedValues<'_>,
    ) -> Result<bool, Failure> {
        let now = now();
        if !(totals.is_empty() && levels.is_empty()) {
            next.number = next.number.saturating_add(1);
            let new = totals.iter().map(|(name, (_, life))| (*name, *life));
            let new = new.filter(|(it, _)| !self.seen.contains_key(&name::counter(*it)));
            let new = new.collect();
            let Some(index) = self.add_to_index(found, &mut next, new, now).await? else {
                self.end(found).await?;
                return Ok(false);
            };
            let change = LoggedChange::new(next.number, by, &totals);
            let totals = totals.into_iter().map(|(name, (total, life))| {
                (name::counter(name), total.to_string().into_bytes(), life)
            });
            let levels = levels.into_iter().map(|(name, (level, life))| (name, level.into(), life));
            let change = (name::change(next.number).into(), change.to_value(), CHANGE_LIFE);
            let writes = totals.chain(levels).chain(index).chain([change]);
            next.writes = writes
                .map(|(name, value, life)| ItemWrite { name, value, until: end_of(life, now) })
                .collect();
        }
        if !self.replace(found, &next).await? {
            return Ok(false);
        }
        let writes = next.writes.iter().map(|it| (it, self.seen.get(&it.name).copied()));
        let writes: Vec<_> = writes.collect();
        let written = self.write(&next, writes.into_iter()).await;
        // Whoever reads next does what was not done.
        if written.map_err(Failure::after_sending)?.iter().all(|it| *it == MetaReply::Done) {
            self.done.insert(self.head_name(), (next.epoch, next.number));
        }
        Ok(true)
    }

    /// Adds new counters to the indexes of their windows. Returns the pages to write, with the time for which each
    /// matters. `None` if a page or one of the counters is not new, but was lost.
    async fn add_to_index(
        &mut self,
        found: &ReadHead,
        next: &mut ShardHead,
        new: Vec<(CounterId<'_>, Duration)>,
        now: UnixMillis,
    ) -> Result<Option<Vec<(Vec<u8>, Vec<u8>, Duration)>>, Failure> {
        let mut windows: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((size, window, key), life) in new {
            windows.entry((size, window)).or_default().push((key, life));
        }
        let names = windows.keys().map(|(size, window)| {
            let row = next.windows.get(&(size.bits(), *window));
            index::page_name(*size, *window, row.map_or(0, |it| it.page))
        });
        let names: Vec<_> = names.collect();
        let pages = match &found.head {
            Some(head) => self.read(head, &names).await?,
            None => Vec::new(),
        };
        let mut items = Vec::new();
        for (((size, window), new), page) in windows.into_iter().zip(pages) {
            let page = page.value.and_then(|it| IndexPage::parse(&it));
            if page.is_none() && next.windows.contains_key(&(size.bits(), window)) {
                return Ok(None);
            }
            let row = next.windows.entry((size.bits(), window)).or_default();
            let (mut page, mut longest) = (page.unwrap_or_default(), Duration::ZERO);
            for (key, life) in new {
                // As long as that, an item is kept.
                if life > CLOCK_MARGIN && page.0.iter().any(|it| it == key) {
                    return Ok(None);
                }
                longest = longest.max(life);
                row.until = row.until.max(end_of(longest, now));
                if page.is_full() {
                    let name = index::page_name(size, window, row.page);
                    items.push((name, page.to_value(), longest));
                    row.page = row.page.saturating_add(1);
                    page = IndexPage::default();
                }
                page.0.push(key.into());
            }
            items.push((index::page_name(size, window, row.page), page.to_value(), longest));
        }
        Ok(Some(items))
    }

    /// Replaces the head, unless it has changed.
    async fn replace(&mut self, found: &ReadHead, next: &ShardHead) -> Result<bool, Failure> {
        let mut requests = Requests::default();
        requests.set(&self.head_name(), &next.to_value(), 0, found.expected());
        let replies = self.connection.exchange(&requests).await?;
        match replies.as_slice() {
            [MetaReply::NoMemory] => Err(Failure::Refused(Refusal::OutOfMemory)),
            replies => Ok(replies == [MetaReply::Done]),
        }
    }

    /// Opens an epoch, unless the head has changed.
    pub(super) async fn open(&mut self, found: &ReadHead, epoch: Epoch) -> Result<bool, Failure> {
        self.replace(found, &ShardHead::new(epoch)).await
    }

    /// Ends an epoch that has lost values, or has some that somebody else wrote, unless the head has changed.
    pub(super) async fn end(&mut self, found: &ReadHead) -> Result<(), Failure> {
        if let Some(cas) = found.cas {
            let mut requests = Requests::default();
            requests.delete(&self.head_name(), cas);
            self.connection.exchange(&requests).await?;
        }
        Ok(())
    }
}

/// Longest name of an item.
const LONGEST_NAME: usize = 250;
