//! The configuration of a `location`.

use std::rc::Rc;

use ngx::http::HttpModuleLocationConf;

use super::super::module::Module;
use super::super::request::Request;
use super::rules::RuleSet;
use super::text::{EvaluationError, Text};
use crate::conf::level::LevelConf;
use crate::conf::message::ConfError;
use crate::conf::settings::{Content, Settings};

/// The configuration of a `location`.
#[derive(Debug, Default)]
pub(in super::super) struct LocationConf {
    level: LevelConf<Text>,
    /// The rules that apply, if any.
    rules: Option<Rc<RuleSet>>,
    /// What the directives of this level and of all levels above say.
    pub(in super::super) settings: Settings,
    /// [`MainConf::context_slot`](super::main::MainConf), where it is needed most.
    pub(in super::super) context_slot: usize,
}

// SAFETY: the type is that which `create_loc_conf` makes for this module.
unsafe impl HttpModuleLocationConf for Module {
    type LocationConf = LocationConf;
}

impl LocationConf {
    /// What the directives of the level say, while they are read.
    pub(super) fn level_mut(&mut self) -> &mut LevelConf<Text> {
        &mut self.level
    }

    pub(super) fn level(&self) -> &LevelConf<Text> {
        &self.level
    }

    /// What the location itself answers with, if it does.
    pub(in super::super) fn content(&self) -> Option<Content> {
        self.level.content()
    }

    /// Returns the error that another module says what the location answers with, too.
    pub(in super::super) fn other_content(&self) -> ConfError {
        self.level.other_content()
    }

    /// Takes what the location around answers with: this is a block within it.
    pub(in super::super) fn inherit_content(&mut self, prev: &LocationConf) {
        self.level.inherit_content(&prev.level);
    }

    /// Takes what this level does not say from the level above.
    pub(in super::super) fn inherit(&mut self, prev: &LocationConf, context_slot: usize) {
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
    pub(in super::super) fn rules(&self) -> Option<&RuleSet> {
        self.rules.as_deref()
    }

    /// The key that `request` is counted by: `$remote_addr` without a `ratelimit_key`.
    #[inline]
    pub(in super::super) fn evaluate_key<'r>(
        &self,
        request: &Request<'r>,
    ) -> Result<&'r [u8], EvaluationError> {
        match self.level.key() {
            Some(key) => key.evaluate(request),
            None => Ok(request.client_text()),
        }
    }
}
