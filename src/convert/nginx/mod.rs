//! nginx.conf with `limit_req`: the same files, with rules in its place. Everything else stays byte for byte.
//!
//! - `lexer`, `lua`: words and blocks with their positions
//! - [`files`]: the files that include each other
//! - `limits`: the words of `limit_req_zone` and `limit_req`
//! - `rewrite`: what replaces each directive

mod files;
mod lexer;
mod limits;
mod lua;
mod rewrite;
#[cfg(test)]
mod tests;
mod zones;

pub use files::NginxInput;

use super::{Conversion, ConvertError, InputFiles, InputPlace, OutputFile};
use files::NginxFiles;
use rewrite::Rewriter;
use zones::ConvertedZones;

/// Converts a file, and the files that it includes.
///
/// # Errors
///
/// If a file cannot be read, nginx would refuse it, or there is nothing to convert.
pub fn convert(
    source: &dyn InputFiles,
    input: &NginxInput<'_>,
) -> Result<Conversion, ConvertError> {
    let all = NginxFiles::read(source, input)?;
    refuse_ours(&all)?;
    let zones = ConvertedZones::find(&all)?;
    let mut rewriter = Rewriter::new(&all, &zones, input);
    let texts =
        all.files.iter().map(|file| rewriter.rewrite(file)).collect::<Result<Vec<_>, _>>()?;
    if !rewriter.has_limits() {
        let place = InputPlace { file: input.main.to_owned(), line: 0 };
        let message = "nothing to convert: no limit_req and no limit_conn".to_owned();
        return Err(ConvertError { place, message });
    }
    let remarks = rewriter.into_remarks();
    let files = all.files.into_iter().zip(texts).map(|(file, text)| OutputFile {
        is_changed: file.text != text,
        path: file.path,
        text,
    });
    Ok(Conversion { files: files.collect(), remarks })
}

/// Refuses a configuration that has directives of this module.
fn refuse_ours(all: &NginxFiles) -> Result<(), ConvertError> {
    let is_ours = |name: &[u8]| name == b"ratelimit" || name.starts_with(b"ratelimit_");
    match all.in_http().find(|(_, directive)| is_ours(directive.name())) {
        None => Ok(()),
        Some((file, directive)) => Err(ConvertError {
            place: file.place(directive),
            message: format!(
                "\"{}\" is of this module: a file that has its directives is converted by hand",
                directive.name().escape_ascii()
            ),
        }),
    }
}
