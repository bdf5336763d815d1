//! Kong's declarative configuration: its plugins for rate limiting, written as rules in a sketch of its routes.
//!
//! - `yaml`: the document, with lines
//! - `entities`: services, routes, plugins, and which plugin applies to which route
//! - `limiter`: the settings of a plugin
//! - `redis`: its store
//! - `maps`, `sketch`, `output`: the configuration for nginx

mod entities;
mod limiter;
mod maps;
mod output;
mod redis;
mod sketch;
#[cfg(test)]
mod tests;
mod text;
mod yaml;

use std::path::Path;

use super::{Conversion, ConvertError, InputFiles, InputPlace, OutputFile, Remark};
use entities::KongEntities;
use output::KongOutput;
use yaml::{YamlError, read_document};

/// Converts a declarative configuration.
///
/// # Errors
///
/// If the file cannot be read, is no configuration of Kong's, or has none of the plugins.
pub fn convert(source: &dyn InputFiles, path: &Path) -> Result<Conversion, ConvertError> {
    let place = |line: usize| InputPlace { file: path.to_owned(), line };
    let fail = |error: YamlError| ConvertError { place: place(error.line), message: error.message };
    let text = source.read(path).map_err(|error| ConvertError {
        place: place(0),
        message: format!("cannot be read ({error})"),
    })?;
    let text = String::from_utf8(text).map_err(|error| {
        let start = error.as_bytes().get(..error.utf8_error().valid_up_to());
        let lines = start.unwrap_or_default().split(|byte| *byte == b'\n').count();
        ConvertError { place: place(lines), message: "not UTF-8".into() }
    })?;
    let document = read_document(&text).map_err(fail)?;
    let entities = KongEntities::read(&document).map_err(fail)?;
    let output = KongOutput::write(&entities).map_err(fail)?;
    let Some((text, remarks)) = output else {
        let message = "nothing to convert: no plugin rate-limiting, rate-limiting-advanced or response-ratelimiting";
        return Err(ConvertError { place: place(0), message: message.into() });
    };
    let remarks = remarks.into_iter().map(|(line, text, is_work)| {
        // One line, whatever the names in it have.
        let text = text.replace(char::is_control, "?");
        Remark { place: place(line), text, is_work }
    });
    let file = OutputFile { path: path.to_owned(), text: text.into_bytes(), is_changed: true };
    Ok(Conversion { files: vec![file], remarks: remarks.collect() })
}
