//! The configuration of a `location`.

use std::rc::Rc;

use ngx::http::HttpModuleLocationConf;

use super::rules::RuleSet;
use super::text::{EvaluationError, Text};
use crate::conf::configuration::Configuration;
use crate::conf::level::LevelConf;
use crate::conf::level::body::RejectionBody;
use crate::conf::words::message::ConfError;
use crate::conf::words::settings::{Content, Settings};
use crate::nginx::module::Module;
use crate::nginx::request::Request;

/// The configuration of a `location`.
#[derive(Debug, Default)]
pub(crate) struct LocationConf {
    level: LevelConf<Text>,
    /// The rules that apply; `None` without any.
    rules: Option<Rc<RuleSet>>,
    /// Settings from the directives of this level and of all levels above.
    pub(crate) settings: Settings,
    /// Copy of [`MainConf::context_slot`](super::main::MainConf), which each request needs.
    pub(crate) context_slot: usize,
}

// SAFETY: `create_loc_conf` creates a value of this type for this module.
unsafe impl HttpModuleLocationConf for Module {
    type LocationConf = LocationConf;
}

impl LocationConf {
    /// Records the level that encloses this one; `None` for `http`.
    pub(crate) fn begin_within(&mut self, around: Option<&LocationConf>) {
        if let Some(around) = around {
            self.level.begin_within(&around.level);
        }
    }

    /// Returns the level's directives, while the configuration is read.
    pub(super) fn level_mut(&mut self) -> &mut LevelConf<Text> {
        &mut self.level
    }

    pub(super) fn level(&self) -> &LevelConf<Text> {
        &self.level
    }

    /// Returns which content of this module the location serves; `None` if it serves none.
    pub(crate) fn content(&self) -> Option<Content> {
        self.level.content()
    }

    /// Returns the error that another module also handles the location's content.
    pub(crate) fn other_content(&self) -> ConfError {
        self.level.other_content()
    }

    /// Inherits the content of the surrounding location: this level is a block in it.
    pub(crate) fn inherit_content(&mut self, prev: &LocationConf) {
        self.level.inherit_content(&prev.level);
    }

    /// Gives rules of this level with a list of limits the windows of their namespaces.
    ///
    /// # Errors
    ///
    /// If a namespace does not have the windows.
    pub(crate) fn find_windows(&mut self, configuration: &Configuration) -> Result<(), ConfError> {
        self.level.find_windows(configuration)
    }

    /// Inherits settings from the level above.
    pub(crate) fn inherit(&mut self, prev: &LocationConf, context_slot: usize) {
        self.level.inherit(&prev.level);
        self.settings = self.level.settings();
        self.context_slot = context_slot;
    }

    /// Sets the rules that apply.
    pub(super) fn set_rules(&mut self, rules: Rc<RuleSet>) {
        self.rules = Some(rules);
    }

    /// Returns the rules that apply; `None` without any.
    #[inline]
    pub(crate) fn rules(&self) -> Option<&RuleSet> {
        self.rules.as_deref()
    }

    /// Returns the body of rejections; `None` for nginx's own pages.
    pub(crate) fn body(&self) -> Option<&RejectionBody<Text>> {
        self.level.body()
    }

    /// Returns the request's key, which is `$remote_addr` without a `ratelimit_key`.
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
