//! The rules of a level, and how their policies are named.

use crate::conf::review::sharing::WindowLimits;
use crate::conf::words::text::{Amount, WrittenText};
use crate::policy::headers::ietf::{self, PolicyItem};
use crate::policy::limit::Limit;

/// The rules of a level, all of which must admit a request. `ratelimit off` is none at all.
#[derive(Debug)]
pub struct Rules<T> {
    rules: Vec<Rule<T>>,
    policy: Vec<u8>,
}

/// A `ratelimit` directive.
#[derive(Debug)]
pub struct Rule<T> {
    /// Its number in the order of the configuration, from 0 on.
    pub number: usize,
    /// Its place in the configuration, as users are told it: `nginx.conf:31`.
    pub place: Box<str>,
    /// The number of the namespace that it counts in, among those of the configuration.
    pub namespace: usize,
    /// Key of the rule.
    pub key: OwnKey<T>,
    /// Cost of a request.
    pub cost: Cost<T>,
    /// Its limits, at least one.
    pub limits: Vec<RuleLimit<T>>,
    /// The limits whose counter other rules have too, unless `counter=` says that this is meant.
    pub(crate) shared: Vec<WindowLimits>,
}

/// A rule's own key, counter and namespace.
#[derive(Debug)]
pub struct OwnKey<T> {
    pub(crate) text: Option<WrittenText<T>>,
    pub(crate) counter: Option<Box<str>>,
}

/// A limit of a rule.
#[derive(Debug)]
pub struct RuleLimit<T> {
    /// The limit, with the name of its policy.
    pub limit: Limit,
    /// Number of hits that the rule admits.
    pub hits: Amount<T>,
    /// The name if no other limit has it, unless `name=` gave another one.
    pub(crate) default_name: Option<Box<str>>,
}

/// Cost of a request.
#[derive(Debug)]
pub enum Cost<T> {
    /// Cost that is charged with the decision.
    AtOnce(Amount<T>),
    /// Cost that is charged when the response is known.
    Deferred(Amount<T>),
}

impl<T> Rule<T> {
    /// The key that the rule counts by, as it is written, where the level has this one.
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

    /// The rules, in their order.
    pub fn rules(&self) -> &[Rule<T>] {
        &self.rules
    }

    /// The value of `RateLimit-PolicyItem` if all limits apply; empty if one of them is variable.
    pub fn policy(&self) -> &[u8] {
        &self.policy
    }

    /// Adds a rule.
    ///
    /// # Errors
    ///
    /// The name of its policy, if that is another one's too.
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

    fn limits(&self) -> impl Iterator<Item = &RuleLimit<T>> {
        self.rules.iter().flat_map(|rule| &rule.limits)
    }

    /// Gives a number to policies whose default names are taken.
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
        let constant = self.limits().map(|limit| match limit.hits {
            Amount::Constant(hits) => Some(PolicyItem {
                name: &limit.limit.name,
                hits: limit.limit.most(hits),
                window: limit.limit.window(hits),
            }),
            Amount::Variable(_) => None,
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
    /// The key, if not that of the level.
    #[inline]
    pub fn text(&self) -> Option<&T> {
        self.text.as_ref().map(|key| &key.text)
    }

    /// The name of the counter, if not the one that is shared.
    #[inline]
    pub fn counter(&self) -> Option<&str> {
        self.counter.as_deref()
    }
}
