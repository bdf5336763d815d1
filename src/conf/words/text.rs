//! Texts with variables, and numbers of hits that may be such: checked before nginx compiles them.

use super::message::ConfError;
use super::nginx::Nginx;
use crate::policy::hits::{self, Hits};
use crate::policy::options::shown;

/// A text, and how it was written.
#[derive(Debug)]
pub struct WrittenText<T> {
    /// The compiled text.
    pub text: T,
    /// The text itself.
    pub written: Box<[u8]>,
}

/// A number of hits: a constant, or text and variables that come to one.
#[derive(Debug)]
pub enum Amount<T> {
    /// Always so many.
    Constant(Hits),
    /// A text with variables.
    Variable(T),
}

impl<T> WrittenText<T> {
    /// Compiles the text of a directive.
    ///
    /// # Errors
    ///
    /// It has a `$` without a variable.
    pub(crate) fn compile<N>(nginx: &mut N, written: &[u8]) -> Result<WrittenText<T>, ConfError>
    where
        N: Nginx<Text = T>,
    {
        Ok(WrittenText { text: compile(nginx, written)?, written: written.into() })
    }
}

impl<T> Amount<T> {
    /// Reads a number, or compiles a text with variables.
    ///
    /// # Errors
    ///
    /// It is neither.
    pub(crate) fn compile<N>(nginx: &mut N, text: &[u8]) -> Result<Amount<T>, ConfError>
    where
        N: Nginx<Text = T>,
    {
        if text.contains(&b'$') {
            return Ok(Amount::Variable(compile(nginx, text)?));
        }
        let invalid = |expected: String| {
            Err(format!("invalid number \"{}\": expected {expected}", shown(text)).into())
        };
        match Hits::parse(text) {
            Ok(Hits::ZERO) if text.iter().any(|byte| (b'1'..=b'9').contains(byte)) => {
                invalid("0 or at least 0.001".into())
            }
            Ok(hits) => Ok(Amount::Constant(hits)),
            Err(error) => invalid(format!(
                "a decimal, such as 1 or 0.5, or variables ({error}){}",
                did_you_mean(text)
            )),
        }
    }
}

/// Ends the message about a text that is no decimal, with the one that was probably meant.
pub(crate) fn did_you_mean(text: &[u8]) -> String {
    let meant = core::str::from_utf8(text).ok().and_then(hits::meant_by);
    meant.map_or(String::new(), |meant| format!(": did you mean {meant}?"))
}

/// Compiles a text in which nginx will understand the variables: its own messages do not say what is
/// accepted.
pub(crate) fn compile<N: Nginx>(nginx: &mut N, text: &[u8]) -> Result<N::Text, ConfError> {
    if names(text).any(<[u8]>::is_empty) {
        return Err(format!(
            "invalid variable in \"{}\": expected $name or ${{name}} after every \"$\"",
            shown(text)
        )
        .into());
    }
    nginx.compile(text)
}

/// Returns the names of the variables in a text, in their order. One is empty where none follows a `$`; that of a
/// capture such as `$1` begins with a digit.
pub(crate) fn names(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    core::iter::from_fn(move || {
        let start = rest.iter().position(|&byte| byte == b'$')?;
        let after = rest.get(start.wrapping_add(1)..).unwrap_or_default();
        let name;
        (name, rest) = match after {
            [b'1'..=b'9', rest @ ..] => (after.get(..1).unwrap_or_default(), rest),
            [b'{', inner @ ..] => {
                let len = inner.iter().take_while(|byte| is_in_name(byte)).count();
                match inner.split_at_checked(len) {
                    Some((name, [b'}', rest @ ..])) => (name, rest),
                    _ => (&b""[..], inner),
                }
            }
            _ => {
                let len = after.iter().take_while(|byte| is_in_name(byte)).count();
                after.split_at_checked(len).unwrap_or_default()
            }
        };
        Some(name)
    })
}

/// The name of the variable that a text is, if it is nothing else, nor a capture such as `$1`.
pub fn variable(text: &[u8]) -> Option<&[u8]> {
    let name = text.strip_prefix(b"$")?;
    let is_name = name.iter().all(is_in_name) && !name.first()?.is_ascii_digit();
    is_name.then_some(name)
}

/// Whether a byte is part of the names of variables.
pub(crate) fn is_in_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_'
}
