//! skeleton
mod module;
