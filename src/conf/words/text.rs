//! Texts with variables, and numbers of hits that may be such: checked before nginx compiles them.

use std::rc::Rc;

use super::message::ConfError;
use super::nginx::Nginx;
use crate::conf::limit_list::LimitList;
use crate::policy::hits::{self, Hits};
use crate::policy::options::shown;

/// A compiled text, with its source.
#[derive(Debug)]
pub struct WrittenText<T> {
    /// The compiled text.
    pub text: T,
    /// The text as written.
    pub written: Box<[u8]>,
}

/// A number of hits: a constant, or a text with variables.
#[derive(Debug)]
pub enum Amount<T> {
    /// A constant.
    Constant(Hits),
    /// A text with variables.
    Variable(T),
    /// The hits of a limit's window in a list.
    Listed(Rc<LimitList<T>>),
}

impl<T> WrittenText<T> {
    /// Compiles the text of a directive.
    ///
    /// # Errors
    ///
    /// If a `$` begins no variable.
    pub(crate) fn compile<N>(nginx: &mut N, written: &[u8]) -> Result<WrittenText<T>, ConfError>
    where
        N: Nginx<Text = T>,
    {
        Ok(WrittenText { text: compile(nginx, written)?, written: written.into() })
    }
}

impl<T> Amount<T> {
    /// Parses a constant, or compiles a text with variables.
    ///
    /// # Errors
    ///
    /// If the text is neither.
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

/// Returns the end of a message about an invalid decimal: the one that was probably meant.
pub(crate) fn did_you_mean(text: &[u8]) -> String {
    let meant = core::str::from_utf8(text).ok().and_then(hits::meant_by);
    meant.map_or(String::new(), |meant| format!(": did you mean {meant}?"))
}

/// Compiles a text after checking its variables, since nginx's own messages do not say what is accepted.
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

/// Returns the names of the variables in a text, in their order. A `$` without a variable yields an empty name; a
/// capture such as `$1` yields a digit.
pub(crate) fn names(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    split(text).filter_map(|part| match part {
        TextPart::Literal(_) => None,
        TextPart::Variable { name, .. } => Some(name),
    })
}

/// Returns a text with each variable in the form that all texts of the same value have.
pub(crate) fn same(text: &[u8]) -> Vec<u8> {
    let parts = split(text).map(|part| match part {
        TextPart::Literal(bytes) => bytes.to_vec(),
        TextPart::Variable { name: b"", written } => written.to_vec(),
        TextPart::Variable { name, .. } => [b"${", &*name.to_ascii_lowercase(), b"}"].concat(),
    });
    parts.collect::<Vec<_>>().concat()
}

/// A part of a text with variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextPart<'t> {
    /// Text up to the next variable, at least one byte.
    Literal(&'t [u8]),
    /// A variable.
    Variable {
        /// The variable as written, with its `$`.
        written: &'t [u8],
        /// Its name; empty if the `$` begins no variable.
        name: &'t [u8],
    },
}

/// Splits a text into literals and variables, in their order.
pub(crate) fn split(text: &[u8]) -> impl Iterator<Item = TextPart<'_>> {
    let mut rest = text;
    core::iter::from_fn(move || {
        let start = rest.iter().position(|&byte| byte == b'$').unwrap_or(rest.len());
        let (literal, variable) = rest.split_at_checked(start).unwrap_or_default();
        if !literal.is_empty() {
            rest = variable;
            return Some(TextPart::Literal(literal));
        }
        let (_, after) = variable.split_first()?;
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
        let len = variable.len().saturating_sub(rest.len());
        Some(TextPart::Variable { written: variable.get(..len).unwrap_or_default(), name })
    })
}

/// Returns the name of the variable of which the whole text consists; `None` for a capture such as `$1`.
pub fn variable(text: &[u8]) -> Option<&[u8]> {
    let name = text.strip_prefix(b"$")?;
    let is_name = name.iter().all(is_in_name) && !name.first()?.is_ascii_digit();
    is_name.then_some(name)
}

/// Whether a byte may be part of a variable's name.
pub(crate) fn is_in_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_'
}
