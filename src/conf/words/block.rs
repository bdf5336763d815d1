//! Blocks of directives, and the places of their directives.

use core::fmt;

use super::message::{ConfError, Message, Origin};
use super::parameter::one_word;
use crate::policy::namespace::valid_name;
use crate::policy::options::{DirectiveName, OptionError};

/// A function that reads a directive of a block, given its name and words.
pub(crate) type Set<'a> = &'a mut dyn FnMut(&[u8], &[&[u8]]) -> Result<(), OptionError>;

/// A block of directives under construction.
pub struct Block<'a> {
    title: &'a str,
    set: Set<'a>,
    places: Places,
}

/// The next step of nginx in reading a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockStep {
    /// Go on with the next directive.
    Done,
    /// Read the file named by the directive's word, as a part of the block.
    Include,
}

/// Places of the directives of a block, in their order.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<(Box<[u8]>, Origin)>);

/// A block that was read: its title for messages, and its places.
#[derive(Debug)]
pub(crate) struct ReadBlock {
    title: String,
    origin: Origin,
    places: Places,
}

impl<'a> Block<'a> {
    /// Creates an empty block, which messages call `title`.
    pub(crate) fn new(title: &'a str, set: Set<'a>) -> Block<'a> {
        Block { title, set, places: Places::default() }
    }

    /// Finishes the block, which is at `origin`.
    pub(crate) fn finish(self, origin: Origin) -> ReadBlock {
        ReadBlock { title: self.title.into(), origin, places: self.places }
    }

    /// Reads a directive at `origin`.
    ///
    /// # Errors
    ///
    /// If the directive is invalid, or contradicts an earlier one. The message names the block.
    pub fn apply(
        &mut self,
        origin: Origin,
        name: &[u8],
        words: &[&[u8]],
    ) -> Result<BlockStep, ConfError> {
        if name == b"include" {
            return match words {
                [_] => Ok(BlockStep::Include),
                // Shows only their number: after a missing ";", the words may include a password.
                _ => {
                    let message =
                        format!("\"include\" takes one word, not {}: a file", words.len());
                    Err(ConfError::from(message).of(self.title))
                }
            };
        }
        match (self.set)(name, words) {
            Ok(()) => {
                self.places.0.push((name.into(), origin));
                Ok(BlockStep::Done)
            }
            Err(error) => {
                // An error may be about an earlier directive, which this one contradicts.
                let place = error.directive().and_then(|it| self.places.of(it));
                Err(match place {
                    Some(place) => ConfError::at(place, format!("{}: {error}", self.title)),
                    None => ConfError::from(error).of(self.title),
                })
            }
        }
    }
}

impl ReadBlock {
    /// Returns the place of the block.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Locates an error about a directive of the block, or about the block.
    pub(crate) fn error(&self, error: OptionError) -> ConfError {
        ConfError::Wrong(self.message(error.directive(), error))
    }

    /// Creates a message about a directive of the block, or about the block.
    pub(crate) fn message(
        &self,
        directive: Option<DirectiveName>,
        message: impl fmt::Display,
    ) -> Message {
        let place = directive.and_then(|directive| self.places.of(directive));
        let place = place.unwrap_or(&self.origin).clone();
        Message::At(place, format!("{}: {message}", self.title))
    }
}

impl Places {
    /// Returns the place of a directive, if it was given.
    fn of(&self, directive: DirectiveName) -> Option<&Origin> {
        let name = directive.name.as_bytes();
        let mut same = self.0.iter().filter(|(it, _)| **it == *name);
        same.nth(directive.index).map(|(_, origin)| origin)
    }
}

/// Returns the name of a `ratelimit_store` or `ratelimit_namespace`; `what` says which.
pub(crate) fn block_name<'w>(what: &str, words: &[&'w [u8]]) -> Result<&'w str, ConfError> {
    let expected = format!("expected one name and a block: ratelimit_{what} name {{ ... }}");
    Ok(valid_name(what, one_word(words, &expected)?)?)
}

/// Returns the error that a block of this name exists already.
pub(crate) fn is_defined(what: &str, name: &str, origin: &Origin) -> ConfError {
    format!("{what} \"{name}\" is duplicate: expected another name than in {origin}").into()
}
