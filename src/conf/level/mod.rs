//! A level (`http`, a `server` or a `location`), and inheritance between levels.

pub mod body;
pub mod rules;

use std::rc::Rc;

use super::configuration::Configuration;
use super::review::warn_of_key;
use super::timezone::LevelZone;
use super::words::message::{ConfError, Origin};
use super::words::nginx::Nginx;
use super::words::parameter::{invalid, one_word, set_once};
use super::words::settings::{Content, LevelOptions, Phase, Settings};
use super::words::text::WrittenText;
use body::RejectionBody;
use rules::Rules;

/// The error for a location that has another content handler, too.
pub const OTHER_CONTENT: &str =
    "goes with no other content handler, such as proxy_pass: expected a location of its own";

/// Returns whether a directive is `return`, which answers all requests, or another one that ends the rewrite phase;
/// `None` for those after which nginx goes on with the next one.
pub fn rewrite_ends(words: &[&[u8]]) -> Option<bool> {
    match words {
        [b"return", ..] => Some(true),
        [b"break", ..] | [b"rewrite", .., b"last" | b"break"] => Some(false),
        _ => None,
    }
}

/// The configuration of a level.
#[derive(Debug)]
pub struct LevelConf<T> {
    key: Option<Rc<WrittenText<T>>>,
    pub(super) zone: LevelZone,
    /// The body of rejections.
    body: Option<Rc<RejectionBody<T>>>,
    /// Rules of this level, or inherited ones.
    pub(super) rules: Option<Rc<Rules<T>>>,
    /// Rules that apply. None if rules are off; a location with content of ours does not inherit rules.
    effective: Option<Rc<Rules<T>>>,
    content: Option<Content>,
    /// Place of the directive that sets the content.
    content_origin: Option<Origin>,
    /// Whether the content is inherited from the enclosing location, of which this level is a block (`if`,
    /// `limit_except`).
    is_content_inherited: bool,
    pub(super) options: LevelOptions,
    /// Whether the first directive that ends the rewrite phase is `return`, so that no request gets past it.
    returns: Option<bool>,
    /// Whether `auth_basic` is on.
    has_basic_auth: Option<bool>,
    /// Whether this level has rules that no request reaches.
    has_unreached_rules: bool,
}

impl<T> LevelConf<T> {
    /// Records the level that encloses this one, before any directive of this level is read.
    pub fn begin_within(&mut self, around: &LevelConf<T>) {
        self.zone = LevelZone::within(&around.zone);
    }

    /// Reads `ratelimit_key string`.
    pub(super) fn set_key<N>(&mut self, nginx: &mut N, words: &[&[u8]]) -> Result<(), ConfError>
    where
        N: Nginx<Text = T>,
    {
        let word = one_word(words, "expected one string, such as $remote_addr")?;
        warn_of_key(nginx, "ratelimit_key: the key", word);
        set_once(&mut self.key, Rc::new(WrittenText::compile(nginx, word)?))
    }

    /// Reads `ratelimit_message type text`.
    pub(super) fn set_body<N>(&mut self, nginx: &mut N, words: &[&[u8]]) -> Result<(), ConfError>
    where
        N: Nginx<Text = T>,
    {
        set_once(&mut self.body, Rc::new(RejectionBody::read(nginx, words)?))
    }

    /// Reads `ratelimit_api [write=on | off]`. Returns whether writes are on.
    pub(super) fn set_api(
        &mut self,
        nginx: &mut impl Nginx,
        words: &[&[u8]],
    ) -> Result<bool, ConfError> {
        const EXPECTED: &str = "expected write=on, write=off or nothing";
        let may_write = match words {
            [] | [b"write=off"] => false,
            [b"write=on"] => true,
            [word] => return Err(invalid("parameter", word, EXPECTED)),
            words => return one_word(words, EXPECTED).map(|_| false),
        };
        self.set_content(nginx, Content::Api { may_write })?;
        Ok(may_write)
    }

    /// Reads `ratelimit_metrics`.
    pub(super) fn set_metrics(
        &mut self,
        nginx: &mut impl Nginx,
        words: &[&[u8]],
    ) -> Result<(), ConfError> {
        if let [word, ..] = words {
            return Err(invalid("parameter", word, "expected none"));
        }
        self.set_content(nginx, Content::Metrics)
    }

    fn set_content(&mut self, nginx: &mut impl Nginx, content: Content) -> Result<(), ConfError> {
        if let Some(other) = self.content.filter(|other| *other != content) {
            return Err(format!(
                "stands beside \"{}\", which answers every request: expected a location of its own",
                other.directive()
            )
            .into());
        }
        set_once(&mut self.content, content)?;
        self.content_origin = Some(nginx.origin());
        nginx.answer_with(content)
    }

