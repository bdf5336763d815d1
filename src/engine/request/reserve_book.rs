//! A worker's reserves: when it asks for the next part of one, how large the part is, and when it
//! gives the rest back.
//!
//! The hits to spend are in the table, for all workers of the node. If a worker is killed, only
//! this book is lost. Other workers still spend from the reserves, and each worker that spends from
//! one has it in its own book. Hits that no worker spends stay charged until their window ends.

use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use smallvec::smallvec;

use super::spending::{At, Spending, SpentReserve};
use super::synchronous::LimitCheck;
use crate::engine::identity_map::IdentityMap;
use crate::engine::sync::shard_sync::record_decided;
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::reserve::{FIRST_PART, part, room_for};
use crate::policy::window::{Clock, UnixMillis};
use crate::store::contract::decision::{Answer, AskedCounter, AskedLimit, Few, Question};
use crate::table::{Counter, CounterTable, Identity, Reserve, SyncState};

/// A question to a decider for a part of a reserve. No request waits for it.
#[derive(Debug)]
pub struct PartQuestion {
    /// The number of the decider.
    pub decider: usize,
    /// Number that identifies the answer.
    pub id: u64,
    /// The question itself.
    pub question: Question,
    /// Whether it may be sent up to [`ReserveBook::SOON`] later, together with others, since the
    /// rest of the reserve lasts longer.
    pub can_wait: bool,
}

/// The reserves that a worker uses.
#[derive(Debug)]
pub struct ReserveBook<'m> {
    held: IdentityMap<HeldReserve<'m>>,
    /// The reserve of each question without an answer.
    asked: HashMap<u64, Identity>,
    next_id: u64,
    /// Step between the numbers of questions.
    step: u64,
    /// Times at which reserves are checked, in order.
    looks: VecDeque<(Duration, Identity)>,
}

/// A reserve, and the data for refilling it and giving it back.
#[derive(Debug)]
struct HeldReserve<'m> {
    table: &'m CounterTable<'m>,
    /// The key's counter, which the store has charged.
    counter: Counter,
    reserve: Reserve,
    sync: SyncState<'m>,
    algorithm: Algorithm,
    limit: Hits,
    decider: usize,
    /// The counter in questions to the store, with a cost of zero.
    asked: AskedCounter,
    /// Size of the next part.
    wanted: Hits,
    /// Size of the last part, and the time at which it was asked for.
    part: Hits,
    part_at: Duration,
    /// The question without an answer; `None` if there is none.
    question: Option<u64>,
    /// The window, and the hits spent in it, at the last check.
    seen: (u64, Hits),
    /// Checks in a row without a change.
    idle: u32,
}

impl<'m> ReserveBook<'m> {
    /// Interval of checks of a reserve. A reserve from which nothing is spent in two intervals is
    /// given back.
    pub const LOOK: Duration = Duration::from_millis(200);
    /// Longest delay of a question that can wait for others: an exchange costs store and node far
    /// more than a question.
    pub const SOON: Duration = Duration::from_millis(50);
    /// Shortest time in which the first half of a part is spent, if the second half is to last
    /// until the next part arrives.
    const LASTING: Duration = Duration::from_millis(250);
    /// Most reserves that one call checks.
    const LOOKS: usize = 1000;
    /// Most reserves in the book.
    const CAPACITY: usize = 16_384;
    /// Time after which an answer is no longer expected.
    const LOST: Duration = Duration::from_secs(2);

    /// Creates an empty book. Its questions have the numbers `first_id`, `first_id + step` and so
    /// on.
    pub fn new(first_id: u64, step: u64) -> Self {
        ReserveBook {
            held: IdentityMap::default(),
            asked: HashMap::new(),
            next_id: first_id,
            step,
            looks: VecDeque::new(),
        }
    }

    /// Returns whether the book is empty.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the questions to send with a request that could not spend from reserves: one for a
    /// part of each counter that was also asked about a moment ago, if all limits that stores
    /// decide support reserves. Times are as in [`spend`](crate::engine::spend); `now` is of a
    /// clock that is never set.
    pub fn ask_along(
        &mut self,
        checks: &[LimitCheck<'_, 'm>],
        time_of: impl Fn(usize) -> Option<UnixMillis>,
        now: Duration,
        clock: &impl Clock,
    ) -> Few<PartQuestion> {
        let mut asked = checks.iter().filter(|check| check.store.is_some());
        if !asked.all(|check| check.bound.reserve(*check.key, check.hits).is_some()) {
            return Few::new();
        }
        let asked = checks.iter().filter(|check| {
            let LimitCheck { bound, key, .. } = check;
            check.store.is_some() && bound.table.was_used_lately(&bound.counter, **key, clock.now())
        });
        let questions = asked.filter_map(|check| {
            let time = time_of(check.decider()?)?;
            let asked = self.ask(check, now, time, clock)?;
            // A request is waiting for the exchange anyway.
            Some(PartQuestion { can_wait: false, ..asked })
        });
        questions.collect()
    }

