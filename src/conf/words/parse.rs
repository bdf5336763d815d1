//! Parsers that directives of a word or two share.

use super::message::ConfError;
use crate::policy::options::shown;

/// Returns the only word of a directive.
pub(crate) fn one_word<'w>(words: &[&'w [u8]], expected: &str) -> Result<&'w [u8], ConfError> {
    match words {
        [word] => Ok(word),
        [] => Err(format!("no parameter: {expected}").into()),
        [_, more, ..] => {
            let more = shown(more);
            Err(format!("one parameter too many, \"{more}\": {expected}").into())
        }
    }
}

/// Parses the only word of a directive, one of a few choices.
pub(super) fn one_of<T: Copy, const N: usize>(
    words: &[&[u8]],
    values: [(&str, T); N],
) -> Result<T, ConfError> {
    let names = values.map(|(name, _)| name);
    let expected = match names.split_last() {
        Some((last, others)) => format!("expected {} or {last}", others.join(", ")),
        None => String::new(),
    };
    let word = one_word(words, &expected)?;
    let value = values.iter().find(|(name, _)| name.as_bytes() == word);
    match value {
        Some((_, value)) => Ok(*value),
        None => Err(invalid("parameter", word, &expected)),
    }
}

/// Parses the only word of a directive: `on` or `off`.
pub(super) fn on_or_off(words: &[&[u8]]) -> Result<bool, ConfError> {
    one_of(words, [("on", true), ("off", false)])
}

/// Sets an option that a level may set once.
pub(crate) fn set_once<T>(place: &mut Option<T>, value: T) -> Result<(), ConfError> {
    match place {
        Some(_) => Err("is duplicate on this level".into()),
        None => {
            *place = Some(value);
            Ok(())
        }
    }
}

/// Creates the error that `word` is not what was `expected`.
pub(crate) fn invalid(what: &str, word: &[u8], expected: &str) -> ConfError {
    format!("invalid {what} \"{}\": {expected}", shown(word)).into()
}
