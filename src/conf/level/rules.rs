//! The rules of a level, and the names of their policies.

use std::rc::Rc;

use crate::conf::configuration::NamespaceConf;
use crate::conf::limit_list::LimitList;
use crate::conf::review::WindowLimits;
use crate::conf::words::text::{Amount, WrittenText};
use crate::policy::algorithm::Algorithm;
use crate::policy::calendar::CalendarZone;
use crate::policy::headers::ietf::{self, PolicyItem};
use crate::policy::limit::{BanRule, Burst, Limit};

/// The rules of a level, all of which must admit a request. `ratelimit off` makes an empty list.
#[derive(Debug)]
pub struct Rules<T> {
    rules: Vec<Rule<T>>,
    policy: Vec<u8>,
}

/// A `ratelimit` directive.
#[derive(Debug)]
pub struct Rule<T> {
    /// The index of the rule in the order of the configuration.
    pub number: usize,
    /// The place of the rule for users, relative to the configuration's directory: `nginx.conf:31`.
    pub place: Box<str>,
    /// The index of its namespace in the configuration.
    pub namespace: usize,
    /// The key under which the rule counts a request.
    pub key: OwnKey<T>,
    /// The cost of a request.
    pub cost: Cost<T>,
    /// Whether the rule's rejections are only counted; `None` for what the level says.
    pub dry_run: Option<bool>,
    /// The status of the rule's rejections; `None` for that of the level.
    pub status: Option<isize>,
    /// The bans of rejected keys.
    pub ban: Option<BanRule>,
    /// The limits, at least one.
    pub limits: Vec<RuleLimit<T>>,
    /// The list that has the limits, while the windows of the namespace are not known.
    pub(crate) list: Option<(LimitList<T>, Algorithm)>,
    /// The limits whose counters are checked for other rules' limits; empty if `counter=` says that sharing is meant.
    pub(crate) shared: Vec<WindowLimits>,
}

/// A rule's own key and counter, each if it has one, and its exception.
#[derive(Debug)]
pub struct OwnKey<T> {
    pub(crate) text: Option<WrittenText<T>>,
    pub(crate) counter: Option<Box<str>>,
    /// The text of `unless=`.
    pub(crate) unless: Option<WrittenText<T>>,
}

/// A limit of a rule.
#[derive(Debug)]
pub struct RuleLimit<T> {
    /// The limit, with the name of its policy.
    pub limit: Limit,
    /// The number of hits that the rule admits, or its rate.
    pub hits: Amount<T>,
    /// The default name, to be numbered if another limit has it; `None` if `name=` gave one.
    pub(crate) default_name: Option<Box<str>>,
}

/// The cost of a request, and when it is charged.
#[derive(Debug)]
pub enum Cost<T> {
    /// A cost that is charged with the decision.
    AtOnce(Amount<T>),
    /// A cost that is charged when the response is known.
    Deferred(Amount<T>),
    /// An estimate that is charged with the decision, and the cost that replaces it when the response is known.
    Estimated {
        /// The estimate.
        cost: Amount<T>,
        /// The cost.
        charge: Amount<T>,
    },
}

impl<T> Cost<T> {
    /// Whether the response is needed.
    pub fn is_deferred(&self) -> bool {
        !matches!(self, Cost::AtOnce(_))
    }

    /// Whether an estimate is charged before the response is known.
    pub fn is_estimated(&self) -> bool {
        matches!(self, Cost::Estimated { .. })
    }
}

impl<T> Rule<T> {
    /// Returns the rule's key as it is written; `of_level` is the key of the level.
    pub(crate) fn written_key<'k>(&'k self, of_level: &'k [u8]) -> &'k [u8] {
        self.key.text.as_ref().map_or(of_level, |own| &own.written)
    }
}

impl<T> RuleLimit<T> {
    fn is_named(&self) -> bool {
        self.default_name.is_none()
    }
}

