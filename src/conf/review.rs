//! Warnings about legal directives that are probably mistakes. Rules with one key and window share a counter, so that
//! hits of one rule count for the other; nothing would show the other mistakes when requests come.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::rule::{CostText, RuleText};
use super::words::message::Message;
use super::words::nginx::Nginx;
use super::words::text::{is_in_name, same};
use crate::policy::algorithm::{Algorithm, StoredKind};
use crate::policy::calendar::CalendarZone;
use crate::policy::hits::Hits;
use crate::policy::limit::{Quota, QuotaHits};
use crate::policy::options::shown;
use crate::policy::window::WindowSize;

/// The uses of counters by rules: one for each rule and each key with which it applies.
#[derive(Debug, Default)]
pub struct Sharing<'a> {
    /// Uses, by the number of the rule in the order of the configuration, and by the key.
    uses: BTreeMap<(usize, &'a [u8]), Use<'a>>,
}

/// The counters that a rule uses with one key.
#[derive(Debug)]
struct Use<'a> {
    namespace: &'a str,
    /// The key, in the form that equal keys have.
    key: Vec<u8>,
    limits: &'a [WindowLimits],
}

/// The hits of all limits of a rule with one window, or the burst of its rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    counters: LimitedCounters,
    size: WindowSize,
    /// Amounts in the form that equal ones have; sorted.
    hits: Vec<Box<[u8]>>,
}

/// The counters of a rule's limits. Rules with equal values share a counter if their keys are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LimitedCounters {
    /// Number of the kind of stored state, and its measure.
    Known(u8, u64),
    /// A variable rate and its time. It is not known which requests have the same rate as another rule.
    Told(Box<[u8]>, WindowSize),
}

/// Two limits that share a counter and differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared<'a> {
    /// The number of the counter's first rule.
    pub first: usize,
    /// The number of the first rule with the other limit.
    pub second: usize,
    /// The number of rules with the other limit.
    pub places: usize,
    /// The key, as it is written.
    pub key: &'a [u8],
    /// The window, or the time unit of a rate; `None` for a number of requests that are under way.
    pub size: Option<WindowSize>,
}

/// The number of the kind of requests that are under way, which have no window.
const HOLDS: u8 = StoredKind::Holds.wire_id();

impl WindowLimits {
    /// Returns the limits of a rule, by window.
    pub fn of(rule: &RuleText<'_>) -> Vec<WindowLimits> {
        let kind = rule.algorithm.kind();
        let mut windows: BTreeMap<WindowSize, Vec<Box<[u8]>>> = BTreeMap::new();
        for Quota { hits, size, .. } in &rule.quotas {
            let hits = match hits {
                _ if rule.algorithm.is_of_rates() => rule.burst.hits.to_string().into_bytes(),
                QuotaHits::Constant(hits) => hits.to_string().into_bytes(),
                QuotaHits::Variable(text) => same(text),
            };
            windows.entry(*size).or_default().push(hits.into());
        }
        let told = rule.quotas.first().map(|quota| quota.hits);
        let limits = windows.into_iter().map(|(size, mut hits)| {
            hits.sort_unstable();
            hits.dedup();
            let counters = match (told, rule.burst.rate) {
                (Some(QuotaHits::Variable(rate)), None) if rule.algorithm.is_of_rates() => {
                    LimitedCounters::Told(same(rate).into(), size)
                }
                (_, rate) => {
                    let kind = kind.at_rate(rate.unwrap_or_default());
                    LimitedCounters::Known(kind.wire_id(), kind.measure(size))
                }
            };
            WindowLimits { counters, size, hits }
        });
        limits.collect()
    }
}

impl WindowLimits {
    /// Gives a window of the calendar without a time zone this one.
    pub(crate) fn find_zone(&mut self, zone: &CalendarZone) {
        self.size = self.size.in_zone(zone);
        if let LimitedCounters::Known(_, measure) = &mut self.counters
            && self.size.is_of_calendar()
        {
            *measure = StoredKind::Windows.measure(self.size);
        }
    }
}

impl<'a> Sharing<'a> {
    /// Records that the rule with this number has `limits` in `namespace` with the written `key`. An inherited rule
    /// keeps its number.
    pub fn add(
        &mut self,
        rule: usize,
        key: &'a [u8],
        namespace: &'a str,
        limits: &'a [WindowLimits],
    ) {
        self.uses.insert((rule, key), Use { namespace, key: same(key), limits });
    }