    /// Returns the questions after a request has spent from reserves: for the next part of each
    /// reserve of whose last part the request has used up the first half.
    pub fn ask_again(
        &mut self,
        checks: &[LimitCheck<'_, 'm>],
        spending: &Spending<'m>,
        time_of: impl Fn(usize) -> Option<UnixMillis>,
        now: Duration,
        clock: &impl Clock,
    ) -> Few<PartQuestion> {
        let questions = spending.spent.iter().filter_map(|of_one| {
            let SpentReserve { reserve, spent, .. } = of_one;
            let check = checks.get(of_one.check)?;
            let half = match self.held.get(&reserve.identity()) {
                Some(held) => Hits::from_thousandths(held.part.thousandths() / 2),
                // Another worker has asked for the part.
                None => {
                    self.hold(check, *reserve, spent.left, now)?;
                    return None;
                }
            };
            // Only one of all workers crosses the half.
            let is_half = spent.left <= half && spent.left.plus(check.cost) > half;
            let decider = is_half.then(|| check.decider())??;
            self.ask(check, now, time_of(decider)?, clock)
        });
        questions.collect()
    }

    fn ask(
        &mut self,
        check: &LimitCheck<'_, 'm>,
        now: Duration,
        time: UnixMillis,
        clock: &impl Clock,
    ) -> Option<PartQuestion> {
        let LimitCheck { bound, hits: limit, key, cost, .. } = *check;
        let reserve = bound.reserve(*key, limit)?;
        if !bound.may_charge_ahead() {
            return None;
        }
        let id = self.next_id;
        let held = self.hold(check, reserve, Hits::ZERO, now)?;
        let is_lost = held.part_at.saturating_add(Self::LOST) <= now;
        let before = held.question.filter(|_| !is_lost);
        if before.is_some() || !held.table.make_room_for_reserve(&reserve, clock) {
            return None;
        }
        let lasted = now.saturating_sub(held.part_at);
        let last = held.part;
        held.learn(lasted, cost);
        let reading = held.table.read(&held.counter, *key, &At(time));
        let remains = held.algorithm.remaining(reserve.size(), &reading, limit);
        let window = reserve.size().at(time).number;
        let left = held.table.reserved(&reserve, window, time).left();
        let nodes = held.sync.nodes();
        let part = part(held.wanted, remains, left, cost, nodes)?;
        let lost = held.question.replace(id);
        (held.part, held.part_at) = (part, now);
        let question = PartQuestion {
            decider: held.decider,
            id,
            question: held.question(part, room_for(part, nodes)),
            can_wait: lasted >= Self::LASTING && left.thousandths() >= last.thousandths() / 4,
        };
        lost.and_then(|lost| self.asked.remove(&lost));
        self.asked.insert(id, reserve.identity());
        self.next_id = id.wrapping_add(self.step);
        Some(question)
    }

    /// Returns the entry of a reserve, which is created if needed.
    fn hold(
        &mut self,
        check: &LimitCheck<'_, 'm>,
        reserve: Reserve,
        part: Hits,
        now: Duration,
    ) -> Option<&mut HeldReserve<'m>> {
        let identity = reserve.identity();
        if !self.held.contains_key(&identity) {
            let (deciders, bound) = (check.store?, check.bound);
            if self.held.len() >= Self::CAPACITY {
                return None;
            }
            let kind = bound.counter.kind();
            let held = HeldReserve {
                table: bound.table,
                counter: bound.counter,
                reserve,
                sync: bound.living()?,
                algorithm: bound.limit.algorithm,
                limit: check.hits,
                decider: check.decider()?,
                asked: deciders.counter(bound, kind, *check.key, Hits::ZERO),
                wanted: Hits::ZERO,
                part,
                part_at: now,
                question: None,
                seen: (0, Hits::ZERO),
                idle: 0,
            };
            self.held.insert(identity, held);
            self.looks.push_back((now.saturating_add(Self::LOOK), identity));
        }
        self.held.get_mut(&identity)
    }

    /// Takes the answer to question `id`; `None` if the store has failed.
    pub fn take(&mut self, id: u64, answer: Option<&Answer>, clock: &impl Clock) {
        let identity = self.asked.remove(&id);
        if let Some(held) = identity.and_then(|it| self.held.get_mut(&it)) {
            if held.question == Some(id) {
                held.question = None;
            }
            if let Some(answer) = answer {
                held.take(answer, clock);
            }
        }
    }

    /// Checks the reserves that are due, and gives back those that are not used and those of ended
    /// windows. Adds namespaces with hits that a sync must push to `given_back`.
    pub fn look(
        &mut self,
        time_of: impl Fn(usize) -> Option<UnixMillis>,
        now: Duration,
        clock: &impl Clock,
        given_back: &mut Few<Arc<str>>,
    ) {
        for _ in 0..Self::LOOKS {
            let due = self.looks.front().is_some_and(|(at, _)| *at <= now);
            let Some((_, identity)) = due.then(|| self.looks.pop_front()).flatten() else {
                break;
            };
            let Some(held) = self.held.get_mut(&identity) else {
                continue;
            };
            let mut is_idle = false;
            if let Some(time) = time_of(held.decider) {
                let (window, before) = held.windows(time);
                let mut is_given_back = held.give_back(before, time, clock);
                is_idle = held.record_idleness(window, time);
                is_given_back |= is_idle && held.give_back(window, time, clock);
                if is_given_back {
                    note(given_back, &held.asked.shard.namespace);
                }
            }
            if held.part_at.saturating_add(Self::LOST) <= now {
                held.question.take().and_then(|lost| self.asked.remove(&lost));
            }
            match is_idle && held.question.is_none() {
                true => drop(self.held.remove(&identity)),
                false => self.looks.push_back((now.saturating_add(Self::LOOK), identity)),
            }
        }
    }

    /// Gives back all reserves, before this process ends or stops asking.
    pub fn give_all_back(
        &mut self,
        time_of: impl Fn(usize) -> Option<UnixMillis>,
        clock: &impl Clock,
    ) {
        for (_, held) in self.held.drain() {
            if let Some(time) = time_of(held.decider) {
                let (window, before) = held.windows(time);
                held.give_back(before, time, clock);
                held.give_back(window, time, clock);
            }
        }
        self.asked.clear();
        self.looks.clear();
    }
}

