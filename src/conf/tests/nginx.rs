//! An nginx for tests. It reads the syntax of configuration files as far as tests use it, and collects what the shell
//! would get.
//!
//! It knows only this module's directives. From others, it takes only the names of zones.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::conf::http::HttpConf;
use crate::conf::level::{LevelConf, rewrite_ends};
use crate::conf::reader::{ConfDirective, ConfReader, DIRECTIVES, DirectiveContext};
use crate::conf::words::block::{Block, BlockStep};
use crate::conf::words::message::{ConfError, Message, Origin};
use crate::conf::words::nginx::{Files, Nginx};
use crate::conf::words::settings::Content;
use crate::store::contract::options::TlsOptions;
use crate::store::net::tls::{TlsClient, TlsError};

/// An nginx that reads a configuration.
#[derive(Debug)]
pub(super) struct TestNginx {
    /// The files being read, the innermost last.
    sources: Vec<Source>,
    files: TestFiles,
    /// The zones of other modules.
    zones: Vec<String>,
    /// The number of directives that end the rewrite phase otherwise than `return`.
    endings: usize,
    /// Whether callers other than rules may count in any namespace.
    pub(super) has_callers: bool,
    /// The lines of its log.
    pub(super) told: Vec<String>,
}

/// Beginnings of the names of variables with a `_`.
const KNOWN: [&[u8]; 7] = [
    b"remote_",
    b"binary_remote_addr",
    b"http_",
    b"arg_",
    b"ratelimit_",
    b"bytes_sent",
    b"request_",
];

/// A file being read.
#[derive(Debug)]
struct Source {
    name: String,
    text: Vec<u8>,
    at: usize,
    line: usize,
}

/// The existing files, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct TestFiles(pub(super) Rc<HashMap<String, Vec<u8>>>);

/// A token of a configuration file.
enum Token {
    /// A directive, and whether it has a block.
    Directive(Vec<Vec<u8>>, bool),
    /// The end of a block, or of the file.
    End,
}

/// A level, with the levels in it.
#[derive(Debug)]
pub(super) struct TestLevel {
    /// `http`, `server`, `location /t`, ...
    pub(super) name: String,
    pub(super) conf: LevelConf<String>,
    pub(super) levels: Vec<TestLevel>,
}

impl TestNginx {
    /// Creates an nginx that is about to read `http.conf`, inside the block `http`.
    pub(super) fn new(files: TestFiles) -> TestNginx {
        let mut nginx = TestNginx {
            sources: Vec::new(),
            files,
            zones: Vec::new(),
            endings: 0,
            has_callers: true,
            told: Vec::new(),
        };
        nginx.open("http.conf");
        nginx
    }

    /// Reads a level to its end.
    pub(super) fn read_level(
        &mut self,
        http: &mut HttpConf,
        name: &str,
        around: Option<&LevelConf<String>>,
    ) -> Result<TestLevel, ConfError> {
        let mut level =
            TestLevel { name: name.into(), conf: LevelConf::default(), levels: Vec::new() };
        if let Some(around) = around {
            level.conf.begin_within(around);
        }
        while let Token::Directive(words, has_block) = self.next() {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let directive = str::from_utf8(words[0]).unwrap();
            if let Some(known) = DIRECTIVES.iter().find(|it| it.name.to_str() == Ok(directive)) {
                check_form(known, name, has_block)?;
                let mut reader = ConfReader { nginx: self, http, level: &mut level.conf };
                reader.apply(directive, &words[1..])?;
            } else if has_block {
                let name = String::from_utf8(words.join(&b' ')).unwrap();
                let endings = self.endings;
                level.levels.push(self.read_level(http, &name, Some(&level.conf))?);
                if directive == "if" && self.endings > endings {
                    level.conf.record_rewrite(false);
                }
            } else if directive == "include" {
                self.open(str::from_utf8(words[1]).unwrap());
            } else {
                if let Some(is_return) = rewrite_ends(&words) {
                    level.conf.record_rewrite(is_return);
                    self.endings += usize::from(!is_return);
                }
                match directive {
                    "auth_basic" => level.conf.record_basic_auth(words[1] != b"off"),
                    _ => self.record_zones(&words),
                }
            }
        }
        Ok(level)
    }

    /// Writes the `[emerg]` line, unless there is one already.
    pub(super) fn refuse(&mut self, error: ConfError) {
        if let ConfError::Wrong(message) = error {
            self.log("emerg", message);
        }
    }

    /// Writes a line to the log.
    fn log(&mut self, level: &str, message: Message) {
        let (origin, message) = match message {
            Message::Here(message) => (self.origin(), message),
            Message::At(origin, message) => (origin, message),
        };
        self.told.push(format!("[{level}] {message} in {origin}"));
    }

    /// Records the zone that another module's directive defines or uses, if any.
    fn record_zones(&mut self, words: &[&[u8]]) {
        let zone = match words {
            [b"limit_conn", zone, _] => Some(*zone),
            words => words.iter().find_map(|word| word.strip_prefix(b"zone=")),
        };
        let name = zone.and_then(|zone| zone.split(|&byte| byte == b':').next());
        self.zones.extend(name.map(|name| String::from_utf8(name.into()).unwrap()));
    }

    fn open(&mut self, name: &str) {
        self.sources.push(Source {
            name: name.into(),
            text: self.files.0[name].clone(),
            at: 0,
            line: 1,
        });
    }

    /// Returns the next directive or end. The end of an included file is skipped.
    fn next(&mut self) -> Token {
        loop {
            let source = self.sources.last_mut().unwrap();
            match source.next() {
                Some(token) => return token,
                None if self.sources.len() > 1 => drop(self.sources.pop()),
                None => return Token::End,
            }
        }
    }
}

