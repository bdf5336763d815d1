//! The files of a configuration: the given one, and those that it includes, each read once.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::lexer::{NginxDirective, read_directives};
use crate::convert::{ConvertError, InputFiles, InputPlace};

/// The largest number of files.
const MAX_FILES: usize = 10_000;
/// The deepest nesting of `include`.
const MAX_INCLUDES: usize = 50;

/// A file of the configuration.
#[derive(Debug)]
pub(super) struct NginxFile {
    pub(super) path: PathBuf,
    pub(super) text: Vec<u8>,
    pub(super) directives: Vec<NginxDirective>,
    /// Whether `http` contains the file, but none of its servers does.
    pub(super) is_at_http: bool,
    /// Whether the file is in `http`, or might be: not if it is only in `stream`, `map` and the like.
    pub(super) is_in_http: bool,
}

impl NginxFile {
    /// Returns the context of a directive: the kinds of the blocks around it, within this file.
    pub(super) fn context(&self, directive: &NginxDirective) -> NginxContext {
        let mut context = NginxContext { is_at_http: self.is_at_http, is_in_http: self.is_in_http };
        let mut blocks = Vec::new();
        let mut parent = directive.parent;
        while let Some(block) = parent.and_then(|index| self.directives.get(index)) {
            blocks.push(block.name());
            parent = block.parent;
        }
        for block in blocks.iter().rev() {
            context = context.within(block);
        }
        context
    }

    /// Returns the place of a directive.
    pub(super) fn place(&self, directive: &NginxDirective) -> InputPlace {
        InputPlace { file: self.path.clone(), line: directive.line }
    }
}

/// The place of a directive among the blocks of nginx.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NginxContext {
    /// Whether it is in `http` itself.
    pub(super) is_at_http: bool,
    /// Whether it is in `http`, or in a server or location there.
    pub(super) is_in_http: bool,
}

impl NginxContext {
    fn within(self, block: &[u8]) -> NginxContext {
        let is_http = block == b"http";
        let is_level = matches!(block, b"server" | b"location" | b"if" | b"limit_except");
        NginxContext { is_at_http: is_http, is_in_http: is_http || self.is_in_http && is_level }
    }
}

/// The file to convert, and where its includes are.
#[derive(Debug)]
pub struct NginxInput<'i> {
    /// The file to convert.
    pub main: &'i Path,
    /// The directory at which relative names of included files start.
    pub directory: &'i Path,
    /// Whether included files that do not exist are taken as empty.
    pub may_miss_includes: bool,
    /// Whether the files are written to another directory: then they include each other by relative names.
    pub is_moved: bool,
}

/// All files of a configuration.
#[derive(Debug)]
pub(super) struct NginxFiles {
    /// The files, the given one first.
    pub(super) files: Vec<NginxFile>,
    /// The places of `include` whose files are missing.
    pub(super) missing: Vec<(InputPlace, String)>,
}

impl NginxFiles {
    /// Reads the main file and all that it includes.
    pub(super) fn read(
        source: &dyn InputFiles,
        input: &NginxInput<'_>,
    ) -> Result<NginxFiles, ConvertError> {
        let mut reader = FileReader {
            source,
            input,
            found: NginxFiles { files: Vec::new(), missing: Vec::new() },
            known: HashMap::new(),
            visited: HashSet::new(),
            path: Vec::new(),
        };
        let main = InputPlace { file: input.main.to_owned(), line: 0 };
        let index = reader.load(input.main, &main)?.unwrap_or_default();
        reader.visit(index, NginxContext { is_at_http: false, is_in_http: false })?;
        let is_whole =
            reader.found.files.iter().flat_map(|file| &file.directives).any(|directive| {
                directive.parent.is_none() && matches!(directive.name(), b"http" | b"events")
            });
        // A file without these blocks is one that nginx includes in `http`, or in a server there.
        if !is_whole {
            reader.found.missing.clear();
            reader.visit(index, NginxContext { is_at_http: true, is_in_http: true })?;
        }
        Ok(reader.found)
    }

