//! What a level says, that is `http`, a `server` or a `location`, and how levels inherit.

use std::rc::Rc;

use super::message::ConfError;
use super::nginx::Nginx;
use super::rules::Rules;
use super::settings::{Content, LevelOptions, Settings};
use super::text::WrittenText;
use super::words::{invalid, one_word, set_once};

/// The configuration of a level.
#[derive(Debug)]
pub struct LevelConf<T> {
    key: Option<Rc<WrittenText<T>>>,
    /// Those of this level, or of one above.
    pub(super) rules: Option<Rc<Rules<T>>>,
    /// Those that apply: none if they are off, and no inherited ones where a location answers by
    /// itself.
    effective: Option<Rc<Rules<T>>>,
    content: Option<Content>,
    /// Whether that is what the location around answers with: this is a block within it.
    is_content_inherited: bool,
    pub(super) options: LevelOptions,
}

impl<T> LevelConf<T> {
    /// `ratelimit_key string`
    pub(super) fn set_key<N>(&mut self, nginx: &mut N, words: &[&[u8]]) -> Result<(), ConfError>
    where
        N: Nginx<Text = T>,
    {
        let word = one_word(words, "expected one string, such as $remote_addr")?;
        set_once(&mut self.key, Rc::new(WrittenText::compile(nginx, word)?))
    }

    /// `ratelimit_api [write=on | off]`
    pub(super) fn set_api(
        &mut self,
        nginx: &mut impl Nginx,
        words: &[&[u8]],
    ) -> Result<(), ConfError> {
        const EXPECTED: &str = "expected write=on, write=off or nothing";
        let may_write = match words {
            [] | [b"write=off"] => false,
            [b"write=on"] => true,
            [word] => return Err(invalid("parameter", word, EXPECTED)),
            words => return one_word(words, EXPECTED).map(|_| ()),
        };
        self.set_content(nginx, Content::Api { may_write })
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
        nginx.answer_with(content)
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
        let own = self.rules.take();
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
        self.key
            .as_ref()
            .map_or(b"$remote_addr", |key| &key.written)
    }

    /// The rules that apply, if any, once the level has inherited.
    pub fn effective_rules(&self) -> Option<&Rc<Rules<T>>> {
        self.effective.as_ref()
    }

    /// What the location itself answers with, if it does.
    pub fn content(&self) -> Option<Content> {
        self.content
    }

    /// How requests are treated, once the level has inherited.
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
            is_content_inherited: false,
            options: LevelOptions::default(),
        }
    }
}
