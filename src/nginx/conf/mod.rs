//! The configuration in nginx. nginx parses the files; `crate::conf` interprets the directives.
//!
//! - [`reading`]: nginx's pointer to a configuration that it is reading
//! - [`directives`], [`blocks`]: nginx's callbacks for directives, and files that they name
//! - [`text`], [`variable`]: text with variables, which nginx compiles and evaluates
//! - [`main`], [`location`]: the configurations of `http`, and of each level
//! - [`served`], [`rules`]: namespaces and rules, once the zones are mapped
//! - [`library`], [`found`], [`finding`], [`library_error`]: definitions and handles of the
//!   library's callers; [`late`]: definitions in a worker
//! - [`watched`]: other modules' directives about which this module warns
//! - [`status`]: the status for the API and the metrics

mod blocks;
mod directives;
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

pub(super) use directives::{COMMANDS, ConfFiles};
pub(super) use finding::Defined;
pub(super) use found::{FoundNamespace, LibraryLimiter};
pub(super) use library_error::LibraryError;
pub(super) use location::LocationConf;
pub(super) use main::MainConf;
pub(super) use reading::{Conf, ContentHandlers};
pub(super) use rules::{Active, ActiveLimit, ActiveRule, Cost, OwnKey, RuleKey, RuleSet};
pub(super) use served::{LateNamespace, Lent, SyncedNamespace, Synchronous};
pub(super) use status::Look;
pub(super) use text::{Amount, Evaluated, EvaluationError, Text};

pub(super) use crate::conf::level::body::{BodyPart, RejectionBody};
pub(super) use crate::conf::words::settings::{Content, Phase, Settings};
