//! The configuration of a `location`.

use std::rc::Rc;

use ngx::http::HttpModuleLocationConf;

use super::rules::RuleSet;
use super::text::{EvaluationError, Text};
use crate::conf::level::LevelConf;
use crate::conf::words::message::ConfError;
use crate::conf::words::settings::{Content, Settings};
use crate::nginx::module::Module;
use crate::nginx::request::Request;

/// The configuration of a `location`.
#[derive(Debug, Default)]
pub(crate) struct LocationConf {
    level: LevelConf<Text>,
    /// The rules that apply, if any.
    rules: Option<Rc<RuleSet>>,
    /// Settings by the directives of this level and of all levels above.
    pub(crate) settings: Settings,
    /// [`MainConf::context_slot`](super::main::MainConf), where it is needed most.
    pub(crate) context_slot: usize,
}

// SAFETY: the type is that which `create_loc_conf` makes for this module.
unsafe impl HttpModuleLocationConf for Module {
    type LocationConf = LocationConf;
}

impl LocationConf {
    /// Returns the level's directives while they are read.
    pub(super) fn level_mut(&mut self) -> &mut LevelConf<Text> {
        &mut self.level
    }

    pub(super) fn level(&self) -> &LevelConf<Text> {
        &self.level
    }

    /// Returns the location's own content, if it has some.
    pub(crate) fn content(&self) -> Option<Content> {
        self.level.content()
    }

    /// Returns the error that another module says what the location answers with, too.
    pub(crate) fn other_content(&self) -> ConfError {
        self.level.other_content()
    }

    /// Takes what the location around answers with: this is a block within it.
    pub(crate) fn inherit_content(&mut self, prev: &LocationConf) {
        self.level.inherit_content(&prev.level);
    }

    /// Takes what this level does not say from the level above.
    pub(crate) fn inherit(&mut self, prev: &LocationConf, context_slot: usize) {
        self.level.inherit(&prev.level);
        self.settings = self.level.settings();
        self.context_slot = context_slot;
    }

    /// Notes the rules that apply, as they are served.
    pub(super) fn set_rules(&mut self, rules: Rc<RuleSet>) {
        self.rules = Some(rules);
    }

    /// The rules that apply, if any.
    #[inline]
    pub(crate) fn rules(&self) -> Option<&RuleSet> {
        self.rules.as_deref()
    }

    /// The key that `request` is counted by: `$remote_addr` without a `ratelimit_key`.
    #[inline]
    pub(crate) fn evaluate_key<'r>(
        &self,
        request: &Request<'r>,
    ) -> Result<&'r [u8], EvaluationError> {
        match self.level.key() {
            Some(key) => key.evaluate(request),
            None => Ok(request.client_text()),
        }
    }
}
