//! Words of directives.
//!
//! - [`block`]: blocks of directives; [`parameter`]: directives of a word or two, and `name=value`; [`text`]:
//!   texts with variables
//! - [`settings`]: the options of a level; [`message`]: messages, each with its place
//! - [`nginx`]: the trait for nginx, which is asked meanwhile

pub mod block;
pub mod message;
pub mod nginx;
pub mod parameter;
pub mod settings;
pub mod text;
