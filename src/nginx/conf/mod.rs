//! The configuration as nginx has it: nginx reads the files, `crate::conf` what is in them.
//!
//! - [`reading`]: nginx's pointer to a configuration that it is reading
//! - [`directives`], [`blocks`]: nginx's callbacks, which pass words on; [`files`]
//! - [`text`], [`variable`]: text with variables, which nginx compiles and evaluates
//! - [`main`], [`location`]: what nginx keeps for `http`, and for each level
//! - [`served`], [`rules`]: namespaces and rules, once the zones are mapped
//! - [`library`], [`found`], [`finding`], [`library_error`]: what callers of the library define and find; [`late`]: what
//!   they define in a worker
//! - [`watched`]: directives of other modules, of which ours warn
//! - [`content`]: what answers in a location that is ours
//! - [`status`]: what is told of it all

mod blocks;
mod content;
mod directives;
mod files;
mod finding;
mod found;
mod late;
mod library;
mod library_error;
mod location;
mod main;
mod reading;
mod rules;
mod served;
mod status;
mod text;
mod variable;
pub(super) mod watched;

pub(super) use content::ContentHandlers;
pub(super) use directives::COMMANDS;
pub(super) use files::ConfFiles;
pub(super) use finding::Defined;
pub(super) use found::{Committed, FoundNamespace, LibraryLimiter};
pub(super) use library_error::LibraryError;
pub(super) use location::LocationConf;
pub(super) use main::MainConf;
pub(super) use reading::Conf;
pub(super) use rules::{Active, ActiveLimit, ActiveRule, Cost, OwnKey, RuleKey, RuleSet};
pub(super) use served::{LateNamespace, SyncedNamespace, Synchronous};
pub(super) use status::Look;
pub(super) use text::{Amount, Evaluated, EvaluationError};

pub(super) use crate::conf::words::settings::{Content, Phase, Settings};
