//! The end of a block of Lua in nginx's configuration, whose braces, strings and comments are Lua's.

/// Returns the length of a block up to and including the `}` that ends it; `text` follows its `{`.
pub(super) fn block_length(text: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    let mut rest = text;
    loop {
        rest = match rest {
            [] => return None,
            [b'}', after @ ..] if depth == 0 => {
                return Some(text.len().saturating_sub(after.len()));
            }
            [b'}', after @ ..] => {
                depth = depth.saturating_sub(1);
                after
            }
            [b'{', after @ ..] => {
                depth = depth.saturating_add(1);
                after
            }
            [b'-', b'-', after @ ..] => match long_bracket(after) {
                Some(after) => after?,
                None => after_line(after),
            },
            [b'[', ..] => match long_bracket(rest) {
                Some(after) => after?,
                None => rest.get(1..)?,
            },
            [quote @ (b'"' | b'\''), after @ ..] => after_string(after, *quote)?,
            [_, after @ ..] => after,
        };
    }
}

/// Returns the text after a long bracket, `[[...]]` or `[==[...]==]`; `Some(None)` if it does not end, `None` if there is
/// none at the start of the text.
fn long_bracket(text: &[u8]) -> Option<Option<&[u8]>> {
    let inner = text.strip_prefix(b"[")?;
    let level = inner.iter().take_while(|byte| **byte == b'=').count();
    let inner = inner.get(level..)?.strip_prefix(b"[")?;
    let mut end = vec![b'='; level];
    end.insert(0, b']');
    end.push(b']');
    let at = inner.windows(end.len()).position(|window| window == end);
    Some(at.and_then(|at| inner.get(at.saturating_add(end.len())..)))
}

fn after_line(text: &[u8]) -> &[u8] {
    let at = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    text.get(at..).unwrap_or_default()
}

fn after_string(text: &[u8], quote: u8) -> Option<&[u8]> {
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\\', _, after @ ..] => after,
            [byte, after @ ..] if *byte == quote => return Some(after),
            [_, after @ ..] => after,
            [] => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_end_of_a_block() {
        for (text, rest) in [
            ("} x", Some(" x")),
            (" a = {} } x", Some(" x")),
            (" '}' \"}\" '\\'}' } x", Some(" x")),
            (" -- }\n } x", Some(" x")),
            (" --[[ } \n } ]] } x", Some(" x")),
            (" [==[ ]] } ]==] } x", Some(" x")),
            (" a[b[1]] = 1 } x", Some(" x")),
            (" a - b } x", Some(" x")),
            (" { } ", None),
            (" ' }", None),
            (" [[ }", None),
            (" -- }", None),
            (" \"\\", None),
        ] {
            let length = block_length(text.as_bytes());
            assert_eq!(length.map(|length| &text[length..]), rest, "{text}");
        }
    }
}
