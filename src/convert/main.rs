//! `ratelimit-convert`: reads the configuration of another limiter, and prints it for this module.
//!
//! The output is complete: it is written after everything was converted, to a file by renaming.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::{self, fs::MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ngx_http_rate_limiting_module::convert::nginx::NginxInput;
use ngx_http_rate_limiting_module::convert::{
    Conversion, InputFiles, OutputFile, kong, nginx, without_parents,
};

const USAGE: &str = "\
Usage: ratelimit-convert [OPTION ...] FILE

Prints FILE with rules of ngx_http_rate_limiting_module in place of another limiter's. Of an nginx.conf with limit_req,
everything else stays. Of Kong's declarative configuration (.yaml, .yml, .json), the plugins rate-limiting,
rate-limiting-advanced and response-ratelimiting are converted, in a sketch of its routes.
Comments that begin with \"# ratelimit-convert:\" say what differs; so does the error output.

  -o FILE       write to this file instead of the output, as a whole or not at all
  -d DIRECTORY  write all files of an nginx.conf to this directory, which must not exist
  -p DIRECTORY  where relative names of include begin (default: the directory of FILE)
  -m            take included files that are missing as empty
  -f FORMAT     nginx or kong (default: by the name of FILE)
  -h            this text

If files that FILE includes change too, the output has each changed file after a line
\"# configuration file NAME:\", as nginx -T prints them; -d writes them as files.

Exit status: 0 converted; 1 not converted, and nothing was written; 2 wrong usage; 3 converted, but a remark asks for
work by hand.
";

/// The largest file that is read.
const MAX_FILE: u64 = 16 << 20;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args_os().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            return match write_output(USAGE.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(&format!("cannot write the output ({error})")),
            };
        }
        Err(message) => {
            say(&format!("{message}\n\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    let conversion = match convert(&options) {
        Ok(conversion) => conversion,
        Err(message) => return failed(&message),
    };
    if let Err(message) = write(&options, &conversion) {
        return failed(&message);
    }
    for remark in &conversion.remarks {
        let kind = if remark.is_work { "work by hand: " } else { "" };
        eprint_line(&format!("{}: {kind}{}", remark.place, remark.text));
    }
    match conversion.remarks.iter().any(|remark| remark.is_work) {
        true => ExitCode::from(3),
        false => ExitCode::SUCCESS,
    }
}

fn failed(message: &str) -> ExitCode {
    say(message);
    ExitCode::FAILURE
}

fn say(message: &str) {
    eprint_line(&format!("ratelimit-convert: {message}"));
}

/// Writes a line to the error output. Nothing is left to do if that fails.
fn eprint_line(line: &str) {
    let printable = |char: char| if char.is_control() && char != '\n' { '?' } else { char };
    let line: String = line.chars().map(printable).collect();
    let _ = writeln!(io::stderr(), "{line}");
}

fn write_output(text: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text)?;
    output.flush()
}

/// The command line.
struct Options {
    input: PathBuf,
    output: Option<PathBuf>,
    output_directory: Option<PathBuf>,
    /// The directory at which relative names of included files begin.
    directory: PathBuf,
    may_miss_includes: bool,
    is_kong: bool,
}

impl Options {
    /// Parses the arguments; returns `None` for `-h`.
    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Option<Options>, String> {
        let (mut output, mut output_directory, mut include_directory) = (None, None, None);
        let (mut may_miss_includes, mut format, mut inputs) = (false, None, Vec::new());
        while let Some(argument) = arguments.next() {
            let place = match argument.to_str() {
                Some("-h" | "--help") => return Ok(None),
                Some("-m") => {
                    may_miss_includes = true;
                    continue;
                }
                Some("-o") => &mut output,
                Some("-d") => &mut output_directory,
                Some("-p") => &mut include_directory,
                Some("-f") => &mut format,
                Some(option) if option.len() > 1 && option.starts_with('-') => {
                    return Err(format!("unknown option {option}"));
                }
                _ => {
                    inputs.push(PathBuf::from(argument));
                    continue;
                }
            };
            let Some(value) = arguments.next() else {
                return Err(format!("{} needs a value", argument.display()));
            };
            if place.replace(PathBuf::from(value)).is_some() {
                return Err(format!("{} is duplicate", argument.display()));
            }
        }
        let input = match <[PathBuf; 1]>::try_from(inputs) {
            Ok([input]) => input,
            Err(_) => return Err("one FILE is expected".into()),
        };
        if output.is_some() && output_directory.is_some() {
            return Err("-o and -d exclude each other".into());
        }
        let is_yaml = input.extension().is_some_and(|end| {
            ["yaml", "yml", "json"].iter().any(|yaml| end.eq_ignore_ascii_case(yaml))
        });
        let is_kong = match format.as_deref().map(Path::to_str) {
            None => is_yaml,
            Some(Some("nginx")) => false,
            Some(Some("kong")) => true,
            Some(_) => return Err("-f needs nginx or kong".into()),
        };
        let is_for_nginx =
            output_directory.is_some() || include_directory.is_some() || may_miss_includes;
        if is_kong && is_for_nginx {
            return Err("-d, -p and -m are for nginx.conf".into());
        }
        // Without a name, the parent is the current directory.
        let parent = input.parent().unwrap_or(Path::new("")).to_owned();
        let (mut input, mut directory) = (input, include_directory.unwrap_or(parent));
        if output_directory.is_some() {
            // Files include each other by absolute names, too, which are compared with these.
            let located = located(&input).and_then(|input| Ok((input, located(&directory)?)));
            (input, directory) =
                located.map_err(|error| format!("the current directory is not known ({error})"))?;
        }
        Ok(Some(Options { input, output, output_directory, directory, may_miss_includes, is_kong }))
    }
}

