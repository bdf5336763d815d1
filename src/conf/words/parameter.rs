//! Parsers of the words of a directive: of one or two words, or parameters `name=value`; and the messages about words
//! that are no parameter of a rule.

use super::message::ConfError;
use crate::policy::limit::Quota;
use crate::policy::namespace::is_valid_name;
use crate::policy::options::{OptionError, shown};

/// A word `name=value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter<'a> {
    /// The whole word.
    pub word: &'a [u8],
    /// The text after the first `=`.
    pub value: &'a [u8],
}

/// The accepted parameters of a rule, as the end of a message.
pub(crate) const EXPECTED: &str = "expected limit=hits/window, limits=, default=, window=, tz=, rate=hits/time, burst=, delay=, concurrent=, key=, counter=, cost=, charge=, \
                               dry_run=, status=, unless=, ban=, ban_after= or name=";

/// The rule of quotes, as the end of a message.
pub(crate) const QUOTES: &str = "quotes go around a whole parameter, as in \"key=a b\"";

impl<'a> Parameter<'a> {
    /// Parses `word` as a parameter; `None` without a `=`.
    pub(crate) fn of(word: &'a [u8]) -> Option<Parameter<'a>> {
        let (_, value) = split_once(word, b'=')?;
        Some(Parameter { word, value })
    }

    /// Returns the text before the first `=`.
    pub(crate) fn name(&self) -> &'a [u8] {
        split_once(self.word, b'=').map_or(self.word, |(name, _)| name)
    }

    /// Creates the error that the value is not what was `expected`.
    pub fn invalid(&self, expected: &str) -> OptionError {
        let word = shown(self.word);
        OptionError::new(format!("invalid parameter \"{word}\": {expected}"))
    }
}

fn split_once(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| byte == separator)?;
    let (before, after) = text.split_at_checked(at)?;
    Some((before, after.get(1..)?))
}

/// Whether a word without a value is no namespace's name, but a mistake that [`unknown`] explains.
pub(crate) fn is_other(word: &[u8]) -> bool {
    word == b"nodelay" || meant_by(word).is_some()
}

/// Returns the parameter that was probably meant by a limit or rate written without a name.
fn meant_by(word: &[u8]) -> Option<String> {
    let text = core::str::from_utf8(word).ok()?;
    if Quota::parse(word).is_ok() {
        return Some(format!("limit={text}"));
    }
    let meant = Quota::meant_by(word)?;
    let is_rate = text.contains("r/");
    Some(format!("{}={meant}", if is_rate { "rate" } else { "limit" }))
}

/// Creates the error for an unknown parameter. For parameters of similar directives, the message names the equivalent
/// here.
pub(crate) fn unknown(word: &[u8]) -> OptionError {
    let parameter = Parameter::of(word);
    let word_shown = shown(word);
    let value = parameter.map_or(&b""[..], |parameter| parameter.value);
    let message = match parameter.map_or(word, |parameter| parameter.name()) {
        b"nodelay" => format!(
            "parameter \"{word_shown}\" is of limit_req: expected none, and no \"delay=\" either, \
             without which no request is delayed"
        ),
        b"zone" => format!(
            "parameter \"{word_shown}\" is of limit_req: expected \"zone name;\" in a \
             \"ratelimit_namespace\" block, whose name is the first word here"
        ),
        b"namespace" if is_valid_name(value) => format!(
            "invalid parameter \"{word_shown}\": a namespace is the first word, and no more than \
             its name: expected \"ratelimit {} limit=...\"",
            shown(value)
        ),
        _ if parameter.is_none() && is_valid_name(word) => format!(
            "invalid parameter \"{word_shown}\": {EXPECTED}; or as the first word, and no other, \
             a namespace: \"ratelimit {word_shown} limit=...\""
        ),
        _ if parameter.is_none() && meant_by(word).is_some() => format!(
            "invalid parameter \"{word_shown}\": did you mean {}?",
            meant_by(word).unwrap_or_default()
        ),
        _ if matches!(word, [.., b'"' | b'\'']) => {
            format!("invalid parameter \"{word_shown}\": {QUOTES}")
        }
        _ => format!("invalid parameter \"{word_shown}\": {EXPECTED}"),
    };
    OptionError::new(message)
}

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
        Some(_) => Err("is duplicate on this level: expected it once".into()),
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
