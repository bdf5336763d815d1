//! The table of directives, and the dispatch of each to its reader.

use core::ffi::CStr;

use super::http::HttpConf;
use super::level::LevelConf;
use super::words::message::ConfError;
use super::words::nginx::Nginx;
use super::words::settings::Phase;
use super::{ratelimit, zone};
use crate::policy::options::shown;

/// A directive.
#[derive(Debug)]
pub struct ConfDirective {
    /// Its name.
    pub name: &'static CStr,
    /// The contexts in which it is allowed.
    pub context: DirectiveContext,
    /// Whether it has a block.
    pub is_block: bool,
}

/// A set of contexts in which a directive is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectiveContext {
    /// In `http`.
    Http,
    /// In `http`, `server` and `location`.
    Anywhere,
    /// In `location`.
    Location,
}

/// The directives, in the order of the reference.
pub const DIRECTIVES: [ConfDirective; 16] = [
    of(c"ratelimit_zone", DirectiveContext::Http),
    block(c"ratelimit_store"),
    block(c"ratelimit_namespace"),
    of(c"ratelimit_key", DirectiveContext::Anywhere),
    of(c"ratelimit", DirectiveContext::Anywhere),
    of(c"ratelimit_count_rejected", DirectiveContext::Anywhere),
    of(c"ratelimit_status", DirectiveContext::Anywhere),
    of(c"ratelimit_message", DirectiveContext::Anywhere),
    of(c"ratelimit_timezone", DirectiveContext::Anywhere),
    of(c"ratelimit_dry_run", DirectiveContext::Anywhere),
    of(c"ratelimit_log_level", DirectiveContext::Anywhere),
    of(c"ratelimit_headers", DirectiveContext::Anywhere),
    of(c"ratelimit_retry_after_jitter", DirectiveContext::Anywhere),
    of(c"ratelimit_phase", DirectiveContext::Anywhere),
    of(c"ratelimit_api", DirectiveContext::Location),
    of(c"ratelimit_metrics", DirectiveContext::Location),
];

const fn of(name: &'static CStr, context: DirectiveContext) -> ConfDirective {
    ConfDirective { name, context, is_block: false }
}

const fn block(name: &'static CStr) -> ConfDirective {
    ConfDirective { is_block: true, ..of(name, DirectiveContext::Http) }
}

/// A reader of directives, which stores each in `http` or in the level that contains it.
#[derive(Debug)]
pub struct ConfReader<'r, N: Nginx> {
    /// nginx, which reads the file.
    pub nginx: &'r mut N,
    /// All of `http`.
    pub http: &'r mut HttpConf,
    /// The level.
    pub level: &'r mut LevelConf<N::Text>,
}

impl<N: Nginx> ConfReader<'_, N> {
    /// Reads the directive `name`, one of [`DIRECTIVES`] in an allowed context, with its `words`.
    ///
    /// # Errors
    ///
    /// If the directive is invalid. The message names the word, and says what is accepted.
    pub fn apply(&mut self, name: &str, words: &[&[u8]]) -> Result<(), ConfError> {
        let ConfReader { nginx, http, level } = self;
        let nginx = &mut **nginx;
        let result = match name {
            "ratelimit_zone" => zone::read(nginx, http, words),
            "ratelimit_store" => http.read_store(nginx, words),
            "ratelimit_namespace" => http.read_namespace(nginx, words),
            "ratelimit_key" => level.set_key(nginx, words),
            "ratelimit" => ratelimit::read(nginx, http, level, words),
            "ratelimit_timezone" => level.zone.set(words).map(|()| {
                if level.zone.is_outermost() {
                    http.zone = level.zone.clone();
                }
            }),
            "ratelimit_message" => level.set_body(nginx, words),
            "ratelimit_api" => level.set_api(nginx, words).map(|may_write| {
                http.has_callers |= may_write;
            }),
            "ratelimit_metrics" => level.set_metrics(nginx, words),
            _ => level.options.set(name, words).map(|()| {
                http.has_precontent |= level.settings().phase == Phase::Precontent;
            }),
        };
        match result {
            Ok(()) => {
                http.record_variables(name, words, &nginx.origin());
                Ok(())
            }
            Err(error) => Err(match swallowed(nginx, name, words) {
                Some(next) => {
                    let message = format!("\"{next}\" is a directive: expected \";\" before it");
                    ConfError::from(message)
                }
                None => error,
            }
            .of(name)),
        }
    }
}

/// Returns the first directive's name among the words of another directive, before which a `;` is missing. Skips the
/// first word of `ratelimit`: a namespace may have any name.
fn swallowed(nginx: &impl Nginx, name: &str, words: &[&[u8]]) -> Option<String> {
    let words = words.iter().skip(usize::from(name == "ratelimit"));
    let mut words = words.filter(|word| nginx.has_directive(word));
    words.next().map(|word| shown(word))
}