/// Returns the absolute path, without `..` unless that leads elsewhere, behind a link.
fn located(path: &Path) -> io::Result<PathBuf> {
    let path = std::env::current_dir()?.join(path);
    let plain = without_parents(&path);
    let is_same = fs::canonicalize(&plain).ok() == fs::canonicalize(&path).ok();
    Ok(if is_same { plain } else { path })
}

fn convert(options: &Options) -> Result<Conversion, String> {
    if options.is_kong {
        return kong::convert(&FileSystem, &options.input).map_err(|error| error.to_string());
    }
    let input = NginxInput {
        main: &options.input,
        directory: &options.directory,
        may_miss_includes: options.may_miss_includes,
        is_moved: options.output_directory.is_some(),
    };
    nginx::convert(&FileSystem, &input).map_err(|error| error.to_string())
}

/// The files of this machine.
struct FileSystem;

impl InputFiles for FileSystem {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // Another kind of file may have no end, or keep its reader waiting.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut text = Vec::new();
        File::open(path)?.take(MAX_FILE.saturating_add(1)).read_to_end(&mut text)?;
        match u64::try_from(text.len()) {
            Ok(length) if length <= MAX_FILE => Ok(text),
            _ => Err(io::Error::other("larger than 16 MB")),
        }
    }

    fn expand(&self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        let text =
            pattern.to_str().ok_or_else(|| io::Error::other("a pattern that is not UTF-8"))?;
        let options = glob::MatchOptions {
            require_literal_separator: true,
            require_literal_leading_dot: true,
            ..glob::MatchOptions::new()
        };
        let found = glob::glob_with(text, options).map_err(io::Error::other)?;
        found.map(|path| path.map_err(io::Error::from)).collect()
    }
}

fn write(options: &Options, conversion: &Conversion) -> Result<(), String> {
    if let Some(directory) = &options.output_directory {
        return write_directory(directory, &options.directory, &conversion.files)
            .map_err(|error| format!("{}: cannot be written ({error})", directory.display()));
    }
    let changed: Vec<_> = conversion.files.iter().filter(|file| file.is_changed).collect();
    let main = conversion.files.first();
    let is_only_main = changed.iter().all(|file| Some(*file) == main);
    let text = match main {
        Some(main) if is_only_main => main.text.clone(),
        _ if options.output.is_some() => {
            let others = changed.iter().filter(|file| Some(**file) != main);
            let names: Vec<_> = others.map(|file| file.path.display().to_string()).collect();
            return Err(format!(
                "{} change too: -d writes all files to a directory",
                names.join(", ")
            ));
        }
        _ => {
            let mut text = Vec::new();
            for file in changed {
                text.extend_from_slice(
                    format!("# configuration file {}:\n", file.path.display()).as_bytes(),
                );
                text.extend_from_slice(&file.text);
                text.push(b'\n');
            }
            text
        }
    };
    match &options.output {
        None => write_output(&text).map_err(|error| format!("cannot write the output ({error})")),
        Some(path) => replace_file(path, &text)
            .map_err(|error| format!("{}: cannot be written ({error})", path.display())),
    }
}

/// Returns the path of a new file or directory beside another one.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::other("not a name"));
    };
    let mut new = OsString::from(".");
    new.push(name);
    new.push(format!(".{}", std::process::id()));
    Ok(path.with_file_name(new))
}

/// Writes a file as a whole, or leaves it as it was. It keeps its mode and, where that is allowed, its owner; a link to
/// it stays. Anything but a file, such as a pipe, is written to.
fn replace_file(path: &Path, text: &[u8]) -> io::Result<()> {
    let (path, known) = match fs::canonicalize(path) {
        Ok(path) => (path.clone(), Some(fs::metadata(path)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (path.to_owned(), None),
        Err(error) => return Err(error),
    };
    if known.as_ref().is_some_and(|known| !known.is_file()) {
        return File::options().write(true).open(path)?.write_all(text);
    }
    let new = beside(&path)?;
    let written = write_new(&new, text)
        .and_then(|()| known.map_or(Ok(()), |known| keep_owner_and_mode(&new, &known)))
        .and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn keep_owner_and_mode(path: &Path, known: &fs::Metadata) -> io::Result<()> {
    let _ = unix::fs::chown(path, Some(known.uid()), Some(known.gid()));
    fs::set_permissions(path, known.permissions())
}

fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text)?;
    file.sync_all()
}

/// Writes all files to a directory that does not exist yet: relative to `base`, or with their whole path.
fn write_directory(directory: &Path, base: &Path, files: &[OutputFile]) -> io::Result<()> {
    if fs::symlink_metadata(directory).is_ok() {
        return Err(io::Error::from(io::ErrorKind::AlreadyExists));
    }
    let new = beside(directory)?;
    let written = write_all(&new, base, files).and_then(|()| fs::rename(&new, directory));
    if written.is_err() {
        let _ = fs::remove_dir_all(&new);
    }
    written
}

fn write_all(directory: &Path, base: &Path, files: &[OutputFile]) -> io::Result<()> {
    fs::create_dir(directory)?;
    for file in files {
        let path = without_parents(&file.path);
        let relative = path.strip_prefix(base).unwrap_or(&path);
        // No name leads out of the directory.
        let inside: PathBuf = relative
            .components()
            .filter(|part| matches!(part, std::path::Component::Normal(_)))
            .collect();
        let path = directory.join(inside);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        write_new(&path, &file.text)?;
    }
    Ok(())
}