    /// Returns the pairs of different limits that share a counter, each once: the limit of the counter's first rule,
    /// and another one. A rule is in at most one pair with each first rule.
    pub fn pairs(&self) -> Vec<Shared<'a>> {
        let mut first_of = BTreeMap::new();
        let mut known = BTreeMap::new();
        let mut pairs: Vec<Shared<'a>> = Vec::new();
        let mut told = None;
        for ((rule, written), Use { namespace, key, limits }) in &self.uses {
            for WindowLimits { counters, size, hits } in *limits {
                let counter = (*namespace, counters, key);
                let (first, others) = match first_of.entry(counter) {
                    Entry::Vacant(place) => {
                        place.insert((*rule, hits));
                        continue;
                    }
                    Entry::Occupied(place) => *place.get(),
                };
                if hits == others || told.replace((first, *rule)) == Some((first, *rule)) {
                    continue;
                }
                let index = *known.entry((counter, hits)).or_insert(pairs.len());
                match pairs.get_mut(index) {
                    Some(pair) => pair.places = pair.places.saturating_add(1),
                    None => {
                        let has_window =
                            !matches!(counters, LimitedCounters::Known(kind, _) if *kind == HOLDS);
                        let size = has_window.then_some(*size);
                        let key = written;
                        pairs.push(Shared { first, second: *rule, places: 1, key, size })
                    }
                }
            }
        }
        pairs
    }
}

/// Warns of a key that is always empty, or that has the name of a variable without its `$`; `what` names the key in the
/// message.
pub(crate) fn warn_of_key(nginx: &mut impl Nginx, what: &str, key: &[u8]) {
    let message = if key.is_empty() {
        format!(
            "{what} is empty, and requests with an empty key are not accounted: expected a variable, or \
             \"ratelimit off;\" if that is meant,"
        )
    } else if let Some(name) = variable_meant(nginx, key) {
        format!(
            "{what} \"{}\" has no variable, so that all requests count together: did you mean ${name}?",
            shown(key)
        )
    } else {
        return;
    };
    nginx.warn(Message::Here(message));
}

/// Returns the variable that was probably meant by a key without variables.
fn variable_meant(nginx: &impl Nginx, key: &[u8]) -> Option<String> {
    // These names are also plain words, so they count only if they stand alone.
    const WORDS: [&[u8]; 4] = [b"uri", b"host", b"args", b"hostname"];
    if key.contains(&b'$') {
        return None;
    }
    let mut names = key.split(|byte| !is_in_name(byte));
    let name = names.find(|name| {
        let is_alone = || key.trim_ascii().len().saturating_sub(name.len()) <= 2;
        let is_name = name.contains(&b'_') || WORDS.contains(name) && is_alone();
        is_name && nginx.has_variable(name)
    });
    name.map(shown)
}

/// Warns of a rule that never admits a request, has a useless key, or has a parameter without effect.
pub(crate) fn warn_of_rule(nginx: &mut impl Nginx, rule: &RuleText<'_>) {
    if let Some(key) = rule.key {
        warn_of_key(nginx, "ratelimit: the key", key);
    }
    if let Some(message) = admits_nothing(rule) {
        nginx.warn(Message::Here(message));
    }
    if rule.burst.delay.is_some() && rule.burst.hits == Hits::ZERO {
        let message = "ratelimit: delay= has no effect without a burst, since what is above the rate is \
                       rejected: expected burst=hits beside it";
        nginx.warn(Message::Here(message.into()));
    }
}

