//! `ratelimit_message`: the body of rejections, split into literals and variables, since variables in JSON are escaped
//! one by one.

use crate::conf::words::message::ConfError;
use crate::conf::words::nginx::Nginx;
use crate::conf::words::parameter::invalid;
use crate::conf::words::text::{TextPart, compile, split};
use crate::policy::options::shown;

/// The body of rejections.
#[derive(Debug)]
pub struct RejectionBody<T> {
    /// The media type, as in `Content-Type`.
    pub media_type: Box<str>,
    /// Whether values of variables are escaped, as within a string of JSON.
    pub is_json: bool,
    /// The parts of the text, in order.
    pub parts: Vec<BodyPart<T>>,
}

/// A part of the body.
#[derive(Debug)]
pub enum BodyPart<T> {
    /// Bytes that are sent as they are.
    Literal(Box<[u8]>),
    /// A variable.
    Variable(T),
}

impl<T> RejectionBody<T> {
    /// Reads the words of `ratelimit_message type text`.
    ///
    /// # Errors
    ///
    /// If there are other words, the type is no media type, or a `$` in the text begins no variable.
    pub(super) fn read<N>(nginx: &mut N, words: &[&[u8]]) -> Result<RejectionBody<T>, ConfError>
    where
        N: Nginx<Text = T>,
    {
        const EXPECTED: &str =
            "expected a media type and a text, such as application/json '{\"error\": \"limited\"}'";
        let (media_type, text) = match words {
            [media_type, text] => (media_type, text),
            [] | [_] => return Err(format!("too few parameters: {EXPECTED}").into()),
            [_, _, more, ..] => {
                let more = shown(more);
                return Err(format!("one parameter too many, \"{more}\": {EXPECTED}").into());
            }
        };
        let media_type = core::str::from_utf8(media_type)
            .ok()
            .filter(|media_type| is_media_type(media_type))
            .ok_or_else(|| invalid("media type", media_type, EXPECTED))?;
        let parts = split(text).map(|part| match part {
            TextPart::Literal(bytes) => Ok(BodyPart::Literal(bytes.into())),
            TextPart::Variable { written, .. } => Ok(BodyPart::Variable(compile(nginx, written)?)),
        });
        Ok(RejectionBody {
            is_json: is_json(media_type),
            media_type: media_type.into(),
            parts: parts.collect::<Result<_, ConfError>>()?,
        })
    }
}

/// Whether a text is `type/subtype`, with or without parameters. Control characters would end the header.
fn is_media_type(text: &str) -> bool {
    let is_token = |part: &str| {
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#&-^_.+".contains(&byte);
        !part.is_empty() && part.bytes().all(is_legal)
    };
    let names = essence(text).split_once('/');
    names.is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

fn is_json(media_type: &str) -> bool {
    let essence = essence(media_type).to_ascii_lowercase();
    essence.ends_with("/json") || essence.ends_with("+json")
}

/// Returns a media type without its parameters.
fn essence(media_type: &str) -> &str {
    media_type.split_once(';').map_or(media_type, |(essence, _)| essence).trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_a_type_and_a_subtype() {
        for text in ["text/plain", "application/problem+json", "text/html; charset=utf-8"] {
            assert!(is_media_type(text), "{text}");
        }
        for text in ["", "text", "text/", "/plain", "text/a b", "$type/x", "text/plain;\r\nX: 1"] {
            assert!(!is_media_type(text), "{text}");
        }
    }

    #[test]
    fn some_media_types_are_json() {
        for text in ["application/json", "text/JSON ; charset=utf-8", "application/problem+json"] {
            assert!(is_json(text), "{text}");
        }
        for text in ["text/plain", "application/json-seq", "text/html; x=application/json"] {
            assert!(!is_json(text), "{text}");
        }
    }
}
