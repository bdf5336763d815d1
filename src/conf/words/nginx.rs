//! The trait for nginx while it reads a configuration: its facts, and the work that only it can do.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::block::Block;
use super::message::{ConfError, Message, Origin};
use super::settings::Content;
use crate::store::contract::options::TlsOptions;
use crate::store::net::tls::TlsError;

/// The interface to nginx while it reads a configuration. Tests implement it, too.
pub trait Nginx {
    /// A text with variables, ready to be evaluated for a request.
    type Text: fmt::Debug;
    /// A reader of files, usable while a block is read.
    type Files: Files + 'static;

    /// Returns the place of the directive being read.
    fn origin(&self) -> Origin;

    /// Returns the directory of the configuration, to which the paths in it are relative.
    fn directory(&self) -> PathBuf;

    /// Writes a `[warn]` line.
    fn warn(&mut self, warning: Message);

    /// Compiles a text in which every `$` begins a variable. `text` need not outlive the call.
    ///
    /// # Errors
    ///
    /// If nginx has no memory, which it has logged.
    fn compile(&mut self, text: &[u8]) -> Result<Self::Text, ConfError>;

    /// Whether a variable of this name exists, or a family that contains it, such as `http_`.
    fn has_variable(&self, name: &[u8]) -> bool;

    /// Whether a module has a directive of this name.
    fn has_directive(&self, name: &[u8]) -> bool;

    /// Whether a module is loaded whose code may count in any namespace: the Lua module, or a third-party one.
    fn has_callers(&self) -> bool;

    /// Returns the size of a memory page in bytes.
    fn page_size(&self) -> usize;

    /// Whether any module defines or uses a zone of this name.
    fn has_zone(&self, name: &str) -> bool;

    /// Adds a zone of `size` bytes with a new name.
    ///
    /// # Errors
    ///
    /// If nginx has no memory, which it has logged.
    fn add_zone(&mut self, name: &str, size: usize) -> Result<(), ConfError>;

    /// Sets the content of the location being read.
    ///
    /// # Errors
    ///
    /// If this is no location, or another module has set its content.
    fn answer_with(&mut self, content: Content) -> Result<(), ConfError>;

    /// Reads the block that follows, passing every directive to [`Block::apply`].
    ///
    /// # Errors
    ///
    /// If something in the block is wrong, which was logged if its place was known.
    fn read_block(&mut self, block: &mut Block<'_>) -> Result<(), ConfError>;

    /// Returns the reader of files.
    fn files(&self) -> Self::Files;
}

/// The files named by a configuration.
pub trait Files {
    /// Returns the path of a file named relative to the directory of the configuration.
    fn path(&self, written: &Path) -> PathBuf;

    /// Reads the file at a path that [`Files::path`] returned.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is too large for its purpose.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Checks that TLS connections can be made with these options, whose files were read.
    ///
    /// # Errors
    ///
    /// Those of [`TlsClient::new`](crate::store::net::tls::TlsClient::new).
    fn check_tls(&self, tls: &TlsOptions) -> Result<(), TlsError>;
}