    /// Returns each directive that is in `http`, with its file.
    pub(super) fn in_http(&self) -> impl Iterator<Item = (&NginxFile, &NginxDirective)> {
        self.files.iter().flat_map(|file| {
            let directives = file.directives.iter().map(move |directive| (file, directive));
            directives.filter(|(file, directive)| file.context(directive).is_in_http)
        })
    }
}

struct FileReader<'r> {
    source: &'r dyn InputFiles,
    input: &'r NginxInput<'r>,
    found: NginxFiles,
    known: HashMap<PathBuf, usize>,
    visited: HashSet<(usize, NginxContext)>,
    /// The files between the main one and the present one, to find loops.
    path: Vec<usize>,
}

impl FileReader<'_> {
    fn file(&self, index: usize) -> Option<&NginxFile> {
        self.found.files.get(index)
    }

    /// Reads a file unless it is known; `place` has its `include`. Returns `None` if it may be, and is, missing.
    fn load(&mut self, path: &Path, place: &InputPlace) -> Result<Option<usize>, ConvertError> {
        if let Some(index) = self.known.get(path) {
            return Ok(Some(*index));
        }
        if self.found.files.len() >= MAX_FILES {
            let message = format!("more than {MAX_FILES} files are included");
            return Err(ConvertError { place: place.clone(), message });
        }
        let is_main = place.line == 0;
        let text = match self.source.read(path) {
            Ok(text) => text,
            Err(error)
                if !is_main
                    && self.input.may_miss_includes
                    && error.kind() == io::ErrorKind::NotFound =>
            {
                self.found.missing.push((place.clone(), path.display().to_string()));
                return Ok(None);
            }
            Err(error) => {
                let message = match is_main {
                    true => format!("cannot be read ({error})"),
                    false => format!("include: \"{}\" cannot be read ({error})", path.display()),
                };
                return Err(ConvertError { place: place.clone(), message });
            }
        };
        let directives = read_directives(&text).map_err(|error| ConvertError {
            place: InputPlace { file: path.to_owned(), line: error.line },
            message: error.message,
        })?;
        let index = self.found.files.len();
        self.known.insert(path.to_owned(), index);
        self.found.files.push(NginxFile {
            path: path.to_owned(),
            text,
            directives,
            is_at_http: false,
            is_in_http: false,
        });
        Ok(Some(index))
    }

    /// Follows the includes of a file in a context, once for each context.
    fn visit(&mut self, index: usize, context: NginxContext) -> Result<(), ConvertError> {
        if !self.visited.insert((index, context)) {
            return Ok(());
        }
        if let Some(file) = self.found.files.get_mut(index) {
            file.is_at_http |= context.is_at_http;
            file.is_in_http |= context.is_in_http;
        }
        let includes = self.file(index).map_or_else(Vec::new, |file| {
            let includes =
                file.directives.iter().filter(|directive| directive.name() == b"include");
            let with_context = includes.map(|include| {
                let pattern = include.parameters().next().unwrap_or_default().to_vec();
                (file.place(include), pattern, file.context(include))
            });
            with_context.collect()
        });
        self.path.push(index);
        for (place, pattern, context) in includes {
            for path in self.included(&place, &pattern)? {
                let Some(included) = self.load(&path, &place)? else { continue };
                if self.path.contains(&included) {
                    let message = format!("include: \"{}\" includes itself", path.display());
                    return Err(ConvertError { place, message });
                }
                if self.path.len() >= MAX_INCLUDES {
                    let message = format!("more than {MAX_INCLUDES} files include each other");
                    return Err(ConvertError { place, message });
                }
                self.visit(included, context)?;
            }
        }
        self.path.pop();
        Ok(())
    }

    /// Returns the files that an `include` names.
    fn included(&self, place: &InputPlace, pattern: &[u8]) -> Result<Vec<PathBuf>, ConvertError> {
        let path = self.input.directory.join(OsStr::from_bytes(pattern));
        if pattern.iter().any(|byte| b"*?[".contains(byte)) {
            return self.source.expand(&path).map_err(|error| ConvertError {
                place: place.clone(),
                message: format!("include: \"{}\" cannot be read ({error})", path.display()),
            });
        }
        Ok(vec![path])
    }
}
