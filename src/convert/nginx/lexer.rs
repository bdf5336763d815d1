//! The words and blocks of a file of nginx's configuration, with their positions in the text.
//!
//! It accepts what `ngx_conf_read_token` of nginx accepts, and the contents of `*_by_lua_block`.

use super::lua;

/// The deepest nesting of blocks that is read.
const MAX_DEPTH: usize = 100;

/// The largest number of directives in a file. Lists of networks have as many.
const MAX_DIRECTIVES: usize = 1_000_000;

/// A word of a directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NginxWord {
    /// The value, without quotes and escapes.
    pub(super) value: Vec<u8>,
    /// The position of the word in the text, with its quotes.
    pub(super) start: usize,
    /// The position after the word.
    pub(super) end: usize,
}

/// A directive with its words, the first of which is its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NginxDirective {
    /// The name and the parameters; at least one.
    pub(super) words: Vec<NginxWord>,
    /// The positions of the comments between its words: start and end.
    pub(super) comments: Vec<(usize, usize)>,
    /// The position after its `;`, its `{`, or its block of Lua.
    pub(super) end: usize,
    /// The line of its name, from 1.
    pub(super) line: usize,
    /// The directive whose block contains it, by index.
    pub(super) parent: Option<usize>,
    /// Whether it has a block of directives.
    pub(super) is_block: bool,
    /// The position of its block of Lua, which contains no directives.
    pub(super) lua: Option<(usize, usize)>,
}

impl NginxDirective {
    /// Returns the name.
    pub(super) fn name(&self) -> &[u8] {
        self.words.first().map_or(b"", |word| word.value.as_slice())
    }

    /// Returns the words after the name.
    pub(super) fn parameters(&self) -> impl Iterator<Item = &[u8]> {
        self.words.iter().skip(1).map(|word| word.value.as_slice())
    }

    /// Returns the position of the name.
    pub(super) fn start(&self) -> usize {
        self.words.first().map_or(0, |word| word.start)
    }
}

/// An error in the text: its line, and the message that nginx has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LexError {
    pub(super) line: usize,
    pub(super) message: String,
}

/// Reads all directives of a file, each after the one whose block contains it.
///
/// # Errors
///
/// If nginx refuses the text, blocks are nested deeper than [`MAX_DEPTH`], or there are more than [`MAX_DIRECTIVES`].
pub(super) fn read_directives(text: &[u8]) -> Result<Vec<NginxDirective>, LexError> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let mut directives: Vec<NginxDirective> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    while let Some(statement) = lexer.statement()? {
        let Statement::Directive(mut directive) = statement else {
            if open.pop().is_none() {
                return Err(lexer.error("unexpected \"}\""));
            }
            continue;
        };
        if directives.len() >= MAX_DIRECTIVES {
            return Err(lexer.error(format!("more than {MAX_DIRECTIVES} directives")));
        }
        directive.parent = open.last().copied();
        if directive.is_block {
            if open.len() >= MAX_DEPTH {
                return Err(lexer.error(format!("blocks are nested deeper than {MAX_DEPTH}")));
            }
            open.push(directives.len());
        }
        directives.push(directive);
    }
    match open.last().and_then(|index| directives.get(*index)) {
        None => Ok(directives),
        Some(block) => {
            let (name, line) = (block.name().escape_ascii(), block.line);
            let message = format!(
                "unexpected end of file, expecting \"}}\" for the \"{name}\" of line {line}"
            );
            Err(lexer.error(message))
        }
    }
}

/// A directive, or the end of a block.
enum Statement {
    Directive(NginxDirective),
    Close,
}

struct Lexer<'t> {
    text: &'t [u8],
    at: usize,
    line: usize,
}

