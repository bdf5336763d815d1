//! The replacement of each directive of `limit_req`, and the remarks.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::files::{NginxFile, NginxFiles, NginxInput};
use super::lexer::NginxDirective;
use super::limits::LimitReq;
use super::zones::{ConvertedZones, error};
use crate::convert::written::{TextChanges, nginx_word};
use crate::convert::{ConvertError, MARK, Remark, without_parents};

/// A conversion of files, one after the other.
#[derive(Debug)]
pub(super) struct Rewriter<'r> {
    all: &'r NginxFiles,
    zones: &'r ConvertedZones,
    remarks: Vec<Remark>,
    /// The directory of the files, if they are written to another one.
    moved_from: Option<PathBuf>,
    /// Whether `http` has a `limit_req_status` itself.
    has_status: bool,
    /// Whether the zone that replaces all others was written.
    has_zone: bool,
    has_limits: bool,
}

impl<'r> Rewriter<'r> {
    /// Prepares the conversion of all files.
    pub(super) fn new(
        all: &'r NginxFiles,
        zones: &'r ConvertedZones,
        input: &NginxInput<'_>,
    ) -> Rewriter<'r> {
        let has_status = all.in_http().any(|(file, directive)| {
            directive.name() == b"limit_req_status" && file.context(directive).is_at_http
        });
        let remarks = all.missing.iter().map(|(place, name)| Remark {
            place: place.clone(),
            text: format!("include: \"{name}\" is missing: its limits, if any, are not converted"),
            is_work: true,
        });
        let remarks = remarks.collect();
        let moved_from = input.is_moved.then(|| input.directory.to_owned());
        Rewriter { all, zones, remarks, moved_from, has_status, has_zone: false, has_limits: false }
    }

    /// Whether anything of `limit_req` or `limit_conn` was found.
    pub(super) fn has_limits(&self) -> bool {
        self.has_limits
    }

    /// Returns the remarks.
    pub(super) fn into_remarks(self) -> Vec<Remark> {
        self.remarks
    }

    /// Returns the text of a file with its changes.
    pub(super) fn rewrite(&mut self, file: &NginxFile) -> Result<Vec<u8>, ConvertError> {
        let mut changes = TextChanges::new(&file.text);
        if self.zones.count > 0 && self.all.files.first().is_some_and(|main| main.path == file.path)
        {
            self.load_module(file, &mut changes);
        }
        let mut has_limit_conn = false;
        for directive in &file.directives {
            if let Some(lines) = self.replacement(file, directive)? {
                self.has_limits = true;
                changes.replace_by_lines(directive.start()..directive.end, &lines);
                continue;
            }
            if directive.name().starts_with(b"limit_conn") && file.context(directive).is_in_http {
                self.has_limits = true;
                let text = "limit_conn stays, on each node by itself; \"ratelimit concurrent=n\" can take its place";
                self.remarks.push(Remark {
                    place: file.place(directive),
                    text: text.into(),
                    is_work: false,
                });
                if !has_limit_conn {
                    changes.insert_lines(directive.start(), &[comment(text)]);
                    has_limit_conn = true;
                }
                continue;
            }
            for word in &directive.words {
                let written = file.text.get(word.start..word.end).unwrap_or_default();
                if let Some(renamed) = rename_variable(written) {
                    changes.replace(word.start..word.end, renamed);
                }
            }
            self.look_at_lua(file, directive, &mut changes);
            self.move_include(file, directive, &mut changes);
        }
        Ok(changes.finish())
    }

    /// Makes an `include` lead to the converted files by a plain name, if these are written to another directory.
    fn move_include(
        &mut self,
        file: &NginxFile,
        directive: &NginxDirective,
        changes: &mut TextChanges<'_>,
    ) {
        let (b"include", [_, word]) = (directive.name(), directive.words.as_slice()) else {
            return;
        };
        let name = Path::new(OsStr::from_bytes(&word.value));
        let Some(directory) = &self.moved_from else {
            return;
        };
        match without_parents(&directory.join(name)).strip_prefix(directory) {
            Ok(relative) if relative == name => {}
            Ok(relative) => {
                let relative = nginx_word(relative.as_os_str().as_bytes());
                changes.replace(word.start..word.end, relative);
            }
            Err(_) if file.context(directive).is_in_http => {
                let name = name.display();
                self.remarks.push(Remark {
                    place: file.place(directive),
                    text: format!(
                        "include: \"{name}\" is still the file of before, not the new one"
                    ),
                    is_work: true,
                });
            }
            Err(_) => {}
        }
    }

    /// Returns the lines that replace a directive of `limit_req`; `None` for any other.
    fn replacement(
        &mut self,
        file: &NginxFile,
        directive: &NginxDirective,
    ) -> Result<Option<Vec<Vec<u8>>>, ConvertError> {
        if !file.context(directive).is_in_http {
            return Ok(None);
        }
        // The comments between its words come first.
        let mut lines: Vec<Vec<u8>> = Vec::new();
        for (start, end) in &directive.comments {
            let comment = file.text.get(*start..*end).unwrap_or_default();
            lines.push(comment.trim_ascii_end().to_vec());
        }
        match directive.name() {
            b"limit_req_zone" => self.zone(file, directive, &mut lines)?,
            b"limit_req" => self.limit(file, directive, &mut lines)?,
            b"limit_req_status" => lines.push(renamed(directive, "ratelimit_status")),
            b"limit_req_dry_run" => lines.push(renamed(directive, "ratelimit_dry_run")),
            b"limit_req_log_level" => {
                if directive.parameters().next() == Some(b"info") {
                    let text = "delays are logged at debug; limit_req logs them at info";
                    self.remark(file, directive, text, &mut lines);
                }
                lines.push(renamed(directive, "ratelimit_log_level"));
            }
            _ => return Ok(None),
        }
        Ok(Some(lines))
    }

    fn zone(
        &mut self,
        file: &NginxFile,
        directive: &NginxDirective,
        lines: &mut Vec<Vec<u8>>,
    ) -> Result<(), ConvertError> {
        let words = directive.parameters().find_map(|word| word.strip_prefix(b"zone="));
        let name = words.and_then(|word| word.split(|byte| *byte == b':').next());
        let Some(converted) = name.and_then(|name| self.zones.get(name)) else {
            return Err(error(file, directive, "\"zone=name:size\" is missing"));
        };
        let name = converted.zone.name.escape_ascii().to_string();
        if !converted.is_used {
            let text =
                format!("limit_req_zone \"{name}\" stays: no limit_req names it in these files");
            self.remark_of_work(file, directive, &text, lines);
            lines.push(written(file, directive));
            return Ok(());
        }
        if converted.zone.is_synced {
            let text = format!(
                "zone \"{name}\" was shared by zone_sync: put its rules into a namespace with a store and sync_rate 0"
            );
            self.remark_of_work(file, directive, &text, lines);
        }
        if self.has_zone {
            let text = format!(
                "limit_req_zone \"{name}\": its counters are in zone \"{}\", its key and rate in its rules",
                self.zones.name
            );
            self.remark(file, directive, &text, lines);
            return Ok(());
        }
        self.has_zone = true;
        if self.zones.count > 1 {
            let text = format!(
                "one zone has the counters of {} zones, and their sizes; each has a counter=",
                self.zones.count
            );
            self.remark(file, directive, &text, lines);
        }
        lines.push(format!("ratelimit_zone zone={}:{};", self.zones.name, self.zones.size).into());
        if !self.has_status {
            let text = "limit_req answers 503; without ratelimit_status, rejections get 429";
            self.remark(file, directive, text, lines);
            lines.push(b"ratelimit_status 503;".to_vec());
        }
        let text = "limit_req sends no headers; without ratelimit_headers off, clients see their limits; \
                    rejections have Retry-After in any case";
        self.remark(file, directive, text, lines);
        lines.push(b"ratelimit_headers off;".to_vec());
        let text =
            "the log says \"ratelimit: rejected by\" where limit_req says \"limiting requests\"";
        self.remark(file, directive, text, lines);
        Ok(())
    }

    fn limit(
        &mut self,
        file: &NginxFile,
        directive: &NginxDirective,
        lines: &mut Vec<Vec<u8>>,
    ) -> Result<(), ConvertError> {
        let limit = LimitReq::parse(directive.parameters());
        let limit = limit.map_err(|message| error(file, directive, &message))?;
        let Some(converted) = self.zones.get(&limit.zone) else {
            return Err(error(file, directive, "the zone is missing"));
        };
        let mut line = limit.rule(&converted.zone).into_bytes();
        if let Some(key) = converted.zone.rule_key() {
            line.push(b' ');
            line.extend(nginx_word(&[b"key=", key].concat()));
        }
        line.extend(format!(" counter={};", converted.counter).into_bytes());
        lines.push(line);
        Ok(())
    }

    /// Loads the module before everything else, if the file is a whole nginx.conf.
    fn load_module(&mut self, file: &NginxFile, changes: &mut TextChanges<'_>) {
        if file.is_at_http {
            return;
        }
        let named = |name: &'static [u8]| {
            let files = self.all.files.iter().flat_map(|file| &file.directives);
            files.filter(move |directive| directive.name() == name)
        };
        let contains = |directive: &NginxDirective, part: &[u8]| {
            let mut words = directive.parameters();
            words.any(|word| word.windows(part.len()).any(|found| found == part))
        };
        if named(b"load_module").any(|load| contains(load, b"ngx_http_rate_limiting_module")) {
            return;
        }
        const LOAD: &str = "load_module modules/ngx_http_rate_limiting_module.so;";
        if let Some(include) = file.directives.iter().find(|directive| {
            directive.name() == b"include" && contains(directive, b"modules-enabled/")
        }) {
            let text = format!("unless a file here loads the module, add {LOAD}");
            let mut lines = Vec::new();
            self.remark(file, include, &text, &mut lines);
            changes.insert_lines(include.start(), &lines);
        } else {
            changes.insert_lines(0, &[LOAD.into()]);
        }
    }

    /// Adds a remark to the lines, and to the list.
    fn remark(
        &mut self,
        file: &NginxFile,
        directive: &NginxDirective,
        text: &str,
        lines: &mut Vec<Vec<u8>>,
    ) {
        lines.push(comment(text));
        let (place, text) = (file.place(directive), text.to_owned());
        self.remarks.push(Remark { place, text, is_work: false });
    }

    /// Adds a remark that asks for work by hand.
    fn remark_of_work(
        &mut self,
        file: &NginxFile,
        directive: &NginxDirective,
        text: &str,
        lines: &mut Vec<Vec<u8>>,
    ) {
        self.remark(file, directive, text, lines);
        if let Some(remark) = self.remarks.last_mut() {
            remark.is_work = true;
        }
    }

    /// Adds a remark to a block of Lua that names something of `limit_req`: its text stays.
    fn look_at_lua(
        &mut self,
        file: &NginxFile,
        directive: &NginxDirective,
        changes: &mut TextChanges<'_>,
    ) {
        let is_string = directive.name().ends_with(b"_by_lua");
        let whole = is_string.then(|| (directive.start(), directive.end));
        let Some((start, end)) = directive.lua.or(whole) else { return };
        let text = file.text.get(start..end).unwrap_or_default();
        let name = b"limit_req_status";
        if text.windows(name.len()).any(|part| part == name) {
            let mut lines = Vec::new();
            let text = "this Lua reads $limit_req_status, which is $ratelimit_status now: change it by hand";
            self.remark_of_work(file, directive, text, &mut lines);
            changes.insert_lines(directive.start(), &lines);
        }
    }
}