    /// Returns the error that another module has set a content handler beside this module's.
    pub fn other_content(&self) -> ConfError {
        let name = self.content.map_or("", Content::directive);
        match &self.content_origin {
            Some(origin) => ConfError::at(origin, format!("{name}: {OTHER_CONTENT}")),
            None => ConfError::from(OTHER_CONTENT),
        }
    }

    /// Records a directive that [ends the rewrite phase](rewrite_ends), which may be `return`.
    pub fn record_rewrite(&mut self, is_return: bool) {
        self.returns.get_or_insert(is_return);
    }

    /// Records `auth_basic`; `is_on` is false for `off`.
    pub fn record_basic_auth(&mut self, is_on: bool) {
        self.has_basic_auth = Some(is_on);
    }

    /// Inherits the content of the enclosing location. This is for blocks in a location that are not locations
    /// themselves (`if`, `limit_except`).
    pub fn inherit_content(&mut self, prev: &LevelConf<T>) {
        self.content = prev.content;
        self.is_content_inherited = prev.content.is_some();
    }

    /// Gives windows of the calendar in rules of this level their time zone, and rules with a list of limits the
    /// windows of their namespaces. Called before other levels inherit the rules.
    ///
    /// # Errors
    ///
    /// If a namespace does not have the windows.
    pub fn find_windows(&mut self, configuration: &Configuration) -> Result<(), ConfError> {
        let rules = self.rules.as_mut().and_then(Rc::get_mut);
        let found = rules.map_or(Ok(()), |rules| {
            rules.find_zone(self.zone.get());
            rules.find_windows(&configuration.namespaces)
        });
        found.map_err(|(rule, message)| {
            let message = format!("ratelimit: {message}");
            match configuration.rules.get(rule) {
                Some(origin) => ConfError::at(origin, message),
                None => message.into(),
            }
        })
    }

    /// Inherits the settings that this level does not set.
    pub fn inherit(&mut self, prev: &LevelConf<T>) {
        self.key = self.key.take().or_else(|| prev.key.clone());
        self.body = self.body.take().or_else(|| prev.body.clone());
        self.has_basic_auth = self.has_basic_auth.or(prev.has_basic_auth);
        let own = self.rules.take();
        let has_own = own.as_ref().is_some_and(|rules| !rules.is_off());
        self.has_unreached_rules = has_own && self.returns == Some(true);
        self.rules = own.clone().or_else(|| prev.rules.clone());
        self.effective = match self.content {
            None => self.rules.clone(),
            Some(_) if self.is_content_inherited => own.or_else(|| prev.effective.clone()),
            Some(_) => own,
        }
        .filter(|rules| !rules.is_off());
        self.options.inherit(&prev.options);
    }

    /// Returns the key of the level; `None` stands for the client's address.
    #[inline]
    pub fn key(&self) -> Option<&T> {
        Some(&self.key.as_ref()?.text)
    }

    /// Returns the key as it is written.
    pub fn written_key(&self) -> &[u8] {
        self.key.as_ref().map_or(b"$remote_addr", |key| &key.written)
    }

    /// Returns the body of rejections; `None` for nginx's own pages.
    pub fn body(&self) -> Option<&RejectionBody<T>> {
        self.body.as_deref()
    }

    /// Returns the rules that apply, if any. The level must have inherited.
    pub fn effective_rules(&self) -> Option<&Rc<Rules<T>>> {
        self.effective.as_ref()
    }

    /// Whether the level has rules that a `return` makes unreachable.
    pub(super) fn has_unreached_rules(&self) -> bool {
        self.has_unreached_rules
    }

    /// Whether rules are evaluated before `auth_basic` has verified the user.
    pub(super) fn is_before_basic_auth(&self) -> bool {
        self.has_basic_auth == Some(true) && self.settings().phase == Phase::Preaccess
    }

    /// Returns the directive that sets the location's content, and its place, if a `return` makes it unreachable.
    pub(super) fn unreached_content(&self) -> Option<(&Origin, &'static str)> {
        let name = self.content.filter(|_| self.returns == Some(true))?;
        Some((self.content_origin.as_ref()?, name.directive()))
    }

    /// Returns this module's content of the location, if any.
    pub fn content(&self) -> Option<Content> {
        self.content
    }

    /// Returns the settings. The level must have inherited.
    pub fn settings(&self) -> Settings {
        self.options.settings()
    }
}

impl<T> Default for LevelConf<T> {
    fn default() -> Self {
        LevelConf {
            key: None,
            zone: LevelZone::default(),
            body: None,
            rules: None,
            effective: None,
            content: None,
            content_origin: None,
            is_content_inherited: false,
            options: LevelOptions::default(),
            returns: None,
            has_basic_auth: None,
            has_unreached_rules: false,
        }
    }
}