impl Lexer<'_> {
    fn error(&self, message: impl Into<String>) -> LexError {
        LexError { line: self.line, message: message.into() }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn advance(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at = self.at.saturating_add(1);
        if byte == b'\n' {
            self.line = self.line.saturating_add(1);
        }
        Some(byte)
    }

    /// Reads up to `;`, `{` or `}`; returns `None` at the end of the file.
    fn statement(&mut self) -> Result<Option<Statement>, LexError> {
        let mut words: Vec<NginxWord> = Vec::new();
        let mut comments = Vec::new();
        let mut line = self.line;
        loop {
            let Some(byte) = self.peek() else {
                return match words.is_empty() {
                    true => Ok(None),
                    false => Err(self.end_of_file()),
                };
            };
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => {
                    self.advance();
                }
                b'#' => {
                    let comment = self.comment();
                    if !words.is_empty() {
                        comments.push(comment);
                    }
                }
                b';' | b'{' if words.is_empty() => {
                    return Err(self.error(format!("unexpected \"{}\"", char::from(byte))));
                }
                b'}' => {
                    self.advance();
                    return match words.is_empty() {
                        true => Ok(Some(Statement::Close)),
                        false => Err(self.error("unexpected \"}\"")),
                    };
                }
                b';' | b'{' => {
                    self.advance();
                    let mut directive = NginxDirective {
                        words,
                        comments,
                        end: self.at,
                        line,
                        parent: None,
                        is_block: byte == b'{',
                        lua: None,
                    };
                    if directive.is_block && directive.name().ends_with(b"_by_lua_block") {
                        self.skip_lua(&mut directive)?;
                    }
                    return Ok(Some(Statement::Directive(directive)));
                }
                _ => {
                    if words.is_empty() {
                        line = self.line;
                    }
                    words.push(self.word()?);
                }
            }
        }
    }

    fn end_of_file(&self) -> LexError {
        self.error("unexpected end of file, expecting \";\" or \"}\"")
    }

    /// Reads a comment, without the end of its line.
    fn comment(&mut self) -> (usize, usize) {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte != b'\n') {
            self.advance();
        }
        (start, self.at)
    }

    fn word(&mut self) -> Result<NginxWord, LexError> {
        let start = self.at;
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => {
                self.advance();
                self.quoted(start, quote)
            }
            _ => self.bare(start),
        }
    }

    fn quoted(&mut self, start: usize, quote: u8) -> Result<NginxWord, LexError> {
        let first_line = self.line;
        let from = self.at;
        loop {
            match self.advance() {
                None => {
                    let quote = char::from(quote);
                    let mut error = self.end_of_file();
                    error
                        .message
                        .push_str(&format!(" (the {quote} of line {first_line} is not closed)"));
                    return Err(error);
                }
                Some(b'\\') => {
                    self.advance();
                }
                Some(byte) if byte == quote => break,
                Some(_) => {}
            }
        }
        let value = unescaped(self.text.get(from..self.at.saturating_sub(1)).unwrap_or_default());
        match self.peek() {
            Some(b' ' | b'\t' | b'\r' | b'\n' | b';' | b'{' | b')') => {
                Ok(NginxWord { value, start, end: self.at })
            }
            Some(byte) => Err(self.error(format!("unexpected \"{}\"", byte.escape_ascii()))),
            None => Err(self.end_of_file()),
        }
    }

    fn bare(&mut self, start: usize) -> Result<NginxWord, LexError> {
        let mut follows_dollar = false;
        loop {
            match self.peek() {
                None => return Err(self.end_of_file()),
                Some(b'{') if follows_dollar => {}
                Some(b' ' | b'\t' | b'\r' | b'\n' | b';' | b'{') => break,
                Some(_) => {}
            }
            match self.advance() {
                Some(b'\\') => {
                    self.advance();
                    follows_dollar = false;
                }
                byte => follows_dollar = byte == Some(b'$'),
            }
        }
        let value = unescaped(self.text.get(start..self.at).unwrap_or_default());
        Ok(NginxWord { value, start, end: self.at })
    }

    /// Skips the block of Lua whose `{` was read.
    fn skip_lua(&mut self, directive: &mut NginxDirective) -> Result<(), LexError> {
        let start = self.at;
        let rest = self.text.get(start..).unwrap_or_default();
        let Some(length) = lua::block_length(rest) else {
            let (name, line) = (directive.name().escape_ascii(), directive.line);
            let message =
                format!("the block of Lua of \"{name}\" is not closed: line {line} begins it");
            return Err(self.error(message));
        };
        while self.at < start.saturating_add(length) {
            self.advance();
        }
        directive.lua = Some((start, self.at));
        directive.end = self.at;
        directive.is_block = false;
        Ok(())
    }
}

