//! Options: a reader of a block's directives, and its error messages.
//!
//! A block's builder gets each directive as a name and words, in any order. [`directives!`] declares the directives of a
//! block, each with the [`Syntax`] of its word.
//!
//! Messages end in logs, so they contain no part of a word that may be a password.

use core::fmt;
use core::time::Duration;

use super::window::parse_time;

/// An error of a block: a message that names the offending word and says what is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    message: Box<str>,
    directive: Option<DirectiveName>,
}

/// A warning about a directive that is accepted, but probably not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionWarning {
    /// The message.
    pub message: String,
    /// The directive that the warning is about.
    pub directive: DirectiveName,
}

/// A reference to a directive of a block, which was read already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectiveName {
    /// The directive's name.
    pub name: &'static str,
    /// The number of directives with this name before it.
    pub index: usize,
}

impl OptionError {
    /// Creates an error with `message`, which must not contain a password. It becomes one line, whatever words are in it.
    pub fn new(message: impl AsRef<str>) -> OptionError {
        let message = message.as_ref().replace(char::is_control, " ");
        OptionError { message: message.into(), directive: None }
    }

    /// Attributes the error to a directive that was read before.
    pub fn of(self, directive: impl Into<DirectiveName>) -> OptionError {
        OptionError { directive: Some(directive.into()), ..self }
    }

    /// Returns the directive that is wrong. `None` is the one being read or, after the last one, the whole block.
    pub fn directive(&self) -> Option<DirectiveName> {
        self.directive
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Refers to the first directive with this name.
impl From<&'static str> for DirectiveName {
    fn from(name: &'static str) -> Self {
        DirectiveName { name, index: 0 }
    }
}

impl core::error::Error for OptionError {}

/// The syntax of a word: its parser, and its description for messages.
#[derive(Debug)]
pub struct Syntax<T> {
    /// Accepted words, as the end of a message: `on or off`.
    pub expected: &'static str,
    /// Whether messages must not show the word.
    pub is_secret: bool,
    /// Parses a word; returns `None` if it is not accepted.
    pub read: fn(&[u8]) -> Option<T>,
}

impl<T> Syntax<T> {
    /// Creates the syntax of a word that messages may show.
    pub const fn new(expected: &'static str, read: fn(&[u8]) -> Option<T>) -> Syntax<T> {
        Syntax { expected, is_secret: false, read }
    }
}

/// A directive of a block: its name, and the words that follow.
#[derive(Clone, Copy)]
pub struct Directive<'a> {
    name: &'a [u8],
    words: &'a [&'a [u8]],
}

impl<'a> Directive<'a> {
    /// Creates the directive `name words...;`.
    pub fn new(name: &'a [u8], words: &'a [&'a [u8]]) -> Directive<'a> {
        Directive { name, words }
    }

    /// Whether the directive has this name.
    pub fn is(&self, name: &str) -> bool {
        self.name == name.as_bytes()
    }

    /// Sets `option` to the directive's one word.
    ///
    /// # Errors
    ///
    /// If the option is set already, and those of [`Directive::word`].
    pub fn set<T>(&self, option: &mut Option<T>, syntax: &Syntax<T>) -> Result<(), OptionError> {
        self.set_with(option, || self.word(syntax))
    }

    /// Sets `option` to the result of `read`.
    ///
    /// # Errors
    ///
    /// If the option is set already, and those of `read`.
    pub fn set_with<T>(
        &self,
        option: &mut Option<T>,
        read: impl FnOnce() -> Result<T, OptionError>,
    ) -> Result<(), OptionError> {
        if option.is_some() {
            return Err(OptionError::new(format!(
                "\"{}\" is duplicate: expected it once",
                self.name()
            )));
        }
        *option = Some(read()?);
        Ok(())
    }

    /// Returns the directive's only word, parsed.
    ///
    /// # Errors
    ///
    /// If there are more words or none, or `syntax` does not accept the word.
    pub fn word<T>(&self, syntax: &Syntax<T>) -> Result<T, OptionError> {
        let &[word] = self.words else {
            // Shows only their number: after a missing ";", the words may include a password.
            let (name, count, expected) = (self.name(), self.words.len(), syntax.expected);
            return Err(OptionError::new(format!(
                "\"{name}\" takes one word, not {count}: {expected}"
            )));
        };
        self.read(word, syntax)
    }

    /// Returns the directive's word if it is the only one.
    pub fn only_word(&self) -> Option<&'a [u8]> {
        match self.words {
            [word] => Some(word),
            _ => None,
        }
    }

    /// Returns the directive's words, parsed.
    ///
    /// # Errors
    ///
    /// If there is no word, or `syntax` does not accept one of them.
    pub fn words<T>(&self, syntax: &Syntax<T>) -> Result<Vec<T>, OptionError> {
        if self.words.is_empty() {
            let (name, expected) = (self.name(), syntax.expected);
            return Err(OptionError::new(format!(
                "\"{name}\" takes at least one word: {expected}"
            )));
        }
        self.words.iter().map(|word| self.read(word, syntax)).collect()
    }

    /// Parses a word of the directive.
    ///
    /// # Errors
    ///
    /// If `syntax` does not accept it.
    pub fn read<T>(&self, word: &[u8], syntax: &Syntax<T>) -> Result<T, OptionError> {
        (syntax.read)(word).ok_or_else(|| {
            let shown = (!syntax.is_secret).then(|| shown_without_password(word));
            self.invalid(shown.as_deref(), syntax.expected)
        })
    }

    /// Creates the error that `word` is not what was `expected`. `None` keeps the word out of the message.
    pub fn invalid(&self, word: Option<&str>, expected: &str) -> OptionError {
        let name = self.name();
        let word = word.map(|word| format!(" \"{word}\"")).unwrap_or_default();
        OptionError::new(format!("invalid {name}{word}: expected {expected}"))
    }

    /// Creates the error that the block has no directive of this name, but those in `known`. If the name is in
    /// `lacking`, the message says that this build does not support it.
    pub fn unknown(&self, known: &[&str], lacking: &[&str]) -> OptionError {
        let (name, known) = (self.name(), known.join(", "));
        if lacking.iter().any(|lacks| lacks.as_bytes() == self.name) {
            return OptionError::new(format!(
                "directive \"{name}\" is not in this build: expected one of {known}"
            ));
        }
        OptionError::new(format!("unknown directive \"{name}\": expected one of {known}"))
    }

    /// Returns the name up to the first character that names do not contain: `password=...` may contain a password.
    fn name(&self) -> String {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        match self.name.iter().position(|byte| !is_part(byte)) {
            None => shown(self.name),
            Some(end) => cut(self.name, end),
        }
    }
}

/// The directives of a block that were read so far. [`directives!`] implements it.
pub trait Directives: Default {
    /// The names of the directives, in the order of messages.
    const NAMES: &'static [&'static str];

