//! A level (`http`, a `server` or a `location`), and how levels inherit.

pub mod rules;

use std::rc::Rc;

use super::review::unmeant::warn_of_key;
use super::words::message::{ConfError, Origin};
use super::words::nginx::Nginx;
use super::words::parse::{invalid, one_word, set_once};
use super::words::settings::{Content, LevelOptions, Phase, Settings};
use super::words::text::WrittenText;
use rules::Rules;

/// The error that a location answers with something else, too.
pub const OTHER_CONTENT: &str =
    "goes with no other content handler, such as proxy_pass: expected a location of its own";

/// The configuration of a level.
#[derive(Debug)]
pub struct LevelConf<T> {
    key: Option<Rc<WrittenText<T>>>,
    /// Rules of this level, or of one above.
    pub(super) rules: Option<Rc<Rules<T>>>,
    /// Rules that apply: none if rules are off, and no inherited ones where a location answers by
    /// itself.
    effective: Option<Rc<Rules<T>>>,
    content: Option<Content>,
    /// Place of the directive that sets the content.
    content_origin: Option<Origin>,
    /// Whether that is what the location around answers with: this is a block within it.
    is_content_inherited: bool,
    pub(super) options: LevelOptions,
    /// Whether the first directive of the rewrite phase is `return`, so that no request of this level gets further.
    returns: Option<bool>,
    /// Whether `auth_basic` is on.
    has_basic_auth: Option<bool>,
    /// Whether rules stand on this level, and no request reaches them.
    has_unreached_rules: bool,
}

impl<T> LevelConf<T> {
    /// `ratelimit_key string`
    pub(super) fn set_key<N>(&mut self, nginx: &mut N, words: &[&[u8]]) -> Result<(), ConfError>
    where
        N: Nginx<Text = T>,
    {
        let word = one_word(words, "expected one string, such as $remote_addr")?;
        warn_of_key(nginx, "ratelimit_key: the key", word);
        set_once(&mut self.key, Rc::new(WrittenText::compile(nginx, word)?))
    }

    /// `ratelimit_api [write=on | off]`; returns whether it is on.
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

    /// `ratelimit_metrics`
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
        set_once(&mut self.content, content)?;
        self.content_origin = Some(nginx.origin());
        nginx.answer_with(content)
    }

    /// Returns the error that another module's directive says what this level answers with, beside one of ours.
    pub fn other_content(&self) -> ConfError {
        let name = self.content.map_or("", Content::directive);
        match &self.content_origin {
            Some(origin) => ConfError::at(origin, format!("{name}: {OTHER_CONTENT}")),
            None => ConfError::from(OTHER_CONTENT),
        }
    }

    /// Notes a directive of the rewrite phase, which may be `return`.
    pub fn record_rewrite(&mut self, is_return: bool) {
        self.returns.get_or_insert(is_return);
    }

    /// Notes an `auth_basic`, which may be `off`.
    pub fn record_basic_auth(&mut self, is_on: bool) {
        self.has_basic_auth = Some(is_on);
    }

    /// Takes what the level above answers with: a block within a location that is no location itself
    /// (`if`, `limit_except`) answers as that does.
    pub fn inherit_content(&mut self, prev: &LevelConf<T>) {
        self.content = prev.content;
        self.is_content_inherited = prev.content.is_some();
    }

    /// Takes what this level does not say from the level above.
    pub fn inherit(&mut self, prev: &LevelConf<T>) {
        self.key = self.key.take().or_else(|| prev.key.clone());
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

    /// The key of the level; `None`: the client's address.
    #[inline]
    pub fn key(&self) -> Option<&T> {
        Some(&self.key.as_ref()?.text)
    }

    /// The key as it is written.
    pub fn written_key(&self) -> &[u8] {
        self.key.as_ref().map_or(b"$remote_addr", |key| &key.written)
    }

    /// The rules that apply, if any, once the level has inherited.
    pub fn effective_rules(&self) -> Option<&Rc<Rules<T>>> {
        self.effective.as_ref()
    }

    /// Whether rules stand on the level, and a `return` there answers before them.
    pub(super) fn has_unreached_rules(&self) -> bool {
        self.has_unreached_rules
    }

    /// Whether requests are decided on before `auth_basic` has verified who sends them.
    pub(super) fn is_before_basic_auth(&self) -> bool {
        self.has_basic_auth == Some(true) && self.settings().phase == Phase::Preaccess
    }

    /// Returns the directive that sets the location's own content, and its place, if a `return`
    /// there answers first.
    pub(super) fn unreached_content(&self) -> Option<(&Origin, &'static str)> {
        let name = self.content.filter(|_| self.returns == Some(true))?;
        Some((self.content_origin.as_ref()?, name.directive()))
    }

    /// Returns the location's own content, if it has some.
    pub fn content(&self) -> Option<Content> {
        self.content
    }

    /// Returns the settings, once the level has inherited.
    pub fn settings(&self) -> Settings {
        Settings::of(&self.options)
    }
}

impl<T> Default for LevelConf<T> {
    fn default() -> Self {
        LevelConf {
            key: None,
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
