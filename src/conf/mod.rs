//! The configuration, without nginx: text to parsed to resolved to immutable.
//!
//! nginx reads the files. It passes each directive, as a name and words, to [`reader`], which has the
//! table of directives. The results are kept in [`http`], or in the [`level`] that the directive stands in:
//!
//! - `words`: words, blocks and messages
//! - [`rule`]: the words of a rule; `ratelimit`: the rule, once nginx has compiled its texts with variables
//! - `zone`, [`namespace`], [`store_options`]: zones, namespaces and stores
//! - `review`: warnings about directives that nobody means
//! - [`level`]: `http`, a `server` or a `location`
//!
//! When all was read, `resolve` makes an immutable [`configuration`] of it. Levels inherit from those above them, which
//! shows where rules are [`applied`]. [`defined`] has the namespaces that callers of the library define.
//!
//! The shell implements the trait [`Nginx`](words::nginx::Nginx) for what only nginx can do or know, and for files; a test
//! has its own.
#![forbid(unsafe_code)]

pub mod applied;
pub mod configuration;
pub mod defined;
pub mod http;
pub mod level;
pub mod namespace;
mod ratelimit;
pub mod reader;
mod resolve;
pub mod rule;
pub mod store_options;
mod zone;

pub mod review;
#[cfg(test)]
mod tests;
pub mod words;
