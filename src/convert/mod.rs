//! The configuration of another limiter, written as ours.
//!
//! - [`nginx`]: nginx.conf with `limit_req`, of which only these directives change
//! - [`kong`]: Kong's declarative configuration with its plugins for rate limiting
//!
//! Everything here is pure: [`InputFiles`] stands for the file system. The program is `main.rs`.
#![forbid(unsafe_code)]

use core::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};

pub mod kong;
pub mod nginx;
mod written;

/// The beginning of each comment that a conversion writes.
const MARK: &str = "# ratelimit-convert: ";

/// The file system that a conversion reads.
pub trait InputFiles {
    /// Returns the content of a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is no regular file, or is too large.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Returns the paths that match a pattern of `glob(3)`, in alphabetical order.
    ///
    /// # Errors
    ///
    /// If the pattern is invalid, or a directory cannot be read.
    fn expand(&self, pattern: &Path) -> io::Result<Vec<PathBuf>>;
}

/// A line of an input file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputPlace {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
}

impl fmt::Display for InputPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "{}", self.file.display()),
            line => write!(formatter, "{}:{line}", self.file.display()),
        }
    }
}

/// Returns a path without `.` and `..`: each `..` takes the name before it off.
pub fn without_parents(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() || plain.has_root() => {
                plain.pop();
            }
            _ => plain.push(part),
        }
    }
    plain
}

/// A reason not to convert anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertError {
    /// The place of the wrong text.
    pub place: InputPlace,
    /// The reason, in one line.
    pub message: String,
}

impl fmt::Display for ConvertError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.place, self.message)
    }
}

impl core::error::Error for ConvertError {}

/// A remark about a difference between the input and the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The place in the input.
    pub place: InputPlace,
    /// The remark, in one line.
    pub text: String,
    /// Whether work by hand is left: something has no counterpart, or is only sketched.
    pub is_work: bool,
}

/// A file of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// The path of the input that it replaces.
    pub path: PathBuf,
    /// Its content.
    pub text: Vec<u8>,
    /// Whether the content differs from that of the input.
    pub is_changed: bool,
}

/// The result of a conversion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversion {
    /// The files, the first one given on the command line.
    pub files: Vec<OutputFile>,
    /// The remarks, in the order of the input.
    pub remarks: Vec<Remark>,
}
