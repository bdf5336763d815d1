//! The state of `http` while its directives are read. Zones, stores and namespaces may refer to each other in any
//! order.

use std::collections::{BTreeMap, BTreeSet};

use super::configuration::{StoreConf, ZoneConf};
use super::namespace::NamespaceOptions;
use super::namespace::block::NamespaceOptionsBuilder;
use super::store_options::read_files;
use super::timezone::LevelZone;
use super::words::block::{Block, ReadBlock, Set, block_name, is_defined};
use super::words::message::{ConfError, Origin};
use super::words::nginx::{Files as _, Nginx};
use super::words::text::names;
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::limit::{Quota, QuotaHits};
use crate::policy::options::shown;
use crate::policy::window::WindowSize;
use crate::store::registry::StoreSettings;
use crate::table::CountedRate;

/// The configuration of `http` under construction.
#[derive(Debug, Default)]
pub struct HttpConf {
    pub(super) zones: Vec<ZoneConf>,
    pub(super) stores: Vec<StoreConf>,
    /// Namespaces that are defined or used.
    pub(super) namespaces: Vec<NamespaceText>,
    /// Places of the rules, in the order of the configuration.
    pub(super) rules: Vec<Origin>,
    /// The time zone of `http`, for windows that namespaces list.
    pub(super) zone: LevelZone,
    /// Whether any level decides after access control.
    pub(super) has_precontent: bool,
    /// Whether any rule charges hits when the response is known (`charge=`).
    pub(super) has_deferred: bool,
    /// Whether calls of the API may count in any namespace.
    pub(super) has_callers: bool,
    /// The variables used in directives, each with the first directive that uses it and its place.
    variables: BTreeMap<Box<[u8]>, (Box<str>, Origin)>,
}

/// A namespace under construction.
#[derive(Debug)]
pub(super) struct NamespaceText {
    pub(super) name: Box<str>,
    pub(super) definition: Option<Definition>,
    pub(super) uses: Vec<NamespaceUse>,
    /// Rules whose limits are lists.
    pub(super) lists: Vec<ListUse>,
    /// The times for which rules ban keys.
    pub(super) bans: Vec<WindowSize>,
}

/// A rule whose limits are a list.
#[derive(Debug)]
pub(super) struct ListUse {
    pub(super) origin: Origin,
    pub(super) algorithm: Algorithm,
    pub(super) counter: Option<Box<str>>,
}

/// A `ratelimit_namespace`.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) block: ReadBlock,
    pub(super) options: NamespaceOptions,
}

/// A limit that counts in a namespace.
#[derive(Debug)]
pub(super) struct NamespaceUse {
    pub(super) origin: Origin,
    pub(super) size: WindowSize,
    /// The time zone of the rule's level.
    zone: LevelZone,
    /// The size as written; the time unit if the limit is a rate.
    pub(super) window: Box<str>,
    pub(super) algorithm: Algorithm,
    /// The rate, if it is constant.
    pub(super) rate: Option<Hits>,
    /// The name of its counter; `None` for the shared one.
    pub(super) counter: Option<Box<str>>,
}

impl HttpConf {
    /// Reads `ratelimit_store name { ... }`.
    pub(super) fn read_store(
        &mut self,
        nginx: &mut impl Nginx,
        words: &[&[u8]],
    ) -> Result<(), ConfError> {
        let name = block_name("store", words)?;
        if let Some(known) = self.stores.iter().find(|store| &*store.name == name) {
            return Err(is_defined("store", name, &known.origin));
        }
        let files = nginx.files();
        let mut builder = StoreSettings::builder(|path| files.read(&files.path(path)));
        let title = format!("ratelimit_store \"{name}\"");
        let block = read_block(nginx, &title, &mut |name, words| builder.set(name, words))?;

        let mut settings = builder.finish().map_err(|error| block.error(error))?;
        read_files(&mut settings, &files).map_err(|error| block.error(error))?;
        self.stores.push(StoreConf { name: name.into(), origin: block.origin().clone(), settings });
        Ok(())
    }