/// Returns a warning if a constant limit is below the constant cost of each request.
fn admits_nothing(rule: &RuleText<'_>) -> Option<String> {
    let cost = match rule.cost {
        CostText::One => Hits::ONE,
        CostText::AtOnce(cost) | CostText::Estimated { cost, .. } => {
            Hits::parse(cost.value).ok()?
        }
        CostText::Deferred(_) => return None,
    };
    let is_rate = rule.algorithm == Algorithm::Bucket;
    let (hits, window) = rule.quotas.iter().find_map(|quota| match quota.hits {
        QuotaHits::Constant(hits) => {
            let most = if is_rate { rule.burst.most(hits) } else { hits };
            (cost > most).then_some((hits, quota.window))
        }
        QuotaHits::Variable(_) => None,
    })?;
    let window = shown(window);
    Some(match is_rate {
        true => format!(
            "ratelimit: \"rate={hits}/{window}\" never admits a request, which costs {cost}: expected \
             burst={} at least",
            cost.minus(Hits::ONE)
        ),
        false => format!(
            "ratelimit: \"limit={hits}/{window}\" never admits a request, which costs {cost}: expected \
             at least that, or a lower cost="
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pairs among rules, each given as a number, a namespace, a key and limits.
    fn pairs(rules: &[(usize, &str, &str, &str)]) -> Vec<(usize, usize, String, String)> {
        let limits: Vec<_> = rules
            .iter()
            .map(|(.., limits)| {
                // Either a limit, or parameters of a rate.
                let words = limits.split(' ').map(|text| match text.contains('=') {
                    true => text.into(),
                    false => format!("limit={text}"),
                });
                let words: Vec<String> = words.collect();
                let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
                WindowLimits::of(&RuleText::parse(&words).unwrap())
            })
            .collect();
        let mut sharing = Sharing::default();
        for ((rule, namespace, key, _), limits) in rules.iter().zip(&limits) {
            sharing.add(*rule, key.as_bytes(), namespace, limits);
        }
        let pairs = sharing.pairs().into_iter();
        pairs
            .map(|it| {
                let key = String::from_utf8_lossy(it.key).into();
                (it.first, it.second, key, it.size.map_or_else(String::new, |it| it.to_string()))
            })
            .collect()
    }

    #[test]
    fn different_limits_of_one_counter_are_found() {
        let all = [
            (2, "default", "$remote_addr", "10/1m"),
            (1, "default", "$remote_addr", "5/60s"),
            (3, "default", "$remote_addr", "5/1m"),
            (4, "default", "$remote_addr", "5/1s 7/1m 9/1m"),
            (5, "default", "${Remote_addr}", "$plan/1m"),
            (6, "default", "$remote_addr", "${plan}/1m"),
        ];
        let pair = |second| (1, second, "$remote_addr".into(), "1m".into());
        let last = (1, 5, "${Remote_addr}".into(), "1m".into());
        assert_eq!(pairs(&all), [pair(2), pair(4), last]);
    }

    #[test]
    fn different_bursts_of_one_rate_are_found() {
        for (rate, other) in [
            ("rate=30/1m burst=9", "rate=30/1m"),
            ("rate=30/1m burst=9", "rate=0.5/1s burst=8"),
            ("rate=$r/1m burst=9", "rate=$r/1m burst=8"),
        ] {
            let pairs = pairs(&[(1, "default", "k", rate), (2, "default", "k", other)]);
            assert_eq!(pairs.len(), 1, "{rate} {other}");
            assert_eq!((pairs[0].0, pairs[0].1), (1, 2));
        }
    }

    #[test]
    fn limits_that_many_rules_have_are_a_pair_once() {
        let limits = ["limit=5/1m", "limit=6/1m", "limit=7/1m"]
            .map(|word| WindowLimits::of(&RuleText::parse(&[word.as_bytes()]).unwrap()));
        let mut sharing = Sharing::default();
        for rule in 0..5000 {
            sharing.add(rule, b"k", "default", &limits[rule % 3]);
        }
        let pairs = sharing.pairs().into_iter();
        let told = pairs.map(|it| (it.first, it.second, it.places));
        assert_eq!(told.collect::<Vec<_>>(), [(0, 1, 1667), (0, 2, 1666)]);
    }

    #[test]
    fn a_pair_is_reported_once() {
        let all = [
            (1, "default", "k", "5/1s 5/1m"),
            (2, "default", "k", "6/1s 6/1m"),
            (2, "default", "k", "6/1s 6/1m"),
        ];
        assert_eq!(pairs(&all), [(1, 2, "k".into(), "1s".into())]);
    }

    #[test]
    fn equal_limits_and_other_counters_are_not() {
        for other in [
            (2, "default", "k", "5.0/1m"),
            (2, "api", "k", "6/1m"),
            (2, "default", "j", "6/1m"),
            (2, "default", "k", "6/1h"),
            // One rule that levels with different keys inherit.
            (1, "default", "j", "5/1m"),
        ] {
            assert_eq!(pairs(&[(1, "default", "k", "5/1m"), other]), []);
        }
        let rate = (1, "default", "k", "rate=5/1m burst=9");
        for other in [
            "5/1m",
            "rate=5.0/60 burst=9 delay=all",
            "rate=5/1s burst=8",
            "rate=6/1m burst=8",
            "rate=$r/1m burst=8",
        ] {
            assert_eq!(pairs(&[rate, (2, "default", "k", other)]), [], "{other}");
        }
        let plan = "$plan/1m";
        assert_eq!(pairs(&[(1, "a", "k", plan), (2, "a", "k", plan)]), []);
    }
}
