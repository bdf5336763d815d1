//! The text of a configuration, from its words to the rules of each level.
//!
//! An input has a directive on each line, which `;`, `{` or `}` may end as in nginx.conf: see `fuzz/corpus/conf`. No message
//! breaks out of its line, or shows the password of a file.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::conf::applied::AppliedRules;
use crate::conf::configuration::Configuration;
use crate::conf::http::HttpConf;
use crate::conf::level::LevelConf;
use crate::conf::reader::{ConfReader, DIRECTIVES};
use crate::conf::words::block::Block;
use crate::conf::words::message::{ConfError, Message, Origin};
use crate::conf::words::nginx::{Files, Nginx};
use crate::conf::words::settings::Content;
use crate::store::contract::options::TlsOptions;
use crate::store::net::tls::{TlsClient, TlsError};

/// The password in every file, which no input has.
const PASSWORD: &str = "pA9-of-a-file";

/// Reads a configuration, resolves it, and lets levels inherit, as nginx does.
pub fn run(data: &[u8]) {
    if data.windows(PASSWORD.len()).any(|bytes| bytes == PASSWORD.as_bytes()) {
        return;
    }
    let lines = data.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let lines = lines.filter(|line| !line.is_empty()).take(200).map(<[u8]>::to_vec);
    let mut text = Text { lines: lines.collect(), messages: Vec::new() };
    text.lines.reverse();
    if let Err(ConfError::Wrong(message)) = text.all() {
        text.warn(message);
    }
    for message in &text.messages {
        assert!(!message.is_empty() && !message.contains(char::is_control), "{message:?}");
    }
}

/// A configuration being read, as nginx reads it.
struct Text {
    /// The lines that are left, the next one last.
    lines: Vec<Vec<u8>>,
    messages: Vec<String>,
}

/// The levels in a level.
type Level = (LevelConf<Rc<[u8]>>, Vec<LevelOf>);
struct LevelOf(Level);

impl Text {
    fn all(&mut self) -> Result<(), ConfError> {
        let mut http = HttpConf::default();
        let mut level = self.level(&mut http, None, 0)?;
        let configuration = http.resolve(self)?;
        let mut applied = AppliedRules::default();
        level.0.find_windows(&configuration)?;
        inherit(&mut level, &configuration, &mut applied)?;
        for warning in applied.warnings(&configuration) {
            self.warn(warning);
        }
        applied.listed();
        Ok(())
    }

    /// Reads a level to its end.
    fn level(
        &mut self,
        http: &mut HttpConf,
        around: Option<&LevelConf<Rc<[u8]>>>,
        depth: usize,
    ) -> Result<Level, ConfError> {
        let (mut level, mut levels) = (LevelConf::default(), Vec::new());
        if let Some(around) = around {
            level.begin_within(around);
        }
        while let Some((words, is_block)) = self.directive() {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let Some((name, words)) = words.split_first() else { continue };
            match DIRECTIVES.iter().find(|it| it.name.to_bytes() == *name) {
                Some(known) if known.is_block == is_block => {
                    let mut reader = ConfReader { nginx: self, http, level: &mut level };
                    reader.apply(known.name.to_str().expect("ASCII"), words)?;
                }
                None if is_block && depth < 4 => {
                    levels.push(LevelOf(self.level(http, Some(&level), depth + 1)?));
                }
                // Another module's.
                None => {}
                Some(_) => return Err("a block is missing, or too many".to_owned().into()),
            }
        }
        Ok((level, levels))
    }

    /// Takes the words of the next directive, and whether it has a block. `None` at the end of a block.
    fn directive(&mut self) -> Option<(Vec<Vec<u8>>, bool)> {
        let line = self.lines.pop().filter(|line| line != b"}")?;
        let is_block = line.ends_with(b"{");
        let line = line.strip_suffix(b"{").or(line.strip_suffix(b";")).unwrap_or(&line);
        let words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        Some((words.map(<[u8]>::to_vec).collect(), is_block))
    }
}

fn inherit(
    (level, levels): &mut Level,
    configuration: &Configuration,
    applied: &mut AppliedRules<Rc<[u8]>>,
) -> Result<(), ConfError> {
    for LevelOf(inner) in levels {
        inner.0.find_windows(configuration)?;
        inner.0.inherit(level);
        applied.note(&inner.0);
        inherit(inner, configuration, applied)?;
    }
    Ok(())
}

impl Nginx for Text {
    type Text = Rc<[u8]>;
    type Files = Password;

    fn origin(&self) -> Origin {
        Origin { file: "nginx.conf".into(), line: self.lines.len() }
    }

    fn directory(&self) -> PathBuf {
        PathBuf::new()
    }

    fn warn(&mut self, warning: Message) {
        let (Message::Here(text) | Message::At(_, text)) = warning;
        assert!(!text.contains(PASSWORD), "{text}");
        self.messages.push(text);
    }

    fn compile(&mut self, text: &[u8]) -> Result<Rc<[u8]>, ConfError> {
        Ok(text.into())
    }

    fn has_variable(&self, name: &[u8]) -> bool {
        !name.starts_with(b"missing")
    }

    fn has_directive(&self, name: &[u8]) -> bool {
        DIRECTIVES.iter().any(|known| known.name.to_bytes() == name)
    }

    fn has_callers(&self) -> bool {
        false
    }

    fn page_size(&self) -> usize {
        4096
    }

    fn has_zone(&self, name: &str) -> bool {
        name == "taken"
    }

    fn add_zone(&mut self, _name: &str, _size: usize) -> Result<(), ConfError> {
        Ok(())
    }

    fn answer_with(&mut self, _content: Content) -> Result<(), ConfError> {
        Ok(())
    }

    fn read_block(&mut self, block: &mut Block<'_>) -> Result<(), ConfError> {
        while let Some((words, _)) = self.directive() {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let Some((name, words)) = words.split_first() else { continue };
            block.apply(self.origin(), name, words)?;
        }
        Ok(())
    }

    fn files(&self) -> Password {
        Password
    }
}

/// The files: each has the password.
struct Password;

impl Files for Password {
    fn path(&self, written: &Path) -> PathBuf {
        written.into()
    }

    fn read(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Ok(PASSWORD.into())
    }

    fn check_tls(&self, tls: &TlsOptions) -> Result<(), TlsError> {
        TlsClient::new(tls).map(|_| ())
    }
}
