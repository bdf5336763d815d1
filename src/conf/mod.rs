//! The configuration, without nginx: text to parsed to resolved to immutable.
//!
//! nginx reads the files. It passes each directive, as a name and words, to [`reader`], which has the
//! table of directives. What it says is kept in [`http`], or in the [`level`] that it stands in:
//!
//! - `zone`: zones; [`block`], [`namespace_block`], [`namespace`]: blocks, and those of namespaces
//! - [`rule`], [`parameter`]: the words of a rule; `ratelimit`, [`rules`], [`text`]: what becomes of
//!   them, once nginx has compiled texts with variables
//! - [`settings`]: options of a level, which are a word or two; `parse`: what these have in common
//!
//! When all was read, `http` is resolved (`resolve`): that makes a [`configuration`], which does not
//! change any more. Levels inherit from those above them, which shows where rules are [`applied`] and
//! whether some are [`sharing`] a counter.
//!
//! What only nginx can do or know, and what is in files, is asked of [`nginx`], a trait: the shell
//! implements it, and a test has its own. What is wrong, or odd, is a [`message`] with its place.
#![forbid(unsafe_code)]

pub mod applied;
pub mod block;
pub mod configuration;
pub mod defined;
pub mod http;
pub mod level;
pub mod message;
pub mod namespace;
pub mod namespace_block;
pub mod nginx;
pub mod parameter;
mod parse;
mod rate;
mod ratelimit;
pub mod reader;
mod resolve;
pub mod rule;
pub mod rules;
pub mod settings;
pub mod sharing;
pub mod store_options;
pub mod text;
mod unmeant;
mod zone;

#[cfg(test)]
mod tests;
