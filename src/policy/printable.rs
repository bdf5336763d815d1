//! Escaping of foreign text for log lines, so that it can neither end the line nor move a terminal's cursor.

use core::fmt;

/// Displays bytes as ASCII. All that are not printable are written as `\xHH`.
///
/// ```
/// # use ngx_http_rate_limiting_module::policy::printable::Printable;
/// assert_eq!(Printable(b"a\n\x1b[31m\xff").to_string(), r"a\x0a\x1b[31m\xff");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a>(pub &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(self.0, |byte| matches!(byte, b' '..=b'~'), f)
    }
}

/// Displays bytes for use between quotes. `"` and `\` are written as `\xHH`, too, so that they neither end the quotes
/// nor look like an escape.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !b"\"\\".contains(byte);
        escape(self.0, is_plain, f)
    }
}

fn escape(
    mut bytes: &[u8],
    is_plain: impl Fn(&u8) -> bool,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    while !bytes.is_empty() {
        let plain = bytes.iter().take_while(|byte| is_plain(byte)).count();
        let (text, rest) = bytes.split_at_checked(plain).unwrap_or_default();
        // `text` is ASCII, so the conversion cannot fail.
        f.write_str(core::str::from_utf8(text).unwrap_or_default())?;
        bytes = match rest {
            [byte, rest @ ..] => {
                write!(f, "\\x{byte:02x}")?;
                rest
            }
            [] => rest,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprintable_characters_are_escaped() {
        for (text, shown) in [
            (&b""[..], ""),
            (b" az~\"\\", " az~\"\\"),
            (b"\0\t\r\n\x1b\x1f", r"\x00\x09\x0d\x0a\x1b\x1f"),
            (b"\x7f\x80\xff", r"\x7f\x80\xff"),
            ("\u{e4}\u{85}\u{2028}".as_bytes(), r"\xc3\xa4\xc2\x85\xe2\x80\xa8"),
            // Existing escapes stay as they are.
            (br"\x0a", r"\x0a"),
        ] {
            assert_eq!(Printable(text).to_string(), shown);
        }
        assert_eq!(Quoted(b"a\"\\\n").to_string(), r"a\x22\x5c\x0a");
    }
}
