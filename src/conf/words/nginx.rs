//! The trait for nginx while it reads a configuration: its facts, and the work that only it can do.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::block::Block;
use super::message::{ConfError, Message, Origin};
use super::settings::Content;
use crate::store::contract::options::TlsOptions;
use crate::store::net::tls::TlsError;

/// nginx, which is reading a configuration. A test has its own.
pub trait Nginx {
    /// A text with variables, ready to be evaluated for a request.
    type Text: fmt::Debug;
    /// A reader of files, which is also used while a block is read.
    type Files: Files + 'static;

    /// Returns the place of the directive that was read last.
    fn origin(&self) -> Origin;

    /// Returns the directory of the configuration, to which the paths in it are relative.
    fn directory(&self) -> PathBuf;

    /// Writes a `[warn]` line.
    fn warn(&mut self, warning: Message);

    /// Compiles a text in which every `$` begins a variable. It need not live longer than the call.
    ///
    /// # Errors
    ///
    /// nginx has no memory, and has said so.
    fn compile(&mut self, text: &[u8]) -> Result<Self::Text, ConfError>;

    /// Whether there is a variable of this name, or a family of them, such as `http_`, that it is of.
    fn has_variable(&self, name: &[u8]) -> bool;

    /// Whether a module has a directive of this name.
    fn has_directive(&self, name: &[u8]) -> bool;

    /// Whether a module is there whose code may count in any namespace: that of Lua, or one that is not nginx's own.
    fn has_callers(&self) -> bool;

    /// The size of a page of memory, in bytes.
    fn page_size(&self) -> usize;

    /// Whether a module, be it another one, has a zone of this name, or uses one.
    fn has_zone(&self, name: &str) -> bool;

    /// Adds a zone, which has so many bytes, and a name that no other has.
    ///
    /// # Errors
    ///
    /// nginx has no memory, and has said so.
    fn add_zone(&mut self, name: &str, size: usize) -> Result<(), ConfError>;

    /// Has the location that is being read answer with this.
    ///
    /// # Errors
    ///
    /// There is no location, or another module's directive says what it answers with.
    fn answer_with(&mut self, content: Content) -> Result<(), ConfError>;

    /// Reads the block that follows, and passes every directive in it to [`Block::apply`].
    ///
    /// # Errors
    ///
    /// Something in the block is wrong, and was logged, as long as its place was known.
    fn read_block(&mut self, block: &mut Block<'_>) -> Result<(), ConfError>;

    /// Returns the reader of files.
    fn files(&self) -> Self::Files;
}

/// The files that a configuration names.
pub trait Files {
    /// Returns the path of a file that is named relative to the directory of the configuration.
    fn path(&self, written: &Path) -> PathBuf;

    /// Reads the file at a path that [`Files::path`] returned.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is too large for what it should hold.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Whether connections of TLS can be made so, with the files that were read.
    ///
    /// # Errors
    ///
    /// As [`TlsClient::new`](crate::store::net::tls::TlsClient::new) says.
    fn check_tls(&self, tls: &TlsOptions) -> Result<(), TlsError>;
}