    /// Reads a directive. Returns `false` if the block does not have it.
    ///
    /// # Errors
    ///
    /// If the directive is duplicate, or its words are not accepted.
    fn set(&mut self, directive: &Directive<'_>) -> Result<bool, OptionError>;

    /// Returns the names of the directives that were read, in the order of [`Directives::NAMES`].
    fn given(&self) -> impl Iterator<Item = &'static str>;
}

/// Declares the directives of a block: a struct with an `Option` for each, which implements [`Directives`].
///
/// `timeout: Duration = TIMEOUT` declares a directive with one word of the [`Syntax`] `TIMEOUT`. `sizes: Vec<Size> =>
/// parse_sizes` declares one whose words a function of the [`Directive`] parses.
#[cfg_attr(loom, allow(unused_macros))]
macro_rules! directives {
    ($(#[$meta:meta])* $vis:vis struct $Block:ident {
        $($(#[$doc:meta])* $name:ident: $Type:ty $(= $syntax:expr)? $(=> $parse:expr)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        $vis struct $Block {
            $($(#[$doc])* $name: Option<$Type>,)*
        }

        impl $crate::policy::options::Directives for $Block {
            const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            fn set(
                &mut self,
                directive: &$crate::policy::options::Directive<'_>,
            ) -> Result<bool, $crate::policy::options::OptionError> {
                $(if directive.is(stringify!($name)) {
                    $(directive.set(&mut self.$name, &$syntax)?;)?
                    $(directive.set_with(&mut self.$name, || $parse(directive))?;)?
                    return Ok(true);
                })*
                Ok(false)
            }

            fn given(&self) -> impl Iterator<Item = &'static str> {
                let names = [$(self.$name.as_ref().map(|_| stringify!($name))),*];
                names.into_iter().flatten()
            }
        }
    };
}
pub(crate) use directives;

/// Formats a word for a message: on one line, and cut so that the accepted words fit behind it.
pub fn shown(word: &[u8]) -> String {
    const MAX: usize = 128;
    let text = if word.len() > MAX { cut(word, MAX) } else { String::from_utf8_lossy(word).into() };
    text.replace(char::is_control, " ")
}

/// Formats a word that may be a URL or a connection string with a password (`redis://user:password@host`,
/// `password=...`). In such a word, only the scheme or first name is kept.
fn shown_without_password(word: &[u8]) -> String {
    if !word.iter().any(|byte| b"@=?".contains(byte)) {
        return shown(word);
    }
    let end = word.iter().position(|byte| b":@=?".contains(byte));
    let end = end.filter(|&end| word.get(end) != Some(&b'@'));
    cut(word, end.unwrap_or(0))
}

fn cut(word: &[u8], end: usize) -> String {
    let start = word.get(..end).unwrap_or_default();
    format!("{}...", String::from_utf8_lossy(start))
}

/// The syntax of `on` or `off`.
pub const FLAG: Syntax<bool> = Syntax::new("on or off", |word| match word {
    b"on" => Some(true),
    b"off" => Some(false),
    _ => None,
});

/// Parses an nginx time, or seconds with an optional fraction; at least 1 ms and at most `max`.
pub fn time(word: &[u8], max: Duration) -> Option<Duration> {
    let time = Duration::from_millis(parse_time(word)?);
    (!time.is_zero() && time <= max).then_some(time)
}

/// Parses a text: UTF-8, not empty, and without zero bytes, which end strings in protocols.
pub fn text(word: &[u8]) -> Option<Box<str>> {
    let text = core::str::from_utf8(word).ok()?;
    (!text.is_empty() && !text.contains('\0')).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Syntax<Box<str>> = Syntax::new("a text", text);
    const SECRET: Syntax<Box<str>> = Syntax { is_secret: true, ..TEXT };

    fn words(line: &str) -> Vec<&[u8]> {
        line.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes).collect()
    }

    #[test]
    fn a_directive_sets_an_option_once() {
        let (yes, mut flag) = (words("on"), None);
        let directive = Directive::new(b"cluster", &yes);
        assert_eq!(directive.set(&mut flag, &FLAG), Ok(()));
        assert_eq!(flag, Some(true));
        let error = directive.set(&mut flag, &FLAG).unwrap_err();
        assert_eq!(error.to_string(), "\"cluster\" is duplicate: expected it once");
    }

    #[test]
    fn errors_about_wrong_words_suggest_right_ones() {
        for (line, message) in [
            ("", "\"cluster\" takes one word, not 0: on or off"),
            ("on off", "\"cluster\" takes one word, not 2: on or off"),
            ("On", "invalid cluster \"On\": expected on or off"),
        ] {
            let words = words(line);
            let error = Directive::new(b"cluster", &words).word(&FLAG).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        for (line, message) in [
            ("", "\"flags\" takes at least one word: on or off"),
            ("on maybe", "invalid flags \"maybe\": expected on or off"),
        ] {
            let words = words(line);
            let error = Directive::new(b"flags", &words).words(&FLAG).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        let words = words("off on");
        let flags = Directive::new(b"flags", &words).words(&FLAG);
        assert_eq!(flags, Ok(vec![false, true]));
    }

    #[test]
    fn a_message_keeps_passwords_to_itself() {
        let error = Directive::new(b"password", &[b"s3c\xff"]).word(&SECRET).unwrap_err();
        assert_eq!(error.to_string(), "invalid password: expected a text");
        for (word, in_message) in [
            ("127.0.0.1", "127.0.0.1"),
            ("redis://host", "redis://host"),
            ("redis://user:s3cret@host:6379", "redis..."),
            ("redis://:s3c@ret=@host", "redis..."),
            ("user:s3cret@host", "user..."),
            ("s3cret@host", "..."),
            ("host:6379?password=s3cret", "host..."),
            ("password=s3cret", "password..."),
        ] {
            let error = Directive::new(b"tls", &[word.as_bytes()]).word(&FLAG).unwrap_err();
            let message = format!("invalid tls \"{in_message}\": expected on or off");
            assert_eq!(error.to_string(), message);
        }
        for (name, in_message) in [
            ("foo", "foo"),
            ("password=s3cret", "password..."),
            ("password:s3cret", "password..."),
            ("password s3cret", "password..."),
            ("", ""),
        ] {
            let error =
                Directive::new(name.as_bytes(), &[]).unknown(&["tls", "timeout"], &["replication"]);
            let message = "expected one of tls, timeout";
            let message = format!("unknown directive \"{in_message}\": {message}");
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn a_directive_of_another_build_is_not_called_unknown() {
        let error = Directive::new(b"replication", &[]).unknown(&["tls"], &["replication"]);
        assert_eq!(
            error.to_string(),
            "directive \"replication\" is not in this build: expected one of tls"
        );
    }

    #[test]
    fn a_time_is_within_its_bounds() {
        let max = Duration::from_secs(60);
        for (word, millis) in [("1ms", 1), ("0.001", 1), ("0.5", 500), ("1m", 60_000)] {
            let time = time(word.as_bytes(), max);
            assert_eq!(time, Some(Duration::from_millis(millis)), "{word}");
        }
        for word in ["", "0", "0.0", "0.0001", "-1", "off", "1m1ms", "61"] {
            assert_eq!(time(word.as_bytes(), max), None, "{word}");
        }
    }

    #[test]
    fn a_text_is_not_empty() {
        assert_eq!(text("ä b".as_bytes()).as_deref(), Some("ä b"));
        for word in [&b""[..], b"a\0b", b"\xff"] {
            assert_eq!(text(word), None);
        }
    }
}