/// Returns a word without its escapes, as nginx does: `\"`, `\'`, `\\`, `\t`, `\r`, `\n`; other backslashes stay.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(word.len());
    let mut rest = word;
    loop {
        rest = match rest {
            [] => return value,
            [b'\\', byte @ (b'"' | b'\'' | b'\\'), rest @ ..] => {
                value.push(*byte);
                rest
            }
            [b'\\', b't', rest @ ..] => {
                value.push(b'\t');
                rest
            }
            [b'\\', b'r', rest @ ..] => {
                value.push(b'\r');
                rest
            }
            [b'\\', b'n', rest @ ..] => {
                value.push(b'\n');
                rest
            }
            [byte, rest @ ..] => {
                value.push(*byte);
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the words of each directive, joined by `|`, with `{` for a block.
    fn words_of(text: &str) -> Vec<String> {
        let directives = read_directives(text.as_bytes()).expect(text);
        let words = |directive: &NginxDirective| {
            let words: Vec<_> = directive
                .words
                .iter()
                .map(|word| String::from_utf8_lossy(&word.value).into_owned())
                .collect();
            let end = if directive.is_block { " {" } else { "" };
            format!("{}{end}", words.join("|"))
        };
        directives.iter().map(words).collect()
    }

    #[test]
    fn reads_words_as_nginx_does() {
        for (text, expected) in [
            ("", &[][..]),
            ("# only a comment; {", &[]),
            ("a b c;d;", &["a|b|c", "d"]),
            ("a\n  # x; }\n  b;", &["a|b"]),
            ("a \"b c\" 'd \"e';", &["a|b c|d \"e"]),
            (r#"a "b\"c" 'd\'e' f\ g \$h \d "\t\n\x";"#, &["a|b\"c|d'e|f\\ g|\\$h|\\d|\t\n\\x"]),
            ("a ${b}c \"${d};\";", &["a|${b}c|${d};"]),
            ("a#b c;", &["a#b|c"]),
            ("a b#c;", &["a|b#c"]),
            ("a b};", &["a|b}"]),
            ("a{b;}", &["a {", "b"]),
            ("a b{c;}d;", &["a|b {", "c", "d"]),
            ("if ($a = \"b\") { c; }", &["if|($a|=|b|) {", "c"]),
            (
                "map $a $b { default \"\"; ~^/x{2} 1; } }",
                &["map|$a|$b {", "default|", "~^/x {", "2}|1"],
            ),
        ] {
            assert_eq!(words_of(text), expected, "{text}");
        }
    }

    #[test]
    fn keeps_positions() {
        let text = b"a;\n# c\nb \"c d\" # e\n f;";
        let directives = read_directives(text).unwrap();
        let b = &directives[1];
        assert_eq!(b.line, 3);
        assert_eq!(&text[b.start()..b.end], &b"b \"c d\" # e\n f;"[..]);
        assert_eq!(&text[b.words[1].start..b.words[1].end], b"\"c d\"");
        assert_eq!(b.comments, [(15, 18)]);
    }

    #[test]
    fn skips_blocks_of_lua() {
        let text = "a_by_lua_block { x = '}' -- }\n y = [[ } ]] z = { \"{\" } } b;";
        let directives = read_directives(text.as_bytes()).unwrap();
        assert_eq!(directives.len(), 2);
        assert!(directives[0].lua.is_some() && !directives[0].is_block);
        assert_eq!((directives[1].name(), directives[1].line), (&b"b"[..], 2));
    }

    #[test]
    fn refuses_what_nginx_refuses() {
        for (text, line, message) in [
            ("a", 1, "unexpected end of file, expecting \";\" or \"}\""),
            ("a b", 1, "unexpected end of file"),
            ("a;\n}", 2, "unexpected \"}\""),
            ("a\n}", 2, "unexpected \"}\""),
            (";", 1, "unexpected \";\""),
            ("{", 1, "unexpected \"{\""),
            ("a {\n b;\n", 3, "expecting \"}\" for the \"a\" of line 1"),
            ("a \"b\"c;", 1, "unexpected \"c\""),
            ("a \"b;\n\n", 3, "(the \" of line 1 is not closed)"),
            ("a \"b\"", 1, "unexpected end of file"),
            ("a_by_lua_block { '", 1, "is not closed"),
        ] {
            let error = read_directives(text.as_bytes()).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.message.contains(message), "{text}: {}", error.message);
        }
        let deep = "a {".repeat(1_000_000);
        let error = read_directives(deep.as_bytes()).unwrap_err();
        assert_eq!(error.message, "blocks are nested deeper than 100");
        let long = "a;".repeat(1_000_001);
        let error = read_directives(long.as_bytes()).unwrap_err();
        assert_eq!(error.message, "more than 1000000 directives");
    }
}
