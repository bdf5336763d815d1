//! The configuration, independent of nginx: from text over parsed directives to immutable settings.
//!
//! nginx reads the files, and passes each directive to [`reader`] as a name and words; `reader` has the table of
//! directives. The results go to [`http`], or to the [`level`] that contains the directive:
//!
//! - `words`: words, blocks and messages
//! - [`rule`]: the words of a rule; `ratelimit`: the rule, once nginx has compiled its texts with variables
//! - `zone`, [`namespace`], [`store_options`]: zones, namespaces and stores
//! - `review`: warnings about legal directives that are probably mistakes
//! - [`level`]: `http`, a `server` or a `location`
//!
//! After the last directive, `resolve` makes an immutable [`configuration`]. Then levels inherit, which determines
//! where rules are [`applied`]; [`listed`] is their list for users. [`defined`] has the namespaces that callers of the library define.
//!
//! The trait [`Nginx`](words::nginx::Nginx) stands for the facts and services of nginx, and for files. The shell
//! implements it; tests have an implementation of their own.
#![forbid(unsafe_code)]

pub mod applied;
pub mod configuration;
pub mod defined;
pub mod http;
pub mod level;
pub mod limit_list;
pub mod listed;
pub mod namespace;
mod ratelimit;
pub mod reader;
mod resolve;
pub mod rule;
pub mod store_options;
mod timezone;
mod zone;

pub mod review;
#[cfg(test)]
mod tests;
pub mod words;
