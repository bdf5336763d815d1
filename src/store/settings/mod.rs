//! Settings of a `ratelimit_store` block that every kind of datastore has.
//!
//! - [`common`]: their directives; [`syntax`]: the words; [`kind`]: what each kind of datastore adds

pub mod common;
pub mod kind;
pub(super) mod syntax;