/// Adds a namespace, unless it is there already.
fn note(namespaces: &mut Few<Arc<str>>, namespace: &Arc<str>) {
    if !namespaces.contains(namespace) {
        namespaces.push(namespace.clone());
    }
}

impl HeldReserve<'_> {
    /// Adapts the size of the next part, so that it lasts for about a second. `lasted` is the time
    /// in which the first half of the last one was spent.
    fn learn(&mut self, lasted: Duration, cost: Hits) {
        let unit = cost.max(Hits::ONE).thousandths();
        let first = Hits::from_thousandths(unit.saturating_mul(FIRST_PART));
        let wanted = self.wanted.thousandths();
        let next = match lasted {
            _ if self.wanted == Hits::ZERO => first,
            _ if lasted < Duration::from_millis(500) => {
                Hits::from_thousandths(wanted.saturating_mul(2))
            }
            _ if lasted > Duration::from_secs(2) => Hits::from_thousandths(wanted / 2),
            _ => self.wanted,
        };
        // A much larger part than the last one would only be given back.
        let most = Hits::from_thousandths(self.part.thousandths().saturating_mul(4));
        self.wanted = next.min(most.max(first)).max(first);
    }

    fn question(&self, part: Hits, room: Hits) -> Question {
        let counter = AskedCounter { cost: part, ..self.asked.clone() };
        let limit =
            AskedLimit { counter: 0, algorithm: self.algorithm, hits: self.limit, cost: room };
        Question { counts_rejected: false, counters: smallvec![counter], limits: smallvec![limit] }
    }

    /// Records the store's count, and the part if it was charged.
    fn take(&mut self, answer: &Answer, clock: &impl Clock) {
        let Some(reading) = answer.readings.first() else {
            return;
        };
        let (table, size) = (self.table, self.reserve.size());
        let (key, counts) = (table.key(&self.asked.key), reading.windows());
        let before = counts.window.wrapping_sub(1);
        for (window, total) in [(before, counts.previous), (counts.window, counts.current)] {
            record_decided(table, &self.counter, key, (window, total), None, clock);
        }
        if answer.admitted.first() != Some(&true) {
            // Other nodes have used up the limit. The remaining hits are known now.
            self.part = Hits::ZERO;
            return;
        }
        let time = At(counts.moment(size));
        if !table.grant(&self.reserve, self.part, counts.window, &time) {
            table.give_back(&self.counter, key, counts.window, self.part, clock);
        }
    }

    /// Returns the current window by the store's clock, and the previous one.
    fn windows(&self, time: UnixMillis) -> (u64, u64) {
        let window = self.reserve.size().at(time).number;
        (window, window.wrapping_sub(1))
    }

    /// Compares the spent hits with those of the last check. Returns whether nothing was spent for
    /// a while.
    fn record_idleness(&mut self, window: u64, time: UnixMillis) -> bool {
        let reserved = self.table.reserved(&self.reserve, window, time);
        let seen = (window, reserved.spent);
        self.idle = match seen == self.seen {
            true => self.idle.saturating_add(1),
            false => 0,
        };
        self.seen = seen;
        self.idle >= 2
    }

    /// Gives back the rest of the reserve in a window. Returns whether there was any.
    fn give_back(&self, window: u64, time: UnixMillis, clock: &impl Clock) -> bool {
        let left = self.table.drain(&self.reserve, window, time);
        let key = self.table.key(&self.asked.key);
        left > Hits::ZERO && self.table.give_back(&self.counter, key, window, left, clock)
    }
}