impl<T> Rules<T> {
    /// Whether this is `ratelimit off`.
    pub fn is_off(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the rules, in their order.
    pub fn rules(&self) -> &[Rule<T>] {
        &self.rules
    }

    /// Whether a rule has a `dry_run=`, so that rules are tried one by one.
    pub fn has_own_dry_run(&self) -> bool {
        self.rules.iter().any(|rule| rule.dry_run.is_some())
    }

    /// Returns the value of `RateLimit-Policy` if all limits apply; empty if one of them is variable. Numbers of requests
    /// that are under way are no policies.
    pub fn policy(&self) -> &[u8] {
        &self.policy
    }

    /// Adds a rule.
    ///
    /// # Errors
    ///
    /// If another rule has a policy with a `name=` of this rule's; returns that name.
    pub(crate) fn push(&mut self, rule: Rule<T>) -> Result<(), Box<str>> {
        let mut new = rule.limits.iter().filter(|limit| limit.is_named());
        let is_taken = |name: &str| {
            let mut named = self.limits().filter(|limit| limit.is_named());
            named.any(|limit| &*limit.limit.name == name)
        };
        if let Some(clash) = new.find(|new| is_taken(&new.limit.name)) {
            return Err(clash.limit.name.clone());
        }
        self.rules.push(rule);
        self.name_policies();
        self.write_policy();
        Ok(())
    }

    /// Gives windows of the calendar whose rule has no `tz=` the zone of the level.
    pub(crate) fn find_zone(&mut self, zone: &'static CalendarZone) {
        for rule in &mut self.rules {
            for RuleLimit { limit, .. } in &mut rule.limits {
                limit.size = limit.size.in_zone(zone);
            }
            for limits in &mut rule.shared {
                limits.find_zone(zone);
            }
            if let Some((list, _)) = &mut rule.list {
                list.find_zone(zone);
            }
        }
    }

    /// Gives each rule with a list of limits a limit for each window of its namespace.
    ///
    /// # Errors
    ///
    /// If a namespace has no windows, or not those of `default=`. Returns the number of the rule,
    /// and a message.
    pub(crate) fn find_windows(
        &mut self,
        namespaces: &[NamespaceConf],
    ) -> Result<(), (usize, String)> {
        let mut has_new = false;
        for rule in &mut self.rules {
            let Some((mut list, algorithm)) = rule.list.take() else {
                continue;
            };
            let (name, sizes) = match namespaces.get(rule.namespace) {
                Some(namespace) => (&*namespace.name, &*namespace.window_sizes),
                None => ("", &[][..]),
            };
            if sizes.is_empty() {
                let message = format!(
                    "limits= has limits of the windows of namespace \"{name}\", which has none: \
                     expected \"window_sizes\" in its block"
                );
                return Err((rule.number, message));
            }
            let checked = list.default.check(sizes);
            checked.map_err(|message| (rule.number, format!("default=: {message}")))?;
            list.sizes = sizes.into();
            let list = Rc::new(list);
            rule.limits.extend(sizes.iter().map(|size| RuleLimit {
                limit: Limit {
                    name: Box::default(),
                    size: *size,
                    algorithm: algorithm.of_size(*size),
                    burst: Burst::default(),
                    of_rule: None,
                },
                hits: Amount::Listed(list.clone()),
                default_name: Some(format!("{name}-{}", size.name()).into()),
            }));
            has_new = true;
        }
        if has_new {
            self.name_policies();
            self.write_policy();
        }
        Ok(())
    }

    fn limits(&self) -> impl Iterator<Item = &RuleLimit<T>> {
        self.rules.iter().flat_map(|rule| &rule.limits)
    }

    /// Numbers the policies whose default names are taken.
    fn name_policies(&mut self) {
        let named = self.limits().filter(|limit| limit.is_named());
        let mut taken: Vec<Box<str>> = named.map(|limit| limit.limit.name.clone()).collect();
        for RuleLimit { limit, default_name, .. } in
            self.rules.iter_mut().flat_map(|rule| &mut rule.limits)
        {
            let Some(default) = default_name else {
                continue;
            };
            let mut names = (1_u32..).map(|nth| match nth {
                1 => default.clone(),
                _ => format!("{default}-{nth}").into(),
            });
            if let Some(free) = names.find(|name| !taken.contains(name)) {
                limit.name = free;
            }
            taken.push(limit.name.clone());
        }
    }

    fn write_policy(&mut self) {
        let mut policy = Vec::new();
        let told = self.limits().filter(|limit| !limit.limit.algorithm.is_of_concurrency());
        let constant = told.map(|limit| match limit.hits {
            Amount::Constant(hits) => Some(PolicyItem {
                name: &limit.limit.name,
                hits: limit.limit.most(hits),
                window: limit.limit.window(hits),
            }),
            Amount::Variable(_) | Amount::Listed(_) => None,
        });
        if let Some(policies) = constant.collect::<Option<Vec<_>>>() {
            ietf::policy(policies, |part| policy.extend_from_slice(part));
        }
        self.policy = policy;
    }
}

impl<T> Default for Rules<T> {
    fn default() -> Self {
        Rules { rules: Vec::new(), policy: Vec::new() }
    }
}

impl<T> OwnKey<T> {
    /// Returns the rule's key; `None` for the level's.
    #[inline]
    pub fn text(&self) -> Option<&T> {
        self.text.as_ref().map(|key| &key.text)
    }

    /// Returns the name of the counter; `None` for the shared one.
    #[inline]
    pub fn counter(&self) -> Option<&str> {
        self.counter.as_deref()
    }

    /// Returns the text with which the rule does not apply to a request, unless it is empty or `0`.
    pub fn unless(&self) -> Option<&T> {
        self.unless.as_ref().map(|unless| &unless.text)
    }
}