fn comment(text: &str) -> Vec<u8> {
    format!("{MARK}{text}").into_bytes()
}

/// Returns a directive as it is written.
fn written(file: &NginxFile, directive: &NginxDirective) -> Vec<u8> {
    file.text.get(directive.start()..directive.end).unwrap_or_default().to_vec()
}

/// Returns a directive with another name.
fn renamed(directive: &NginxDirective, name: &str) -> Vec<u8> {
    let mut line = name.as_bytes().to_vec();
    for word in directive.parameters() {
        line.push(b' ');
        // nginx ignores the case of these values.
        line.extend(nginx_word(&word.to_ascii_lowercase()));
    }
    line.push(b';');
    line
}

/// Replaces `$limit_req_status` in a word as it is written; returns `None` if the word lacks it.
fn rename_variable(written: &[u8]) -> Option<Vec<u8>> {
    let name = b"limit_req_status";
    let mut result = Vec::new();
    let mut rest = written;
    let mut has_changed = false;
    loop {
        let (start, after) = match rest {
            [] => break,
            [b'$', b'{', after @ ..] => (&b"${"[..], after),
            [b'$', after @ ..] => (&b"$"[..], after),
            [byte, after @ ..] => {
                result.push(*byte);
                rest = after;
                continue;
            }
        };
        result.extend_from_slice(start);
        rest = after;
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        if let Some(after) = after.strip_prefix(name)
            && !after.first().is_some_and(is_word)
        {
            result.extend_from_slice(b"ratelimit_status");
            rest = after;
            has_changed = true;
        }
    }
    has_changed.then_some(result)
}