/// Returns nginx's error for a directive on a wrong level, or with a block missing or too many.
fn check_form(directive: &ConfDirective, level: &str, has_block: bool) -> Result<(), ConfError> {
    let name = directive.name.to_str().unwrap();
    let is_allowed = match level.split(' ').next() {
        Some("http") => directive.context != DirectiveContext::Location,
        Some("server") => directive.context == DirectiveContext::Anywhere,
        Some("location") => directive.context != DirectiveContext::Http,
        _ => false,
    };
    let message = match (directive.is_block, has_block) {
        _ if !is_allowed => format!("\"{name}\" directive is not allowed here"),
        (true, false) => format!("directive \"{name}\" has no opening \"{{\""),
        (false, true) => format!("directive \"{name}\" is not terminated by \";\""),
        _ => return Ok(()),
    };
    Err(message.into())
}

impl Source {
    /// Returns the next directive or end of a block, as `ngx_conf_read_token` does; `None` at the end of the file.
    fn next(&mut self) -> Option<Token> {
        let mut words = Vec::new();
        loop {
            match self.peek() {
                None => {
                    assert!(words.is_empty(), "{}: no end of a directive", self.name);
                    return None;
                }
                Some(b'#') => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.take();
                    }
                }
                Some(byte) if byte.is_ascii_whitespace() => drop(self.take()),
                Some(end @ (b';' | b'{' | b'}')) => {
                    self.take();
                    assert_eq!(words.is_empty(), end == b'}', "{}: an odd end", self.name);
                    return Some(match end {
                        b'}' => Token::End,
                        _ => Token::Directive(words, end == b'{'),
                    });
                }
                Some(quote @ (b'"' | b'\'')) => {
                    self.take();
                    words.push(self.word(|byte, _| byte == quote));
                    self.take();
                }
                Some(_) => words.push(self.word(|byte, is_variable| match byte {
                    b'{' => !is_variable,
                    byte => byte == b';' || byte.is_ascii_whitespace(),
                })),
            }
        }
    }

    /// Returns the word before the first byte for which `is_end` holds; its second argument is whether a `$` precedes.
    fn word(&mut self, is_end: impl Fn(u8, bool) -> bool) -> Vec<u8> {
        let mut word = Vec::new();
        let mut is_variable = false;
        while let Some(byte) = self.peek().filter(|byte| !is_end(*byte, is_variable)) {
            self.take();
            is_variable = byte == b'$';
            if byte != b'\\' {
                word.push(byte);
                continue;
            }
            match self.take().unwrap() {
                b't' => word.push(b'\t'),
                b'r' => word.push(b'\r'),
                b'n' => word.push(b'\n'),
                byte @ (b'"' | b'\'' | b'\\') => word.push(byte),
                byte => word.extend([b'\\', byte]),
            }
        }
        word
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        self.line += usize::from(byte == b'\n');
        Some(byte)
    }
}

impl Nginx for TestNginx {
    /// The text itself.
    type Text = String;
    type Files = TestFiles;

    fn origin(&self) -> Origin {
        let source = self.sources.last().unwrap();
        Origin { file: source.name.as_str().into(), line: source.line }
    }

    fn directory(&self) -> PathBuf {
        PathBuf::new()
    }

    fn warn(&mut self, warning: Message) {
        self.log("warn", warning);
    }

    fn compile(&mut self, text: &[u8]) -> Result<String, ConfError> {
        Ok(String::from_utf8(text.into()).unwrap())
    }

    fn has_variable(&self, name: &[u8]) -> bool {
        !name.starts_with(b"missing")
            && (!name.contains(&b'_') || KNOWN.iter().any(|known| name.starts_with(known)))
    }

    fn has_directive(&self, name: &[u8]) -> bool {
        let ours = DIRECTIVES.iter().map(|known| known.name.to_bytes());
        ours.chain([&b"try_files"[..], b"proxy_pass", b"allow"]).any(|known| known == name)
    }

    fn has_callers(&self) -> bool {
        self.has_callers
    }

    fn page_size(&self) -> usize {
        4096
    }

    fn has_zone(&self, name: &str) -> bool {
        self.zones.iter().any(|zone| zone == name)
    }

    fn add_zone(&mut self, _name: &str, _size: usize) -> Result<(), ConfError> {
        Ok(())
    }

    fn answer_with(&mut self, _content: Content) -> Result<(), ConfError> {
        Ok(())
    }

    fn read_block(&mut self, block: &mut Block<'_>) -> Result<(), ConfError> {
        while let Token::Directive(words, has_block) = self.next() {
            assert!(!has_block, "a block in the block");
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            match block.apply(self.origin(), words[0], &words[1..]) {
                Ok(BlockStep::Done) => {}
                Ok(BlockStep::Include) => self.open(str::from_utf8(words[1]).unwrap()),
                Err(error) => {
                    self.refuse(error);
                    return Err(ConfError::Logged);
                }
            }
        }
        Ok(())
    }

    fn files(&self) -> TestFiles {
        self.files.clone()
    }
}

impl Files for TestFiles {
    fn path(&self, written: &Path) -> PathBuf {
        Path::new("/etc/nginx").join(written)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let name = path.strip_prefix("/etc/nginx").ok();
        let content = name.and_then(|name| self.0.get(name.to_str()?));
        content.cloned().ok_or_else(|| io::Error::from_raw_os_error(2))
    }

    fn check_tls(&self, tls: &TlsOptions) -> Result<(), TlsError> {
        TlsClient::new(tls).map(|_| ())
    }
}