    /// Reads `ratelimit_namespace name { ... }`.
    pub(super) fn read_namespace(
        &mut self,
        nginx: &mut impl Nginx,
        words: &[&[u8]],
    ) -> Result<(), ConfError> {
        let name = block_name("namespace", words)?;
        let number = self.number_of(name);
        let known = self.namespaces.get(number);
        if let Some(known) = known.and_then(|it| it.definition.as_ref()) {
            return Err(is_defined("namespace", name, known.block.origin()));
        }
        let mut builder = NamespaceOptionsBuilder::default();
        let title = format!("ratelimit_namespace \"{name}\"");
        let block = read_block(nginx, &title, &mut |name, words| builder.set(name, words))?;
        let warnings = builder.warnings();
        let options = builder.finish().map_err(|error| block.error(error))?;
        for warning in warnings {
            nginx.warn(block.message(Some(warning.directive), warning.message));
        }
        if let Some(namespace) = self.namespaces.get_mut(number) {
            namespace.definition = Some(Definition { block, options });
        }
        Ok(())
    }

    /// Returns the index of the namespace `name`, which need not be defined yet.
    fn number_of(&mut self, name: &str) -> usize {
        let known = self.namespaces.iter().position(|it| *it.name == *name);
        known.unwrap_or_else(|| {
            self.namespaces.push(NamespaceText {
                name: name.into(),
                definition: None,
                uses: Vec::new(),
                lists: Vec::new(),
                bans: Vec::new(),
            });
            self.namespaces.len().saturating_sub(1)
        })
    }

