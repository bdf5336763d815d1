//! Messages about a configuration, and places in its files.

use core::fmt;
use std::path::Path;

use crate::policy::options::OptionError;

/// A place in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file, named as by nginx.
    pub file: Box<str>,
    /// The line, from 1: that of the end of the directive's last word.
    pub line: usize,
}

impl Origin {
    /// Returns the place of a directive of `-g`, which is in no file.
    pub fn unknown() -> Origin {
        Origin { file: "command line".into(), line: 0 }
    }
}

impl Origin {
    /// Returns the place with its file relative to `directory`, if the file is in it.
    pub(crate) fn within(&self, directory: &Path) -> String {
        let file = Path::new(&*self.file);
        let file = file.strip_prefix(directory).unwrap_or(file);
        format!("{}:{}", file.display(), self.line)
    }

    /// Returns the place of definitions by callers of the library.
    pub(crate) fn library() -> Origin {
        Origin { file: "the library's \"new\"".into(), line: 0 }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A log line about a configuration. It never contains a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A message about the directive being read, whose place is added later.
    Here(String),
    /// A message about an earlier directive, with its place.
    At(Origin, String),
}

/// An error in a configuration.
#[derive(Debug, PartialEq, Eq)]
pub enum ConfError {
    /// An error with its message.
    Wrong(Message),
    /// An error that nginx has logged already.
    Logged,
}

impl ConfError {
    /// Creates an error about another place.
    pub fn at(origin: &Origin, message: impl Into<String>) -> ConfError {
        ConfError::Wrong(Message::At(origin.clone(), message.into()))
    }

    /// Prefixes the message with the name of the directive being read. A message about another place names its
    /// directive already.
    pub(crate) fn of(self, directive: impl fmt::Display) -> ConfError {
        match self {
            ConfError::Wrong(Message::Here(message)) => {
                ConfError::Wrong(Message::Here(format!("{directive}: {message}")))
            }
            other => other,
        }
    }
}

impl From<String> for ConfError {
    fn from(message: String) -> Self {
        ConfError::Wrong(Message::Here(message))
    }
}

impl From<&str> for ConfError {
    fn from(message: &str) -> Self {
        ConfError::from(String::from(message))
    }
}

impl From<OptionError> for ConfError {
    fn from(error: OptionError) -> Self {
        ConfError::from(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_relative_to_the_directory_of_the_configuration() {
        let within = |file: &str, directory: &str| {
            let (file, line) = (file.into(), 31);
            Origin { file, line }.within(Path::new(directory))
        };
        for (file, expected) in [
            ("/etc/nginx/nginx.conf", "nginx.conf:31"),
            ("/etc/nginx/conf.d/api.conf", "conf.d/api.conf:31"),
            ("/etc/nginx/../shared/api.conf", "../shared/api.conf:31"),
            ("/etc/nginx2/nginx.conf", "/etc/nginx2/nginx.conf:31"),
            ("/srv/limits.conf", "/srv/limits.conf:31"),
            ("limits.conf", "limits.conf:31"),
        ] {
            assert_eq!(within(file, "/etc/nginx/"), expected);
        }
        assert_eq!(Origin::unknown().within(Path::new("/etc/nginx/")), "command line:0");
    }
}