    /// Records the limits of a rule that counts in the namespace `name`, and returns the namespace's index.
    pub(super) fn use_namespace(
        &mut self,
        name: &str,
        (quotas, has_list): (&[Quota<'_>], bool),
        zone: &LevelZone,
        algorithm: Algorithm,
        counter: Option<&str>,
        origin: &Origin,
    ) -> usize {
        let number = self.number_of(name);
        let uses = quotas.iter().map(|quota| NamespaceUse {
            origin: origin.clone(),
            size: quota.size,
            zone: zone.clone(),
            window: shown(quota.window).into(),
            algorithm: quota.algorithm(algorithm),
            rate: match quota.hits {
                QuotaHits::Constant(hits) => Some(hits).filter(|_| algorithm.is_of_rates()),
                QuotaHits::Variable(_) => None,
            },
            counter: counter.map(Into::into),
        });
        if let Some(namespace) = self.namespaces.get_mut(number) {
            namespace.uses.extend(uses);
            namespace.lists.extend(has_list.then(|| ListUse {
                origin: origin.clone(),
                algorithm,
                counter: counter.map(Into::into),
            }));
        }
        number
    }

    /// Gives windows of the calendar their time zones, once all of `http` was read.
    pub(super) fn find_zones(&mut self) {
        for namespace in &mut self.namespaces {
            for it in &mut namespace.uses {
                it.size = it.size.in_zone(it.zone.get());
            }
            if let Some(Definition { options, .. }) = &mut namespace.definition {
                for size in &mut options.window_sizes {
                    *size = size.in_zone(self.zone.get());
                }
            }
        }
    }

    /// Records that a rule of namespace number `number` bans keys for this time.
    pub(super) fn record_ban(&mut self, number: usize, size: WindowSize) {
        if let Some(namespace) = self.namespaces.get_mut(number) {
            namespace.bans.push(size);
        }
    }

    /// Records the variables in the words of a directive.
    pub(super) fn record_variables(&mut self, directive: &str, words: &[&[u8]], origin: &Origin) {
        for name in words.iter().flat_map(|word| names(word)) {
            let is_capture = name.first().is_none_or(u8::is_ascii_digit);
            if !is_capture && !self.variables.contains_key(name) {
                let place = (directive.into(), origin.clone());
                self.variables.insert(name.into(), place);
            }
        }
    }

    /// Checks that all variables used in directives exist, once all of `http` was read. nginx's own error would not
    /// name the place.
    pub(super) fn check_variables(&self, nginx: &impl Nginx) -> Result<(), ConfError> {
        let mut variables = self.variables.iter();
        match variables.find(|(name, _)| !nginx.has_variable(name)) {
            None => Ok(()),
            Some((name, (directive, origin))) => {
                let message = format!("{directive}: unknown \"{}\" variable", shown(name));
                Err(ConfError::at(origin, message))
            }
        }
    }

    /// Returns the number of a new rule at `origin`; numbers ascend.
    pub(super) fn number_rule(&mut self, origin: &Origin) -> usize {
        let number = self.rules.len();
        self.rules.push(origin.clone());
        number
    }
}

impl NamespaceUse {
    /// Whether this is a limit in windows, and not a rate or a number of requests that are under way.
    pub(super) fn has_window(&self) -> bool {
        !(self.algorithm.is_of_rates() || self.algorithm.is_of_concurrency())
    }
}

impl NamespaceText {
    /// Returns the place of the definition, or of the first use if there is none.
    pub(super) fn origin(&self) -> Origin {
        match &self.definition {
            Some(Definition { block, .. }) => block.origin().clone(),
            None => {
                let uses = self.uses.iter().map(|it| &it.origin);
                let mut origins = uses.chain(self.lists.iter().map(|it| &it.origin));
                origins.next().cloned().unwrap_or_else(Origin::unknown)
            }
        }
    }

    /// Whether no rule counts in the namespace.
    pub(super) fn is_unused(&self) -> bool {
        self.uses.is_empty() && self.lists.is_empty()
    }

    /// Returns the windows in which hits are counted, ascending.
    pub(super) fn window_sizes(&self) -> Vec<WindowSize> {
        let listed = self.definition.as_ref().map(|it| &it.options.window_sizes);
        let listed = listed.into_iter().flatten().copied();
        let windows = self.uses.iter().filter(|it| it.has_window());
        ascending(listed.chain(windows.map(|it| it.size)))
    }

    /// Whether rules limit how many requests are under way.
    pub(super) fn has_holds(&self) -> bool {
        self.uses.iter().any(|it| it.algorithm.is_of_concurrency())
    }

    /// Returns the windows in which bans are counted, ascending.
    pub(super) fn ban_sizes(&self) -> Vec<WindowSize> {
        ascending(self.bans.iter().copied())
    }

    /// Returns the names of the counters of rules, each once, without the shared one.
    pub(super) fn counters(&self) -> Vec<Box<str>> {
        let counters = self.uses.iter().map(|it| &it.counter);
        let counters = counters.chain(self.lists.iter().map(|it| &it.counter));
        let named = counters.filter_map(Clone::clone);
        named.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the constant rates of rules, each once.
    pub(super) fn rates(&self) -> Vec<CountedRate> {
        let mut rates: Vec<CountedRate> = Vec::new();
        for NamespaceUse { size, rate, .. } in &self.uses {
            let rate = rate.map(|hits| CountedRate { hits, size: *size });
            rates.extend(rate.filter(|rate| !rates.contains(rate)));
        }
        rates
    }
}

/// Returns each size once, ascending.
fn ascending(sizes: impl Iterator<Item = WindowSize>) -> Vec<WindowSize> {
    let mut sizes: Vec<_> = sizes.collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Reads the block that follows, passing each of its directives to `set`.
fn read_block(nginx: &mut impl Nginx, title: &str, set: Set<'_>) -> Result<ReadBlock, ConfError> {
    let origin = nginx.origin();
    let mut block = Block::new(title, set);
    nginx.read_block(&mut block)?;
    Ok(block.finish(origin))
}
